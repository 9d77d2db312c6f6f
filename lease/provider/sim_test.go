package provider_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/provider"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var histories = simulate.New("provider", 600, 10000)

// Processes act in the names of three owners on two keys, over a store that is slow, loses requests
// and replies, and applies some long after their callers gave up. What an owner was told to have no
// other gets before it expires, unless somebody gave it up in that owner's name since, nor is that
// owner told that it does not have it; tokens grow; and what was answered can be put into one order.
func TestHistories(t *testing.T) {
	histories.Run(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { play(t, histories.Random(seed)) })
	})
}

func play(t *testing.T, r *simulate.Random) {
	j := &journal{t: t, ttls: []time.Duration{2 * time.Second, 2 * time.Second, 5 * time.Second}, began: time.Now()}
	if r.IntN(2) == 0 {
		j.ttls, j.linear = []time.Duration{24 * time.Hour, 24 * time.Hour, 48 * time.Hour}, true // nothing expires
	}
	backing := memory.New()
	var all sync.WaitGroup
	for n := range 3 {
		db := faultstore.Wrap(backing)
		var mu sync.Mutex
		faulty := r.IntN(4) > 0
		draw := fork(r)
		db.SetRule(func(faultstore.Call) faultstore.Fault {
			mu.Lock()
			defer mu.Unlock()
			f := faultstore.Fault{Kind: faultstore.Delay, Delay: time.Duration(draw.IntN(int(20 * time.Millisecond)))}
			if faulty && draw.IntN(5) == 0 {
				f.Kind = []faultstore.Kind{faultstore.Drop, faultstore.ApplyThenFail, faultstore.LandLate, faultstore.ReplyLate, faultstore.Deny}[draw.IntN(5)]
				f.Delay = simulate.Spread(draw.Float64(), 10*time.Millisecond, 4*time.Second)
				f.Hang = draw.IntN(2) == 0
			}
			return f
		})
		p := must(provider.New(db))(t)
		own, taken := fork(r), make([]bool, 40)
		for i := range taken {
			taken[i] = r.Step()
		}
		simulate.Go(t, &all, func() {
			for _, taken := range taken {
				if taken {
					j.act(n, p, own)
				}
				time.Sleep(simulate.Spread(own.Float64(), time.Millisecond, 3*time.Second))
			}
			db.SetRule(nil)
		})
	}
	all.Wait()
	j.check()
	// What was left unknown is settled by calling again, and then all can be had.
	p := must(provider.New(backing))(t)
	for _, key := range keys {
		time.Sleep(10 * time.Second) // no request is under way
		owner := must(p.Owner(t.Context(), key))(t)
		if owner != "" {
			require.NoError(t, p.Release(t.Context(), key, owner))
		}
		got := must(p.Acquire(t.Context(), key, "z", time.Second))(t)
		require.True(t, got.Acquired)
	}
}

var (
	keys   = []string{"k", "l/m"}
	owners = []string{"a", "b", "c"}
)

// journal is what was done, and what was answered.
type journal struct {
	t      *testing.T
	ttls   []time.Duration
	linear bool
	began  time.Time

	mu     sync.Mutex
	ops    []op
	giving map[string]bool // key and owner
}

// op is one call.
type op struct {
	what, key, owner, to string
	ttl                  time.Duration
	from, until          time.Time
	result               provider.Result
	ok                   bool // of Renew and Transfer
	err                  error
	process              int
}

func (o op) String() string {
	return fmt.Sprintf("%v to %v, %d: %s %s %s %s %v: %+v %v %v\n", o.from.Format("04:05.000"), o.until.Format("04:05.000"), o.process, o.what, o.key, o.owner, o.to, o.ttl, o.result, o.ok, o.err)
}

// fork makes a source of one process's own.
func fork(r *simulate.Random) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), 0)) }

func (j *journal) act(n int, p *provider.Provider, r *rand.Rand) {
	o := op{key: keys[r.IntN(len(keys))], owner: owners[r.IntN(len(owners))], process: n, from: time.Now()}
	o.ttl = j.ttls[r.IntN(len(j.ttls))]
	ctx, cancel := context.WithTimeout(j.t.Context(), simulate.Spread(r.Float64(), 10*time.Millisecond, 2*time.Second))
	defer cancel()
	switch k := r.IntN(12); {
	case k >= 6 && k < 10 && !j.mayGive(o):
		return // of two at a time one may hand over what the other frees
	case k < 5:
		o.what = "acquire"
		o.result, o.err = p.Acquire(ctx, o.key, o.owner, o.ttl)
	case k < 6:
		o.what = "renew"
		o.ok, o.err = p.Renew(ctx, o.key, o.owner, o.ttl)
	case k < 8:
		o.what = "release"
		o.err = p.Release(ctx, o.key, o.owner)
	case k < 10:
		o.what, o.to = "transfer", owners[r.IntN(len(owners))]
		o.ok, o.err = p.Transfer(ctx, o.key, o.owner, o.to, o.ttl)
	default:
		o.what = "owner"
		o.result.Owner, o.err = p.Owner(ctx, o.key)
	}
	o.until = time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if o.what == "release" || o.what == "transfer" {
		delete(j.giving, o.key+o.owner)
	}
	j.ops = append(j.ops, o)
}

// mayGive reports whether nobody gives up that key in that owner's name just now.
func (j *journal) mayGive(o op) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.giving == nil {
		j.giving = map[string]bool{}
	}
	was := j.giving[o.key+o.owner]
	j.giving[o.key+o.owner] = true
	return !was
}

// wins reports whether o made its owner, or to, the owner.
func (o op) wins() (owner string, ok bool) {
	switch {
	case o.err != nil:
		return "", false
	case o.what == "transfer":
		return o.to, o.ok
	}
	return o.owner, o.what == "acquire" && o.result.Acquired || o.what == "renew" && o.ok
}

// ends reports whether o, under way at the time or later, may end what was held.
func (o op) ends(held op) bool {
	if o.owner != held.owner {
		return o.to == held.owner && o.ttl != held.ttl
	}
	return o.what == "release" || o.what == "transfer" || o.what != "owner" && o.ttl != held.ttl
}

// losing reports whether o's answer says that owner did not have the key, as far as it was asked for.
func (o op) losing(owner string) bool {
	switch {
	case o.err != nil || o.ok:
		return false
	case o.what == "transfer":
		return o.owner == owner || o.to == owner
	}
	return o.what == "renew" && o.owner == owner
}

// givenUp reports whether another call than o may have the key be given up in owner's name: one under
// way at the time, or before that, of which a part may have been applied or be so late.
func (j *journal) givenUp(o op, owner string) bool {
	return slices.ContainsFunc(j.ops, func(g op) bool {
		return g != o && g.key == o.key && g.owner == owner && (g.what == "release" || g.what == "transfer") &&
			g.from.Before(o.until) && (g.until.After(o.from) || g.err != nil)
	})
}

func (j *journal) check() {
	for _, o := range j.ops {
		if o.err != nil {
			require.False(j.t, errors.Is(o.err, lease.ErrInvalid) || errors.Is(o.err, lease.ErrInconsistent), "%v", o)
		}
	}
	for _, held := range j.ops {
		if held.err != nil || !held.result.Acquired {
			continue
		}
		for _, o := range j.ops {
			if o.key == held.key && o.losing(held.owner) && !o.from.Before(held.until) && o.until.Before(held.result.Expires) {
				gaveUp := j.givenUp(o, held.owner) || slices.ContainsFunc(j.ops, func(g op) bool {
					return g != o && g.key == held.key && g.until.After(held.from) && g.from.Before(o.until) && g.ends(held)
				})
				require.True(j.t, gaveUp, "%s was told that it does not have it:\n%v%v%v", held.owner, held, o, j.ops)
			}
			other, won := o.wins()
			if !won || o.key != held.key || other == held.owner {
				continue
			}
			if o.until.Before(held.result.Expires) && o.from.After(held.until) {
				gaveUp := slices.ContainsFunc(j.ops, func(g op) bool {
					return g.key == held.key && g.until.After(held.from) && g.from.Before(o.until) && g.ends(held)
				})
				require.True(j.t, gaveUp, "%s had it:\n%v%v%v", held.owner, held, o, j.ops)
			}
			if o.what == "acquire" && o.from.After(held.until) {
				require.Greater(j.t, o.result.Token, held.result.Token, "%v%v", held, o)
			}
		}
	}
	if j.linear {
		for _, key := range keys {
			j.linearizable(key)
		}
	}
}

// has is the state of the model of a key: who has it, and no lower token is given any more.
type has struct {
	owner string
	token lease.Token
	mark  bool // it came back by a mark: its session may be closed late, by a call that had seen nothing under it
}

// linearizable: where nothing expires the answers about a key are those of one that is asked by one
// after the other. What is unknown may have been applied at any time after, or not at all.
func (j *journal) linearizable(key string) {
	var ops []porcupine.Operation
	for _, o := range j.ops {
		unknown := errors.Is(o.err, lease.ErrUnknown)
		if o.key != key || o.err != nil && !unknown {
			continue // nothing was changed
		}
		end := o.until.Sub(j.began).Nanoseconds()
		if unknown {
			end = math.MaxInt64
		}
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: o, Call: o.from.Sub(j.began).Nanoseconds(), Output: o, Return: end})
	}
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{has{}} },
		Step: func(s, in, _ any) []any {
			state, o := s.(has), in.(op)
			steps := j.steps(state, o)
			if state.mark {
				steps = append(steps, j.steps(has{token: state.token}, o)...)
			}
			return steps
		},
		Equal: func(a, b any) bool { return a == b },
	}
	order := porcupine.CheckOperationsTimeout(model.ToModel(), ops, 0)
	said := ""
	for _, o := range ops {
		said += o.Input.(op).String()
	}
	require.Equal(j.t, porcupine.Ok, order, "no order explains what was answered about %q:\n%s\n%v", key, said, j.ops)
}

// steps are the states that o may lead to.
func (j *journal) steps(state has, o op) []any {
	next, fits := state.after(o, j.givenUp)
	next.mark = next.mark && !o.ok // a renewal, and a hand-over, put a claim in its place
	switch {
	case o.err == nil && fits:
		return []any{next}
	case o.err == nil:
		return nil
	case state.owner == "": // what was to mark the record has come after its end
		return []any{state, next, has{o.owner, state.token, true}, has{o.to, state.token, true}}
	}
	return []any{state, next}
}

// after is the state after o, and whether o's answer fits it. Of an unknown one only the state
// counts.
func (s has) after(o op, givenUp func(o op, owner string) bool) (has, bool) {
	mine := s.owner == o.owner
	again := func(owner string) (has, bool) { // what is freed while its TTL changes
		return has{owner, s.token, false}, s.owner == "" && o.ok && givenUp(o, owner)
	}
	switch o.what {
	case "owner":
		return s, o.result.Owner == s.owner
	case "renew":
		if next, ok := again(o.owner); ok {
			return next, true
		}
		return s, o.ok == mine || mine && givenUp(o, o.owner)
	case "release":
		if mine {
			return has{"", s.token, false}, true
		}
		return s, true
	case "transfer":
		if s.owner == o.to && s.owner != "" {
			return s, o.ok || givenUp(o, o.to)
		}
		if mine {
			return has{o.to, s.token, false}, o.ok
		}
		if next, ok := again(o.to); ok {
			return next, true
		}
		return s, !o.ok
	}
	if s.owner != "" && !mine {
		return s, !o.result.Acquired && o.result.Owner == s.owner
	}
	fits := o.result.Acquired && (mine && o.result.Token >= s.token || o.result.Token > s.token)
	return has{o.owner, max(s.token, o.result.Token), false}, fits
}
