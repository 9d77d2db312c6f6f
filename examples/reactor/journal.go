package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// Schema makes the tables.
//
//go:embed schema.sql
var Schema string

// Journal keeps runs of work in PostgreSQL, together with what they have done. Each write is
// guarded by the lease of the run's reactor: the transaction fails if that is another's by now, and
// a successor waits for its end. So nothing that a former holder had begun comes in between.
type Journal struct {
	pool  *pgxpool.Pool
	store *postgres.Store
}

// Run is a piece of work that a reactor does under a term of its lease.
type Run struct {
	ID, Account string
	Amount      int64

	journal *Journal
	term    lease.Term
	past    []string // names of the events that came before this term, which are gone through
	seq     int      // of the next event
}

// ErrDiverged says that the work does other things than it did before: its code has changed.
var ErrDiverged = errors.New("the work does not do what its journal says")

// write makes a transaction that the lease guards.
func (j *Journal) write(ctx context.Context, term lease.Term, f func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, j.pool, func(tx pgx.Tx) error {
		if err := j.store.Guard(ctx, tx, term); err != nil {
			return err
		}
		return f(tx)
	})
}

// Open takes on the runs of a reactor that are not done, in order, with what they have done so far.
func (j *Journal) Open(ctx context.Context, reactor, owner string, term lease.Term) (runs []*Run, err error) {
	err = j.write(ctx, term, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `WITH mine AS (
			UPDATE reactor.run SET owner = $2, token = $3 WHERE reactor = $1 AND NOT done RETURNING id, account, amount)
			SELECT id, account, amount, array(SELECT name FROM reactor.event WHERE run = mine.id ORDER BY seq) FROM mine ORDER BY id`,
			reactor, owner, int64(term.Token()))
		if err != nil {
			return err
		}
		runs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Run, error) {
			r := &Run{journal: j, term: term}
			return r, row.Scan(&r.ID, &r.Account, &r.Amount, &r.past)
		})
		return err
	})
	return runs, err
}

// Step does f in a guarded transaction, once in the life of the run: it is written down in the same
// transaction, and left out where the journal has it.
func (r *Run) Step(ctx context.Context, name string, f func(tx pgx.Tx) error) error {
	if r.seq < len(r.past) {
		if was := r.past[r.seq]; was != name {
			return fmt.Errorf("run %s, event %d: %w: %q, was %q", r.ID, r.seq, ErrDiverged, name, was)
		}
		r.seq++
		return nil
	}
	err := r.journal.write(ctx, r.term, func(tx pgx.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO reactor.event (run, seq, name, token) VALUES ($1, $2, $3, $4)`,
			r.ID, r.seq, name, int64(r.term.Token()))
		return err
	})
	if err == nil {
		r.seq++
	}
	return err
}

// Outside is something that is done outside of the database, at a place that knows no lease.
type Outside interface {
	// Do does it under a key, and returns what came of it.
	Do(ctx context.Context, key string) (result string, err error)
	// Find reports whether it was done under that key. It is asked before Do when that may be: by
	// who follows a holder that died in between.
	Find(ctx context.Context, key string) (result string, done bool, err error)
}

// Effect has o done, and returns what came of it. What was confirmed is not done again; what was
// begun is looked for first.
func (r *Run) Effect(ctx context.Context, name string, o Outside) (result string, err error) {
	key := r.ID + "/" + name
	begun := r.seq < len(r.past)
	if err := r.Step(ctx, name+" intended", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO reactor.effect (key, run) VALUES ($1, $2)`, key, r.ID)
		return err
	}); err != nil {
		return "", err
	}
	if r.seq < len(r.past) { // it was confirmed
		err = r.journal.pool.QueryRow(ctx, `SELECT result FROM reactor.effect WHERE key = $1 AND confirmed`, key).Scan(&result)
	} else {
		result, err = reconcile(ctx, key, o, begun)
	}
	if err != nil {
		return "", fmt.Errorf("effect %s: %w", key, err)
	}
	return result, r.Step(ctx, name+" confirmed", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE reactor.effect SET confirmed = true, result = $2 WHERE key = $1`, key, result)
		return err
	})
}

// reconcile does o, unless it was begun before and is found to have been done.
func reconcile(ctx context.Context, key string, o Outside, begun bool) (string, error) {
	if begun {
		if result, done, err := o.Find(ctx, key); done || err != nil {
			return result, err
		}
	}
	return o.Do(ctx, key)
}

// Done ends the run, and has body sent.
func (r *Run) Done(ctx context.Context, body string) error {
	return r.Step(ctx, "done", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO reactor.outbox (run, body) VALUES ($1, $2)`, r.ID, body); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE reactor.run SET done = true WHERE id = $1`, r.ID)
		return err
	})
}

// Send gives what is in the outbox of a reactor to send, which may get a message again.
func (j *Journal) Send(ctx context.Context, reactor string, term lease.Term, send func(body string) error) error {
	rows, err := j.pool.Query(ctx, `SELECT o.run, o.body FROM reactor.outbox o JOIN reactor.run r ON r.id = o.run
		WHERE r.reactor = $1 AND NOT o.sent ORDER BY o.run`, reactor)
	if err != nil {
		return err
	}
	type message struct{ Run, Body string }
	messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := send(m.Body); err != nil {
			return err
		}
		if err := j.write(ctx, term, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE reactor.outbox SET sent = true WHERE run = $1`, m.Run)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
