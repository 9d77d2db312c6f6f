package leasetest

import (
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/lease"
)

// Names are bytes. A database compares text by a collation, pads it, brings it to a normal
// form, or takes what is asked for as a pattern, unless it is told not to.
var alikeCases = []testCase{
	{name: "alike/claims", run: alikeClaims},
	{name: "alike/list", needs: needList, run: alikeList},
	{name: "alike/watch", needs: needWatch, run: alikeWatch},
	{name: "alike/deletions", needs: needDeletions, run: alikeDeletions},
}

// alike are names that each differ in some byte, and that some store takes for one another.
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
}

const alikeUnder = "alike/"

// alikeNames are those that the store holds.
func (t *T) alikeNames() (names []string) {
	for _, name := range alike {
		if name = alikeUnder + name; t.holds(name) {
			names = append(names, name)
		}
	}
	return names
}

// winAlike wins names that nobody holds, as many under a session as it may have.
func (t *T) winAlike(names []string) map[string]lease.Record {
	t.Helper()
	won := make(map[string]lease.Record, len(names))
	for len(names) > 0 {
		n := t.node()
		claims := make([]lease.Claim, t.batch(n.store, len(names)))
		for i := range claims {
			claims[i] = t.claim(names[i])
		}
		for i, out := range n.acquire(claims...) {
			t.require(out.OK, ruleAlike, "%+q was claimed, and refused by %+q, which stands", claims[i].Name, out.Record.Name)
			won[claims[i].Name] = out.Record
		}
		names = names[len(claims):]
	}
	return won
}

func alikeClaims(t *T) {
	names := t.alikeNames()
	held := t.winAlike(names)
	other := t.node()
	stand := func() {
		t.Helper()
		for _, name := range names { // by one, too: what is asked for is not always asked for by a list
			if r, ok := held[name]; ok {
				other.stands(r, ruleAlike)
			} else {
				other.free(name, ruleAlike)
			}
		}
		found := other.get(names[:t.batch(other.store, len(names))]...)
		for _, name := range names[:t.batch(other.store, len(names))] {
			r, ok := found[name]
			t.check(ok == (held[name].Name != ""), ruleAlike, "%+q, of names that are alike: %v, %+v", name, ok, r)
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

// alikePrefixes are each name, and each without its last letter.
func alikePrefixes(names []string) (prefixes []string) {
	had := map[string]bool{}
	for _, name := range names {
		_, last := utf8.DecodeLastRuneInString(name)
		for _, p := range []string{name, name[:len(name)-last]} {
			if !had[p] {
				had[p] = true
				prefixes = append(prefixes, p)
			}
		}
	}
	return prefixes
}

func alikeList(t *T) {
	names := t.alikeNames()
	held := t.winAlike(names)
	other := t.node()
	for _, prefix := range alikePrefixes(names) {
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

// alikeWatched are prefixes that another would read as something else.
func alikeWatched() []string {
	var prefixes []string
	for _, p := range []string{"a", "a_", "a%", "a*", "a?", "a[b]", "a{b,d}", "a.", `a\`, "a'", `a"`, ":", "job", "JOB", "pad", "pad ", "e", "é", "A", "a/", "%"} {
		prefixes = append(prefixes, alikeUnder+p)
	}
	return prefixes
}

func alikeWatch(t *T) {
	names := t.alikeNames()
	half := len(names) / 2
	t.winAlike(names[:half])
	watches := make([]*watching, 0, len(alikeWatched()))
	for _, prefix := range alikeWatched() {
		w := t.watch(t.client(), prefix)
		w.synced()
		watches = append(watches, w)
	}
	t.winAlike(names[half:])
	for _, w := range watches {
		end := w.prefix + "end"
		w.sees(lease.EventPut, end, t.winAlike([]string{end})[end].Token)
		seen := map[string]bool{}
		for _, ev := range w.all() {
			name := ev.Record.Name
			t.check(ev.Kind == lease.EventSynced || strings.HasPrefix(name, w.prefix), ruleWatchPrefix, "prefix %+q: told of %+q", w.prefix, name)
			seen[name] = true
		}
		for _, name := range names {
			t.check(seen[name] || !strings.HasPrefix(name, w.prefix), ruleWatchPrefix, "prefix %+q: not told of %+q", w.prefix, name)
		}
		w.stop()
	}
}

func alikeDeletions(t *T) {
	names := t.alikeNames()
	held := t.winAlike(names)
	watches := make([]*watching, 0, len(alikeWatched()))
	for _, prefix := range alikeWatched() {
		watches = append(watches, t.deletions(t.client(), prefix))
	}
	other := t.node()
	for _, name := range names {
		other.freed(held[name])
	}
	for _, w := range watches {
		var want []lease.Record
		for _, name := range names {
			if strings.HasPrefix(name, w.prefix) {
				want = append(want, held[name])
			}
		}
		w.until(func(events []seen) bool { return len(events) > len(want) })
		w.deletedInAnyOrder(want...)
		w.stop()
	}
}
