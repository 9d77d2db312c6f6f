//go:build unix

package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// PrimaryName is what sentinels call the primary.
const PrimaryName = "holdfast"

// Sentinels are a primary, its replica, and three sentinels, of which two must agree to replace the
// primary. They do when it has not answered for a second.
type Sentinels struct {
	Servers   []*Server // two: first the one that begins as the primary
	sentinels []*Server
}

// StartSentinels is Start for a primary and its replica, which both have these options, under three
// sentinels. It returns once these know each other and both servers.
func StartSentinels(tb testing.TB, opts ...Option) *Sentinels {
	tb.Helper()
	d := &Sentinels{Servers: []*Server{Start(tb, opts...)}}
	if err := d.begin(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return d
}

func (d *Sentinels) begin(ctx context.Context) error {
	primary := d.Servers[0]
	replica, err := primary.NewReplica(ctx)
	if err != nil {
		return err
	}
	d.Servers = append(d.Servers, replica)
	for range 3 {
		s, err := add(primary.g, Options{})
		if err != nil {
			return err
		}
		s.args = []string{"--sentinel"}
		if err := s.begin(ctx,
			"sentinel announce-ip "+host,
			"sentinel announce-port "+s.port(),
			"sentinel monitor "+PrimaryName+" "+host+" "+primary.port()+" 2",
			"sentinel down-after-milliseconds "+PrimaryName+" 1000",
			"sentinel failover-timeout "+PrimaryName+" 2000",
		); err != nil {
			return err
		}
		d.sentinels = append(d.sentinels, s)
		// They meet soon. One that was held up for 2 s, by its disk or the machine, replaces no
		// primary for a while, of 30 s otherwise: after that no replica would be good enough.
		if _, err := s.Do(ctx, "SENTINEL", "DEBUG", "publish-period", 100, "tilt-period", 1000); err != nil {
			return err
		}
	}
	for _, s := range d.sentinels {
		if err := s.await(ctx, s.knowsAll); err != nil {
			return err
		}
	}
	return nil
}

// knowsAll is nil once a sentinel knows the others and the replica.
func (s *Server) knowsAll(ctx context.Context) error {
	pairs, err := s.do(ctx, "SENTINEL", "MASTER", PrimaryName).StringSlice()
	if err != nil {
		return err
	}
	is := strings.Join(pairs, " ")
	for _, want := range []string{" flags master ", " num-slaves 1 ", " num-other-sentinels 2 "} {
		if !strings.Contains(is, want) {
			return fmt.Errorf("a sentinel does not know all: %s", is)
		}
	}
	return nil
}

// Primary returns the primary that all sentinels name and that says it is one; it waits until there
// is one that is none of those in not.
func (d *Sentinels) Primary(ctx context.Context, not ...*Server) (primary *Server, err error) {
	err = d.sentinels[0].await(ctx, func(ctx context.Context) error {
		votes := map[string]int{}
		for _, s := range d.sentinels {
			addr, err := s.do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", PrimaryName).StringSlice()
			if err != nil {
				return err
			}
			votes[strings.Join(addr, ":")]++
		}
		i := slices.IndexFunc(d.Servers, func(s *Server) bool { return votes[s.Addr()] == len(d.sentinels) && !slices.Contains(not, s) })
		if i < 0 {
			return fmt.Errorf("the sentinels name %v", votes)
		}
		primary = d.Servers[i]
		role, err := primary.do(ctx, "ROLE").Slice()
		if err == nil && role[0] != "master" {
			err = fmt.Errorf("%s is %v", primary.proc.Name, role[0])
		}
		return err
	})
	return primary, err
}

// Client is a client that finds the primary through the sentinels, closed with the test. Each
// change is applied to its options.
func (d *Sentinels) Client(tb testing.TB, change ...func(*redis.UniversalOptions)) redis.UniversalClient {
	tb.Helper()
	return client(tb, redis.UniversalOptions{Addrs: addrs(d.sentinels), MasterName: PrimaryName}, change)
}
