//go:build unix

package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/store"
)

// gate holds a connection that is made for a call with a context of through, until it is opened.
type gate struct{ reached, open chan struct{} }

type gateKey struct{}

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func (g *gate) through(ctx context.Context) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}

func pass(ctx context.Context) {
	if g, ok := ctx.Value(gateKey{}).(*gate); ok {
		close(g.reached)
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
}

// TestAnsweredByTheOldPrimaryMeanwhile: a call that waits for a connection is answered by the old
// primary, once another call has used the new one. Whatever it was told is not passed on, and nothing
// definite is said: it may have been applied there.
func TestAnsweredByTheOldPrimaryMeanwhile(t *testing.T) {
	t.Parallel()
	old, present := twoPrimaries(t)
	for what, call := range map[string]func(ctx context.Context, s *postgres.Store, sess store.Session, r store.Record) error{
		"renew": func(ctx context.Context, s *postgres.Store, sess store.Session, _ store.Record) error {
			_, err := s.Renew(ctx, []store.Session{sess})
			return err
		},
		"acquire": func(ctx context.Context, s *postgres.Store, sess store.Session, _ store.Record) error {
			_, err := s.Acquire(ctx, sess, []store.Claim{claim("meanwhile")})
			return err
		},
		"release": func(ctx context.Context, s *postgres.Store, _ store.Session, r store.Record) error {
			_, err := s.Release(ctx, []store.Held{r.Held()})
			return err
		},
		"list of a session that is over there": func(ctx context.Context, s *postgres.Store, _ store.Session, _ store.Record) error {
			var last error
			for _, last = range s.List(ctx, store.Query{Session: store.SessionID(ids.Add(1))}) {
			}
			return last
		},
	} {
		t.Run(what, func(t *testing.T) {
			var to atomic.Pointer[postgrestest.Server]
			to.Store(old)
			asked := &requests{n: map[string]int{}}
			p := steeredBy(t, old, func(ctx context.Context) *postgrestest.Server {
				at := to.Load()
				pass(ctx)
				return at
			}, asked.count)
			s := silent(t, p)
			sess := session(t, s, "a")
			r := win(t, s, sess, "job/"+what)
			// The bell takes a connection, soon after a call.
			eventually(t, "no connection in use", func() bool { return asked.of("ring") > 0 && p.Stat().AcquiredConns() == 0 })
			p.Reset() // the next call makes a connection

			g := newGate()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			answer := make(chan error, 1)
			go func() { answer <- call(g.through(ctx), s, sess, r) }()
			select {
			case <-g.reached:
			case err := <-answer:
				t.Fatalf("it made no connection: %v", err)
			}
			to.Store(present)
			must(s.Get(t.Context(), "any"))(t)
			close(g.open)
			err := <-answer
			require.ErrorContains(t, err, "the answer is of timeline 1, and meanwhile this store has used timeline 2")
			require.NotErrorIs(t, err, store.ErrDenied)
			require.NotErrorIs(t, err, store.ErrSessionGone)
			p.Reset()
			works(t, s)
		})
	}
}
