//go:build linux

package leases

import (
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// Scenarios returns them all.
func Scenarios() []scene.Scenario {
	all := []scene.Scenario{
		{Name: "names", About: "a process holds very many names, dies, and another takes them all", Do: names},
		{Name: "compare", About: "leases beside etcd's package concurrency; with -store postgres, advisory locks and a leader table; with -store redis, keys with a TTL", Do: compare},
		{Name: "outage", About: "the store's server is killed for minutes under holders, and comes back with its data", Do: outage},
		{Name: "serverless", About: "very many processes, each for a moment, have keys by their owners' names; many are killed", Do: serverless},
		{Name: "grains", About: "requests to another node's actor by its PID, as an entity and as a grain of protoactor's cluster", Do: grainsScenario},
		{Name: "bloat", About: "renewals in PostgreSQL: how the tables grow, with autovacuum, without, and beside an idle transaction", Do: bloat},
		{Name: "pg-idle", About: "calls for as long as another client's transaction is idle in PostgreSQL", Do: besideIdle},
	}
	for _, f := range faults() {
		all = append(all, f.scenario())
	}
	return all
}

// childEnv makes this program a process of serverless: its settings as JSON.
const childEnv = "HOLDFAST_LAB_LEASES"

// Child is the whole of a process that a scenario started; in any other it does nothing. A program
// that plays scenarios calls it first.
func Child() {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return
	}
	if err := scene.Try(func() { function(text) }); err != nil {
		fmt.Fprintln(os.Stderr, "lab function:", err)
		os.Exit(2)
	}
	os.Exit(0)
}
