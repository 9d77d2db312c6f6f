//go:build unix

package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Link is a way to a server through a proxy, with the faults that are on it: Cut, CutReplies,
// Refuse, Delay, Heal.
type Link = faultlink.Link

// Route is one way to a server, with the faults of its Link. Its address stays for the life of the
// server, whatever is killed and restarted.
type Route struct{ *servertest.Route }

// NewRoute opens another way to the server, to break for some clients and not for others.
func (s *Server) NewRoute() (*Route, error) {
	r, err := s.g.Route(s.dial)
	return &Route{r}, err
}

// Client is a client through the route, closed with the test. Each change is applied to its
// options.
func (r *Route) Client(tb testing.TB, change ...func(*redis.UniversalOptions)) redis.UniversalClient {
	tb.Helper()
	return client(tb, redis.UniversalOptions{Addrs: []string{r.Addr()}}, change)
}

func client(tb testing.TB, o redis.UniversalOptions, change []func(*redis.UniversalOptions)) redis.UniversalClient {
	o.DisableIdentity = true
	for _, f := range change {
		f(&o)
	}
	c := redis.NewUniversalClient(&o)
	tb.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

func addrs(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}
