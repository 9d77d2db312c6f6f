package pername_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/pername"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nameMap is a backend that knows names only, with faults.
type nameMap struct {
	mu      sync.Mutex
	counter lease.Token
	records map[string]nameMapRecord
	renews  map[string]int
	busy    int
	busiest int

	// fault, if set, decides whether and when a request is applied, and what its
	// caller hears of it; nil for the outcome.
	fault func(ctx context.Context, op, name string, apply func()) error
}

type nameMapRecord struct {
	lease.Record
	until time.Time
}

func newNameMap() *nameMap {
	return &nameMap{records: map[string]nameMapRecord{}, renews: map[string]int{}}
}

func (m *nameMap) setFault(f func(ctx context.Context, op, name string, apply func()) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// failing makes every request of op about name fail without being applied.
func (m *nameMap) failing(op, name string) {
	m.setFault(func(_ context.Context, o, n string, apply func()) error {
		if o == op && n == name {
			return errDown
		}
		apply()
		return nil
	})
}

var errDown = errors.New("backend down")

func (m *nameMap) do(ctx context.Context, op, name string, f func(now time.Time)) error {
	m.mu.Lock()
	fault := m.fault
	m.busy++
	m.busiest = max(m.busiest, m.busy)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.busy--
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	apply := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		f(time.Now())
	}
	if fault != nil {
		return fault(ctx, op, name, apply)
	}
	apply()
	return nil
}

func (m *nameMap) standsLocked(name string, now time.Time) (nameMapRecord, bool) {
	r, ok := m.records[name]
	return r, ok && now.Before(r.until)
}

func (m *nameMap) stands(name string) (nameMapRecord, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.standsLocked(name, time.Now())
}

func (m *nameMap) remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, name)
}

func (m *nameMap) Acquire(ctx context.Context, s lease.Session, c lease.Claim) (lease.Outcome, error) {
	var out lease.Outcome
	if err := m.do(ctx, "acquire", c.Name, func(now time.Time) {
		old, held := m.standsLocked(c.Name, now)
		if held && (old.Owner.Incarnation != s.Owner.Incarnation || old.Token != c.Supersedes) {
			out.Record = old.Record
			return
		}
		m.counter++
		r := lease.Record{
			Name: c.Name, Owner: s.Owner, Session: s.ID, Token: m.counter, Nonce: c.Nonce, TTL: s.TTL, Metadata: c.Metadata,
		}
		m.records[c.Name] = nameMapRecord{r, now.Add(s.TTL)}
		out = lease.Outcome{OK: true, Record: r}
	}); err != nil {
		return lease.Outcome{}, err
	}
	return out, nil
}

func (m *nameMap) Renew(ctx context.Context, s lease.Session, h lease.Held) (bool, error) {
	var ok bool
	if err := m.do(ctx, "renew", h.Name, func(now time.Time) {
		m.renews[h.Name]++
		r, held := m.standsLocked(h.Name, now)
		if ok = held && r.Held() == h; ok {
			m.records[h.Name] = nameMapRecord{r.Record, now.Add(s.TTL)}
		}
	}); err != nil {
		return false, err
	}
	return ok, nil
}

func (m *nameMap) Release(ctx context.Context, h lease.Held) (bool, error) {
	var ok bool
	if err := m.do(ctx, "release", h.Name, func(now time.Time) {
		r, held := m.standsLocked(h.Name, now)
		if ok = held && r.Held() == h; ok {
			delete(m.records, h.Name)
		}
	}); err != nil {
		return false, err
	}
	return ok, nil
}

func (m *nameMap) Get(ctx context.Context, name string) (lease.Record, bool, error) {
	var r nameMapRecord
	var ok bool
	if err := m.do(ctx, "get", name, func(now time.Time) { r, ok = m.standsLocked(name, now) }); err != nil || !ok {
		return lease.Record{}, false, err
	}
	return r.Record, true, nil
}

// ableNameMap can do all that is optional.
type ableNameMap struct {
	*nameMap
	limits lease.StoreLimits
}

func (m ableNameMap) Limits() lease.StoreLimits { return m.limits }

func (m ableNameMap) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		for name, r := range m.records {
			if strings.HasPrefix(name, prefix) && !yield(r.Record, ctx.Err()) {
				return
			}
		}
	}
}

func (m ableNameMap) Transfer(ctx context.Context, mv lease.Transfer) (lease.Outcome, error) {
	var out lease.Outcome
	if err := m.do(ctx, "transfer", mv.Name, func(now time.Time) {
		r, held := m.standsLocked(mv.Name, now)
		if held {
			out.Record = r.Record
		}
		switch {
		case !held || r.Held() != mv.Held:
		case mv.To.Session == goneSession:
			out.Err = lease.ErrSessionGone
		default:
			m.counter++
			r.Owner, r.Session, r.Nonce, r.Token = mv.To.Owner, mv.To.Session, mv.To.Nonce, m.counter
			m.records[mv.Name] = nameMapRecord{r.Record, now.Add(mv.To.TTL)}
			out = lease.Outcome{OK: true, Record: r.Record}
		}
	}); err != nil {
		return lease.Outcome{}, err
	}
	return out, nil
}

const ttl = 10 * time.Second

// goneSession is one that the backend knows to be gone.
const goneSession = 404

// kit is a Store made of a nameMap, and one open session.
type kit struct {
	t       *testing.T
	backend *nameMap
	store   lease.Store
	session lease.Session
}

// withKit runs f on fake time; the session may hold many names.
func withKit(t *testing.T, f func(t *testing.T, k *kit)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newNameMap()
		k := &kit{t: t, backend: m, store: must(t, ableNameMap{m, lease.StoreLimits{NamesPerSession: 100}})}
		k.session = k.open(1, "a")
		f(t, k)
	})
}

func (k *kit) open(id lease.SessionID, incarnation string) lease.Session {
	s := lease.Session{ID: id, Owner: lease.Owner{ID: "node", Incarnation: incarnation}, TTL: ttl}
	g, err := k.store.OpenSession(k.t.Context(), s)
	require.NoError(k.t, err)
	require.Equal(k.t, lease.Grant{TTL: ttl}, g)
	return s
}

func (k *kit) claim(c lease.Claim) (lease.Outcome, error) {
	outs, err := k.store.Acquire(k.t.Context(), k.session, []lease.Claim{c})
	if err != nil {
		require.Nil(k.t, outs)
		return lease.Outcome{}, err
	}
	require.Len(k.t, outs, 1)
	return outs[0], nil
}

func (k *kit) win(name string) lease.Held {
	k.t.Helper()
	out, err := k.claim(lease.Claim{Name: name, Nonce: 1})
	require.NoError(k.t, err)
	require.True(k.t, out.OK)
	return out.Record.Held()
}

func (k *kit) renew() lease.Grant {
	k.t.Helper()
	grants, err := k.store.Renew(k.t.Context(), []lease.Session{k.session})
	require.NoError(k.t, err)
	require.Len(k.t, grants, 1)
	return grants[0]
}

// renewFor renews every third of the TTL and wants it to succeed each time.
func (k *kit) renewFor(d time.Duration) {
	k.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(ttl / 3) {
		require.Equal(k.t, lease.Grant{TTL: ttl}, k.renew())
	}
}

// must makes a Store.
func must(t *testing.T, b pername.Backend, opts ...pername.Option) lease.Store {
	t.Helper()
	s, err := pername.New(b, opts...)
	require.NoError(t, err)
	return s
}

// mustWin acquires.
func mustWin(t *testing.T, h *lease.Handle) {
	t.Helper()
	won, err := h.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, won)
	require.True(t, h.CheckAlive())
}

func (k *kit) standing(name string) bool {
	_, ok := k.backend.stands(name)
	return ok
}
