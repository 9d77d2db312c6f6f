// Command torture breaks a cluster of real processes from outside, on an etcd of three
// members, and judges from what they noted whether anything ever ran twice:
//
//	go run ./test/torture [-for 5m] [-seed N] [-nodes 4] [-ttl 2s] [-rate 25]
//	                      [-storm 12s] [-faults 16] [-proxies] [-v]
//
// What it does, and what it judges by, stands in package torture beside it, which does the
// same over any other store. Troubles of etcd are the death of its leader or of all of it,
// a member that stops, and a leader that is isolated. etcd is built on first use (package
// etcdtest).
package main

import "github.com/holdfast-go/holdfast/test/torture/torture"

func main() { torture.Main(overEtcd) }
