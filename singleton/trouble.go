package singleton

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/lease"
)

// trouble is what stands between this node and the singleton, as far as this node knows.
// Errors of Ask say it.
type trouble struct {
	hostless time.Duration // since when mail can go nowhere; 0: it can
	store    string        // why the lease was not acquired, or its holder not looked up, at the last try
	broke    string        // the address of the host whose link broke last
	brokeAt  time.Duration

	// For Health, since when it lasts; 0: it does not.
	making    time.Duration // Props that make a child have not returned
	following time.Duration // nor has Follow of a source of leadership
	stopping  time.Duration // the child was told to stop
	waiting   time.Duration // there is no host, or none is known and mail waits for it
}

// why says what stood in the way of a question that was asked at the clock's reading since;
// empty if nothing is known to have.
func (m *Manager) why(since time.Duration) string {
	t, s, now := *m.trouble.Load(), m.Status(), m.clock.Now().Mono
	var all []string
	if t.hostless != 0 {
		all = append(all, fmt.Sprintf("no host has been known for %v", (now-t.hostless).Round(time.Millisecond)))
	}
	if s.Refused != nil {
		all = append(all, "the host is not talked to: "+s.Refused.Error())
	}
	if t.store != "" {
		all = append(all, "the store: "+t.store)
	} else if m.keeper != nil { // the first attempt may still be under way
		if in := m.keeper.Info(); in.Failure != nil {
			all = append(all, fmt.Sprintf("the store has not been reached since %v: %.256s", in.Since.Format(time.RFC3339), in.Failure))
		}
	}
	if m.keeper != nil {
		if why := asker.Unaddressed(m.keeper.Owner(), s.Host); why != "" {
			all = append(all, why)
		}
	}
	if t.broke != "" && t.brokeAt >= since {
		all = append(all, fmt.Sprintf("the link to the host at %.64s broke %v ago", t.broke, (now-t.brokeAt).Round(time.Millisecond)))
	}
	if s.Buffered > 0 {
		all = append(all, fmt.Sprintf("%d messages wait here", s.Buffered))
	}
	return strings.Join(all, ", ")
}

// timeTrouble notes since when what Health tells lasts.
func (c *controller) timeTrouble(s Status) {
	now := c.now()
	since := func(at *time.Duration, lasts bool) {
		if !lasts {
			*at = 0
		} else if *at == 0 {
			*at = now
		}
	}
	since(&c.known.making, c.making != nil)
	since(&c.known.following, c.following)
	since(&c.known.stopping, s.Phase == HandingOver || s.Phase == Yielding || s.Phase == Stopping)
	// A host without this package announces nothing.
	since(&c.known.waiting, s.Host == (lease.Owner{}) && (s.Buffered > 0 || c.dir != nil && c.sign == nil))
}

// tellTrouble makes what is known of it visible.
func (c *controller) tellTrouble() {
	t := c.known
	t.hostless = c.hostlessAt
	if *c.trouble.Load() != t {
		c.trouble.Store(&t)
	}
}

// storeSaid notes how the store answered; that the manager ends tells nothing.
func (c *controller) storeSaid(err error) {
	switch {
	case err == nil:
		c.known.store = ""
	case c.life.Err() == nil:
		c.known.store = fmt.Sprintf("%.256s", err.Error())
	}
}
