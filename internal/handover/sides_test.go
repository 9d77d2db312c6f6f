package handover_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// side is a node with both sides of a hand-over, whose effects are noted.
type side struct {
	mu      sync.Mutex
	self    *wire.Node
	peer    *side
	m       handover.Machine
	giving  handover.Giving
	taking  handover.Accepting
	budget  handover.Budget
	offer   func(context.Context) (lease.Offer, error)
	link    chan proto.Message
	clock   ticking
	deaf    bool   // what comes is lost
	busy    bool   // what is posted waits
	unheld  bool   // the records here do not name the host
	holder  string // who holds the lease in the store
	waiting []func()
	got     []proto.Message
	effects []handover.Effect
	lost    int // states of which it was told that nobody gets them
}

// ticking is a clock that never tells the same time twice, as true ones do.
type ticking struct{ told atomic.Int64 }

func (c *ticking) Now() store.Reading {
	r := store.SystemClock().Now()
	r.Mono += time.Duration(c.told.Add(1))
	return r
}

func (c *ticking) AfterFunc(d time.Duration, f func()) store.Timer {
	return store.SystemClock().AfterFunc(d, f)
}

const lifetime = 4 * time.Second

// sides plays a hand-over from a host to a node that is to take over, on fake time.
func sides(t *testing.T, play func(t *testing.T, host, next *side)) {
	make := func(name string) *side {
		s := &side{self: &wire.Node{Address: name, Incarnation: name}, link: make(chan proto.Message, 100)}
		s.budget.Bound(1 << 20)
		s.offer = func(context.Context) (lease.Offer, error) { return lease.Offer{Name: "n", Lifetime: lifetime}, nil }
		return s
	}
	synctest.Test(t, func(t *testing.T) {
		host, next := make("host"), make("next")
		host.peer, next.peer = next, host
		host.m.Phase = handover.Active
		for _, s := range []*side{host, next} {
			go func() {
				for m := range s.link {
					s.peer.Post(func() { s.peer.receive(m) })
				}
			}()
			t.Cleanup(func() { close(s.link) })
		}
		play(t, host, next)
	})
}

func (s *side) Name() string                                       { return "n" }
func (s *side) Self() *wire.Node                                   { return s.self }
func (s *side) Clock() store.Clock                                 { return &s.clock }
func (s *side) Log() *zap.Logger                                   { return zap.NewNop() }
func (s *side) Life() context.Context                              { return context.Background() }
func (s *side) State() handover.Machine                            { return s.m }
func (s *side) Send(_ string, m proto.Message)                     { s.link <- m }
func (s *side) Held(*wire.Node) bool                               { return !s.unheld }
func (s *side) Aside(f func() func())                              { go func() { s.Post(f()) }() }
func (s *side) Offers() func(context.Context) (lease.Offer, error) { return s.offer }

func (s *side) Record() func(context.Context) (lease.Record, error) {
	return func(ctx context.Context) (lease.Record, error) {
		return lease.Record{Owner: lease.Owner{Address: s.holder}}, ctx.Err()
	}
}

// Post calls f, unless the loop is busy: then it waits there, in order.
func (s *side) Post(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		s.waiting = append(s.waiting, f)
		return
	}
	f()
}

// catchUp does what waits, so many things.
func (s *side) catchUp(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.waiting, n)
	s.busy = false
	for _, f := range s.waiting {
		f()
	}
}

func (s *side) Fire(e handover.Event) {
	var effects []handover.Effect
	s.m, effects = s.m.Next(e)
	for _, f := range effects {
		s.effects = append(s.effects, f)
		switch f {
		case handover.DoInvite:
			s.giving.Ask(s, 7, s.peer.self, func() { s.Fire(handover.Declined) })
		case handover.AskAgain:
			s.giving.AskAgain(s)
		case handover.DropInvite:
			s.giving.Off(s)
		case handover.DoTransfer:
			number := s.giving.Number
			s.giving.Transfer(s, traces.New(nil, "test"), "", 0, func(_ context.Context, offer lease.Offer) error {
				s.Send("", &wire.HandedOver{Name: "n", From: s.self, Number: number, Nonce: offer.Nonce})
				return nil
			}, func(error) {})
		case handover.DoOffer:
			s.taking.Make(s)
		case handover.SendOffer:
			s.taking.Send(s)
		case handover.SendDecline:
			s.taking.Decline(s)
		}
	}
}

func (s *side) receive(msg proto.Message) {
	if s.deaf {
		return
	}
	s.got = append(s.got, msg)
	switch m := msg.(type) {
	case *wire.Invite:
		s.taking.Invited(s, &s.budget, m, func(states *handover.States) { s.lost += len(states.Drop()) })
	case *wire.Offer:
		s.giving.Answered(s, m, func() { s.Fire(handover.Declined) })
	case *wire.HandedOver:
		s.taking.Word(s, m, func(n int) { s.lost += n })
	}
}

func (s *side) fire(e handover.Event) { s.Post(func() { s.Fire(e) }) }

func (s *side) in(t *testing.T, p handover.Phase) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, p.String(), s.m.Phase.String())
}

func (s *side) count(f handover.Effect) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.effects {
		if x == f {
			n++
		}
	}
	return n
}

// hang makes an offer that does not come about until its context ends.
func hang(ctx context.Context) (lease.Offer, error) { <-ctx.Done(); return lease.Offer{}, ctx.Err() }

var errStore = errors.New("the store is away")

func fail(context.Context) (lease.Offer, error) { return lease.Offer{}, errStore }

// A node whose store hangs says so, before it is taken for one that can't be reached.
func TestAnOfferThatCanNotBeMadeIsDeclinedInTime(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		next.offer = hang
		host.fire(handover.Move)
		next.in(t, handover.Offering)
		time.Sleep(handover.OfferWait - time.Millisecond)
		host.in(t, handover.Inviting)
		time.Sleep(2 * time.Millisecond)
		host.in(t, handover.Active)
		next.in(t, handover.Away)
		require.IsType(t, &wire.Offer{}, host.got[0])
		require.NotEmpty(t, host.got[0].(*wire.Offer).Declined)
	})
}

// The holder of the lease by the store's record may invite, though the records here do not name it
// yet; any other node is declined, and costs one request at a time.
func TestWhoHoldsTheLeaseInvites(t *testing.T) {
	for _, holder := range []string{"host", "another"} {
		sides(t, func(t *testing.T, host, next *side) {
			next.unheld, next.holder = true, holder
			host.fire(handover.Move)
			if holder == "host" {
				host.in(t, handover.Draining)
				next.in(t, handover.Offered)
				return
			}
			host.in(t, handover.Active)
			next.in(t, handover.Away)
			require.Equal(t, "the inviting node does not hold the lease", host.got[0].(*wire.Offer).Declined)
			next.busy = true
			for range 3 {
				next.receive(&wire.Invite{Name: "n", From: host.self, Number: 8})
			}
			synctest.Wait()
			next.catchUp(t, 1)
			synctest.Wait()
			require.Len(t, host.got, 4)
		})
	}
}

// Who did not answer in time hears that an offer which is still to come is void.
func TestASilentNodeHearsThatItIsOff(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		host.deaf = true // its answer is lost
		host.fire(handover.Move)
		next.in(t, handover.Offered)
		time.Sleep(handover.InviteWait + time.Millisecond)
		host.in(t, handover.Active)
		next.in(t, handover.Away)
	})
}

// While what runs takes its time to stop the offer stays fresh, and it is transferred to
// at once.
func TestAnOfferStaysFreshWhileTheHostStops(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		nonce := uint64(0)
		next.offer = func(context.Context) (lease.Offer, error) {
			nonce++
			return lease.Offer{Name: "n", Nonce: nonce, Lifetime: lifetime}, nil
		}
		host.fire(handover.Move)
		host.in(t, handover.Draining)
		time.Sleep(5*lifetime + time.Millisecond)
		next.in(t, handover.Offered)
		host.fire(handover.Ended)
		host.in(t, handover.Transferring)
		next.in(t, handover.Adopting)
		require.Zero(t, host.count(handover.AskAgain))
		require.Equal(t, uint64(16), nonce, "one for each third of a lifetime")
		require.Equal(t, nonce, next.taking.Offer.Nonce)
	})
}

// An offer that could not be kept fresh is asked for anew before anything is transferred
// to it, once.
func TestAnOldOfferIsAskedForAgain(t *testing.T) {
	for _, answers := range []bool{true, false} {
		sides(t, func(t *testing.T, host, next *side) {
			host.fire(handover.Move)
			host.in(t, handover.Draining)
			next.Post(func() { next.deaf = true })
			time.Sleep(lifetime/2 + time.Millisecond)
			next.Post(func() { next.deaf = !answers })
			host.fire(handover.Ended)
			if answers {
				host.in(t, handover.Transferring)
				next.in(t, handover.Adopting)
			} else {
				host.in(t, handover.Asking)
				time.Sleep(handover.InviteWait)
				host.in(t, handover.Releasing)
			}
			require.Equal(t, 1, host.count(handover.AskAgain))
		})
	}
}

// An offer without a lifetime is too old at once; it is not asked for for ever.
func TestAnOfferWithoutLifetimeIsAskedForAgainOnce(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		next.offer = func(context.Context) (lease.Offer, error) { return lease.Offer{Name: "n"}, nil }
		host.fire(handover.Move)
		synctest.Wait()
		time.Sleep(time.Microsecond)
		host.fire(handover.Ended)
		synctest.Wait()
		require.Equal(t, 1, host.count(handover.AskAgain))
		host.in(t, handover.Transferring)
	})
}

// A store that fails once, while the last offer is good still, costs nothing; one that
// goes on failing is told of, and the offer stands until the host has called it off.
func TestAnOfferOutlivesAFailedRenewal(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		host.fire(handover.Move)
		host.in(t, handover.Draining)
		next.Post(func() { next.offer = fail })
		time.Sleep(lifetime/3 + time.Millisecond)
		host.in(t, handover.Draining)
		require.Zero(t, next.count(handover.SendDecline))
		host.Post(func() { require.True(t, host.m.Offer) })
		time.Sleep(lifetime / 3)
		host.in(t, handover.Draining)
		require.Equal(t, 1, next.count(handover.SendDecline))
		host.Post(func() { require.False(t, host.m.Offer, "nobody takes over") })
		next.in(t, handover.Away)
	})
}

// A node with an offer out takes another invitation of the same host, as one host means
// one hand-over, and tells of states of the one before.
func TestANewInvitationReplacesTheLast(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		host.fire(handover.Move)
		next.in(t, handover.Offered)
		next.Post(func() {
			require.NoError(t, next.taking.States.State(&wire.EntityState{Name: "n", Key: "k", Number: 7, States: 1}))
			next.receive(&wire.Invite{Name: "n", From: host.self, Number: 8})
			next.receive(&wire.Invite{Name: "n", From: &wire.Node{Address: "other", Incarnation: "other"}, Number: 8})
		})
		next.in(t, handover.Offered)
		require.Equal(t, 1, next.lost)
		declined := slices.ContainsFunc(host.got, func(m proto.Message) bool { o, ok := m.(*wire.Offer); return ok && o.Declined != "" })
		require.True(t, declined, "another host is declined")
		next.Post(func() { next.receive(&wire.HandedOver{Name: "n", From: host.self, Number: 8, Nonce: 3}) })
		next.in(t, handover.Adopting)
	})
}

// An offer that is called off before it was made is void: nobody waits with it for a host
// that has gone on.
func TestAnOfferThatIsCalledOffBeforeItWasMadeIsVoid(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		next.offer = func(context.Context) (lease.Offer, error) {
			time.Sleep(handover.OfferWait / 2)
			return lease.Offer{Name: "n", Lifetime: lifetime}, nil
		}
		host.fire(handover.Move)
		next.in(t, handover.Offering)
		host.fire(handover.Keep)
		next.in(t, handover.Away)
		time.Sleep(handover.OfferWait)
		next.in(t, handover.Away)
		require.Empty(t, host.got)
	})
}

// An offer ends by itself though another invitation took its place, for which none could
// be made, and the host is heard from no more.
func TestAnOfferEndsThoughNoneCouldBeMadeInItsPlace(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		host.fire(handover.Move)
		next.in(t, handover.Offered)
		next.Post(func() {
			next.offer = fail
			next.receive(&wire.Invite{Name: "n", From: host.self, Number: 8})
			next.deaf = true // the host dies
		})
		next.in(t, handover.Offered)
		time.Sleep(lifetime + time.Millisecond)
		next.in(t, handover.Away)
	})
}

// A host that is heard from after its link broke is waited for as any other.
func TestALinkThatIsBackIsNotTakenForBroken(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		host.fire(handover.Move)
		next.in(t, handover.Offered)
		next.Post(func() { next.taking.LinkBroke(next, host.self.Address) })
		time.Sleep(lifetime/3 + time.Millisecond) // the offer is made anew
		next.in(t, handover.Offered)
		next.Post(func() {
			next.taking.Recorded(next, lease.Record{Owner: lease.Owner{Incarnation: next.self.Incarnation}}, true)
		})
		time.Sleep(handover.BrokenWait + time.Millisecond)
		next.in(t, handover.Offered) // states may be under way
	})
}

// A node that is leaving has no new offer made, and tells why.
func TestANodeThatLeavesRenewsNoOffer(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		host.deaf = true
		host.fire(handover.Move)
		next.in(t, handover.Offered)
		host.Post(func() { host.deaf = false })
		next.Post(func() {
			next.Fire(handover.Quit)
			next.receive(&wire.Invite{Name: "n", From: host.self, Number: 7})
		})
		next.in(t, handover.Away) // called off
		for _, m := range host.got {
			require.Equal(t, "it is leaving", m.(*wire.Offer).Declined)
		}
		require.Len(t, host.got, 2)
	})
}

// The timer of an offer fires while the loop is busy, and waits there behind the offer that
// takes its place: that one stands for its own time.
func TestTheEndOfAnOfferIsNotThatOfTheNext(t *testing.T) {
	sides(t, func(t *testing.T, host, next *side) {
		host.deaf = true
		host.fire(handover.Move)
		next.in(t, handover.Offered)
		time.Sleep(handover.InviteWait / 2)
		host.Post(func() { host.m.Phase = handover.Draining }) // it waits for what runs
		next.Post(func() { next.deaf = true })
		time.Sleep(lifetime - handover.InviteWait/2 - time.Millisecond)
		next.Post(func() {
			next.deaf = false
			next.receive(&wire.Invite{Name: "n", From: host.self, Number: 7})
			next.deaf, next.busy = true, true
		})
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		next.catchUp(t, 2)
		next.in(t, handover.Offered)
		time.Sleep(lifetime - 2*time.Millisecond)
		next.in(t, handover.Offered)
		time.Sleep(2 * time.Millisecond)
		next.in(t, handover.Away)
	})
}
