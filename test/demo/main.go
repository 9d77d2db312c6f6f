// Command demo shows what a singleton and sharded entities do while their nodes are
// killed, stopped and replaced, and judges them from outside.
//
//	go run ./test/demo singleton    # a scheduler, on three processes: SIGKILL, SIGSTOP
//	go run ./test/demo sharding     # bank accounts, on four: one joins, one leaves, SIGKILL
//
// Each starts an etcd and processes of its own; with -etcd none all is in this process,
// with a store in memory, and no etcd is needed. -h shows the flags. The exit status is 0
// if the verdict is good, 1 if it is not or there is none, and 2 if the flags make no
// sense. The packages scheduler and bank say what happens, and what is judged.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/test/demo/bank"
	"github.com/holdfast-go/holdfast/test/demo/scheduler"
)

func main() {
	which, args := "", []string(nil)
	if len(os.Args) > 1 {
		which, args = os.Args[1], os.Args[2:]
	}
	run := scheduler.Main
	switch which {
	case "singleton":
	case "sharding":
		run = bank.Main
	default:
		fmt.Fprintln(os.Stderr, "usage: demo singleton|sharding [flags]")
		os.Exit(2)
	}
	os.Exit(run(context.Background(), args, os.Stdin, os.Stdout, os.Stderr))
}
