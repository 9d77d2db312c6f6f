// Command soak measures holdfast on a real etcd, which it starts by itself on
// this machine, and holds the figures to their bounds:
//
//		go run ./test/soak names   [-n 100000] [-ttl 10s] [-ttls 3] [-claims 2048]
//		go run ./test/soak compare [-rounds 300] [-crashes 20]
//		go run ./test/soak stops   [-rounds 100] [-holders 10] [-ttl 2s]
//		go run ./test/soak outage  [-for 2m] [-names 200] [-nodes 2] [-ttl 10s]
//
//	  - names: one process holds very many names for several TTLs. What it sends,
//	    by the server's own count, and what it needs; then it dies, and another
//	    process's worth of waiters takes all of them over.
//	  - compare: acquisition, hand-over and fail-over beside the etcd client's own
//	    package concurrency and beside the bare requests, in turns on one server.
//	  - stops: holders in processes of their own are stopped (SIGSTOP) for three
//	    TTLs while another takes their name, and go on.
//	  - outage: etcd is killed for minutes under running holders, and comes back
//	    with its data.
//
// Each prints the machine, its figures and its bounds, and exits 1 if a bound is
// broken, 2 if it could not measure. It needs Linux; etcd is built on first use
// (package etcdtest).
//
//	main.go ─▶ names.go, takeover.go, compare.go, handover.go, crash.go, stops.go, holder.go, outage.go
//	           bed.go: the server, its clients, Keepers    judge.go: percentiles, bounds
package main
