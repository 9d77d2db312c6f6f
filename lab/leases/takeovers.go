//go:build linux

package leases

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/backends/sqlite"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// takeovers are settings of processes that take leases from each other in a file of SQLite, at random
// moments, while each of them writes to the same file in slow transactions and does not ask whether it
// still holds. No lease is released: each is taken over when its session has run out, of a holder that
// renewed a few times and writes on.
type takeovers struct {
	Path    string
	Names   int
	Guarded bool
	Seed    uint64
}

// guard has processes killed and stopped meanwhile, also in their transactions, with sqlite.Guard and
// without. With it no write may come after a takeover from its writer; without, some must.
func guard(ctx context.Context, run *scene.Run) {
	n, processes, names, within := 2000, 4, 6, 20*time.Minute
	if run.Short {
		n, processes, names, within = 60, 3, 5, 5*time.Minute
	}
	var half [2]takeoverFigures
	for i, guarded := range []bool{true, false} {
		t := takeovers{Path: filepath.Join(run.Dir, fmt.Sprint(guarded)+".db"), Names: names, Guarded: guarded, Seed: run.Seed}
		half[i] = t.race(ctx, n, processes, within, run)
		run.Figure(fmt.Sprintf("Guard %t", guarded), "%+v", half[i])
		n = max(50, n/10)
	}
	scene.Check(half[0].check(half[1], run))
}

// check judges what was seen with Guard, and without. An error says that it shows nothing.
func (f takeoverFigures) check(without takeoverFigures, run *scene.Run) error {
	for _, b := range []struct {
		n    int
		what string
	}{
		{f.stale, "writes came after a takeover from their writer"}, {f.lost, "updates were lost"},
		{f.missing + without.missing, "confirmed writes are missing"}, {f.backwards + without.backwards, "tokens did not grow"},
	} {
		if b.n > 0 {
			run.Unsafe("%d %s", b.n, b.what)
		}
	}
	switch {
	case f.writes == 0 || f.refused == 0:
		return errors.New("with Guard nothing was written, or nothing refused: this shows nothing")
	case f.during == 0:
		return errors.New("no takeover was asked for in a transaction of the former holder: this shows nothing")
	case without.stale == 0:
		return errors.New("without Guard no stale write was seen: this shows nothing")
	}
	return nil
}

// takeoverTables are the data, and the one history of writes and takeovers: a trigger notes the
// latter, so that the file itself says which came first. There is one write lock, so the order of seq
// is that of the commits.
const takeoverTables = `
	CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL) STRICT;
	CREATE TABLE history (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, kind TEXT NOT NULL,
		token INTEGER NOT NULL, before INTEGER, after INTEGER) STRICT;
	CREATE TRIGGER takeover AFTER INSERT ON holdfast_lease BEGIN
		INSERT INTO history (name, kind, token) VALUES (NEW.name, 'take', NEW.token);
	END;
	WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
		INSERT INTO account SELECT 'job/' || i, 0 FROM n`

// ended kills a process, and returns an error if it had ended by itself.
func ended(p *lab.Process[heard]) error {
	if err := p.Kill(); err != nil {
		return err
	}
	if err := p.Err(); err == nil || err.Error() != "signal: killed" {
		return fmt.Errorf("%s ended by itself: %v", p.ID, err)
	}
	return nil
}

// race runs one half, until there were enough takeovers.
func (t takeovers) race(ctx context.Context, n, processes int, within time.Duration, run *scene.Run) takeoverFigures {
	store := scene.Must(sqlite.New(ctx, t.Path)) // makes the tables of leases
	defer store.Close()
	db := scene.Must(sql.Open("sqlite", "file:"+t.Path+"?_pragma=busy_timeout(10000)"))
	defer db.Close()
	scene.Must(db.ExecContext(ctx, takeoverTables, t.Names))
	place := scene.Must(lab.NewPlace(false))
	defer place.End()
	live := make([]*lab.Process[heard], processes)
	begin := func(i int) {
		t.Seed++
		live[i] = scene.Must(start[heard](place, "writer", fmt.Sprint("writer-", t.Seed), t))
	}
	for i := range live {
		begin(i)
		defer func() { _ = live[i].Kill() }()
	}
	var said []heard
	began, rng := time.Now(), rand.New(rand.NewPCG(t.Seed, 1))
	kills, stops, taken := 0, 0, 0
	for taken < n {
		scene.Check(lab.Pause(ctx, upTo(rng, 400*time.Millisecond)))
		scene.Check(db.QueryRowContext(ctx, `SELECT count(*) - count(DISTINCT name) FROM history WHERE kind = 'take'`).Scan(&taken))
		if time.Since(began) > within {
			scene.Check(fmt.Errorf("%d takeovers within %v, wanted %d", taken, within, n))
		}
		i := rng.IntN(processes)
		p := live[i]
		if rng.IntN(3) == 0 {
			kills++
			scene.Check(ended(p))
			said = append(said, p.Said()...)
			begin(i)
		} else {
			stops++
			scene.Check(errors.Join(p.Signal(syscall.SIGSTOP), lab.Pause(ctx, upTo(rng, 200*time.Millisecond)), p.Signal(syscall.SIGCONT)))
		}
	}
	for _, p := range live {
		scene.Check(ended(p))
		said = append(said, p.Said()...)
	}
	run.Figure("kills and stops", "%d and %d in %v", kills, stops, time.Since(began).Round(time.Second))
	return judgeTakeovers(scene.Must(stepsIn(ctx, db)), said)
}

// writing is one process that writes under what it holds. For each name it waits until that is free, acquires it, and writes.
type writing struct {
	takeovers
	store *sqlite.Store
	begin [2]*sql.DB // the application's connections: transactions begin deferred, and immediate

	mu  sync.Mutex
	out *json.Encoder
}

// writer is such a process. It ends when its input does.
func writer(arg json.RawMessage) {
	h := &writing{out: json.NewEncoder(os.Stdout)}
	scene.Check(json.Unmarshal(arg, &h.takeovers))
	ctx, cancel := untilTold()
	defer cancel()
	for h.store == nil {
		var err error
		if h.store, err = sqlite.New(ctx, h.Path); err != nil && ctx.Err() != nil {
			return
		} else if !errors.Is(err, context.DeadlineExceeded) {
			scene.Check(err)
		}
	}
	for i, how := range []string{"deferred", "immediate"} {
		h.begin[i] = scene.Must(sql.Open("sqlite", "file:"+h.Path+"?_pragma=busy_timeout(2000)&_pragma=synchronous(NORMAL)&_txlock="+how))
	}
	var all sync.WaitGroup
	for i := range h.Names {
		rng := rand.New(rand.NewPCG(h.Seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				h.term(ctx, fmt.Sprint("job/", i), rng)
			}
		})
	}
	all.Wait()
	scene.Check(errors.Join(h.begin[0].Close(), h.begin[1].Close(), h.store.Close()))
}

func (h *writing) say(s heard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Encode(s); err != nil {
		os.Exit(0) // no reader is left
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// term is one ownership: it is renewed up to three times, and then left to run out, while the
// writes go on beyond its end.
func (h *writing) term(ctx context.Context, name string, rng *rand.Rand) {
	time.Sleep(upTo(rng, 10*time.Millisecond))
	if found, err := h.store.Get(ctx, name); err != nil || len(found) > 0 {
		return
	}
	session := lease.Session{ID: lease.SessionID(rng.Int64N(1<<62) + 1), TTL: 40*time.Millisecond + upTo(rng, 120*time.Millisecond),
		Owner: lease.Owner{ID: "holder", Incarnation: fmt.Sprint(rng.Uint64())}}
	if _, err := h.store.OpenSession(ctx, session); err != nil {
		return
	}
	asked := lab.Now()
	out, err := h.store.Acquire(ctx, session, []lease.Claim{{Name: name, Nonce: rng.Uint64()}})
	if err != nil || !out[0].OK {
		return
	}
	own := owned{name, out[0].Record.Token}
	h.say(heard{owned: own, From: asked, To: lab.Now(), Take: true})
	end := time.Now().Add(session.TTL)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	n := rng.IntN(4)
	end = end.Add(time.Duration(n) * session.TTL / 2)
	renewing.Go(func() {
		for range n {
			time.Sleep(session.TTL / 2)
			_, _ = h.store.Renew(ctx, []lease.Session{session}) // one that comes too late is refused
		}
	})
	w := &ownership{writing: h, own: own, rng: rng}
	for end = end.Add(upTo(rng, 100*time.Millisecond)); time.Now().Before(end) && ctx.Err() == nil; {
		w.write(ctx)
	}
}

// owned is one term.
type owned struct {
	Of string
	No lease.Token
}

func (o owned) Name() string       { return o.Of }
func (o owned) Token() lease.Token { return o.No }

// ownership writes under one term. It keeps the balance in memory, as actors do.
type ownership struct {
	*writing
	own     owned
	rng     *rand.Rand
	known   bool
	balance int64
}

// think is what makes transactions slow; now and then one lasts longer than what is left of any TTL.
func (w *ownership) think() {
	d := upTo(w.rng, 4*time.Millisecond)
	if w.rng.IntN(60) == 0 {
		d = upTo(w.rng, 150*time.Millisecond)
	}
	time.Sleep(d)
}

func (w *ownership) write(ctx context.Context) {
	said := heard{owned: w.own, From: lab.Now()}
	after, err := w.transaction(ctx)
	said.To, w.known = lab.Now(), err == nil
	switch {
	case err == nil:
		w.balance = after
		said.Result, said.After = confirmed, after
	case ctx.Err() != nil:
		return
	case errors.Is(err, lease.ErrStale):
		said.Result = refused
	}
	w.say(said)
}

// transaction adds one to the balance, in a transaction of one of three kinds.
func (w *ownership) transaction(ctx context.Context) (after int64, err error) {
	kind := w.rng.IntN(3)
	early := kind == 2 // it reads before Guard, which must refuse it if another has written since
	tx, err := w.begin[kind%2].BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // none is left after a commit
	balance := w.balance
	read := func() error {
		return tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE name = ?", w.own.Of).Scan(&balance)
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
		w.own.Of, int64(w.own.No), balance, balance+1); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = ? WHERE name = ?", balance+1, w.own.Of); err != nil {
		return 0, err
	}
	return balance + 1, tx.Commit()
}

// heard is what a process said of one transaction, or of one takeover, by the machine's clock.
type heard struct {
	owned
	From, To time.Duration
	Take     bool  // else a transaction
	After    int64 // what it wrote, if it was confirmed
	Result   int
}

// The results of transactions, but for those of other errors.
const (
	confirmed = iota + 1
	refused   // by Guard
)

// takeoverFigures are what one half shows.
type takeoverFigures struct {
	taken     int // from a holder whose session ran out
	during    int // asked for while a transaction of the former holder was open
	writes    int
	stale     int // writes after a takeover from their writer
	lost      int // writes by a balance that was not the last one
	missing   int // writes that were confirmed and are not in the file
	backwards int // takeovers under a token that is not higher than the last one
	refused   int
	failed    int // transactions that failed otherwise
}

// step is one row of the history.
type step struct {
	owned
	take          bool
	before, after int64
}

// stepsIn reads the history.
func stepsIn(ctx context.Context, db *sql.DB) (steps []step, err error) {
	rows, err := db.QueryContext(ctx, "SELECT name, kind = 'take', token, coalesce(before, 0), coalesce(after, 0) FROM history ORDER BY seq")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s step
		err = errors.Join(err, rows.Scan(&s.Of, &s.take, &s.No, &s.before, &s.after))
		steps = append(steps, s)
	}
	return steps, errors.Join(err, rows.Err())
}

// judgeTakeovers compares the history with what the processes said.
func judgeTakeovers(steps []step, said []heard) (f takeoverFigures) {
	type write struct {
		owned
		after int64
	}
	former := map[owned]owned{} // who was taken over
	top, balance := map[string]owned{}, map[string]int64{}
	written := map[write]bool{}
	for _, s := range steps {
		last := top[s.Of]
		switch {
		case s.take:
			if last.No > 0 {
				f.taken++
				former[s.owned] = last
			}
			if s.No <= last.No {
				f.backwards++
			} else {
				top[s.Of] = s.owned
			}
		default:
			f.writes++
			if s.No < last.No {
				f.stale++
			}
			if s.before != balance[s.Of] {
				f.lost++
			}
			balance[s.Of] = s.after
			written[write{s.owned, s.after}] = true
		}
	}
	transactions := map[owned][]heard{}
	for _, h := range said {
		switch {
		case h.Take:
			continue
		case h.Result == 0:
			f.failed++
		case h.Result == refused:
			f.refused++
		case !written[write{h.owned, h.After}]:
			f.missing++
		}
		transactions[h.owned] = append(transactions[h.owned], h)
	}
	for _, h := range said {
		if h.Take && slices.ContainsFunc(transactions[former[h.owned]], func(t heard) bool { return t.From <= h.From && h.From < t.To }) {
			f.during++
		}
	}
	return f
}
