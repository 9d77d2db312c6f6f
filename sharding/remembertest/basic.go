package remembertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

var basicCases = []testCase{
	{"updates", updates},
	{"without-load", func(k *kit, _ lease.Ownership) {
		o := k.own(name)
		k.update(o, []string{"a"}, nil)
		k.stands(o, "an owner may write before it loads", "a")
	}},
	{"many", many},
	{"odd-ids", oddIDs},
	{"bad-ids", badIDs},
	{"bad-owners", badOwners},
	{"shards-do-not-mix", shardsApart},
}

// updates makes each Update twice, as may be done, with an owner of its own.
func updates(k *kit, o lease.Ownership) {
	k.stands(o, "a new shard is empty")
	for _, u := range []struct {
		why               string
		add, remove, want []string
	}{
		{"what was added stands", []string{"a", "b"}, nil, []string{"a", "b"}},
		{"what stood stays", []string{"c"}, nil, []string{"a", "b", "c"}},
		{"what was removed is gone, and nothing else", []string{"d"}, []string{"b"}, []string{"a", "c", "d"}},
		{"an Update of nothing changes nothing", nil, nil, []string{"a", "c", "d"}},
		{"removals come after additions", []string{"new", "a", "stays"}, []string{"new", "a"}, []string{"c", "d", "stays"}},
		{"ids may come twice, and stand or not", []string{"b", "c", "b"}, []string{"never", "d", "d"}, []string{"b", "c", "stays"}},
		{"all was removed", nil, []string{"b", "c", "stays"}, nil},
		{"what was removed may be added again", []string{"a"}, nil, []string{"a"}},
	} {
		k.update(o, u.add, u.remove)
		k.stands(o, u.why, u.want...)
		k.update(o, u.add, u.remove)
		k.stands(o, u.why+", and the Update may be repeated", u.want...)
		o = k.own(name)
		k.stands(o, u.why+", and the next owner sees it", u.want...)
	}
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("entity-%05d", i)
	}
	return ids
}

func many(k *kit, o lease.Ownership) {
	ids := numbered(3000)
	k.update(o, ids, nil)
	k.stands(o, "3000 ids stand", ids...)
	k.update(o, []string{"more"}, ids[1:])
	k.stands(k.own(name), "2999 ids were removed", ids[0], "more")
}

func oddIDs(k *kit, o lease.Ownership) {
	ids := []string{
		"a/b", "a", "b", "/", "//", "a/", "/a", "%", "%2F", "a%2Fb", "%%", "ü", "u\u0308", ".", "..", " ", "a b", "+", "?x#y",
		"\x00", "a\x00", "\n", "\x7f", "0", "A", "日本", "\U0010ffff",
		strings.Repeat("x", sharding.MaxEntityID), strings.Repeat("x", sharding.MaxEntityID-1),
		strings.Repeat("/", sharding.MaxEntityID), strings.Repeat("ü", sharding.MaxEntityID/2),
	}
	k.update(o, ids, nil)
	k.stands(o, "ids come back as they were given", ids...)
	for i, id := range ids {
		k.update(o, nil, []string{id})
		k.stands(o, fmt.Sprintf("only %.20q was removed", id), ids[i+1:]...)
	}
}

func badIDs(k *kit, o lease.Ownership) {
	k.update(o, []string{"a"}, nil)
	for _, bad := range []string{"", "\xff", "a\xc3", strings.Repeat("x", sharding.MaxEntityID+1)} {
		for _, ids := range [][2][]string{
			{{"b", bad}, {"a"}},
			{{"b"}, {"a", bad}},
			{slices.Concat(numbered(300), []string{bad}), {"a"}},
		} {
			if err := k.tryUpdate(o, ids[0], ids[1]); !errors.Is(err, lease.ErrInvalid) {
				k.Fatalf("an Update with the id %.20q must be lease.ErrInvalid: %v", bad, err)
			}
		}
	}
	k.stands(o, "an Update with an invalid id applies nothing", "a")
}

func badOwners(k *kit, o lease.Ownership) {
	ctx, cancel := k.ctx()
	defer cancel()
	for what, bad := range map[string]lease.Ownership{"nil": nil, "without a name": nameless{o}} {
		if _, err := k.store.Load(ctx, bad); !errors.Is(err, lease.ErrInvalid) {
			k.Errorf("a Load by an owner that is %s must be lease.ErrInvalid: %v", what, err)
		}
		if err := k.tryUpdate(bad, []string{"a"}, nil); !errors.Is(err, lease.ErrInvalid) {
			k.Errorf("an Update by an owner that is %s must be lease.ErrInvalid: %v", what, err)
		}
	}
}

type nameless struct{ lease.Ownership }

func (nameless) Name() string { return "" }

// shardsApart: names that begin alike, and names and ids that read alike when put
// together, are different shards.
func shardsApart(k *kit, _ lease.Ownership) {
	names := []string{"shard/g/t/1", "shard/g/t/11", "shard/g/t", "shard/g/t/1/2", "shard/g/T/1", "shard/g/t%2F1"}
	owners, want := map[string]lease.Ownership{}, map[string][]string{}
	for _, n := range names {
		owners[n] = k.own(n)
		k.stands(owners[n], n+" begins empty")
		want[n] = []string{n, "1", "1/2", "11", "2", "t/1"}
		k.update(owners[n], want[n], nil)
	}
	for _, n := range names {
		k.update(owners[n], nil, []string{"1"})
		want[n] = slices.DeleteFunc(want[n], func(id string) bool { return id == "1" })
		for _, other := range names {
			k.stands(owners[other], fmt.Sprintf("%s after a removal in %s", other, n), want[other]...)
		}
	}
	stale := owners[names[0]]
	k.stands(k.own(names[0]), "the next owner", want[names[0]]...)
	k.refused(k.tryUpdate(stale, []string{"x"}, nil), "an Update")
	for _, n := range names[1:] {
		k.update(owners[n], []string{"x"}, nil) // their owners stay
	}
	k.stands(k.own(names[0]), "an Update of other shards", want[names[0]]...)
}
