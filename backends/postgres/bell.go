package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/boundary"
)

// This file tells other processes that there are changes, and hears of theirs. A bell that is not
// heard costs the time to the next poll.

// hanging bounds the end of a connection.
const hanging = 2 * time.Second

// bellRest is the time between two rings of one Store.
const bellRest = 5 * time.Millisecond

type bell struct {
	s *Store

	mu    sync.Mutex
	busy  bool // it is being rung
	again bool

	house chores // of ring alone
}

// changed has the watches of this Store look, and tells other processes.
func (s *Store) changed() {
	s.hub.look()
	b := &s.bell
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.again = b.busy; b.busy {
		return
	}
	b.busy = true
	go b.ring()
}

// ring rings until nothing has changed since it began to. Where nothing of this Store watches, it
// then does its share of the chores.
func (b *bell) ring() {
	attempt := func(f func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(context.Background(), asking)
		defer cancel()
		err := f(ctx)
		if err != nil {
			b.s.log.Info("a request after a change fails: other processes look by themselves", zap.Error(err))
		}
		return err == nil
	}
	for again := true; again; {
		rang := attempt(func(ctx context.Context) error {
			return b.s.db.Run(ctx, "SELECT "+b.s.function("ring")+"()::text", nil, func(db.Scan) error { return nil })
		})
		if rang && !b.s.hub.watches() {
			b.house.do(attempt)
		}
		time.Sleep(bellRest)
		b.mu.Lock()
		again = b.again
		b.busy, b.again = again, false
		b.mu.Unlock()
	}
}

// listen hears the bell until the run is over. The user's function makes the connection.
func (r *run) listen() {
	pause := r.s.poll
	for r.ctx.Err() == nil {
		err := r.hear(&pause)
		if r.ctx.Err() != nil {
			return
		}
		r.hears(false)
		r.look()
		r.s.log.Info("not listening for changes, looking for them instead", zap.Error(err))
		_ = boundary.Pause(r.ctx, pause)
		pause = min(2*pause, 10*time.Second)
	}
}

func (r *run) hears(is bool) {
	r.s.hub.mu.Lock()
	defer r.s.hub.mu.Unlock()
	r.heard = is
}

var errNoListener = errors.New("postgres.WithListener: it returned no connection")

// hear makes a connection and hears the bell on it until that is lost.
func (r *run) hear(pause *time.Duration) error {
	connecting, cancel := context.WithTimeout(r.ctx, asking)
	defer cancel()
	var conn *pgx.Conn
	err := boundary.Call(func() (err error) { conn, err = r.s.listener(connecting); return err })
	if err != nil {
		return err
	}
	if conn == nil {
		return errNoListener
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), hanging)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(connecting, `LISTEN "holdfast_`+r.s.schema+`"`, pgx.QueryExecModeExec); err != nil {
		return err
	}
	r.hears(true)
	r.look()
	for {
		if _, err := conn.WaitForNotification(r.ctx); err != nil {
			return err
		}
		*pause = r.s.poll
		r.look()
	}
}
