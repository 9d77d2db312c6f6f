package leasetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/lease"
)

var readCases = []testCase{
	{name: "read/get", run: func(t *T) {
		a, b := t.node(), t.node()
		ra, rb := a.win("a"), b.win("b/c")
		t.check(len(a.get("free")) == 0, ruleGet, "a name that nobody holds: %+v", a.get("free"))
		t.check(len(a.get("b", "b/", "b/c/d", "B/C")) == 0, ruleGet, "names near a held one: %+v", a.get("b", "b/", "b/c/d", "B/C"))
		found := b.get("free", "b/c", "none", "a")
		t.require(len(found) == 2, ruleGet, "two of four names are held, got %+v", found)
		t.sameRecord(found["a"], ra, ruleGet)
		t.sameRecord(found["b/c"], rb, ruleGet)
		a.freed(ra)
		t.check(len(b.get("a", "b/c")) == 1, ruleGet, "one of two names is held, got %+v", b.get("a", "b/c"))
	}},
	{name: "read/after-every-write", run: func(t *T) {
		n, other := t.node(), t.node()
		for range 60 {
			r := n.win("a")
			other.stands(r, ruleSeenByAll)
			r = n.winClaim(t.supersede(r), ruleSupersede)
			other.stands(r, ruleSeenByAll)
			n.freed(r)
			other.free("a", ruleSeenByAll)
		}
	}},
	{name: "read/list-prefix", needs: needList, run: readListPrefix},
	{name: "read/list-many", needs: needList, run: readListMany},
	{name: "read/list-among-changes", needs: needList, run: readListChanging},
	{name: "read/list-unsupported", needs: needNoList, run: func(t *T) {
		n := t.node()
		n.win("a")
		for _, prefix := range []string{"", "a", "none"} {
			_, err := t.listAll(n.store, prefix)
			t.check(errors.Is(err, lease.ErrUnsupported), ruleUnsupported, "List of %q: %v", prefix, err)
		}
	}},
	{name: "read/names", run: readNames},
	{name: "read/owners", run: readOwners},
	{name: "read/metadata", run: readMetadata},
	{name: "read/granted", run: readGranted},
	{name: "read/nonces", run: func(t *T) {
		n := t.node()
		for i, nonce := range []uint64{1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 1, math.MaxUint64} {
			c := t.claim(fmt.Sprintf("nonce/%d", i))
			c.Nonce = nonce
			r := n.winClaim(c, ruleFree)
			n.stands(r, ruleRoundTrip)
			n.freed(r)
		}
	}},
	{name: "read/ttl", run: func(t *T) {
		short, long := t.brief(), t.node()
		a, b := short.win("a"), long.win("b")  // their TTLs are checked here
		if got, ok := long.get("a")["a"]; ok { // short may be over on a slow machine
			t.sameRecord(got, a, ruleRecordTTL)
		}
		short.get("b")
		short2 := short.again()
		got := short2.get("b")["b"]
		t.sameRecord(got, b, ruleRecordTTL)
	}},
}

func readListPrefix(t *T) {
	n := t.node()
	names := []string{
		"a", "ab", "a/b", "a/b/c", "a/bc", "a/b-c", "a_c", "a%c", "a*c", "a?c", "a[bc", "a.c", "a\\c", "a c", "axc", "A/b", "b/a", "ä/b", "aä",
	}
	for _, name := range names {
		n.win(name)
	}
	for _, prefix := range append([]string{"", "a/", "a/b/", "a/b/c/", "A", "ä", "aa", "zz", "b"}, names...) {
		want := make(map[string]bool)
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				want[name] = true
			}
		}
		found := n.list(prefix)
		for name, r := range found {
			t.check(want[name], ruleList, "prefix %q gave %q", prefix, name)
			t.check(r.Name == name && r.Owner == n.session.Owner && r.Session == n.session.ID, ruleList, "prefix %q gave %+v", prefix, r)
		}
		for name := range want {
			_, ok := found[name]
			t.check(ok, ruleList, "prefix %q did not give %q", prefix, name)
		}
	}
}

// readListMany lists more than a page of any store, whole and broken off.
func readListMany(t *T) {
	first := t.node()
	size := t.batch(first.store, large)
	held := make(map[string]lease.Record)
	for s := range 3 {
		n := t.node()
		claims := make([]lease.Claim, size)
		for i := range claims {
			claims[i] = t.claim(fmt.Sprintf("m/%d/%d", s, i))
		}
		for i, out := range n.acquire(claims...) {
			t.require(out.OK, ruleBatchAll, "claim %d of %d was refused: %+v", i, size, out)
			held[out.Record.Name] = out.Record
		}
	}
	found := first.list("m/")
	t.require(len(found) == len(held), ruleList, "%d names are held, %d were listed", len(held), len(found))
	for name, r := range held {
		t.sameRecord(found[name], r, ruleList)
	}
	t.check(len(first.list("m/1/")) == size, ruleList, "%d names have the prefix, %d were listed", size, len(first.list("m/1/")))
	ctx, cancel := t.context()
	defer cancel()
	seen := 0
	for _, err := range first.store.List(ctx, "m/") {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if seen++; seen == 10 {
			break
		}
	}
	t.check(len(first.list("m/2/")) == size, ruleList, "after a listing that was broken off: %d names, want %d", len(first.list("m/2/")), size)
}

// readListChanging lists while other names come and go: what stands all the
// while is listed every time.
func readListChanging(t *T) {
	n := t.node()
	names := n.many(30)
	var wg sync.WaitGroup
	for i := range 4 {
		other := t.node()
		wg.Go(func() {
			for j := range 40 {
				out, err := other.tryCtx(fmt.Sprintf("many/%d/x/%d", (i*40+j)%30, i))
				if err != nil {
					return
				}
				t.pace()
				ctx, cancel := t.context()
				_, err = t.releaseCtx(ctx, other.store, out.Record.Held())
				cancel()
				if err != nil {
					t.Errorf("Release: %v", err)
					return
				}
				t.pace()
			}
		})
	}
	for range 20 {
		found, err := t.listAll(n.store, "many/")
		if err != nil {
			t.Errorf("List: %v", err)
			break
		}
		for _, name := range names {
			r, ok := found[name]
			t.check(ok && r.Session == n.session.ID, ruleList, "%q, held all the while, was listed as %+v (%v)", name, r, ok)
		}
		t.pace()
	}
	wg.Wait()
}

func readNames(t *T) {
	n, other := t.node(), t.node()
	names := []string{
		"a b", " a ", "a%2Fb", "a%b", "%", "%00", "a+b", "a&b=c", "a?b#c", `a\b`, `"a"`, "'a'", "a:b", "a;b", "a|b", "a*", "$a", "{a}", "[a]",
		"a.b", ".", "..", "a/..", "ünï/cödé", "日本/語", "🦀", "e\u0301", "é", "Ａ", "case", "Case", "CASE",
		strings.Repeat("x", lease.MaxName), strings.Repeat("y/", lease.MaxName/2-1) + "yy", strings.Repeat("ß", lease.MaxName/2),
	}
	held := make(map[string]lease.Record)
	for _, name := range names {
		if err := lease.ValidateName(name); err != nil {
			t.Fatalf("the kit's own name: %v", err)
		}
		if t.holds(name) {
			held[name] = n.win(name)
		}
	}
	for name, r := range held {
		other.stands(r, ruleRoundTrip)
		other.refused(t.claim(name), r, ruleRoundTrip)
	}
	if _, err := t.listAll(n.store, ""); err == nil {
		found := other.list("")
		for name, r := range held {
			t.sameRecord(found[name], r, ruleRoundTrip)
		}
	}
	for name, r := range held {
		n.freed(r)
		other.free(name, ruleRoundTrip)
	}
}

func readOwners(t *T) {
	for i, o := range []lease.Owner{
		{ID: "plain", Incarnation: "i", Address: "host:1"},
		{ID: "no address", Incarnation: "inc"},
		{ID: "a/b%2F|\"'\\ c", Incarnation: "{x}:/%&= y", Address: "[::1]:8000"},
		{ID: "nœud-日本", Incarnation: "ïnc-🦀", Address: "bücher.example:1"},
		{ID: strings.Repeat("i", 300), Incarnation: strings.Repeat("n", 100), Address: strings.Repeat("a", 253) + ":65535"},
	} {
		o.Incarnation += fmt.Sprint(i)
		n := t.open(t.client(), o, t.node().session.TTL)
		r := n.win(fmt.Sprintf("owner/%d", i)) // its owner is checked here
		t.node().stands(r, ruleRoundTrip)
	}
}

func readMetadata(t *T) {
	n, other := t.node(), t.node()
	for i, m := range []map[string]string{
		nil,
		{},
		{"k": "v"},
		{"": "empty key", "empty value": ""},
		{"a=b": "c=d", "a;b": "c,d", "line\nbreak": "tab\t\"quoted\" 'single' \\ %20 {}[]<>&"},
		{"ключ": "значение", "日本": "語", "🦀": "e\u0301"},
		{"long": strings.Repeat("0123456789abcdef", 256)},
		{"1": "1", "2": "2", "3": "3", "4": "4", "5": "5", "6": "6", "7": "7", "8": "8", "9": "9"},
	} {
		if !t.fits(m) {
			continue
		}
		c := t.claim(fmt.Sprintf("meta/%d", i))
		c.Metadata = m
		r := n.winClaim(c, ruleFree)
		other.stands(r, ruleRoundTrip)
		other.refused(t.claim(c.Name), r, ruleRoundTrip)
		if found, err := t.listAll(other.store, c.Name); err == nil {
			t.sameRecord(found[c.Name], r, ruleRoundTrip)
		}
	}
}
