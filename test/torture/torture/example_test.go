package torture_test

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/test/torture/torture"
)

// database is what a module knows of its own: a kit of servers, the guard, and a table that the
// guarded writes go to.
type database struct{ address string }

func (*database) String() string        { return "a database with one server" }
func (d *database) Addresses() []string { return []string{d.address} }
func (*database) URL(addresses []string) string {
	return "memory:" + strings.NewReplacer(":", "-").Replace(addresses[0])
}
func (d *database) Troubles() []torture.Trouble {
	kill := func(context.Context, uint64) (string, func(context.Context) error, error) {
		return d.address, d.restart, d.kill()
	}
	return []torture.Trouble{{Name: "kill -9 of the database", Weight: 2, Least: 0.2, Most: 2, Do: kill}}
}
func (d *database) kill() error                   { return nil }
func (d *database) restart(context.Context) error { return nil }
func (*database) History(context.Context) (h torture.History, err error) {
	// SELECT position, name, text FROM journal
	return h, err
}
func (*database) Close() error { return nil }

// guarded writes in a transaction that the store's guard stands in.
func guarded(context.Context, lease.Ownership, int, string) (bool, error) { return true, nil }

// The whole program of a module, run with `go run -C test/stores ./torture -store database`. Its
// imports make the store's URL known to package open.
func Example() {
	torture.Main(torture.Store{
		Name:  "database",
		Start: func(context.Context) (torture.Servers, error) { return &database{address: "127.0.0.1:5432"}, nil },
		Open: func(ctx context.Context, url string) (c torture.Client, err error) {
			c.Leases, _, err = open.Open(ctx, url)
			c.Write = guarded
			return c, err
		},
	})
}
