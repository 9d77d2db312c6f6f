package node

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// This file has what a node starts heed its settings.

// keeper gives what stands at the top of the file to the settings of a Keeper.
func (s *Settings) keeper(c *lease.Config) {
	if s == nil || s.all == nil {
		return
	}
	if s.all.ttl > 0 {
		c.TTL = s.all.ttl
	}
	if s.all.heartbeat > 0 {
		c.RenewFraction = fraction(s.all.heartbeat, s.all.ttl)
	}
	if f, ok := fixed(s.all.renewal); ok {
		c.RenewFraction = f
	}
}

// empty reports whether nothing stands at the top of the file.
func (s *Settings) empty() bool {
	return s == nil || s.all == nil || s.all.ttl == 0 && s.all.heartbeat == 0 && s.all.renewal == nil
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

// options are those of the leases that t, which may be nil, is about. ttl is of leases that have
// none of their own.
func (s *Settings) options(t *timing, ttl time.Duration) (opts []lease.Option) {
	if s == nil || s.all == nil {
		return nil
	}
	if t == nil {
		t = &timing{}
	}
	if t.ttl > 0 {
		ttl = t.ttl
		opts = append(opts, lease.WithTTL(ttl))
	}
	r := t.renewal
	if _, ok := fixed(s.all.renewal); r == nil && !ok { // or the Keeper has it
		r = s.all.renewal
	}
	if t.heartbeat > 0 {
		at := lease.RenewAt(fraction(t.heartbeat, ttl))
		r = &at
	}
	if r != nil {
		opts = append(opts, lease.WithRenewal(*r))
	}
	return opts
}

// timing is that of a name; nil if there is none. A named lease has the longest prefix's.
func (s *Settings) find(part, name string) *timing {
	if s == nil {
		return nil
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
	if t.what == "" {
		return fmt.Sprintf("Settings: %s:%d", s.file, t.line)
	}
	return fmt.Sprintf("Settings: %s:%d: %s", s.file, t.line, t.what)
}

// settle checks the settings against the Keeper.
func (n *Node) settle() error {
	s, ttl := n.cfg.Settings, n.keeper.Info().TTL
	for _, t := range s.each() {
		if t.ttl == 0 && t.heartbeat >= ttl {
			return invalid(s.at(t), "a heartbeat of %v, must be below the TTL of %v", t.heartbeat, ttl)
		}
		if err := n.keeper.Validate(cmp.Or(t.name, "settings"), s.options(t, ttl)...); err != nil {
			return fmt.Errorf("%s: %w", s.at(t), err)
		}
	}
	return nil
}

// timed are the options of leases that the settings give to a name, and notes that it is used.
func (n *Node) timed(t *timing) []lease.Option {
	if t != nil {
		n.mu.Lock()
		n.used[t] = true
		n.mu.Unlock()
	}
	return n.cfg.Settings.options(t, n.keeper.Info().TTL)
}

func (n *Node) groupOptions() (opts []membership.Option) {
	var t *timing
	if n.cfg.Settings != nil {
		t = n.cfg.Settings.group
	}
	if o := n.timed(t); len(o) > 0 {
		opts = append(opts, membership.WithLeaseOptions(o...))
	}
	return opts
}

func (n *Node) singletonOptions(name string) (opts []singleton.Option) {
	if o := n.timed(n.cfg.Settings.find(ofSingletons, name)); len(o) > 0 {
		opts = append(opts, singleton.WithLeaseOptions(o...))
	}
	return opts
}

func (n *Node) shardedOptions(name string) (opts []sharding.Option) {
	if o := n.timed(n.cfg.Settings.find(ofSharded, name)); len(o) > 0 {
		opts = append(opts, sharding.WithLeaseOptions(o...))
	}
	return opts
}

// Lease is Keeper().Lease with what Config.Settings say of the name, or of the longest prefix of
// it that they have. That counts more than options given here.
//
// Errors: ErrStopped, and those of lease.Keeper.Lease.
func (n *Node) Lease(name string, opts ...lease.Option) (*lease.Handle, error) {
	done, err := n.begin()
	if err != nil {
		return nil, fmt.Errorf("lease %.64q: %w", name, err)
	}
	defer done()
	return n.keeper.Lease(name, append(opts[:len(opts):len(opts)], n.timed(n.cfg.Settings.find(ofLeases, name))...)...)
}

// UnusedSettings returns what Config.Settings name and this node has not started so far, in the
// order of the file: a mistake in a name, most likely. Run warns of singletons, sharded types and a
// group when it begins, Stop of all that is left; each is told once.
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

// tellUnused warns of settings that are not used, each once: those of named leases only at the end.
func (n *Node) tellUnused(end bool) {
	s := n.cfg.Settings
	if n.failed {
		return
	}
	names := n.unused(func(t *timing) bool { return !n.told[t] && (end || !s.named(t)) })
	if len(names) == 0 {
		return
	}
	n.mu.Lock()
	for _, t := range s.each() {
		n.told[t] = n.told[t] || end || !s.named(t)
	}
	n.mu.Unlock()
	n.log.Warn("settings that this node has not used: "+strings.Join(names, ", "), zap.String("file", s.file))
}
