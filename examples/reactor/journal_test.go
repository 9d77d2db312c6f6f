package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
)

// office is a server with the tables, and terms of the payments' reactor.
type office struct {
	t       *testing.T
	pool    *pgxpool.Pool
	journal *Journal
}

func newOffice(t *testing.T) *office {
	s := postgrestest.Start(t)
	pool := s.Pool(t)
	require.NoError(t, prepare(t.Context(), pool))
	store, err := postgres.New(pool)
	require.NoError(t, err)
	return &office{t, pool, &Journal{pool, store}}
}

// term is one under which nobody else's stands any more: that of the office before is over.
func (o *office) term() (t lease.Term, end func()) {
	keeper, err := lease.NewKeeper(o.journal.store, lease.Config{ID: "p"})
	require.NoError(o.t, err)
	l, err := keeper.Lease("reactor/payments")
	require.NoError(o.t, err)
	t, err = l.AcquireTerm(o.t.Context())
	require.NoError(o.t, err)
	return t, func() {
		require.NoError(o.t, l.Release(context.WithoutCancel(o.t.Context())))
		require.NoError(o.t, keeper.Close(context.WithoutCancel(o.t.Context())))
	}
}

// first is the first run, as a holder of the term sees it.
func (o *office) first(term lease.Term) *Run {
	runs, err := o.journal.Open(o.t.Context(), "payments", "p", term)
	require.NoError(o.t, err)
	require.NotEmpty(o.t, runs)
	return runs[0]
}

// Readers see until when a run is its worker's: that moves with the heartbeats of the lease, while the
// worker does nothing, and ends with it.
func TestExpiresMovesWithHeartbeats(t *testing.T) {
	o := newOffice(t)
	term, end := o.term()
	r := o.first(term)
	expires := func() (at *time.Time) {
		require.NoError(t, o.pool.QueryRow(t.Context(), `SELECT expires FROM reactor.status WHERE id = $1`, r.ID).Scan(&at))
		return at
	}
	first := expires()
	require.NotNil(t, first)
	require.WithinDuration(t, time.Now(), *first, 12*time.Second)
	require.Eventually(t, func() bool { return expires().After(first.Add(time.Second)) }, 10*time.Second, 100*time.Millisecond)
	end()
	require.Nil(t, expires())
	_, end = o.term()
	defer end()
	require.Nil(t, expires(), "the successor has not taken it on")
}

func (o *office) count(query string) (n int) {
	require.NoError(o.t, o.pool.QueryRow(o.t.Context(), query).Scan(&n))
	return n
}

// What somebody who was replaced writes is refused, whatever it is.
func TestStaleWritesAreRefused(t *testing.T) {
	o := newOffice(t)
	term, end := o.term()
	r := o.first(term)
	require.NoError(t, r.Step(t.Context(), "charged", func(pgx.Tx) error { return nil }))
	end()
	now, end := o.term()
	defer end()
	o.first(now)
	charge := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE reactor.account SET balance = 0`)
		return err
	}
	b := bank{pool: o.pool, amount: 1}
	_, opened := o.journal.Open(t.Context(), "payments", "stale", term)
	_, effect := r.Effect(t.Context(), "payment", b)
	for what, err := range map[string]error{"to open": opened, "an effect": effect,
		"a step": r.Step(t.Context(), "charged", charge), "the end": r.Done(t.Context(), "stale")} {
		require.ErrorIs(t, err, postgres.ErrFenced, what)
	}
	require.Equal(t, 1, o.count(`SELECT count(*) FROM reactor.event`))
	require.Zero(t, o.count(`SELECT (SELECT count(*) FROM reactor.outbox) + (SELECT count(*) FROM bank.request)
		+ (SELECT count(*) FROM reactor.account WHERE balance <> 1000000) + (SELECT count(*) FROM reactor.run WHERE owner = 'stale')`))

	// Nor does it mark messages as sent that it has sent a second time.
	require.NoError(t, o.first(now).Effectless(t.Context()))
	sent := 0
	send := func(string) error { sent++; return nil }
	require.ErrorIs(t, o.journal.Send(t.Context(), "payments", term, send), postgres.ErrFenced)
	require.NoError(t, o.journal.Send(t.Context(), "payments", now, send))
	require.Equal(t, 2, sent)
}

// Effectless goes through a run that does nothing outside.
func (r *Run) Effectless(ctx context.Context) error {
	return errors.Join(r.Step(ctx, "charged", func(pgx.Tx) error { return nil }), r.Done(ctx, "done"))
}

// outside does things that fail at some moment.
type outside struct {
	done, asked, found int
	before, after      error // of Do
}

func (o *outside) Do(context.Context, string) (string, error) {
	o.asked++
	if o.before != nil {
		return "", o.before
	}
	o.done++
	return "receipt", o.after
}

func (o *outside) Find(context.Context, string) (string, bool, error) {
	o.found++
	return "receipt", o.done > 0, nil
}

// An effect is done once, wherever its holder died.
func TestEffectsAreReconciled(t *testing.T) {
	died := errors.New("the process died")
	for name, o := range map[string]*outside{
		"before it was done": {before: died},
		"after it was done":  {after: died},
		"not at all":         {},
	} {
		t.Run(name, func(t *testing.T) {
			office := newOffice(t)
			term, end := office.term()
			_, err := office.first(term).Effect(t.Context(), "payment", o)
			failed := o.before != nil || o.after != nil
			require.Equal(t, failed, errors.Is(err, died))
			end()
			o.before, o.after = nil, nil
			for range 2 { // successors
				now, end := office.term()
				result, err := office.first(now).Effect(t.Context(), "payment", o)
				require.NoError(t, err)
				require.Equal(t, "receipt", result)
				end()
			}
			require.Equal(t, 1, o.done)
			require.LessOrEqual(t, o.found, 1, "what was confirmed is not looked for")
			require.Equal(t, 2, office.count(`SELECT count(*) FROM reactor.event`))
		})
	}
}

// Work that has changed does not go on in a journal of other work.
func TestDivergence(t *testing.T) {
	o := newOffice(t)
	term, end := o.term()
	defer end()
	require.NoError(t, o.first(term).Effectless(t.Context()))
	r := &Run{ID: "payments-1", journal: o.journal, term: term, past: []string{"charged", "done"}}
	require.NoError(t, r.Step(t.Context(), "charged", nil))
	require.ErrorIs(t, r.Step(t.Context(), "refunded", nil), ErrDiverged)
}

func TestSettings(t *testing.T) {
	for _, file := range []string{"reactor.yaml", "quick.yaml"} {
		_, err := node.LoadSettings(file)
		require.NoError(t, err)
	}
}
