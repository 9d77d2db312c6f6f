package sequencer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// owned is an ownership of the test's.
type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

func seq(name string, token lease.Token) sequencer.Sequencer {
	return sequencer.Sequencer{Name: name, Token: token}
}

func TestTheTextOfASequencer(t *testing.T) {
	for text, s := range map[string]sequencer.Sequencer{
		"singleton/cron@42":             seq("singleton/cron", 42),
		"a@1":                           seq("a", 1),
		"a@18446744073709551615":        seq("a", math.MaxUint64),
		"singleton/a%252Fb@7":           seq("singleton/a%2Fb", 7),
		"a%20b%2Cc%40d%22@7":            seq(`a b,c@d"`, 7),
		"%C3%BC%E6%97%A5@9":             seq("ü日", 9),
		"-._~Z/0@10":                    seq("-._~Z/0", 10),
		strings.Repeat("x", 512) + "@3": seq(strings.Repeat("x", 512), 3),
		strings.Repeat("%40", 512) + "@18446744073709551615": seq(strings.Repeat("@", 512), math.MaxUint64),
	} {
		require.Equal(t, text, s.String())
		require.LessOrEqual(t, len(text), sequencer.MaxText)
		got, err := sequencer.Parse(text)
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	require.Len(t, seq(strings.Repeat("@", 512), math.MaxUint64).String(), sequencer.MaxText)
}

func TestTextThatIsNoSequencerIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                              "no @",
		"a":                             "no @",
		"@1":                            "empty",
		"a@":                            "from 1 to",
		"a@0":                           "token 0",
		"a@01":                          "written as a@1",
		"a@+1":                          "from 1 to",
		"a@-1":                          "from 1 to",
		"a@1 ":                          "from 1 to",
		"a@1.0":                         "from 1 to",
		"a@1e3":                         "from 1 to",
		"a@1_0":                         "from 1 to",
		"a@0x1":                         "from 1 to",
		"a@1@2":                         "from 1 to",
		"a@١":                           "from 1 to",
		"a@18446744073709551616":        "to 18446744073709551615",
		" a@1":                          "written as %20a@1",
		"a b@1":                         "written as a%20b@1",
		"a,b@1":                         "written as a%2Cb@1",
		"ü@1":                           "written as %C3%BC@1",
		"a%@1":                          "invalid URL escape",
		"a%2@1":                         "invalid URL escape",
		"a%2fb@1":                       "written as a/b@1",
		"a%zz@1":                        "invalid URL escape",
		"%61@1":                         "written as a@1",
		"a%2Fb@1":                       "written as a/b@1",
		"a%25 b@1":                      "written as a%25%20b@1",
		"%FF@1":                         "not UTF-8",
		"a%00b@1":                       "control character",
		"a%0Ab@1":                       "control character",
		"/a@1":                          "empty segment",
		"a//b@1":                        "empty segment",
		strings.Repeat("x", 513) + "@1": "513 bytes, at most 512",
		strings.Repeat("x", sequencer.MaxText) + "@1":         "at most",
		strings.Repeat("%40", 512) + "@184467440737095516150": "at most",
	} {
		s, err := sequencer.Parse(text)
		require.ErrorIs(t, err, lease.ErrInvalid, text)
		require.ErrorContains(t, err, says, text)
		require.Zero(t, s)
	}
}

func TestSequencersOfOwnerships(t *testing.T) {
	s, err := sequencer.Of(owned{"a", 7})
	require.NoError(t, err)
	require.Equal(t, seq("a", 7), s)
	for says, o := range map[string]lease.Ownership{"nil": nil, "ownership": (*owned)(nil), "token 0": owned{"a", 0}, "name": owned{"", 1}} {
		s, err := sequencer.Of(o)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.Zero(t, s)
	}
}

func TestSequencersInJSON(t *testing.T) {
	type job struct {
		Under sequencer.Sequencer
		By    map[sequencer.Sequencer]int
	}
	b, err := json.Marshal(job{seq("a b", 7), map[sequencer.Sequencer]int{seq("c", 1): 2}})
	require.NoError(t, err)
	require.Equal(t, `{"Under":"a%20b@7","By":{"c@1":2}}`, string(b))
	var j job
	require.NoError(t, json.Unmarshal(b, &j))
	require.Equal(t, job{seq("a b", 7), map[sequencer.Sequencer]int{seq("c", 1): 2}}, j)
	require.Error(t, json.Unmarshal([]byte(`{"Under":"a@0"}`), &j))
	require.Equal(t, seq("a b", 7), j.Under, "what is refused changes nothing")
	_, err = json.Marshal(job{})
	require.ErrorIs(t, err, lease.ErrInvalid)
}

// What is read is what was written, and what is taken is what would have been written.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a@1", "singleton/a%252Fb@7", "%C3%BC@9", "a@18446744073709551615", "a%2", "@", "%%@1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := sequencer.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.Zero(t, s)
			return
		}
		require.NoError(t, s.Validate())
		require.Equal(t, text, s.String())
	})
}

// keep starts a Keeper, which the test ends.
func keep(t *testing.T, store store.Store, id string) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(store, lease.Config{ID: id, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = k.Close(ctx)
	})
	return k
}

// hold acquires a lease of the Keeper's.
func hold(t *testing.T, k *lease.Keeper, name string) (*lease.Handle, lease.Term) {
	t.Helper()
	h, err := k.Lease(name)
	require.NoError(t, err)
	term, err := h.AcquireTerm(t.Context())
	require.NoError(t, err)
	return h, term
}

func of(t *testing.T, o lease.Ownership) sequencer.Sequencer {
	t.Helper()
	s, err := sequencer.Of(o)
	require.NoError(t, err)
	return s
}

func TestCheckAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a, b := keep(t, store, "a"), keep(t, store, "b")
		check := func(s sequencer.Sequencer) error { return s.Check(t.Context(), b) }
		h, term := hold(t, a, "job")
		first := of(t, term)
		require.NoError(t, check(first))
		require.NoError(t, check(first))

		var stale *sequencer.StaleError
		err := check(seq("job", first.Token+5))
		require.ErrorIs(t, err, lease.ErrStale, "the store did not give that token")
		require.ErrorAs(t, err, &stale)
		require.False(t, stale.Superseded())
		require.NotErrorIs(t, err, lease.ErrNotHeld)
		require.ErrorContains(t, err, "has given tokens up to")

		err = check(seq("job/other", first.Token))
		require.ErrorIs(t, err, lease.ErrStale, "the token of another lease")

		require.NoError(t, h.Release(t.Context()))
		err = check(first)
		require.ErrorIs(t, err, lease.ErrStale)
		require.ErrorIs(t, err, lease.ErrNotHeld)
		require.ErrorAs(t, err, &stale)
		require.Equal(t, sequencer.StaleError{Sequencer: first}, *stale)
		require.ErrorContains(t, err, "no owner holds")

		_, term = hold(t, b, "job")
		err = check(first)
		require.ErrorAs(t, err, &stale)
		require.True(t, stale.Superseded())
		require.Equal(t, term.Token(), stale.Seen)
		require.NotErrorIs(t, err, lease.ErrNotHeld)
		require.NoError(t, check(of(t, term)))
	})
}

func TestCheckDoesNotGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		link := faultstore.Wrap(store)
		k := keep(t, link, "a")
		_, term := hold(t, k, "job")
		s := of(t, term)
		link.Partition()
		require.ErrorIs(t, s.Check(t.Context(), k), lease.ErrUnknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Check(ctx, k)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lease.ErrStale)
		link.Heal()
		require.NoError(t, s.Check(t.Context(), k))
	})
}

// readerFunc is a Reader of the test's.
type readerFunc func(ctx context.Context, name string) (lease.Record, error)

func (f readerFunc) Get(ctx context.Context, name string) (lease.Record, error) { return f(ctx, name) }

func TestReadersThatMisbehave(t *testing.T) {
	s := seq("job", 7)
	for says, r := range map[string]readerFunc{
		"panicked: oops":        func(context.Context, string) (lease.Record, error) { panic("oops") },
		"a record of \"other\"": func(context.Context, string) (lease.Record, error) { return lease.Record{Name: "other", Token: 7}, nil },
		"under token 0":         func(context.Context, string) (lease.Record, error) { return lease.Record{Name: "job"}, nil },
		"disk":                  func(context.Context, string) (lease.Record, error) { return lease.Record{}, errors.New("disk") },
		"not a lease record":    func(context.Context, string) (lease.Record, error) { return lease.Record{}, lease.ErrBadRecord },
	} {
		err := s.Check(t.Context(), r)
		require.ErrorIs(t, err, lease.ErrUnknown, says)
		require.NotErrorIs(t, err, lease.ErrStale, says)
		require.ErrorContains(t, err, says)
	}
}

func TestBadInput(t *testing.T) {
	reader := keep(t, memory.New(), "a")
	good := seq("job", 1)
	nothing := func(context.Context) error { return nil }
	fences, err := sequencer.NewFences()
	require.NoError(t, err)
	for says, err := range map[string]error{
		"ctx: ":       good.Check(inputtest.None, reader),
		"ctx":         fences.Do(inputtest.None, good, nothing),
		"reader: ":    good.Check(t.Context(), nil),
		"reader":      good.Check(t.Context(), (*lease.Keeper)(nil)),
		"token 0":     seq("job", 0).Check(t.Context(), reader),
		"name":        seq("", 1).Check(t.Context(), reader),
		"work: ":      fences.Do(t.Context(), good, nil),
		"token 0, mu": fences.Do(t.Context(), seq("job", 0), nothing),
		"lease name":  fences.Advance(t.Context(), sequencer.Sequencer{}),
		"NewFences":   new(sequencer.Fences).Advance(t.Context(), good),
		"zero value":  (*sequencer.Fences)(nil).Do(t.Context(), good, nothing),
	} {
		require.ErrorIs(t, err, lease.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	require.Empty(t, fences.Marks())
	o, ok := sequencer.FromContext(sequencer.NewContext(t.Context(), owned{"job", 1}))
	require.True(t, ok)
	require.Equal(t, owned{"job", 1}, o)
	for says, opt := range map[string]sequencer.Option{
		"nil Option":     nil,
		"WithReader":     sequencer.WithReader(nil),
		"WithReader: ":   sequencer.WithReader((*lease.Keeper)(nil)),
		"WithLimit: ":    sequencer.WithLimit(0),
		"2147483647":     sequencer.WithLimit(1 << 31),
		"WithPatience: ": sequencer.WithPatience(-1),
		"WithPatience":   sequencer.WithPatience(366 * 24 * time.Hour),
		"token 0":        sequencer.WithMarks(map[string]lease.Token{"a": 0}),
		"WithMarks: ":    sequencer.WithMarks(map[string]lease.Token{"a//b": 1}),
	} {
		f, err := sequencer.NewFences(opt)
		require.ErrorIs(t, err, lease.ErrInvalid, says)
		require.ErrorContains(t, err, says)
		require.Nil(t, f)
	}
	_, err = sequencer.NewFences(sequencer.WithLimit(1), sequencer.WithMarks(map[string]lease.Token{"a": 1, "b": 1}))
	require.ErrorContains(t, err, "WithMarks")
}

func newFences(t testing.TB, opts ...sequencer.Option) *sequencer.Fences {
	t.Helper()
	f, err := sequencer.NewFences(opts...)
	require.NoError(t, err)
	return f
}

func TestFencesRefuseLowerTokensByName(t *testing.T) {
	f := newFences(t)
	ran := 0
	do := func(s sequencer.Sequencer) error {
		return f.Do(t.Context(), s, func(context.Context) error { ran++; return nil })
	}
	require.NoError(t, do(seq("a", 7)))
	require.NoError(t, do(seq("b", 3)), "each name has a mark of its own")
	require.NoError(t, do(seq("a", 7)), "the holder comes again and again")
	require.Equal(t, 3, ran)
	err := do(seq("a", 6))
	var stale *sequencer.StaleError
	require.ErrorIs(t, err, lease.ErrStale)
	require.ErrorAs(t, err, &stale)
	require.Equal(t, sequencer.StaleError{Sequencer: seq("a", 6), Seen: 7}, *stale)
	require.True(t, stale.Superseded())
	require.ErrorContains(t, err, "sequencer a@6: stale fencing token: token 7 has been seen")
	require.ErrorIs(t, f.Advance(t.Context(), seq("a", 6)), lease.ErrStale)
	require.Equal(t, 3, ran, "what is refused does not run")
	require.Equal(t, lease.Token(7), f.Marks()["a"])
	require.Equal(t, lease.Token(3), f.Marks()["b"])
	require.Zero(t, f.Marks()["c"])
	require.NoError(t, f.Advance(t.Context(), seq("b", 9)))
	require.ErrorIs(t, do(seq("b", 3)), lease.ErrStale)

	failure := errors.New("disk full")
	require.ErrorIs(t, f.Do(t.Context(), seq("a", 8), func(context.Context) error { return failure }), failure)
	require.ErrorIs(t, do(seq("a", 7)), lease.ErrStale, "a token whose work failed was seen all the same")
	require.Panics(t, func() { _ = f.Do(t.Context(), seq("a", 8), func(context.Context) error { panic("oops") }) })
	require.NoError(t, do(seq("a", 9)), "a panic does not leave the fence shut")
}

func TestMarksOutliveTheProcess(t *testing.T) {
	f := newFences(t)
	require.NoError(t, f.Advance(t.Context(), seq("a", 7)))
	require.NoError(t, f.Advance(t.Context(), seq("b", 3)))
	marks := f.Marks()
	require.Equal(t, map[string]lease.Token{"a": 7, "b": 3}, marks)
	f = newFences(t, sequencer.WithMarks(marks))
	marks["a"] = 1
	require.ErrorIs(t, f.Advance(t.Context(), seq("a", 6)), lease.ErrStale)
	require.NoError(t, f.Advance(t.Context(), seq("a", 7)))
}

func TestFencesThatAreFullRefuseFurtherNames(t *testing.T) {
	f := newFences(t, sequencer.WithLimit(2))
	require.NoError(t, f.Advance(t.Context(), seq("a", 1)))
	require.NoError(t, f.Advance(t.Context(), seq("b", 1)))
	for range 3 {
		err := f.Advance(t.Context(), seq("c", 9))
		require.ErrorIs(t, err, sequencer.ErrFull)
		require.NotErrorIs(t, err, lease.ErrStale)
	}
	require.Equal(t, map[string]lease.Token{"a": 1, "b": 1}, f.Marks(), "nothing is forgotten for it")
	require.NoError(t, f.Advance(t.Context(), seq("a", 2)))

	require.False(t, f.Forget("c"))
	require.NoError(t, f.Do(t.Context(), seq("b", 1), func(context.Context) error {
		require.False(t, f.Forget("b"), "it is in use")
		return nil
	}))
	require.True(t, f.Forget("b"))
	require.NoError(t, f.Advance(t.Context(), seq("c", 9)))
}

func TestFencesBelieveWhatTheStoreHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		link := faultstore.Wrap(store)
		k := keep(t, store, "a")
		asked := 0
		stored := keep(t, link, "reader")
		f := newFences(t, sequencer.WithReader(readerFunc(func(ctx context.Context, name string) (lease.Record, error) {
			asked++
			return stored.Get(ctx, name)
		})))
		h, term := hold(t, k, "job")
		first := of(t, term)

		var stale *sequencer.StaleError
		require.ErrorAs(t, f.Advance(t.Context(), seq("job", first.Token+1000)), &stale)
		require.False(t, stale.Superseded())
		require.Zero(t, f.Marks()["job"], "what was made up raises nothing")
		require.ErrorIs(t, f.Advance(t.Context(), seq("other", 1)), lease.ErrNotHeld)
		require.Empty(t, f.Marks())
		asked = 0
		for range 10 {
			require.NoError(t, f.Advance(t.Context(), first))
		}
		require.Equal(t, 1, asked, "once for each change of owner")

		require.NoError(t, h.Release(t.Context()))
		require.NoError(t, f.Advance(t.Context(), first), "nobody came after it")
		term, err := h.AcquireTerm(t.Context())
		require.NoError(t, err)
		second := of(t, term)
		link.Partition()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = f.Advance(ctx, second)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.Equal(t, first.Token, f.Marks()["job"], "what is not known raises nothing")
		link.Heal()
		require.NoError(t, f.Advance(t.Context(), second))
		asked = 0
		require.ErrorIs(t, f.Advance(t.Context(), first), lease.ErrStale)
		require.Zero(t, asked)

		// A token that a later one has followed, and that was never seen here.
		f = newFences(t, sequencer.WithReader(stored))
		require.ErrorAs(t, f.Advance(t.Context(), first), &stale)
		require.True(t, stale.Superseded())
		require.Equal(t, second.Token, f.Marks()["job"], "the store told of it")
	})
}

func TestFencesWithAReaderForgetWhatTheyCanAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		k := keep(t, store, "a")
		f := newFences(t, sequencer.WithReader(k), sequencer.WithLimit(3))
		var stale []sequencer.Sequencer
		for i := range 20 {
			h, term := hold(t, k, fmt.Sprint("job/", i))
			stale = append(stale, of(t, term))
			require.NoError(t, f.Advance(t.Context(), of(t, term)))
			require.NoError(t, h.Release(t.Context()))
			_, err := h.Acquire(t.Context())
			require.NoError(t, err)
			term, _ = h.Term()
			require.NoError(t, f.Advance(t.Context(), of(t, term)))
			require.LessOrEqual(t, len(f.Marks()), 3)
		}
		for _, s := range stale {
			require.ErrorIs(t, f.Advance(t.Context(), s), lease.ErrStale, "though its mark may be forgotten")
		}
		// What is in use stays.
		block, in := make(chan struct{}), make(chan struct{}, 3)
		for i := range 3 {
			h := seqOf(t, k, fmt.Sprint("job/", i))
			go func() {
				_ = f.Do(t.Context(), h, func(context.Context) error { in <- struct{}{}; <-block; return nil })
			}()
			<-in
		}
		require.ErrorIs(t, f.Advance(t.Context(), seqOf(t, k, "job/7")), sequencer.ErrFull)
		close(block)
		synctest.Wait()
		require.NoError(t, f.Advance(t.Context(), seqOf(t, k, "job/7")))
	})
}

// seqOf is the sequencer of whoever holds name.
func seqOf(t *testing.T, k *lease.Keeper, name string) sequencer.Sequencer {
	t.Helper()
	r, err := k.Get(t.Context(), name)
	require.NoError(t, err)
	return seq(name, r.Token)
}

// A call that the store has answered, and that goes on when a later holder's mark is forgotten,
// must not come after it.
func TestAnAnswerThatComesLateDoesNotCountForAForgottenMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := newFences(t, sequencer.WithLimit(2), sequencer.WithReader(readerFunc(func(_ context.Context, name string) (lease.Record, error) {
			if name == "job" {
				<-hold // it has read token 5, and is slow to say so
				return lease.Record{Name: name, Token: 5}, nil
			}
			return lease.Record{Name: name, Token: 1}, nil
		})))
		late := make(chan error, 1)
		go func() { late <- f.Advance(t.Context(), seq("job", 5)) }()
		synctest.Wait()
		require.False(t, f.Forget("job"), "it is asked about")
		require.NoError(t, f.Advance(t.Context(), seq("a", 1)))
		require.NoError(t, f.Advance(t.Context(), seq("b", 1)), "in the place of a")
		require.False(t, f.Forget("job"))
		close(hold)
		require.NoError(t, <-late)
	})
}

func TestALaterTokenWaitsForWorkOfEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFences(t)
		end := make(chan struct{})
		cause := make(chan error, 2)
		began := make(chan struct{}, 2)
		for range 2 { // side by side
			go func() {
				_ = f.Do(t.Context(), seq("a", 1), func(ctx context.Context) error {
					began <- struct{}{}
					<-ctx.Done()
					cause <- context.Cause(ctx)
					<-end
					return nil
				})
			}()
		}
		<-began
		<-began
		require.NoError(t, f.Advance(t.Context(), seq("a", 1)), "of the same token")
		require.NoError(t, f.Advance(t.Context(), seq("b", 9)), "of another name")
		second := make(chan error, 1)
		go func() { second <- f.Advance(t.Context(), seq("a", 2)) }()
		for range 2 {
			err := <-cause
			require.ErrorIs(t, err, lease.ErrStale)
			require.ErrorContains(t, err, "token 2 has been seen")
		}
		require.ErrorIs(t, f.Advance(t.Context(), seq("a", 1)), lease.ErrStale, "from now on")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatal("it did not wait: ", err)
		default:
		}
		// One that waits is superseded, too.
		third := make(chan error, 1)
		go func() { third <- f.Advance(t.Context(), seq("a", 3)) }()
		require.ErrorIs(t, <-second, lease.ErrStale)
		close(end)
		require.NoError(t, <-third)
		require.NoError(t, f.Advance(t.Context(), seq("a", 3)))
		require.True(t, f.Forget("a"), "nothing is left of it")
	})
}

func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFences(t, sequencer.WithPatience(3*time.Second))
		end := make(chan struct{})
		began := make(chan struct{})
		go func() {
			_ = f.Do(t.Context(), seq("a", 1), func(context.Context) error { close(began); <-end; return nil })
		}()
		<-began
		at := time.Now()
		err := f.Advance(t.Context(), seq("a", 2))
		require.ErrorIs(t, err, sequencer.ErrBusy)
		require.NotErrorIs(t, err, lease.ErrStale)
		require.Equal(t, 3*time.Second, time.Since(at))
		// The one that gave up has left nothing that says when the first is over.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = f.Advance(ctx, seq("a", 3))
		require.ErrorIs(t, err, sequencer.ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		err = f.Do(t.Context(), seq("a", 3), func(context.Context) error { t.Error("beside the first"); return nil })
		require.ErrorIs(t, err, sequencer.ErrBusy)
		require.ErrorIs(t, f.Advance(t.Context(), seq("a", 2)), lease.ErrStale)
		close(end)
		synctest.Wait()
		require.NoError(t, f.Advance(t.Context(), seq("a", 3)))
		require.True(t, f.Forget("a"))

		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, f.Do(ctx, seq("a", 9), func(context.Context) error { t.Error("after its context"); return nil }), context.Canceled)
		require.Zero(t, f.Marks()["a"], "nor was it seen")
	})
}

// A store that does not answer is waited for no longer than for others' work, whatever the caller's
// context says.
func TestAskingTheStoreIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFences(t, sequencer.WithPatience(3*time.Second), sequencer.WithReader(readerFunc(func(ctx context.Context, _ string) (lease.Record, error) {
			<-ctx.Done()
			return lease.Record{}, context.Cause(ctx)
		})))
		at := time.Now()
		err := f.Advance(t.Context(), seq("a", 2))
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(at))
		require.Empty(t, f.Marks())
	})
}

// Tokens that were made up cost the store no more than ten requests a second, at once or one after the
// other, be the lease held or free, and do not keep the holder out for longer than that.
func TestForgedTokensAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		stored := keep(t, store, "reader")
		var asked atomic.Int64
		f := newFences(t, sequencer.WithReader(readerFunc(func(ctx context.Context, name string) (lease.Record, error) {
			asked.Add(1)
			time.Sleep(time.Millisecond)
			return stored.Get(ctx, name)
		})))
		_, term := hold(t, keep(t, store, "a"), "job")
		for _, name := range []string{"job", "free"} {
			asked.Store(0)
			began := time.Now()
			var all sync.WaitGroup
			for i := range lease.Token(400) {
				all.Go(func() { require.ErrorIs(t, f.Advance(t.Context(), seq(name, 1000+i)), lease.ErrStale) })
			}
			all.Wait()
			for i := range lease.Token(20) {
				require.ErrorIs(t, f.Advance(t.Context(), seq(name, 2000+i)), lease.ErrStale)
			}
			require.LessOrEqual(t, asked.Load(), int64(time.Since(began)/(100*time.Millisecond))+1, name)
			require.Less(t, time.Since(began), 3*time.Second)
		}
		var forging sync.WaitGroup
		for i := range lease.Token(100) {
			forging.Go(func() { require.ErrorIs(t, f.Advance(t.Context(), seq("job", 3000+i)), lease.ErrStale) })
		}
		began := time.Now()
		require.NoError(t, f.Advance(t.Context(), of(t, term)))
		require.Less(t, time.Since(began), 250*time.Millisecond)
		forging.Wait()
	})
}

// Who asks for others ends: they ask themselves, and are not told that.
func TestAnAskerThatEndsIsNotTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		stored := keep(t, store, "reader")
		f := newFences(t, sequencer.WithReader(readerFunc(func(ctx context.Context, name string) (lease.Record, error) {
			select {
			case <-time.After(time.Second):
				return stored.Get(ctx, name)
			case <-ctx.Done():
				return lease.Record{}, ctx.Err()
			}
		})))
		_, term := hold(t, keep(t, store, "a"), "job")
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- f.Advance(ctx, of(t, term)) }()
		synctest.Wait()
		second := make(chan error, 1)
		go func() { second <- f.Advance(t.Context(), of(t, term)) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-first, lease.ErrUnknown)
		require.NoError(t, <-second)
	})
}
