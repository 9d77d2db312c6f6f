package node

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
)

// This file has what a node starts heed its settings.

// keeper gives what stands at the top of the file to the settings of a Keeper.
func (s *Settings) keeper(c *lease.Config) {
	if s.all.ttl > 0 {
		c.TTL = s.all.ttl
	}
	if s.all.heartbeat > 0 {
		c.RenewFraction = fraction(s.all.heartbeat, s.all.ttl)
	}
	if f, ok := fixed(s.all.Renewal); ok {
		c.RenewFraction = f
	}
}

// empty reports whether nothing stands at the top of the file.
func (s *Settings) empty() bool {
	return s.all.ttl == 0 && s.all.heartbeat == 0 && s.all.Renewal == nil
}

func fraction(heartbeat, ttl time.Duration) float64 { return float64(heartbeat) / float64(ttl) }

// fixed is the fraction of the TTL after which r renews; false if it has none of its own.
func fixed(r *lease.Renewal) (float64, bool) {
	switch {
	case r == nil:
		return 0, false
	case *r == lease.RenewEager():
		return 0.5, true
	}
	f, err := strconv.ParseFloat(r.String(), 64)
	return f, err == nil
}

// options are those of the leases that t, which may be nil, is about: given gives way to what code
// says, and said does not.
func (s *Settings) options(t *timing) (given, said []lease.Option) {
	if _, ok := fixed(s.all.Renewal); s.all.Renewal != nil && !ok { // or the Keeper has it
		given = append(given, lease.WithRenewal(*s.all.Renewal))
	}
	if t == nil {
		return given, nil
	}
	if t.ttl > 0 {
		said = append(said, lease.WithTTL(t.ttl))
	}
	switch {
	case t.heartbeat > 0:
		said = append(said, lease.WithRenewal(lease.RenewAt(fraction(t.heartbeat, t.ttl))))
	case t.Renewal != nil:
		said = append(said, lease.WithRenewal(*t.Renewal))
	}
	return given, said
}

// find returns the timing of a name, or that of the group; nil if there is none. A named lease has the
// longest prefix's.
func (s *Settings) find(part, name string) *timing {
	if part == ofGroup {
		return s.group
	}
	t := s.parts[part][name]
	for i := len(name) - 1; t == nil && i > 0 && part == ofLeases; i-- {
		if name[i] == '/' {
			t = s.parts[part][name[:i+1]]
		}
	}
	return t
}

// at says where in the file something stands.
func (s *Settings) at(t *timing) string {
	return strings.TrimSuffix(fmt.Sprintf("%s:%d: %s", s.file, t.line, t.what), ": ")
}

// settle checks the settings against the Keeper.
func (n *Node) settle() error {
	s := n.cfg.Settings
	for _, t := range s.each() {
		if err := n.keeper.Validate(cmp.Or(t.name, "settings"), slices.Concat(s.options(t))...); err != nil {
			return fmt.Errorf("Settings: %s: %w", s.at(t), err)
		}
	}
	return nil
}

// timed are the options of leases that the settings give to a name; it is used from now on.
func (n *Node) timed(t *timing) (given, said []lease.Option) {
	if t != nil {
		n.mu.Lock()
		n.used[t] = true
		n.mu.Unlock()
	}
	return n.cfg.Settings.options(t)
}

// around are opts with what the settings say of the leases of t: with makes an option of some of
// leases.
func around[O any](n *Node, t *timing, opts []O, with func(...lease.Option) O) []O {
	given, said := n.timed(t)
	return slices.Concat([]O{with(given...)}, opts, []O{with(said...)})
}

// Lease is Keeper().Lease with what Config.Settings say of the name, or of the longest prefix of
// it that they have. That counts more than options given here, what stands at the top less.
//
// Errors: ErrStopped, and those of lease.Keeper.Lease.
func (n *Node) Lease(name string, opts ...lease.Option) (*lease.Handle, error) {
	done, err := n.begin()
	if err != nil {
		return nil, fmt.Errorf("lease %.64q: %w", name, err)
	}
	defer done()
	given, said := n.timed(n.cfg.Settings.find(ofLeases, name))
	return n.keeper.Lease(name, slices.Concat(given, opts, said)...)
}

// UnusedSettings returns what Config.Settings name and this node has not started so far, in the
// order of the file: a mistake in a name, most likely. Run warns of singletons, sharded types and a
// group when it begins, Stop of all.
func (n *Node) UnusedSettings() []string { return n.unused(func(*timing) bool { return true }) }

func (n *Node) unused(of func(*timing) bool) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, t := range n.cfg.Settings.each() {
		if i > 0 && !n.used[t] && of(t) {
			names = append(names, fmt.Sprintf("%s (line %d)", t.what, t.line))
		}
	}
	return names
}

// tellUnused warns of settings that are not used.
func (n *Node) tellUnused(names []string) {
	if len(names) > 0 && !n.failed {
		n.log.Warn("settings that this node has not used: "+strings.Join(names, ", "), zap.String("file", n.cfg.Settings.file))
	}
}
