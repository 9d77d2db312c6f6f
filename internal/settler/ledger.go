package settler

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// Ledger is what the clients of one store know together, and so what may be
// concluded when a request got no answer. Everything a caller was told is in it.
//
// A record can prove that a request was applied: it bears the nonce of the claim
// or the transfer, and a later write met it, or somebody was shown it. That there
// is none proves nothing, as the request may land later; so it is repeated until
// a write is answered. A release leaves no record: see decide.
//
// A claim that lands when its caller has been answered is not what anybody was
// told: its record is hidden from readers, and removed when it is in another
// claim's way, as a Keeper does with its own records that no handle claims. No more
// of these are taken for such than requests got no answer.
type Ledger struct {
	mu       sync.Mutex
	asks     map[askKey]*ask
	names    map[string]*standing
	enders   map[store.Held][]*ender // releases and transfers, in the order in which they began
	sessions map[store.SessionID]*sitting
	changed  chan struct{} // closed and replaced when an ender's state changes
	tally    *Tally
}

// NewLedger makes an empty one that counts in t.
func NewLedger(t *Tally) *Ledger {
	return &Ledger{asks: map[askKey]*ask{}, names: map[string]*standing{}, enders: map[store.Held][]*ender{},
		sessions: map[store.SessionID]*sitting{}, changed: make(chan struct{}), tally: t}
}

type askKey struct {
	name    string
	session store.SessionID
	nonce   uint64
}

// ask is all requests that put a record with one nonce under one name.
type ask struct {
	key    askKey
	open   int                  // calls that have not told their caller an outcome
	astray int                  // requests without an answer that may have landed, or may yet
	mine   map[store.Token]bool // what callers were told is theirs
	late   map[store.Token]bool // what landed after its caller had left
	shown  store.Record         // what somebody was shown while a call was open
}

// standing is what is known to stand under a name, or to have stood.
type standing struct {
	top    store.Record // the newest record that anybody was told of
	over   store.Token  // ownerships up to this token are over
	rivals map[store.Token]bool
}

// sitting is a session.
type sitting struct {
	store.Session
	closing, closed bool
	astray          int // openings without an answer, that may land yet
	sent            time.Time
	ttl             time.Duration
}

func (l *Ledger) name(name string) *standing {
	n := l.names[name]
	if n == nil {
		n = &standing{rivals: map[store.Token]bool{}}
		l.names[name] = n
	}
	return n
}

func (l *Ledger) session(id store.SessionID) *sitting {
	s := l.sessions[id]
	if s == nil {
		s = &sitting{}
		l.sessions[id] = s
	}
	return s
}

// ask begins a call that puts a record; over is the token it supersedes, or 0.
func (l *Ledger) ask(key askKey, over store.Token) *ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asks[key]
	if a == nil {
		a = &ask{key: key, mine: map[store.Token]bool{}, late: map[store.Token]bool{}}
		l.asks[key] = a
	}
	a.open++
	if over != 0 {
		l.name(key.name).rivals[over] = true
	}
	return a
}

// lost: a request of the ask got no answer.
func (l *Ledger) lost(a *ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.astray++
}

// answered ends a call: its caller gets rec as its own, or, if rec is
// zero, that nothing is.
func (l *Ledger) answered(a *ask, rec store.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.open--
	a.shown = store.Record{}
	if rec.Token != 0 {
		a.mine[rec.Token] = true
		l.note(rec)
	}
}

// landed tells whether a request of a, an earlier one of this call's, is known to
// have been applied: the record that a later one met is of its making, or one
// that somebody was shown.
func (l *Ledger) landed(a *ask, met store.Record) (store.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (askKey{met.Name, met.Session, met.Nonce}) != a.key || a.mine[met.Token] {
		met = a.shown
	}
	if a.astray == 0 || met.Token == 0 || a.mine[met.Token] {
		return store.Record{}, false
	}
	a.astray--
	return met, true
}

// show tells whether a reader, or who was refused, may be told of rec; false if it
// landed after its caller had left.
func (l *Ledger) show(rec store.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asks[askKey{rec.Name, rec.Session, rec.Nonce}]
	switch {
	case a == nil || a.mine[rec.Token]:
	case a.late[rec.Token]:
		return false
	case a.open > 0:
		a.shown = rec
	case a.astray > 0:
		a.astray--
		a.late[rec.Token] = true
		l.tally.Late.Add(1)
		return false
	}
	l.note(rec)
	return true
}

func (l *Ledger) note(rec store.Record) {
	if n := l.name(rec.Name); rec.Token > n.top.Token {
		n.top = rec
	}
}

// tops are the newest tokens known of names, before they are read.
func (l *Ledger) tops(names []string) []store.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	tops := make([]store.Token, len(names))
	for i, name := range names {
		tops[i] = l.name(name).top.Token
	}
	return tops
}

// free: nothing that was known before stands under name.
func (l *Ledger) free(name string, top store.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.name(name)
	n.over = max(n.over, top)
}

// ender is a call that ends an ownership, if it stands: a release, or a transfer.
//
//	flying ──answer──▶ applied, refused
//	   │ ──an earlier attempt got none, and the ownership is gone──▶ stuck ──decide──▶ applied, refused, silent
//	   └── the caller's time is over ──▶ silent
type ender struct {
	held    store.Held
	stood   bool            // known to, when the call began
	session store.SessionID // of what stood
	state   enderState
}

type enderState uint8

const (
	flying enderState = iota
	stuck
	applied
	refused
	silent // its caller was told that nothing is known
)

func (l *Ledger) ender(h store.Held) *ender {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.name(h.Name)
	e := &ender{held: h, stood: n.top.Held() == h && h.Token > n.over, session: n.top.Session}
	l.enders[h] = append(l.enders[h], e)
	return e
}

func (l *Ledger) set(e *ender, s enderState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setLocked(e, s)
}

func (l *Ledger) setLocked(e *ender, s enderState) {
	e.state = s
	if s == applied {
		n := l.name(e.held.Name)
		n.over = max(n.over, e.held.Token)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// stick: e got no answer at first, and then the answer that the ownership does
// not stand.
func (l *Ledger) stick(e *ender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !e.stood {
		l.setLocked(e, refused) // it was over before
		return
	}
	l.setLocked(e, stuck)
}

// decide settles a call that is stuck. If nothing but such calls can have ended
// the ownership, one of them did. If there are several, all in flight, then no one
// can tell which: the one that began first was in flight whenever it was. So it
// counts as the one. In every other case nothing is known.
func (l *Ledger) decide(ctx context.Context, e *ender) enderState {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e.state == stuck {
		var first *ender
		var done, lost, wait bool
		for _, o := range l.enders[e.held] {
			done, lost, wait = done || o.state == applied, lost || o.state == silent, wait || o.state == flying
			if o.state == stuck && first == nil {
				first = o
			}
		}
		switch {
		case done:
			l.setLocked(e, refused)
		case lost || ctx.Err() != nil || l.mayBeOver(e):
			l.setLocked(e, silent)
		case !wait && first == e:
			l.setLocked(e, applied)
		default:
			changed := l.changed
			l.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			l.mu.Lock()
		}
	}
	return e.state
}

// mayBeOver tells whether an ownership may have ended by other means than its
// enders: its session's end, or a claim that supersedes it.
func (l *Ledger) mayBeOver(e *ender) bool {
	return l.name(e.held.Name).rivals[e.held.Token] || l.session(e.session).mayBeGone()
}

// mayBeGone tells whether a session may be over.
func (l *Ledger) mayBeGone(id store.SessionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session(id).mayBeGone()
}

func (s *sitting) mayBeGone() bool { return s.closing || time.Since(s.sent) >= s.ttl }

// opened: a request to open or renew a session was answered, or not.
func (l *Ledger) opened(which store.Session, sent time.Time, ttl time.Duration, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session(which.ID)
	s.Session = which
	if !answered {
		s.astray++
		return
	}
	s.sent, s.ttl = sent, ttl
}

// closing: a session is being closed, or was.
func (l *Ledger) closing(id store.SessionID, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session(id)
	s.closing, s.closed = true, done
}

// closed tells whether a session is known to have been closed.
func (l *Ledger) closed(id store.SessionID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session(id).closed
}

// haunted tells whether a request to open a session may have landed after the
// session was closed.
func (l *Ledger) haunted(id store.SessionID) (store.Session, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session(id)
	return s.Session, s.closed && s.astray > 0
}
