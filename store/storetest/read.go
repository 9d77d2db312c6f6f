package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// The cases alike/* and limits/names read odd names.
var readCases = []testCase{
	{name: "read/get", run: two(func(t *storeT, a, b *node) {
		ra, rb := a.win("a"), b.win("b/c")
		t.check(len(a.get("free")) == 0, ruleGet, "a name that is free: %+v", a.get("free"))
		t.check(len(a.get("b", "b/", "b/c/d", "B/C")) == 0, ruleGet, "names near a held one: %+v", a.get("b", "b/", "b/c/d", "B/C"))
		found := b.get("free", "b/c", "none", "a")
		t.require(len(found) == 2, ruleGet, "two of four names are held, got %+v", found)
		t.sameRecord(found["a"], ra, ruleGet)
		t.sameRecord(found["b/c"], rb, ruleGet)
		a.freed(ra)
		t.check(len(b.get("a", "b/c")) == 1, ruleGet, "one of two names is held, got %+v", b.get("a", "b/c"))
	})},
	{name: "read/after-every-write", run: two(func(t *storeT, n, other *node) {
		for range 60 {
			r := n.win("a")
			other.stands(r, ruleSeenByAll)
			r = n.superseded(r)
			other.stands(r, ruleSeenByAll)
			n.freed(r)
			other.free("a", ruleSeenByAll)
		}
	})},
	{name: "read/list-many", needs: needList, run: one(readListMany)},
	{name: "read/list-among-changes", needs: needList, run: one(func(t *storeT, n *node) {
		n.listsAmongChanges(t.nodes(4), n.prefix("many/"))
	})},
	{name: "read/list-unsupported", needs: needNoList, run: held(func(t *storeT, n, _ *node) {
		for _, prefix := range []string{"", "a", "none"} {
			_, err := n.prefix(prefix).all(t)
			t.check(errors.Is(err, store.ErrUnsupported), ruleUnsupported, "List of %q: %v", prefix, err)
		}
	})},
	{name: "read/owners", run: func(t *storeT) {
		for i, o := range []store.Owner{
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
	}},
	{name: "read/metadata", run: two(readMetadata)},
	{name: "read/granted", run: two(readGranted)},
	{name: "read/nonces", run: one(func(t *storeT, n *node) {
		for i, nonce := range []uint64{1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 1, math.MaxUint64} {
			r := n.winClaim(store.Claim{Name: fmt.Sprintf("nonce/%d", i), Nonce: nonce}, ruleFree)
			n.stands(r, ruleRoundTrip)
			n.freed(r)
		}
	})},
	{name: "read/ttl", run: brief(func(t *storeT, short, long *node) {
		a := short.own
		b := long.win("b")                     // their TTLs are checked here
		if got, ok := long.get("a")["a"]; ok { // short may be over on a slow machine
			t.sameRecord(got, a, ruleRecordTTL)
		}
		t.sameRecord(short.again().get("b")["b"], b, ruleRecordTTL)
	})},

	{name: "listed/own", needs: needSessionList, run: listedOwn},
	{name: "listed/after-every-write", needs: needSessionList,
		run: two(func(t *storeT, n, other *node) {
			for i := range 30 {
				r := n.win(fmt.Sprintf("a/%d", i%3))
				other.lists(n, r)
				r = n.superseded(r)
				other.lists(n, r)
				n.freed(r)
				other.lists(n)
			}
		})},
	{name: "listed/moved", needs: needSessionList, run: two(func(t *storeT, a, b *node) {
		again := a.again()
		stays, goes := a.win("stays"), a.win("goes")
		goes = again.winClaim(t.supersede(goes), ruleSupersede)
		a.lists(a, stays)
		a.lists(again, goes)
		if t.can(needTransfer) {
			goes = again.give(goes, b)
			a.lists(again)
			a.lists(b, goes)
			back := b.give(goes, a)
			b.lists(a, stays, back)
			b.lists(b)
		}
	})},
	{name: "listed/many", needs: needSessionList, run: func(t *storeT) {
		const size = 1000 // more than a request of any store carries
		n, other := t.node(), t.node()
		other.winAll(numbered("m/%d/other", size), ruleBatchAll)
		other.lists(n, n.winAll(numbered("m/%d", size), ruleBatchAll)...)
	}},
	{name: "listed/among-changes", needs: needSessionList, run: one(func(t *storeT, n *node) {
		n.listsAmongChanges([]*node{n, n, n, n}, n.records(n))
	})},
}

// numbered are names that differ in a number.
func numbered(format string, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf(format, i)
	}
	return names
}

// readListMany lists more than a page of any store, whole and broken off.
func readListMany(t *storeT, n *node) {
	size := t.batch(n.store, large)
	held := make(map[string]store.Record)
	for s := range 3 {
		for _, r := range t.node().winAll(numbered(fmt.Sprintf("m/%d/%%d", s), size), ruleBatchAll) {
			held[r.Name] = r
		}
	}
	found := n.list("m/")
	t.require(len(found) == len(held), ruleList, "%d names are held, %d were listed", len(held), len(found))
	for name, r := range held {
		t.sameRecord(found[name], r, ruleList)
	}
	t.check(len(n.list("m/1/")) == size, ruleList, "%d names have the prefix, %d were listed", size, len(n.list("m/1/")))
	ctx, cancel := t.context()
	defer cancel()
	seen := 0
	for _, err := range n.store.List(ctx, store.Query{Prefix: "m/"}) {
		t.must(err, "List")
		if seen++; seen == 10 {
			break
		}
	}
	t.check(len(n.list("m/2/")) == size, ruleList, "after a listing that was broken off: %d names, want %d", len(n.list("m/2/")), size)
}

// listsAmongChanges lists while other names come and go: what stands all the while is listed
// every time.
func (n *node) listsAmongChanges(others []*node, l listing) {
	t := n.t
	names := n.many(30)
	wait := t.background(len(others), func(i int) {
		for j := range 40 {
			out := others[i].try(fmt.Sprintf("many/%d/x/%d", (i*40+j)%30, i))
			t.pace()
			others[i].release(out.Record.Held())
			t.pace()
		}
	})
	for range 20 {
		found, err := l.all(t)
		t.must(err, "a listing")
		for _, name := range names {
			r, ok := found[name]
			t.check(ok && r.Session == n.session.ID, l.rule, "%q, held all the while, was listed as %+v (%v)", name, r, ok)
		}
		t.pace()
	}
	wait()
}

func readMetadata(t *storeT, n, other *node) {
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
		c := t.claim(fmt.Sprintf("meta/%d", i))
		c.Metadata = m
		if n.store.Limits().ValidateClaim(c) != nil {
			continue
		}
		r := n.winClaim(c, ruleFree)
		other.stands(r, ruleRoundTrip)
		other.refused(t.claim(c.Name), r, ruleRoundTrip)
		if found, err := other.prefix(c.Name).all(t); err == nil {
			t.sameRecord(found[c.Name], r, ruleRoundTrip)
		}
	}
}

// readGranted lets time pass between two ownerships, and looks at the first again and again.
// A store may leave Granted out.
func readGranted(t *storeT, n, other *node) {
	pause := max(t.tick(), 20*time.Millisecond)
	r := n.win("a")
	if r.Granted.IsZero() {
		other.stands(r, ruleSeenByAll)
		return
	}
	for range 3 {
		time.Sleep(pause)
		n.renew()
		other.stands(r, ruleGranted)
	}
	next := n.superseded(r)
	other.stands(next, ruleGranted)
	// By one node, or by the store: of one clock, unless it is stepped.
	t.check(next.Granted.After(r.Granted), ruleGranted, "%v after an ownership of %v", next.Granted, r.Granted)
}

// lists requires that exactly want stand under of's session. It is fatal.
func (n *node) lists(of *node, want ...store.Record) {
	n.t.Helper()
	found, err := n.records(of).all(n.t)
	n.t.must(err, "List of a session")
	for _, r := range want {
		n.t.sameRecord(found[r.Name], r, ruleListed)
	}
	n.t.require(len(found) == len(want), ruleListed, "%d records stand under the session, listed were %+v", len(want), found)
}

// listsGone requires that of's session is said to be gone.
func (n *node) listsGone(of *node) {
	n.t.Helper()
	gone := n.t.eventually(func() bool {
		found, err := n.records(of).all(n.t)
		return errors.Is(err, store.ErrSessionGone) && len(found) == 0
	})
	n.t.inTime(gone, ruleListedGone, "the session is gone, and its records are listed")
}

func listedOwn(t *storeT) {
	a, b, empty := t.node(), t.node(), t.node()
	again := a.again() // of the same owner
	var ofA, ofAgain, ofB []store.Record
	for i := range 5 {
		c := t.claim(fmt.Sprintf("listed/a/%d", i))
		c.Metadata = map[string]string{"i": fmt.Sprint(i)}
		ofA = append(ofA, a.winClaim(c, ruleFree))
		ofAgain = append(ofAgain, again.win(fmt.Sprintf("listed/again/%d", i)))
		ofB = append(ofB, b.win(fmt.Sprintf("listed/a/%d/b", i)))
	}
	for _, from := range []*node{a, b} {
		from.lists(a, ofA...)
		from.lists(again, ofAgain...)
		from.lists(b, ofB...)
		from.lists(empty)
		from.listsGone(&node{t: t, store: a.store, session: t.newSession(a.session.Owner, t.ttl)}) // was never opened
	}
	done, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cancel()
	failed := false
	for _, err := range a.records(a).of(done) {
		failed = err != nil
	}
	t.check(failed, ruleWholeListing, "List of a session with a context that is done ended without an error")
	for range a.records(a).of(t.Context()) {
		break
	}
	a.lists(a, ofA...)
}
