package remembertest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/lease"
)

var ownerCases = []testCase{
	{"stale-update", staleUpdate},
	{"stale-load", staleLoad},
	{"concurrent-updates", concurrentUpdates},
	{"updates-while-succeeded", succeeded},
	{"no-token", noToken},
}

// tokenless is an ownership of a name without its token.
type tokenless struct{ lease.Ownership }

func (tokenless) Token() lease.Token { return 0 }

// noToken: who has no token gets nowhere, whether the shard has an owner, had one, or
// never had.
func noToken(k *kit, o lease.Ownership) {
	k.update(o, []string{"a"}, nil)
	next := k.own("shard/g/t/2") // nothing was ever asked under it
	for _, none := range []lease.Ownership{tokenless{o}, tokenless{next}} {
		ctx, cancel := k.ctx()
		ids, err := k.store.Load(ctx, none)
		cancel()
		if !errors.Is(err, lease.ErrInvalid) || len(ids) > 0 {
			k.Errorf("a Load with token 0 must be refused with lease.ErrInvalid: %q, %v", ids, err)
		}
		if err := k.tryUpdate(none, []string{"b"}, []string{"a"}); !errors.Is(err, lease.ErrInvalid) {
			k.Errorf("an Update with token 0 must be refused with lease.ErrInvalid: %v", err)
		}
	}
	k.stands(o, "what is written with token 0 is not applied", "a")
	k.stands(next, "what is written with token 0 is not applied")
}

func staleUpdate(k *kit, old lease.Ownership) {
	k.update(old, []string{"a", "b"}, nil)
	next := k.own(name)
	k.stands(next, "the next owner sees what stands", "a", "b")
	for _, u := range [][2][]string{
		{{"c"}, nil}, {nil, {"a"}}, {{"c"}, {"a"}}, {{"a"}, nil}, {nil, {"c"}}, {numbered(300), {"a"}}, {nil, nil},
	} {
		k.refused(k.tryUpdate(old, u[0], u[1]), "an Update")
	}
	k.stands(next, "a stale Update applies nothing", "a", "b")
	k.update(next, []string{"c"}, []string{"a"})
	k.refused(k.tryUpdate(old, []string{"a"}, []string{"c"}), "an Update")
	k.stands(next, "a stale Update applies nothing", "b", "c")
}

func staleLoad(k *kit, first lease.Ownership) {
	k.update(first, []string{"a"}, nil)
	second := k.own(name)
	k.load(second)
	third := k.own(name)
	k.load(third)
	for _, old := range []lease.Ownership{first, second} {
		ctx, cancel := k.ctx()
		ids, err := k.store.Load(ctx, old)
		cancel()
		k.refused(err, "a Load")
		if len(ids) > 0 {
			k.Errorf("a stale Load returned ids: %q", ids)
		}
	}
	k.update(third, []string{"b"}, nil) // a stale Load does not turn the fence back
	k.refused(k.tryUpdate(second, []string{"c"}, nil), "an Update")
	k.stands(third, "what the last owner wrote", "a", "b")
}

// concurrentUpdates: of different ids, none is lost.
func concurrentUpdates(k *kit, o lease.Ownership) {
	const writers, rounds = 8, 10
	errs := make([]error, writers)
	want := make([][]string, writers)
	together(writers, func(w int) {
		before := ""
		for r := range rounds {
			id := fmt.Sprintf("%d/%d", w, r)
			add, remove := []string{id, id + "/stays"}, []string{}
			if before != "" {
				remove = append(remove, before)
			}
			if errs[w] = k.tryUpdate(o, add, remove); errs[w] != nil {
				return
			}
			want[w] = append(want[w], id+"/stays")
			before = id
		}
		want[w] = append(want[w], before)
	})
	if err := errors.Join(errs...); err != nil {
		k.Fatalf("Updates of one owner at one time must be applied: %v", err)
	}
	k.stands(o, "Updates at one time", slices.Concat(want...)...)
}

// succeeded: an owner writes on while it is succeeded. What was confirmed to it is
// in what the next one loads, and nothing comes after that.
func succeeded(k *kit, _ lease.Ownership) {
	before := []string{}
	for round := range 5 {
		old := k.own(name)
		k.stands(old, "what the one before left", before...)
		const writers = 4
		var written atomic.Int64
		confirmed, errs := make([][]string, writers), make([]error, writers)
		warm, fenced, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			together(writers, func(w int) {
				for i, left := 0, 5; left > 0; i++ {
					select {
					case <-fenced: // a few that must be refused
						left--
					default:
					}
					id := fmt.Sprintf("%d/%d/%d", round, w, i)
					if errs[w] = k.tryUpdate(old, []string{id}, nil); errs[w] != nil {
						return
					}
					confirmed[w] = append(confirmed[w], id)
					if written.Add(1) == 10 {
						close(warm)
					}
				}
			})
		}()
		select {
		case <-warm:
		case <-done:
			k.Fatalf("Updates by the owner must be applied: %v", errors.Join(errs...))
		}
		next := k.own(name)
		loaded := k.load(next)
		close(fenced)
		<-done
		for w, err := range errs {
			k.refused(err, "an Update")
			for _, id := range confirmed[w] {
				if _, ok := slices.BinarySearch(loaded, id); !ok {
					k.Fatalf("%q was confirmed and is not in what the next owner loaded", id)
				}
			}
		}
		k.stands(next, "nothing is applied for an old owner once the next has loaded", loaded...)
		before = loaded
	}
}
