package observed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
)

const ttl = 10 * time.Second

var histories = simulate.New("observed", 10, 300)

// Three holders on machines with clocks of their own compete for the same names over
// objects that are slow, lose requests and replies, fail, and apply some
// long after their callers gave up. Holders are cut off, crash, and come back as others. Each
// trusts by the rules: a session's deadline counts from the sending of what renewed
// it. At every moment what a holder trusts in stands in the objects under a session
// that is there; tokens grow; and what a crash leaves is won by others.
func TestHistories(t *testing.T) {
	var inherited, played atomic.Int64
	histories.Run(t, func(t *testing.T, seed uint64) {
		for _, k := range kits {
			t.Run(k.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { inherited.Add(play(t, k, seed)) })
				played.Add(1)
			})
		}
	})
	require.True(t, histories.Replays() || inherited.Load() > 2*played.Load(),
		"names of crashed holders that were won by others: %d in %d histories", inherited.Load(), played.Load())
}

// world is what the holders of one history share, and what is known of it from
// outside.
type world struct {
	t       *testing.T
	objects *observedtest.Map

	mu        sync.Mutex
	rnd       *simulate.Random
	tokens    map[string]store.Token // the highest that was won
	inherited int64                  // names won whose former holder had crashed
	crashed   map[string]bool        // incarnations
	last      map[string]string      // the incarnation that won a name last
}

// play plays one history, and returns how many names of crashed holders were won.
func play(t *testing.T, k kit, seed uint64) int64 {
	objects, m := k.objects()
	w := &world{
		t: t, objects: m, rnd: histories.Random(seed),
		tokens: map[string]store.Token{}, crashed: map[string]bool{}, last: map[string]string{},
	}
	m.SetFault(w.fault)
	db := fleet(objects)
	names := []string{"a", "b", "C/%_*"}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var holders []*holder
	for i := range 3 {
		h := &holder{w: w, store: db(), node: fmt.Sprint("node-", i), held: map[string]store.Record{}}
		h.begin()
		holders = append(holders, h)
		for _, name := range names {
			simulate.Go(t, &running, func() { h.work(ctx, name) })
		}
		simulate.Go(t, &running, func() { h.keepRenewing(ctx) })
	}
	trusted := 0
	for range 300 * int(ttl/time.Second) {
		time.Sleep(100 * time.Millisecond)
		trusted += w.look(holders, seed)
	}
	require.NotZero(t, trusted)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inherited
}

// look checks what the holders trust in, and counts it. It reads the objects
// themselves, in its own way.
func (w *world) look(holders []*holder, seed uint64) (trusted int) {
	all := w.objects.All()
	for _, h := range holders {
		for _, r := range h.trusts() {
			trusted++
			var record, session struct {
				Session int64       `json:"session,string"`
				Life    uint64      `json:"life,string"`
				Nonce   uint64      `json:"nonce,string"`
				Token   store.Token `json:"token,string"`
				Inc     string      `json:"inc"`
			}
			_ = json.Unmarshal([]byte(all["records/"+key(r.Name)]), &record)
			_ = json.Unmarshal([]byte(all[fmt.Sprint("sessions/", int64(r.Session))]), &session)
			require.True(w.t, record.Session == int64(r.Session) && record.Nonce == r.Nonce &&
				(record.Token == 0 || record.Token == r.Token) && session.Inc == r.Owner.Incarnation && session.Life == record.Life,
				"%s trusts in %+v, there stand %+v and %+v, seed %d", h.node, r, record, session, seed)
		}
	}
	return trusted
}

// key is what the documentation says of names.
func key(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789-", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// won takes note of a win.
func (w *world) won(r store.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Token <= w.tokens[r.Name] {
		w.t.Errorf("%q: token %d after %d", r.Name, r.Token, w.tokens[r.Name])
	}
	w.tokens[r.Name] = r.Token
	if w.crashed[w.last[r.Name]] {
		w.inherited++
	}
	w.last[r.Name] = r.Owner.Incarnation
}

func (w *world) n(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// upTo draws a time below d.
func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.n(int(d))) }

var errDown = errors.New("objects down")

// fault is what befalls one request.
func (w *world) fault(ctx context.Context, _, _ string, apply func()) error {
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if h, ok := ctx.Value(caller{}).(*holder); ok && h.isCut() {
		return errors.Join(wait(w.upTo(ttl/10)), errDown)
	}
	switch w.n(60) {
	case 0: // lost
		return wait(time.Hour)
	case 1: // applied, and the reply lost
		apply()
		return wait(time.Hour)
	case 2: // refused by a broken link
		return errDown
	case 3: // lands late
		time.AfterFunc(w.upTo(3*ttl/2), apply)
		return errors.Join(wait(w.upTo(ttl)), errDown)
	case 4, 7, 8, 9: // slow, there
		if err := wait(w.upTo(ttl / 2)); err != nil {
			return err
		}
		apply()
		return nil
	case 5: // slow, back
		apply()
		return wait(w.upTo(ttl / 2))
	case 6: // a fault of the objects' own, applied or not
		if w.n(2) == 0 {
			apply()
		}
		return errors.New("rude")
	}
	if err := wait(w.upTo(ttl / 200)); err != nil {
		return err
	}
	apply()
	return wait(w.upTo(ttl / 200))
}

// caller is the key under which a context says whose request it is.
type caller struct{}

// holder does with one Store what a Keeper does, in few words.
type holder struct {
	w     *world
	store store.Store
	node  string
	life  int

	mu       sync.Mutex
	session  store.Session
	deadline time.Time // of the trust in session
	cutUntil time.Time // none of its requests arrives
	held     map[string]store.Record
}

// begin is the start of a process.
func (h *holder) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life++
	h.session = store.Session{Owner: store.Owner{ID: h.node, Incarnation: fmt.Sprint(h.node, "/", h.life)}, TTL: ttl}
	h.anewLocked()
}

// anewLocked gives up what was trusted in, for a session that is yet to be opened.
func (h *holder) anewLocked() {
	clear(h.held)
	h.session.ID = store.SessionID(1 + h.w.n(1<<40))
	h.deadline = time.Time{}
}

func (h *holder) trusts() (held []store.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.deadline) {
		for _, r := range h.held {
			held = append(held, r)
		}
	}
	return held
}

func (h *holder) isCut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.cutUntil)
}

func (h *holder) keepRenewing(ctx context.Context) {
	ctx = context.WithValue(ctx, caller{}, h)
	for ctx.Err() == nil {
		if h.w.n(30) == 0 { // it is cut off, and trusts until its deadline
			h.mu.Lock()
			h.cutUntil = time.Now().Add(ttl + h.w.upTo(ttl))
			h.mu.Unlock()
		}
		if h.w.n(30) == 0 { // it crashes
			h.w.mu.Lock()
			h.w.crashed[h.session.Owner.Incarnation] = true
			h.w.mu.Unlock()
			h.begin()
		}
		h.mu.Lock()
		session, sent := h.session, time.Now()
		opened := !h.deadline.IsZero()
		if opened && !sent.Before(h.deadline) {
			h.anewLocked()
			h.mu.Unlock()
			continue
		}
		h.mu.Unlock()
		attempt, cancel := context.WithTimeout(ctx, ttl/4)
		var g store.Grant
		var err error
		if opened {
			var grants []store.Grant
			if grants, err = h.store.Renew(attempt, []store.Session{session}); err == nil {
				g = grants[0]
				err = g.Err
			}
		} else {
			g, err = h.store.OpenSession(attempt, session)
		}
		cancel()
		h.mu.Lock()
		switch {
		case errors.Is(err, store.ErrSessionGone), err == nil && opened && !time.Now().Before(h.deadline):
			h.anewLocked()
		case err == nil:
			h.deadline = sent.Add(g.TTL)
		}
		h.mu.Unlock()
		if err == nil {
			time.Sleep(ttl / 4)
		} else {
			time.Sleep(ttl / 20)
		}
	}
}

// work wins, transfers to itself and gives up one name again and again.
func (h *holder) work(ctx context.Context, name string) {
	ctx = context.WithValue(ctx, caller{}, h)
	var own store.Token // of a record of ours that is known to stand
	for ctx.Err() == nil {
		time.Sleep(h.w.upTo(ttl / 3))
		h.mu.Lock()
		session := h.session
		r, ok := h.held[name]
		alive := time.Now().Before(h.deadline)
		ok = ok && alive
		if !alive || ok && h.w.n(5) > 0 {
			h.mu.Unlock()
			continue
		}
		delete(h.held, name)
		h.mu.Unlock()
		attempt, cancel := context.WithTimeout(ctx, ttl/2)
		switch {
		case ok && h.w.n(3) == 0:
			_, _ = h.store.Release(attempt, []store.Held{r.Held()})
			own = 0
		case ok && h.w.n(2) == 0:
			to := store.Offer{Name: name, Owner: session.Owner, Session: session.ID, TTL: ttl, Nonce: uint64(h.w.n(1 << 40))}
			outs, err := h.store.(store.Transferrer).Transfer(attempt, []store.Transfer{{Held: r.Held(), To: to}})
			own = r.Token
			if err == nil && outs[0].OK {
				own = h.won(session, outs[0].Record)
			}
		default:
			if ok {
				own = r.Token
			}
			c := store.Claim{Name: name, Nonce: uint64(h.w.n(1 << 40)), Supersedes: own}
			outs, err := h.store.Acquire(attempt, session, []store.Claim{c})
			if err == nil {
				own = 0
				if stands := outs[0].Record; stands.Owner.Incarnation == session.Owner.Incarnation {
					own = stands.Token
				}
				if outs[0].OK {
					own = h.won(session, outs[0].Record)
				}
			}
		}
		cancel()
	}
}

// won takes up what was won under session.
func (h *holder) won(session store.Session, r store.Record) store.Token {
	h.w.won(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session.ID == session.ID && time.Now().Before(h.deadline) {
		h.held[r.Name] = r
	}
	return r.Token
}
