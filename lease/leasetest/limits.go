package leasetest

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// A store keeps to the bounds that it states. A Keeper refuses before it asks; a caller without
// a Keeper is refused by the store.
var limitCases = []testCase{
	{name: "limits/ttl", run: limitTTLs},
	{name: "limits/names", run: limitNames},
	{name: "limits/metadata", run: limitMetadata},
	{name: "limits/transfer", needs: needTransfer, run: limitTransfers},
}

// holds tells whether a name is within the store's limits.
func (t *T) holds(name string) bool {
	check := t.limits(t.client()).CheckName
	return check == nil || check(name) == nil
}

// fits tells whether metadata are within the store's limits.
func (t *T) fits(m map[string]string) bool {
	return t.limits(t.client()).ValidateClaim(lease.Claim{Name: "a", Metadata: m}) == nil
}

// winWithin claims a free name within the store's limits, which must succeed. It is fatal.
func (n *node) winWithin(c lease.Claim) lease.Record {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := n.acquireCtx(ctx, c)
	n.t.require(err == nil && len(outs) == 1, ruleWithin, "a claim of %+.64q: error %v", c.Name, err)
	n.t.require(outs[0].OK, ruleWithin, "a claim of %+.64q with %d keys of metadata was refused: error %v", c.Name, len(c.Metadata), outs[0].Err)
	return outs[0].Record
}

func limitTTLs(t *T) {
	s := t.client()
	most := t.limits(s).MaxTTL
	if most == 0 {
		return
	}
	n := t.open(s, t.owner(), most)
	n.freed(n.win("limits/ttl"))
	for _, ttl := range []time.Duration{most + 1, most + most/2, 1<<63 - 1} {
		if ttl <= most {
			continue
		}
		x := t.newSession(t.owner(), ttl)
		ctx, cancel := t.context()
		g, err := s.OpenSession(ctx, x)
		cancel()
		t.check(errors.Is(errors.Join(err, g.Err), lease.ErrInvalid), ruleLimits, "a session with a TTL of %v was granted %+v, error %v; at most %v", ttl, g, err, most)
		gone := &node{t: t, store: s, session: x}
		ctx, cancel = t.context()
		_, err = gone.acquireCtx(ctx, t.claim("limits/ttl"))
		cancel()
		t.check(errors.Is(err, lease.ErrSessionGone) || errors.Is(err, lease.ErrInvalid), ruleLimits, "then a claim under it: error %v", err)
	}
}

// extremeNames are what keys of some store can't have, or not so many of.
func extremeNames() []string {
	names := []string{".", "..", "a/..", "a/.", ".a", "a.", " ", "~", "-", "a\u2028b", "a\uffffb", "a\ufffeb", "\ufeffa", "a\U0010ffff", "con", "a:b"}
	for _, of := range []string{"x", "X", "%", " ", "_", "ß", "語", "🦀", "a/", "A/b/", "\u0085"} {
		long := strings.TrimSuffix(strings.Repeat(of, lease.MaxName/len(of)), "/")
		names = append(names, long, strings.TrimSuffix(strings.Repeat(of, 64/len(of)), "/"), strings.TrimSuffix(strings.Repeat(of, 250/len(of)), "/"))
	}
	return append(names, alike...)
}

func limitNames(t *T) {
	n, other := t.node(), t.node()
	for _, name := range extremeNames() {
		if t.holds(name) {
			r := n.winWithin(t.claim(name))
			other.stands(r, ruleWithin)
			n.freed(r)
			continue
		}
		ctx, cancel := t.context()
		outs, err := n.acquireCtx(ctx, t.claim(name))
		cancel()
		t.require(err == nil && len(outs) == 1, ruleLimits, "a claim of %+.64q: error %v", name, err)
		t.require(!outs[0].OK && errors.Is(outs[0].Err, lease.ErrInvalid), ruleLimits, "a claim of %+.64q: %+v", name, outs[0])
		other.free(name, ruleLimits)
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

func limitMetadata(t *T) {
	n, other := t.node(), t.node()
	most := t.limits(n.store).MaxMetadata
	if most == 0 {
		return
	}
	for _, m := range sized(most) {
		c := t.claim("limits/metadata")
		c.Metadata = m
		r := n.winWithin(c)
		other.stands(r, ruleWithin)
		n.freed(r)
	}
	standing := n.win("limits/stands")
	for _, m := range append(sized(most+1), sized(2*most)...) {
		c, over := t.claim("limits/metadata"), t.supersede(standing)
		c.Metadata, over.Metadata = m, m
		for _, c := range []lease.Claim{c, over} {
			ctx, cancel := t.context()
			outs, err := n.acquireCtx(ctx, c)
			cancel()
			t.require(err == nil && len(outs) == 1, ruleLimits, "a claim with %d bytes of metadata: error %v", most+1, err)
			t.require(!outs[0].OK && errors.Is(outs[0].Err, lease.ErrInvalid), ruleLimits, "a claim with %d bytes of metadata: OK %v, error %v", most+1, outs[0].OK, outs[0].Err)
		}
		other.free("limits/metadata", ruleLimits)
		other.stands(standing, ruleLimits)
	}
}

func limitTransfers(t *T) {
	a, b := t.node(), t.node()
	most := t.limits(a.store).MaxMetadata
	if most == 0 {
		return
	}
	r := a.win("limits/moved")
	for _, m := range sized(most + 1) {
		out := a.transfer(lease.Transfer{Held: r.Held(), To: b.offer(r.Name), Metadata: m})[0]
		t.require(!out.OK && errors.Is(out.Err, lease.ErrInvalid), ruleLimits, "a move with %d bytes of metadata: OK %v, error %v", most+1, out.OK, out.Err)
		b.stands(r, ruleLimits)
	}
	out := a.transfer(lease.Transfer{Held: r.Held(), To: b.offer(r.Name), Metadata: sized(most)[0]})[0]
	t.require(out.OK, ruleWithin, "a move with %d bytes of metadata: %v", most, out.Err)
	a.stands(out.Record, ruleWithin)
}
