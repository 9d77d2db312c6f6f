//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// The modest rate of calls that are made beside a transaction for as long as it is idle.
const (
	// turnEach is the time between two turns: each acquires, renews and releases a name by every
	// way, and waits until another node of ours was told of ours.
	turnEach = time.Second
	// steadySessions are renewed in one request each third of the TTL: as many as 100 000 names have.
	steadySessions = 100
	// sections is how many parts the time has, each with a line of its own.
	sections = 12
)

// section is what calls took in one part of the time.
type section struct {
	latency
	many     calls         // renewals of all sessions
	idle     time.Duration // of the foreign transaction, when the section ended; 0: there is none yet
	requests int           // by which all sessions were renewed
	renewals int           // of rows, since the foreign transaction began
	size     int64         // of the tables, then
	dead     int64         // rows of the table of sessions that can't be removed, as the server estimates
}

// steadiness is what was measured beside a transaction that was idle.
type steadiness struct {
	load      [2]string
	processor time.Duration // of this program; the server's processes are not in it
	took      time.Duration
	all       []section // the first: before there was such a transaction
	after     int64     // size of the tables once the transaction had ended and they were vacuumed
}

// check returns what is broken: it was not idle for so long, or a call was held up.
func (s *steadiness) check(p plan, idle time.Duration) error {
	var broken []error
	if len(s.all) != sections+1 {
		return fmt.Errorf("broken: %d sections, must be %d", len(s.all), sections+1)
	}
	if last := s.all[sections]; last.idle < idle {
		broken = append(broken, fmt.Errorf("broken: the transaction was idle for %v only", last.idle))
	}
	for i, x := range s.all {
		if got := max(x.longest(), x.many.longest); got >= p.patience {
			broken = append(broken, fmt.Errorf("broken: a call of section %d took %v, at most %v", i, got, p.patience))
		}
		if len(x.watch.p50) == 0 || len(x.many.p50) == 0 {
			broken = append(broken, fmt.Errorf("broken: no call in section %d", i))
		}
	}
	return errors.Join(broken...)
}

// measureBeside makes calls for a section, begins a transaction that does nothing, and makes calls
// until it was idle for so long. A call that takes longer than the plan's patience is an error.
func measureBeside(ctx context.Context, p plan, idle time.Duration, w io.Writer) (err error) {
	b, err := newBed(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	s, err := b.steady(ctx, p, idle, w)
	fmt.Fprintf(w, "\nLoad of the machine before %s, after %s; this program used %.1f %% of a processor.\n",
		s.load[0], s.load[1], 100*s.processor.Seconds()/max(s.took.Seconds(), 1))
	fmt.Fprintf(w, "Once that transaction had ended and VACUUM had run, the tables had %d KiB.\n", s.after>>10)
	if err == nil {
		err = s.check(p, idle)
	}
	return err
}

func (b *bed) steady(ctx context.Context, p plan, idle time.Duration, w io.Writer) (s steadiness, err error) {
	s.load[0] = machineLoad()
	pool, err := pgxpool.New(ctx, b.url)
	if err != nil {
		return s, err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.WithLogger(zap.NewNop()))
	if err != nil {
		return s, err
	}
	sessions, err := openSessions(ctx, p, store, "steady", steadySessions)
	if err != nil {
		return s, err
	}
	t, err := newTurns(ctx, p, b.url)
	if err != nil {
		return s, err
	}
	defer t.close()
	if err := t.turn(ctx, newRound()); err != nil { // what is planned anew, and opened
		return s, err
	}
	held, err := newNode(ctx, b.url, postgres.DefaultSchema, "held", p.ttl, true)
	if err != nil {
		return s, err
	}
	defer held.close()
	h, err := held.keeper.Lease("held")
	if err != nil {
		return s, err
	}
	term, err := h.AcquireTerm(ctx)
	if err != nil {
		return s, err
	}
	began, used := time.Now(), processor()
	defer func() {
		s.load[1], s.took, s.processor = machineLoad(), time.Since(began), processor()-used
	}()
	part := idle / sections
	fmt.Fprintf(w, "| idle for | acquire p50 | p99 | longest | renew p50 | p99 | longest | watch p50 | p99 | longest | "+
		"renew 100 sessions p50 | longest | advisory acquire p50 | p99 | longest | rows renewed | dead rows | tables |\n|%s\n",
		"---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	renewals := 0
	section := func(lasts time.Duration, age func() (time.Duration, error)) error {
		x, err := t.section(ctx, store, sessions, lasts)
		renewals += len(sessions) * x.requests
		x.renewals = renewals
		if err == nil && !term.CheckAlive() {
			err = fmt.Errorf("what was held all the time was lost: %w", context.Cause(term.Context()))
		}
		if err == nil {
			x.idle, err = age()
		}
		if err == nil {
			x.size, x.dead, err = b.tables(ctx)
		}
		if err == nil {
			x.print(w)
			s.all = append(s.all, x)
		}
		return err
	}
	if err := section(part, func() (time.Duration, error) { return 0, nil }); err != nil {
		return s, err
	}
	old, err := b.open(ctx, p)
	if err != nil {
		return s, err
	}
	renewals = 0
	for n := range sections {
		lasts := part
		if n == sections-1 {
			lasts += time.Second // so that the last call is made when it is as old as it must be
		}
		err = section(lasts, func() (time.Duration, error) { return b.openFor(ctx, old) })
		if err != nil {
			hangUp(old)
			return s, fmt.Errorf("beside an idle transaction: %w", err)
		}
	}
	hangUp(old)
	if err := b.server.Exec(ctx, "VACUUM"); err != nil {
		return s, err
	}
	s.after, _, err = b.tables(ctx)
	return s, err
}

// section takes turns, and renews all sessions, for so long.
func (t *turns) section(ctx context.Context, store *postgres.Store, all []lease.Session, lasts time.Duration) (x section, err error) {
	x.latency = newLatency()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	until := time.Now().Add(lasts)
	r, many := newRound(), []time.Duration(nil)
	var failed error
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for next := time.Now(); ctx.Err() == nil && next.Before(until); next = next.Add(t.p.ttl / 3) {
			if wait(ctx, time.Until(next)) != nil {
				return
			}
			d, err := renewAll(ctx, t.p, store, all)
			if err != nil {
				if ctx.Err() == nil {
					failed = err
				}
				cancel()
				return
			}
			many = append(many, d)
		}
	})
	for next := time.Now(); err == nil && next.Before(until); next = next.Add(turnEach) {
		if err = wait(ctx, time.Until(next)); err == nil {
			err = t.turn(ctx, r)
		}
	}
	if err == nil {
		err = wait(ctx, time.Until(until))
	}
	if err != nil {
		cancel()
	}
	renewing.Wait()
	if failed != nil {
		err = failed // which ended the turns
	}
	if err == nil && (len(r.told) == 0 || len(many) == 0) {
		err = fmt.Errorf("no calls in %v", lasts)
	}
	if err != nil {
		return x, err
	}
	x.latency.add(r)
	x.many.add(many)
	x.requests = len(many)
	return x, nil
}

// tables is how large the tables of the default schema are, and how many rows of sessions are dead.
func (b *bed) tables(ctx context.Context) (size, dead int64, err error) {
	err = b.admin.QueryRow(ctx, sizeOurs, postgres.DefaultSchema).Scan(&size)
	if err == nil {
		err = b.admin.QueryRow(ctx, `SELECT coalesce(max(n_dead_tup), 0) FROM pg_stat_user_tables
			WHERE schemaname = $1 AND relname = 'session'`, postgres.DefaultSchema).Scan(&dead)
	}
	return size, dead, err
}

// print writes a line of the table.
func (x section) print(w io.Writer) {
	age := "none yet"
	if x.idle > 0 {
		age = x.idle.Round(time.Second).String()
	}
	of := func(c calls) string {
		return fmt.Sprintf("%s | %s | %s", short(c.p50[0]), short(c.p99[0]), short(c.longest))
	}
	fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %d | %d | %d KiB |\n", age, of(*x.acquire[holdfast]), of(*x.renew[holdfast]),
		of(x.watch), short(x.many.p50[0]), short(x.many.longest), of(*x.acquire[advisory]), x.renewals, x.dead, x.size>>10)
}

// processor is the processor time of this program.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
