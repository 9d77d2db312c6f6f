package membership_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

var newest = membership.Prefer("version", membership.Newest)

// bench is where nodes run the same work, and what they did.
type bench struct {
	*world
	terms tape[string] // the node of each term that began

	mu      sync.Mutex
	running map[*worker]lease.Term
}

// begin notes a term, under which no other may run the work: one that stands still does nothing.
func (b *bench) begin(w *worker, t lease.Term) {
	b.terms.add(w.id)
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, term := range b.running {
		if !other.stands.Load() && term.CheckAlive() {
			b.t.Errorf("%s begins while %s runs", w.id, other.id)
		}
	}
	b.running[w] = t
}

func (b *bench) end(w *worker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, w)
}

// runs counts those that run the work.
func (b *bench) runs() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.running)
}

// worker is a node that runs the work.
type worker struct {
	*node
	end    context.CancelCauseFunc
	done   chan error
	stands atomic.Bool  // it stands still
	began  atomic.Int32 // calls
	parted atomic.Int32 // whose context ended as a preferred member came
}

// work has a node of that version run the work.
func (b *bench) work(id, version string) *worker {
	b.t.Helper()
	w := &worker{node: b.node(id).join(membership.WithLabels(map[string]string{"version": version})), done: make(chan error, 1)}
	ctx, end := context.WithCancelCause(context.Background())
	w.end = end
	l := must(w.keeper.Lease("work"))(b.t)
	go func() {
		w.done <- w.group.RunForever(ctx, l, func(ctx context.Context, t lease.Term) error {
			b.begin(w, t)
			defer b.end(w)
			w.began.Add(1)
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), membership.ErrPreferred) {
				w.parted.Add(1)
			}
			if t.CheckAlive() {
				time.Sleep(50 * time.Millisecond) // its last steps
			}
			return ctx.Err()
		}, newest)
	}()
	b.ends = append(b.ends, func() { w.stop() })
	synctest.Wait()
	return w
}

// pause has it stand still, as a stopped process does, and resume go on.
func (w *worker) pause() {
	w.stands.Store(true)
	w.crash()
}

func (w *worker) resume() {
	w.heal()
	w.stands.Store(false)
}

// stop ends the work here, and then the node.
func (w *worker) stop() error {
	w.end(nil)
	err := <-w.done
	w.done <- err
	if w.group.Health(context.Background()) == nil {
		w.leave()
	}
	return err
}

func onBench(t *testing.T, f func(t *testing.T, b *bench)) {
	bubble(t, func(t *testing.T, w *world) { f(t, &bench{world: w, running: map[*worker]lease.Term{}}) })
}

// In a rollout the work moves once: to the first node of the new version.
func TestTheWorkMovesOnceInARollout(t *testing.T) {
	for _, surge := range []int{1, 2, 4} {
		onBench(t, func(t *testing.T, b *bench) {
			var old []*worker
			for i := range 4 {
				old = append(old, b.work(fmt.Sprint("old-", i), "1.9"))
			}
			time.Sleep(time.Minute)
			require.Len(t, b.terms.all(), 1)
			for i := range 4 {
				b.work(fmt.Sprint("new-", i), "1.10")
				time.Sleep(20 * time.Second)
				if i >= surge-1 {
					require.ErrorIs(t, old[0].stop(), context.Canceled)
					old = old[1:]
					time.Sleep(20 * time.Second)
				}
			}
			for _, w := range old {
				require.ErrorIs(t, w.stop(), context.Canceled)
			}
			time.Sleep(time.Minute)
			require.Equal(t, []string{"old-0", "new-0"}, b.terms.all())
			require.Equal(t, 1, b.runs())
		})
	}
}

// A preferred member has the work within the time that the other takes to end it, and half a second
// after a crash of the holder the others do not wait for one that is not there.
func TestThePreferredMemberIsFirst(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		first := b.work("a", "1")
		time.Sleep(time.Second)
		began := time.Now()
		second := b.work("b", "2")
		until(t, time.Second, "moves", func() bool { return second.began.Load() == 1 })
		require.Less(t, time.Since(began), 300*time.Millisecond)
		third := b.work("c", "3")
		until(t, time.Second, "moves on", func() bool { return third.began.Load() == 1 })
		third.pause()
		until(t, ttl+2*time.Second, "is taken over by the better of the two", func() bool { return second.began.Load() == 2 })
		require.EqualValues(t, 1, first.began.Load())
		third.resume()
		until(t, time.Minute, "goes back", func() bool { return third.began.Load() == 2 })
		require.Equal(t, []string{"a", "b", "c", "b", "c"}, b.terms.all())
		require.EqualValues(t, 1, first.parted.Load())
		require.EqualValues(t, 2, second.parted.Load())
	})
}

// other has a member of that version run f, until end is called.
func (b *bench) other(id, version string, f func(ctx context.Context, l *lease.Handle) error) (n *node, end func()) {
	n = b.node(id).join(membership.WithLabels(map[string]string{"version": version}))
	l := must(n.keeper.Lease("work"))(b.t)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- n.group.RunForever(ctx, l, func(ctx context.Context, _ lease.Term) error { return f(ctx, l) }, newest)
	}()
	return n, func() {
		cancel()
		require.ErrorIs(b.t, <-done, context.Canceled)
	}
}

func broken(context.Context, *lease.Handle) error { return errors.New("broken") }

// Where the new version's work fails, or its term ends each time, the old one goes on, but for a moment
// each ten minutes.
func TestABrokenPreferredMemberDoesNotKeepTheWork(t *testing.T) {
	for how, f := range map[string]func(context.Context, *lease.Handle) error{
		"it fails":              broken,
		"it gives the lease up": func(ctx context.Context, l *lease.Handle) error { return l.Release(ctx) },
	} {
		t.Run(how, func(t *testing.T) {
			onBench(t, func(t *testing.T, b *bench) {
				old := b.work("old", "1")
				time.Sleep(time.Second)
				_, end := b.other("new", "2", f)
				time.Sleep(9 * time.Minute)
				require.EqualValues(t, 2, old.began.Load(), "it made room once")
				require.Equal(t, 1, b.runs())
				time.Sleep(9 * time.Minute)
				require.EqualValues(t, 3, old.began.Load())
				require.Equal(t, 1, b.runs())
				end()
			})
		})
	}
}

// Of those that wait the best is first, also while one that is better still does not take the lease.
func TestTheBestOfThoseThatTakeItIsFirst(t *testing.T) {
	for range 10 {
		onBench(t, func(t *testing.T, b *bench) {
			holder := b.work("holder", "4")
			worst, second := b.work("worst", "1"), b.work("second", "2")
			_, end := b.other("broken", "3", broken)
			time.Sleep(time.Second)
			require.ErrorIs(t, holder.stop(), context.Canceled)
			time.Sleep(time.Minute)
			require.Zero(t, worst.began.Load(), "%v", b.terms.all())
			require.EqualValues(t, 1, second.began.Load())
			end()
		})
	}
}

// Preferred members without the work are none to make room for: other members, and those that leave.
func TestRoomIsMadeForCandidatesOnly(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		old := b.work("old", "1")
		b.node("idle").join(membership.WithLabels(map[string]string{"version": "9"}))
		time.Sleep(time.Minute)
		leaving := b.node("leaving").join(membership.WithLabels(map[string]string{"version": "9"}))
		leaving.announce()
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		l := must(leaving.keeper.Lease("work"))(t)
		go func() {
			done <- leaving.group.RunForever(ctx, l, func(context.Context, lease.Term) error { return nil }, newest)
		}()
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, old.began.Load())
		end()
		require.ErrorIs(t, <-done, context.Canceled)
		leaving.leave()
		require.Equal(t, []string{"old"}, b.terms.all())
	})
}

// What ends RunForever, and what it leaves behind.
func TestRunForeverEnds(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		n := b.node("a").join()
		l := must(n.keeper.Lease("work"))(t)
		run := func(ctx context.Context, err error, by ...membership.Preference) error {
			return n.group.RunForever(ctx, l, func(ctx context.Context, _ lease.Term) error { return err }, by...)
		}
		require.NoError(t, run(t.Context(), nil, newest))
		require.ErrorIs(t, run(t.Context(), lease.ErrStop, newest), lease.ErrStop)
		require.PanicsWithValue(t, "users", func() {
			_ = n.group.RunForever(t.Context(), l, func(context.Context, lease.Term) error { panic("users") }, newest)
		})
		require.Equal(t, []string{"member/g/a/" + n.keeper.Owner().Incarnation}, b.standing())

		for what, x := range map[string]struct {
			l  *lease.Handle
			f  func(context.Context, lease.Term) error
			by []membership.Preference
		}{
			"no lease":      {nil, func(context.Context, lease.Term) error { return nil }, []membership.Preference{newest}},
			"no work":       {l, nil, []membership.Preference{newest}},
			"no preference": {l, func(context.Context, lease.Term) error { return nil }, nil},
			"an unknown order": {l, func(context.Context, lease.Term) error { return nil },
				[]membership.Preference{membership.Prefer("version", "best")}},
		} {
			require.ErrorIs(t, n.group.RunForever(t.Context(), x.l, x.f, x.by...), lease.ErrInvalid, what)
		}
		require.ErrorIs(t, new(membership.Group).RunForever(t.Context(), l, nil), lease.ErrInvalid)

		entered, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- n.group.RunForever(t.Context(), l, func(ctx context.Context, _ lease.Term) error {
				close(entered)
				<-ctx.Done()
				return context.Cause(ctx)
			}, newest)
		}()
		<-entered
		require.ErrorIs(t, run(t.Context(), nil, newest), lease.ErrNameInUse)
		n.leave()
		require.ErrorIs(t, <-done, lease.ErrClosed)
		require.ErrorIs(t, run(t.Context(), nil, newest), lease.ErrClosed)
		require.Empty(t, b.standing())

		for _, x := range []struct {
			what   string
			result func(ctx context.Context) error
			end    func(n *node)
			is     error
		}{
			{"nil when the Group ends", func(context.Context) error { return nil }, (*node).leave, nil},
			{"ErrStop when a preferred member comes", func(ctx context.Context) error { return errors.Join(lease.ErrStop, context.Cause(ctx)) },
				func(*node) { b.work("preferred", "2") }, lease.ErrStop},
		} {
			n := b.node("b").join(membership.WithLabels(map[string]string{"version": "1"}))
			l := must(n.keeper.Lease("work"))(t)
			done := make(chan error, 1)
			go func() {
				done <- n.group.RunForever(t.Context(), l, func(ctx context.Context, _ lease.Term) error {
					<-ctx.Done()
					return x.result(ctx)
				}, newest)
			}()
			time.Sleep(time.Second)
			x.end(n)
			if err := <-done; x.is == nil {
				require.NoError(t, err, x.what)
			} else {
				require.ErrorIs(t, err, x.is, x.what)
			}
			if n.group.Health(t.Context()) == nil {
				n.leave()
			}
		}
	})
}

// TestWorkSimulation has nodes of two versions come, leave, crash and stand still at random: never do
// two run the work, and when all is well a node of the newest version there is runs it.
func TestWorkSimulation(t *testing.T) {
	histories.Run(t, func(t *testing.T, seed uint64) {
		onBench(t, func(t *testing.T, b *bench) {
			r := rand.New(rand.NewPCG(seed, 7))
			there := map[*worker]string{}
			for i := range 20 {
				time.Sleep(time.Duration(r.IntN(30_000)) * time.Millisecond)
				if len(there) < 2 || len(there) < 6 && r.IntN(2) == 0 {
					version := fmt.Sprint(1 + (i+r.IntN(10))/10)
					there[b.work(fmt.Sprint("n", i), version)] = version
					continue
				}
				w := slices.SortedFunc(maps.Keys(there), func(a, b *worker) int { return strings.Compare(a.id, b.id) })[r.IntN(len(there))]
				switch r.IntN(3) {
				case 0:
					_ = w.stop()
					delete(there, w)
				case 1:
					w.pause()
					time.Sleep(time.Duration(r.IntN(30_000)) * time.Millisecond)
					w.resume()
				default:
					w.store.Partition()
					time.Sleep(time.Duration(r.IntN(30_000)) * time.Millisecond)
					w.heal()
				}
			}
			time.Sleep(15 * time.Minute)
			best := ""
			for _, version := range there {
				best = max(best, version)
			}
			all := b.terms.all()
			holder := all[len(all)-1]
			require.Equal(t, 1, b.runs())
			for w, version := range there {
				if w.id == holder {
					require.Equal(t, best, version, "%v", all)
				}
			}
		})
	})
}

// Versions compare as people read them, and the order is one.
func TestPreferences(t *testing.T) {
	ordered := []string{"0.9", "1.2-rc1", "1.2-rc10", "1.2", "1.2+5", "v1.2.0", "1.2.1", "1.9", "v1.10", "2", "2026-09-30", "2026-11-02",
		"20261127", "99999999999999999999998", "99999999999999999999999", "b", "v"}
	of := func(version string) map[string]string { return map[string]string{"version": version} }
	first := membership.Preferences{newest}
	last := membership.Preferences{membership.Prefer("version", membership.Oldest)}
	for i, a := range ordered {
		for j, b := range ordered {
			require.Equal(t, sign(j-i), sign(first.Compare(of(a), of(b))), "%s %s", a, b)
			require.Equal(t, sign(i-j), sign(last.Compare(of(a), of(b))), "%s %s", a, b)
		}
		require.Negative(t, first.Compare(of(a), nil))
		require.Negative(t, last.Compare(of(a), nil), "without the label is last by either")
	}
	require.Zero(t, first.Compare(of("v1.02"), of("1.2")))
	both := membership.Preferences{membership.Prefer("zone", membership.Equal("a")), newest}
	require.Negative(t, both.Compare(map[string]string{"zone": "a"}, of("9")))
	require.Negative(t, both.Compare(of("9"), of("8")))
	require.Equal(t, "zone equal a, version newest", both.String())
}

func sign(n int) int { return max(-1, min(1, n)) }

// FuzzPreferences: the order is one, whatever the values.
func FuzzPreferences(f *testing.F) {
	f.Add("1.2-rc1", "1.2", "v1.2.0")
	f.Add("v", "v1", "vv")
	f.Add("00", "0", "-")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		p := membership.Preferences{newest}
		by := func(x, y string) int {
			return sign(p.Compare(map[string]string{"version": x}, map[string]string{"version": y}))
		}
		require.Zero(t, by(a, a))
		require.Equal(t, by(a, b), -by(b, a))
		if by(a, b) <= 0 && by(b, c) <= 0 {
			require.LessOrEqual(t, by(a, c), 0)
			if by(a, b) < 0 || by(b, c) < 0 {
				require.Negative(t, by(a, c))
			}
		}
	})
}
