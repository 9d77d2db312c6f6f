//go:build linux

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/test/cluster"
)

// holderEnv has this program be a process that takes names, with the settings in it.
const holderEnv = "HOLDFAST_TAKEOVERS_HOLDER"

type settings struct {
	Path    string
	Names   int
	Guarded bool
	Seed    uint64
}

// holder is one process. For each name it waits until that is free, acquires it, and writes.
type holder struct {
	settings
	store *sqlite.Store
	// Connections of the user's own, by how their transactions begin.
	deferred, immediate *sql.DB

	mu  sync.Mutex
	out *json.Encoder
}

func holderMain(arg string) int {
	h := &holder{out: json.NewEncoder(os.Stdout)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.run(ctx, arg); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "takeovers, a holder:", err)
			os.Exit(2)
		}
	})
	_, _ = os.Stdin.Read(make([]byte, 1)) // the end of the input is the end
	cancel()
	running.Wait()
	return 0
}

func (h *holder) run(ctx context.Context, arg string) (err error) {
	if err := json.Unmarshal([]byte(arg), &h.settings); err != nil {
		return err
	}
	for h.store == nil {
		if h.store, err = sqlite.New(ctx, h.Path); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	open := func(how string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+h.Path+"?_pragma=busy_timeout(2000)&_pragma=synchronous(NORMAL)&_txlock="+how)
	}
	if h.deferred, err = open("deferred"); err != nil {
		return err
	}
	if h.immediate, err = open("immediate"); err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range h.Names {
		rng := rand.New(rand.NewPCG(h.Seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				h.term(ctx, leaseName(i), rng)
			}
		})
	}
	all.Wait()
	return errors.Join(h.deferred.Close(), h.immediate.Close(), h.store.Close())
}

func (h *holder) say(s heard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Encode(s); err != nil {
		os.Exit(0) // no reader is left
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// term is one ownership: it is renewed up to three times, and then left to run out, while the
// writes go on beyond its end.
func (h *holder) term(ctx context.Context, name string, rng *rand.Rand) {
	time.Sleep(upTo(rng, 10*time.Millisecond))
	if found, err := h.store.Get(ctx, name); err != nil || len(found) > 0 {
		return
	}
	session := lease.Session{ID: lease.SessionID(rng.Int64N(1<<62) + 1), TTL: 40*time.Millisecond + upTo(rng, 120*time.Millisecond),
		Owner: lease.Owner{ID: "holder", Incarnation: fmt.Sprint(rng.Uint64())}}
	if _, err := h.store.OpenSession(ctx, session); err != nil {
		return
	}
	asked := cluster.Now()
	out, err := h.store.Acquire(ctx, session, []lease.Claim{{Name: name, Nonce: rng.Uint64()}})
	if err != nil || !out[0].OK {
		return
	}
	own := owned{name, out[0].Record.Token}
	h.say(heard{Name: name, Token: int64(own.token), From: asked, To: cluster.Now(), Take: true})
	end := time.Now().Add(session.TTL)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	if n := rng.IntN(4); n > 0 {
		end = end.Add(time.Duration(n) * session.TTL / 2)
		renewing.Go(func() {
			for range n {
				time.Sleep(session.TTL / 2)
				_, _ = h.store.Renew(ctx, []lease.Session{session}) // one that comes too late is refused
			}
		})
	}
	w := &writer{holder: h, own: own, rng: rng}
	for end = end.Add(upTo(rng, 100*time.Millisecond)); time.Now().Before(end) && ctx.Err() == nil; {
		w.write(ctx)
	}
}

type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

// writer writes under one ownership. It keeps the balance in memory, as actors do.
type writer struct {
	*holder
	own     owned
	rng     *rand.Rand
	known   bool
	balance int64
}

// think is what makes transactions slow; now and then one lasts longer than what is left of any TTL.
func (w *writer) think() {
	d := upTo(w.rng, 4*time.Millisecond)
	if w.rng.IntN(60) == 0 {
		d = upTo(w.rng, 150*time.Millisecond)
	}
	time.Sleep(d)
}

func (w *writer) write(ctx context.Context) {
	said := heard{Name: w.own.name, Token: int64(w.own.token), From: cluster.Now()}
	after, err := w.transaction(ctx)
	said.To = cluster.Now()
	switch {
	case err == nil:
		w.known, w.balance = true, after
		said.Result, said.After = confirmed, after
	case ctx.Err() != nil:
		return
	case errors.Is(err, lease.ErrStale):
		said.Result = refused
	default:
		w.known = false
		said.Result = err.Error()
		if is := errors.Unwrap(err); is != nil {
			said.Result = fmt.Sprintf("%.60s", root(err))
		}
	}
	w.say(said)
}

// root is the innermost error.
func root(err error) error {
	for {
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err
			}
			err = e.Unwrap()
		default:
			return err
		}
	}
}

// transaction adds one to the balance, in a transaction of one of three kinds.
func (w *writer) transaction(ctx context.Context) (after int64, err error) {
	db, early := w.deferred, false
	switch w.rng.IntN(3) {
	case 0:
		db = w.immediate
	case 1:
		early = true // it reads before Guard, which must refuse it if another has written since
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // none is left after a commit
	balance := w.balance
	read := func() error {
		return tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE name = ?", w.own.name).Scan(&balance)
	}
	if early {
		if err := read(); err != nil {
			return 0, err
		}
		w.think()
	}
	if w.Guarded {
		if err := sqlite.Guard(ctx, tx, w.own); err != nil {
			return 0, err
		}
	}
	if !early && !w.known {
		if err := read(); err != nil {
			return 0, err
		}
	}
	w.think()
	if _, err := tx.ExecContext(ctx, "INSERT INTO history (name, kind, token, before, after) VALUES (?, 'write', ?, ?, ?)",
		w.own.name, int64(w.own.token), balance, balance+1); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = ? WHERE name = ?", balance+1, w.own.name); err != nil {
		return 0, err
	}
	return balance + 1, tx.Commit()
}
