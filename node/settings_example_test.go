package node_test

import (
	"context"
	"fmt"
	"log"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/node"
)

// A node with settings from a file: names find theirs by themselves.
func ExampleLoadSettings() {
	ctx := context.Background()
	settings, err := node.LoadSettings("testdata/holdfast.yaml")
	if err != nil {
		log.Fatal(err)
	}
	n, err := node.Start(ctx, node.Config{ID: "a", Store: memory.New(), Settings: settings, Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	rates, err := n.Lease("cache/rates") // 10 minutes, not renewed
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rates.Acquire(ctx))
	record, _, err := rates.Holder(ctx)
	fmt.Println(record.TTL, rates.Renewal(), err)
	for _, unused := range n.UnusedSettings() { // Run and Stop warn of them
		fmt.Println(unused)
	}
	fmt.Println("stopped:", rates.Release(ctx), n.Stop(ctx))

	_, err = node.ParseSettings("typo.yaml", []byte("singletons:\n  cron:\n    lease_tll: 30s\n"))
	fmt.Println(err)
	// Output:
	// true <nil>
	// 10m0s never <nil>
	// group (line 4)
	// singletons "cron" (line 8)
	// sharded "account" (line 13)
	// leases "session/" (line 21)
	// stopped: <nil> <nil>
	// typo.yaml:3: invalid: field lease_tll is unknown in the file's entry
}
