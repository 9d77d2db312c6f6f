package lease_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// A session of which the store tells nothing, as when it does not know the handle any
// more, does not hide what stands for nobody under the others; and it is not asked
// about for ever.
func TestASessionThatCantBeListedHidesNoOther(t *testing.T) {
	for name, fault := range map[string]error{
		"a word of the store": lease.ErrInvalid,
		"a failure":           errors.New("broken"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				db := &unlisted{Store: s}
				a := start(t, db, "a")
				h := a.hold("own", lease.WithOwnSession())
				rec, _ := standing(t, s, "own")
				a.hold("other")
				other, _ := standing(t, s, "other")
				db.id, db.err = rec.Session, fault
				a.store.SetRule(func(c faultstore.Call) faultstore.Fault { // it ends, and is not seen to end
					if c.Op == faultstore.Renew && c.Session == rec.Session || c.Op == faultstore.CloseSession {
						return faultstore.Fault{Kind: faultstore.Drop}
					}
					return faultstore.Fault{}
				})
				time.Sleep(2 * ttl)
				require.False(t, h.CheckAlive())
				require.NoError(t, h.Close(t.Context()))
				land := func(name string) {
					of := store.Session{ID: other.Session, Owner: other.Owner, TTL: other.TTL}
					outs, err := s.Acquire(t.Context(), of, []store.Claim{{Name: name, Nonce: 1}})
					require.NoError(t, err)
					require.True(t, outs[0].OK)
				}
				if errors.Is(fault, lease.ErrInvalid) {
					land("late")
					time.Sleep(4 * ttl)
					requireFree(t, s, "late")
				}
				time.Sleep(70 * ttl)
				land("later")
				time.Sleep(4 * ttl)
				requireFree(t, s, "later")
				asked := db.asked
				time.Sleep(10 * ttl)
				require.Equal(t, asked, db.asked, "it is not asked about any more")
			})
		})
	}
}

// unlisted answers the listing of one session with an error.
type unlisted struct {
	*memory.Store
	id    store.SessionID
	err   error
	asked int
}

func (s *unlisted) List(ctx context.Context, q store.Query) iter.Seq2[lease.Record, error] {
	if q.Session != s.id || s.err == nil {
		return s.Store.List(ctx, q)
	}
	s.asked++
	return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, s.err) }
}

// A listing that was broken off is none, also if the store does not say so.
func TestAListingThatWasBrokenOffIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		logged, logs := observed(zapcore.WarnLevel)
		a := start(t, &silent{s}, "a", logged)
		a.hold("mine")
		time.Sleep(10 * ttl)
		require.Equal(t, 1, logs.FilterMessageSnippet("listing for reconciliation fails").Len())
	})
}

// silent lists sessions until it is told to end, and says nothing then.
type silent struct{ *memory.Store }

func (s *silent) List(ctx context.Context, _ store.Query) iter.Seq2[lease.Record, error] {
	return func(func(lease.Record, error) bool) { <-ctx.Done() }
}
