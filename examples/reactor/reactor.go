package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/lease"
)

// pay is the work: it takes an amount from a customer, and has the bank pay it.
func pay(ctx context.Context, r *Run, b bank) error {
	err := r.Step(ctx, "charged", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE reactor.account SET balance = balance - $2 WHERE id = $1`, r.Account, r.Amount)
		return err
	})
	if err != nil {
		return err
	}
	b.amount = r.Amount
	receipt, err := r.Effect(ctx, "payment", b)
	if err != nil {
		return err
	}
	return r.Done(ctx, fmt.Sprintf("%s: paid %d, receipt %s", r.ID, r.Amount, receipt))
}

// bank is another company's. It pays once for each key.
type bank struct {
	pool   *pgxpool.Pool
	amount int64
	slow   time.Duration // from the payment to the answer
}

func (b bank) Do(ctx context.Context, key string) (string, error) {
	if _, err := b.pool.Exec(ctx, `WITH request AS (INSERT INTO bank.request (key) VALUES ($1))
		INSERT INTO bank.payment (key, amount) VALUES ($1, $2) ON CONFLICT DO NOTHING`, key, b.amount); err != nil {
		return "", err
	}
	select {
	case <-time.After(b.slow):
		return "of " + key, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (b bank) Find(ctx context.Context, key string) (string, bool, error) {
	err := b.pool.QueryRow(ctx, `SELECT key FROM bank.payment WHERE key = $1`, key).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return "of " + key, err == nil, err
}

// reactor does the runs that are for it, under its lease. It may stand in several processes.
type reactor struct {
	name, process string
	journal       *Journal
	bank          bank
}

// react works for a term of the lease.
func (r *reactor) react(ctx context.Context, term lease.Term) error {
	log.Printf("%s: leads %s, token %d", r.process, r.name, term.Token())
	for {
		runs, err := r.journal.Open(ctx, r.name, r.process, term)
		if err != nil {
			return err
		}
		for _, run := range runs {
			if len(run.past) > 0 {
				log.Printf("%s: %s goes on after %d events", r.process, run.ID, len(run.past))
			}
			if err := pay(ctx, run, r.bank); err != nil {
				return fmt.Errorf("%s: %w", run.ID, err)
			}
		}
		err = r.journal.Send(ctx, r.name, term, func(body string) error {
			log.Printf("%s: %s", r.process, body)
			return nil
		})
		if err != nil {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}
