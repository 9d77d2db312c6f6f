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
		{Name: "compare", About: "leases beside etcd's package concurrency; with -store postgres, advisory locks and a leader table; with -store redis, keys with a TTL; with -store kubernetes, client-go's elector", Do: compare},
		{Name: "requests", About: "what one process asks of each store's server for as long as it holds 1, 1000 and 100 000 names", Do: allRequests},
		{Name: "outage", About: "the store's server is killed for minutes under holders, and comes back with its data", Do: outage},
		{Name: "serverless", About: "very many processes, each for a moment, have keys by their owners' names; many are killed", Do: serverless},
		{Name: "guard", About: "programs under holdfast run, which is killed, stopped and cut off, by a journal of the programs' own; beside etcdctl lock and flock", Do: guardScenario},
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
	for env, do := range map[string]func(string){childEnv: function, holderEnv: holder} {
		text, is := os.LookupEnv(env)
		if !is {
			continue
		}
		if err := scene.Try(func() { do(text) }); err != nil {
			fmt.Fprintf(os.Stderr, "lab, by %s: %v\n", env, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
}
