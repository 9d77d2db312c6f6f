package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/store"
)

// Names are bytes. A database may compare text by a collation, pad it, bring it to a normal form, or
// read it as a pattern. A store must also keep to the limits that it states, and refuse values that not
// every reader can read: a Keeper refuses them itself, other callers do not.
var nameCases = []testCase{
	{name: "alike/claims", run: alikeClaims},
	{name: "alike/list", needs: needList, run: alikeList},

	{name: "limits/ttl", run: limitTTLs},
	{name: "limits/names", run: two(limitNames)},
	{name: "limits/metadata", run: two(limitMetadata)},

	{name: "invalid/claims", run: held(func(t *storeT, n, _ *node) {
		bad := []store.Claim{t.claim(""), t.claim("/a"), t.claim("a//b"), t.claim("a\xff"), t.claim("a\x00b"),
			t.claim(strings.Repeat("x", store.MaxName+1))}
		for _, m := range notUTF8 {
			c, over := t.claim("free"), t.supersede(n.own)
			c.Metadata, over.Metadata = m, m
			bad = append(bad, c, over)
		}
		for _, c := range bad {
			n.denied(c, store.ErrInvalid, ruleInvalid)
		}
	})},
	{name: "invalid/sessions", needs: needCalm, run: invalidSessions},
	{name: "invalid/offers", needs: needTransfer, run: held(invalidOffers)},
}

// alike are names that differ, and that a store may take for one another.
var alike = []string{
	// Case, also where it is of several letters or of one language.
	"job", "Job", "JOB", "step", "\u017ftep", "kelvin", "\u212aelvin", "strasse", "straße", "STRASSE",
	"i", "I", "\u0131", "\u0130", "σ", "ς", "Σ",
	// Spaces, and what is not seen.
	"pad", "pad ", "pad  ", " pad", "pad\u00a0", "pad\u200b", "pad\u00ad", "pad.", "p ad",
	// Normal forms of Unicode.
	"e", "é", "e\u0301", "A", "\u00c5", "\u212b", "A\u030a", "Ａ", "fi", "\ufb01", "1", "①", "한", "\u1112\u1161\u11ab",
	// Collations that see no accents, or nothing outside the basic plane.
	"resume", "résumé", "🦀", "🍣",
	// Patterns: LIKE, glob, regular expressions.
	"abc", "adc", "abbc", "ac", "a%c", "a_c", "a*c", "a?c", "a.c", "a.*c", "a[b]c", "a[^b]c", "a[!b]c", "a{b,d}c", "a(b|d)c", "a+c", "a|c", "^abc", "abc$",
	"%", "_", "*", "?", "[", "]", "{", "}", "%%", "**", "a%", "a_", "a*", "a?", "a[", "a]", "a{", "a}",
	// Quotes and escapes.
	`\`, `\\`, `a\c`, `a\\c`, `a\%c`, `a\_c`, `a\*c`, "'", "''", "a'c", "a''c", `"`, `a"c`, ":", "::", "a:c", "a;c", "a--c", "$1", "?1", ":a",
	"a/c", "a%2Fc", "a%2fc", "a c", "a%20c", "a%25c", "a&c", "a&amp;c",
	// Segments.
	"abc/d", "abc/d/e", "abcd", "abcd/e", "ab",
}

const alikeUnder = "alike/"

// alikeNames are those that the store holds.
func (t *storeT) alikeNames() (names []string) {
	for _, name := range alike {
		if name = alikeUnder + name; t.holds(name) {
			names = append(names, name)
		}
	}
	return names
}

// winAlike wins free names, one batch under each session.
func (t *storeT) winAlike(names []string) map[string]store.Record {
	t.Helper()
	won := make(map[string]store.Record, len(names))
	for batch := range slices.Chunk(names, t.batch(t.client(), len(names))) {
		for i, r := range t.node().winAll(batch, ruleAlike) {
			won[batch[i]] = r
		}
	}
	return won
}

func alikeClaims(t *storeT) {
	names := t.alikeNames()
	held := t.winAlike(names)
	other := t.node()
	stand := func() {
		t.Helper()
		for _, name := range names { // one by one, and then in one call
			if r, ok := held[name]; ok {
				other.stands(r, ruleAlike)
			} else {
				other.free(name, ruleAlike)
			}
		}
		some := names[:t.batch(other.store, len(names))]
		found := other.get(some...)
		for _, name := range some {
			t.check(found[name].Name == held[name].Name, ruleAlike, "%+q, of names that are alike: %+v", name, found[name])
		}
	}
	stand()
	for i, name := range names {
		if i%2 == 0 {
			other.freed(held[name])
			delete(held, name)
		}
	}
	stand()
	for i, name := range names {
		if i%2 == 0 {
			held[name] = t.winAlike([]string{name})[name]
		}
	}
	stand()
}

// alikeList lists by each name, each without its last letter, and all.
func alikeList(t *storeT) {
	names := t.alikeNames()
	held := t.winAlike(names)
	other := t.node()
	for _, r := range t.winAlike([]string{"Alike", "alik"}) {
		held[r.Name] = r
	}
	prefixes := map[string]bool{"": true, alikeUnder: true, "none": true}
	for _, name := range names {
		_, last := utf8.DecodeLastRuneInString(name)
		prefixes[name], prefixes[name[:len(name)-last]] = true, true
	}
	for prefix := range prefixes {
		found := other.list(prefix)
		for name := range found {
			t.check(strings.HasPrefix(name, prefix), ruleList, "prefix %+q gave %+q", prefix, name)
		}
		for name, r := range held {
			if strings.HasPrefix(name, prefix) {
				t.sameRecord(found[name], r, ruleList)
			}
		}
	}
}

// alikeWatched are prefixes that a store may take for patterns, or for one another.
func alikeWatched() (prefixes []string) {
	for _, p := range []string{"a", "a_", "a%", "a*", "a?", "a[b]", "a{b,d}", "a.", `a\`, "a'", `a"`, ":", "job", "JOB", "pad", "pad ", "e", "é", "A", "a/", "%"} {
		prefixes = append(prefixes, alikeUnder+p)
	}
	return prefixes
}

// holds tells whether a name is within the store's limits.
func (t *storeT) holds(name string) bool {
	check := t.client().Limits().CheckName
	return check == nil || check(name) == nil
}

// within claims a free name within the store's limits, which must succeed, and releases it. It is fatal.
func (n *node) within(observer *node, c store.Claim) {
	n.t.Helper()
	outs, err := n.acquires(c)
	n.t.require(err == nil && outs[0].OK, ruleWithin, "%s: %.300v, error %v", short(c), outs, err)
	observer.stands(outs[0].Record, ruleWithin)
	observer.refused(n.t.claim(c.Name), outs[0].Record, ruleRoundTrip)
	n.freed(outs[0].Record)
	observer.free(c.Name, ruleRoundTrip)
}

func limitTTLs(t *storeT) {
	s := t.client()
	most := s.Limits().MaxTTL
	if most == 0 {
		return
	}
	n := t.open(s, t.owner(), most)
	n.freed(n.win("limits/ttl"))
	for _, ttl := range []time.Duration{most + 1, most + most/2, math.MaxInt64} {
		if ttl > most {
			x := t.newSession(t.owner(), ttl)
			t.notOpened(s, x, ruleLimits)
			_, err := (&node{t: t, store: s, session: x}).acquires(t.claim("limits/ttl"))
			t.check(errors.Is(err, store.ErrSessionGone) || errors.Is(err, store.ErrInvalid), ruleLimits, "then a claim under it: error %v", err)
		}
	}
}

// notOpened checks that a session is refused as invalid.
func (t *storeT) notOpened(s store.Store, x store.Session, why rule) {
	t.Helper()
	ctx, cancel := t.context()
	defer cancel()
	g, err := s.OpenSession(ctx, x)
	t.check(errors.Is(errors.Join(err, g.Err), store.ErrInvalid), why, "session %+v: granted %+v, error %v", x, g, err)
}

// extremeNames are names that the keys of a store may not allow.
func extremeNames() []string {
	names := []string{
		".", "..", "a/..", "a/.", ".a", "a.", " ", "~", "-", "a\u2028b", "a\uffffb", "a\ufffeb", "\ufeffa", "a\U0010ffff", "con", "a:b",
		" a ", "%00", "a+b", "a?b#c", "$a", "ünï/cödé", "日本/語", strings.Repeat("y/", store.MaxName/2-1) + "yy",
	}
	for _, of := range []string{"x", "X", "%", " ", "_", "ß", "語", "🦀", "a/", "A/b/", "\u0085"} {
		for _, bytes := range []int{store.MaxName, 250, 64} {
			names = append(names, strings.TrimSuffix(strings.Repeat(of, bytes/len(of)), "/"))
		}
	}
	return append(names, alike...)
}

func limitNames(t *storeT, n, other *node) {
	for _, name := range extremeNames() {
		if t.holds(name) {
			n.within(other, t.claim(name))
		} else {
			n.denied(t.claim(name), store.ErrInvalid, ruleLimits)
		}
	}
}

// sized are metadata of so many bytes, of keys and values together, in several kinds.
func sized(bytes int) []map[string]string {
	return []map[string]string{
		{"k": strings.Repeat("v", bytes-1)},
		{strings.Repeat("k", bytes/2): strings.Repeat("v", bytes-bytes/2)},
		{"k": strings.Repeat("\x01", bytes-1)}, // texts are longer when they are escaped
		{"k": strings.Repeat("ß", (bytes-1)/2) + strings.Repeat("<", (bytes-1)%2)},
	}
}

func limitMetadata(t *storeT, n, other *node) {
	most := n.store.Limits().MaxMetadata
	if most == 0 {
		return
	}
	for _, m := range sized(most) {
		c := t.claim("limits/metadata")
		c.Metadata = m
		n.within(other, c)
	}
	standing := n.win("limits/stands")
	move := other.taking(standing.Held())
	for _, m := range append(sized(most+1), sized(2*most)...) {
		c, over := t.claim("limits/metadata"), t.supersede(standing)
		c.Metadata, over.Metadata, move.Metadata = m, m, m
		n.denied(c, store.ErrInvalid, ruleLimits)
		n.denied(over, store.ErrInvalid, ruleLimits)
		if t.can(needTransfer) {
			n.deniedMove(move, ruleLimits, store.ErrInvalid)
		}
	}
	if t.can(needTransfer) {
		move.Metadata = sized(most)[0]
		out := n.transfer(move)[0]
		t.require(out.OK, ruleWithin, "a move with %d bytes of metadata: %v", most, out.Err)
		n.stands(out.Record, ruleWithin)
	}
}

// notUTF8 are metadata that text formats do not keep.
var notUTF8 = []map[string]string{
	{"state": "\xff\xfe\x00\x80"}, {"\x80": "v"}, {"good": "v", "cut": "caf\xc3"}, {"surrogate": "\xed\xa0\x80"},
}

func invalidSessions(t *storeT) {
	s := t.client()
	for _, spoil := range []func(*store.Session){
		func(x *store.Session) { x.ID = 0 },
		func(x *store.Session) { x.ID = -x.ID },
		func(x *store.Session) { x.TTL = 0 },
		func(x *store.Session) { x.TTL = -time.Second },
		func(x *store.Session) { x.Owner.Incarnation = "" },
		func(x *store.Session) { x.Owner.Incarnation += "\xff" },
		func(x *store.Session) { x.Owner.ID = "\xff" },
		func(x *store.Session) { x.Owner.Address = "\xc3" },
	} {
		x := t.newSession(t.owner(), t.ttl)
		spoil(&x)
		t.notOpened(s, x, ruleInvalid)
	}
}

func invalidOffers(t *storeT, a, b *node) {
	for _, spoil := range []func(*store.Transfer){
		func(m *store.Transfer) { m.To.Owner = store.Owner{ID: m.To.Owner.ID} },
		func(m *store.Transfer) { m.To.Owner = store.Owner{} },
		func(m *store.Transfer) { m.To.Owner.Address = "\xff" },
		func(m *store.Transfer) { m.To.Session = 0 },
		func(m *store.Transfer) { m.To.Session = -m.To.Session },
		func(m *store.Transfer) { m.To.TTL = 0 },
		func(m *store.Transfer) { m.To.TTL = -time.Second },
		func(m *store.Transfer) { m.To.Name = "b" },
		func(m *store.Transfer) { m.To.Name = "" },
		func(m *store.Transfer) { m.Metadata = notUTF8[0] },
		func(m *store.Transfer) { m.Metadata = notUTF8[1] },
	} {
		bad := b.taking(a.own.Held())
		spoil(&bad)
		a.deniedMove(bad, ruleInvalid, store.ErrInvalid)
	}
	b.freed(a.give(a.own, b)) // it is the mover's as before
}

// Cases that a backend must arrange: see the options BadRecords and Restart.
var setupCases = []testCase{
	{name: "setup/bad-record", needs: needBadRecords, run: badRecord},
	{name: "setup/bad-record-in-lists", needs: needBadRecords | needList, run: badRecordListed},
	{name: "setup/bad-record-in-watches", needs: needBadRecords | needWatch, run: badRecordWatched},
	{name: "setup/restart", needs: needRestart, run: restarted},
}

// spoils makes a backing store that can be spoilt, and returns the function that does.
func (t *storeT) spoils() (spoil func(name string)) {
	t.client, spoil = t.opts.bad(t)
	return spoil
}

// badRecord claims, reads, releases and moves where something foreign stands.
func badRecord(t *storeT) {
	spoil := t.spoils()
	n := t.node()
	spoil("b/bad")
	r := n.win("b/good")
	for _, over := range []store.Token{0, 1, r.Token} {
		n.denied(store.Claim{Name: "b/bad", Nonce: nonce(), Supersedes: over}, store.ErrBadRecord, ruleBadAcquire)
	}
	if t.can(needTransfer) {
		for _, h := range []store.Held{{Token: 1, Nonce: 1}, {Token: r.Token, Nonce: r.Nonce}, {}} {
			h.Name = "b/bad"
			n.deniedMove(n.taking(h), ruleBadMove)
		}
	}
	outs, err := n.releases(store.Held{Name: "b/bad", Token: 1, Nonce: 1})
	t.check(err != nil || !outs[0].OK, ruleBadRead, "a release of what is no record: %+v", outs)
	n.denied(t.claim("b/bad"), store.ErrBadRecord, ruleBadAcquire)
	found, err := n.gets("b/bad")
	t.check(err == nil && reflect.DeepEqual(found, map[string]store.Record{"b/bad": {Name: "b/bad"}}), ruleBadGet, "Get: %+v, error %v", found, err)
	for _, names := range [][]string{{"b/bad", "b/good", "b/free"}, {"b/free", "b/good", "b/bad"}} {
		got, err := n.gets(names...)
		t.check(err == nil && len(got) == 2 && got["b/good"].Token == r.Token && got["b/bad"].Token == 0, ruleBadGet, "Get of %v: %+v, error %v", names, got, err)
	}
	n.stands(r, ruleOnly)
	n.close()
	t.node().win("b/good")
}

func badRecordListed(t *storeT) {
	spoil := t.spoils()
	n := t.node()
	for _, name := range []string{"b/1", "b/3", "b/5"} {
		n.win(name)
	}
	spoil("b/2")
	spoil("b/4")
	ctx, cancel := t.context()
	defer cancel()
	good, bad := 0, 0
	for r, err := range n.store.List(ctx, store.Query{Prefix: "b/"}) {
		switch {
		case err == nil:
			t.check(r.Token != 0, ruleBadRead, "listed: %+v", r)
			good++
		case errors.Is(err, store.ErrBadRecord):
			t.check(r.Name == "b/2" || r.Name == "b/4", ruleBadList, "%v came with the name %q", err, r.Name)
			bad++
		default:
			t.Fatalf("List: %v", err)
		}
	}
	t.check(good == 3 && bad == 2, ruleBadList, "3 records and 2 others stand, listed were %d and %d", good, bad)
}

func badRecordWatched(t *storeT) {
	spoil := t.spoils()
	n := t.node()
	n.win("b/1")
	spoil("b/2")
	w := ofChanges.watch(t, "b/")
	spoil("b/3")
	r := n.win("b/4")
	w.sees(store.EventPut, "b/4", r.Token)
	for _, name := range []string{"b/2", "b/3"} {
		ok := w.until(func(events []seen) bool { return has(events, store.EventBad, name, 0) })
		t.check(ok, ruleBadWatch, "nothing of %q: %s", name, show(w.all()))
	}
	t.check(len(w.check()) == 2, ruleOnly, "2 records stand: %s", show(w.all()))
}

// restarted takes tokens, restarts the backing store, and takes more.
func restarted(t *storeT) {
	client, restart := t.opts.restart(t)
	t.client = client
	n := t.node()
	for range 10 {
		n.freed(n.win("r/free"))
	}
	kept := n.win("r/kept")
	restart()
	var r store.Record
	again := t.eventually(func() bool {
		outs, err := n.acquires(t.claim("r/free"))
		if err == nil && !outs[0].OK { // an attempt before, that got no answer
			outs, err = n.acquires(t.supersede(outs[0].Record))
		}
		if err != nil || !outs[0].OK {
			return false
		}
		r = outs[0].Record // its token is checked against those before
		return true
	})
	t.require(again, ruleRestart, "%v after the restart a free name can't be acquired", callBound)
	n.stands(kept, ruleRestart)
	n.stands(r, ruleRestart)
	n.freed(kept)
	t.node().win("r/kept")
}

// prompt is what "promptly" means of a call whose context is done.
const prompt = 2 * time.Second

var contextCases = []testCase{
	{name: "context/done", run: held(func(t *storeT, n, b *node) {
		for _, ago := range []time.Duration{0, time.Second} { // cancelled, and past its deadline
			begin := func(ctx context.Context) (context.Context, context.CancelFunc) {
				if ago == 0 {
					done, cancel := context.WithCancel(ctx)
					cancel()
					return done, cancel
				}
				return context.WithDeadline(ctx, time.Now().Add(-ago))
			}
			n.callAll(n.own, b, prompt, ruleContextDone, ruleContextDone, begin)
		}
		time.Sleep(10 * t.tick()) // for what was sent all the same
		n.stands(n.own, ruleContextDone)
		n.free("free", ruleContextDone)
		n.freed(n.own)
	})},
	{name: "context/cancelled-in-a-list", needs: needList, run: one(func(t *storeT, n *node) {
		names := n.many(200)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		defer cancel()
		seen, failed := 0, false
		for _, err := range n.store.List(ctx, store.Query{Prefix: "many/"}) {
			if failed = err != nil; failed {
				break
			}
			seen++
			cancel()
		}
		t.check(failed || seen == len(names), ruleWholeListing, "cancelled after the first record, List ended after %d of %d without an error", seen, len(names))
	})},
	{name: "context/short-deadlines", run: one(contextShort)},
	{name: "context/unreachable", needs: needUnreachable, run: func(t *storeT) {
		n := &node{t: t, store: t.opts.unreachable(t)(), session: t.newSession(t.owner(), max(t.ttl, time.Second))}
		r := store.Record{Name: "a", Owner: n.session.Owner, Session: n.session.ID, Token: 1, Nonce: 1}
		const patience = 100 * time.Millisecond
		n.callAll(r, n, patience+prompt, ruleDeadline, ruleUnknown, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, patience)
		})
	}},
}

// calls are all calls of a store, about what the node owns as r and what it does
// not own: "free".
func (n *node) calls(r store.Record, to *node) map[string]func(context.Context) error {
	t, s := n.t, n.store
	all := map[string]func(context.Context) error{
		"OpenSession": func(ctx context.Context) error {
			g, err := s.OpenSession(ctx, t.newSession(t.owner(), n.session.TTL))
			return errors.Join(err, g.Err)
		},
		"CloseSession": func(ctx context.Context) error { return s.CloseSession(ctx, n.session) },
		"Acquire": func(ctx context.Context) error {
			return errOf(s.Acquire(ctx, n.session, []store.Claim{t.claim("free")}))
		},
		"Acquire (superseding)": func(ctx context.Context) error {
			return errOf(s.Acquire(ctx, n.session, []store.Claim{t.supersede(r)}))
		},
		"Renew": func(ctx context.Context) error {
			gs, err := s.Renew(ctx, []store.Session{n.session})
			for _, g := range gs { // a failure may be told call by call or grant by grant
				err = errors.Join(err, g.Err)
			}
			return err
		},
		"Release": func(ctx context.Context) error {
			return errOf(s.Release(ctx, []store.Held{r.Held()}))
		},
		"Get":  func(ctx context.Context) error { return errOf(s.Get(ctx, r.Name)) },
		"List": func(ctx context.Context) error { return first(s.List(ctx, store.Query{}), nil) },
	}
	if tr, ok := s.(store.Transferrer); ok {
		all["Transfer"] = func(ctx context.Context) error {
			outs, err := tr.Transfer(ctx, []store.Transfer{to.taking(r.Held())})
			if err == nil && len(outs) == 1 {
				err = outs[0].Err
			}
			return err
		}
	}
	if s.Limits().BySession {
		all["List of a session"] = func(ctx context.Context) error {
			return first(n.records(n).of(ctx), nil)
		}
	}
	if _, ok := s.(store.Watcher); ok {
		for _, k := range []watchKind{ofChanges, ofDeletions} {
			all[k.name] = func(ctx context.Context) error {
				return first(k.of(s, time.Second)(ctx, ""), ctx)
			}
		}
	}
	return all
}

// first is the error that an iterator began with: a watch may end with its context without a word.
func first[V any](all iter.Seq2[V, error], watch context.Context) error {
	for _, err := range all {
		return err
	}
	if watch != nil {
		return watch.Err()
	}
	return nil
}

// callAll makes every call with a context of the case. It must come back within the limit by the rule
// late, and with an error that claims nothing by the rule why.
func (n *node) callAll(r store.Record, to *node, limit time.Duration, late, why rule, begin func(context.Context) (context.Context, context.CancelFunc)) {
	n.t.Helper()
	t := n.t
	for name, call := range n.calls(r, to) {
		ctx, cancel := begin(context.WithoutCancel(t.Context()))
		back := make(chan error, 1)
		go func() { back <- call(ctx) }()
		select {
		case err := <-back:
			claims := cases.IsAny(err, store.ErrSessionGone, store.ErrBadRecord)
			t.check(err != nil && !claims, why, "%s: error %v", name, err)
		case <-time.After(limit):
			t.broken(late, "%s has not returned after %v", name, limit)
			t.Cleanup(func() {
				select {
				case <-back:
				case <-time.After(callBound):
				}
			})
		}
		cancel()
	}
}

// contextShort makes calls with hardly any time. Each gets its answer or an
// error, soon; a refusal of a name that is free is a lie.
func contextShort(t *storeT, n *node) {
	for i := range 60 {
		deadline := time.Duration(i*i) * time.Microsecond
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deadline)
		began := time.Now()
		outs, err := n.acquireCtx(ctx, t.claim(fmt.Sprintf("short/%d", i)))
		cancel()
		took := time.Since(began)
		t.check(took < prompt, ruleDeadline, "Acquire with a deadline of %v took %v", deadline, took)
		switch {
		case err != nil:
			t.check(!errors.Is(err, store.ErrSessionGone), ruleUnknown, "Acquire under a live session: %v", err)
		case outs[0].OK:
			n.stands(outs[0].Record, ruleSeenByAll)
		default:
			t.broken(ruleUnknown, "Acquire of a free name with too little time: %+v", outs[0])
		}
	}
}

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
	{name: "read/values", run: readValues},
	{name: "read/granted", run: two(readGranted)},

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
		b.listsGone(&node{t: t, store: a.store, session: t.newSession(a.session.Owner, t.ttl)}) // was never opened
	})},
	{name: "listed/many", needs: needSessionList, run: func(t *storeT) {
		const size = 1000 // more than a request of any store carries
		n, other := t.node(), t.node()
		other.winAll(numbered("m/%d/other", size), ruleBatchAll)
		won := n.winAll(numbered("m/%d", size), ruleBatchAll)
		for range n.records(n).of(t.Context()) {
			break
		}
		n.lists(n, won...)
		other.lists(n, won...)
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

// readValues gives values that stores may not keep as they are to the fields of records.
func readValues(t *storeT) {
	for i, v := range []struct {
		owner    store.Owner
		nonce    uint64
		metadata map[string]string
	}{
		{store.Owner{ID: "plain", Incarnation: "i", Address: "host:1"}, 1, nil},
		{store.Owner{ID: "no address", Incarnation: "inc"}, math.MaxInt64, map[string]string{}},
		{store.Owner{ID: "a/b%2F|\"'\\ c", Incarnation: "{x}:/%&= y", Address: "[::1]:8000"}, math.MaxInt64 + 1,
			map[string]string{"a=b": "c=d", "a;b": "c,d", "line\nbreak": "tab\t\"quoted\" 'single' \\ %20 {}[]<>&"}},
		{store.Owner{ID: "nœud-日本", Incarnation: "ïnc-🦀", Address: "bücher.example:1"}, math.MaxUint64 - 1,
			map[string]string{"ключ": "значение", "日本": "語", "🦀": "e\u0301"}},
		{store.Owner{ID: strings.Repeat("i", 300), Incarnation: strings.Repeat("n", 100), Address: strings.Repeat("a", 253) + ":65535"},
			math.MaxUint64, map[string]string{"long": strings.Repeat("0123456789abcdef", 256)}},
		{t.owner(), 2, map[string]string{"": "empty key", "empty value": ""}},
		{t.owner(), 3, map[string]string{"1": "1", "2": "2", "3": "3", "4": "4", "5": "5", "6": "6", "7": "7", "8": "8", "9": "9"}},
	} {
		v.owner.Incarnation += fmt.Sprint(i)
		n, other := t.open(t.client(), v.owner, max(30*t.ttl, time.Minute)), t.node()
		c := store.Claim{Name: fmt.Sprintf("value/%d", i), Nonce: v.nonce, Metadata: v.metadata}
		if n.store.Limits().ValidateClaim(c) != nil {
			c.Metadata = nil
		}
		r := n.winClaim(c, ruleFree)
		other.stands(r, ruleRoundTrip)
		other.refused(t.claim(c.Name), r, ruleRoundTrip)
		if found, err := other.prefix(c.Name).all(t); err == nil {
			t.sameRecord(found[c.Name], r, ruleRoundTrip)
		}
		n.freed(r)
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
