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
	conn    *conn
	watches func() int // of this Store
	house   chores     // of rung alone

	mu    sync.Mutex
	busy  bool // it is being rung
	again bool
}

// ring tells other processes that something has changed.
func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.again = b.busy; b.busy {
		return
	}
	b.busy = true
	go b.rung()
}

// rung rings until nothing has changed since it began to. Where nothing of this Store watches, it
// then does its share of the chores.
func (b *bell) rung() {
	attempt := func(f func(context.Context) error) bool {
		ctx, cancel := context.WithTimeout(context.Background(), asking)
		defer cancel()
		err := f(ctx)
		if err != nil {
			b.conn.log.Info("a request after a change fails: other processes look by themselves", zap.Error(err))
		}
		return err == nil
	}
	for again := true; again; {
		rang := attempt(func(ctx context.Context) error {
			return b.conn.db.Run(ctx, "SELECT "+b.conn.function("ring")+"()::text", nil, func(db.Scan) error { return nil })
		})
		if rang && b.watches() == 0 {
			b.house.do(attempt)
		}
		time.Sleep(bellRest)
		b.mu.Lock()
		again = b.again
		b.busy, b.again = again, false
		b.mu.Unlock()
	}
}

// ear hears the bell.
type ear struct {
	conn    *conn
	connect func(context.Context) (*pgx.Conn, error) // the user's
	heard   func(listening bool)                     // it rang, or it begins or ends to be heard
}

// listen hears the bell until ctx ends.
func (e *ear) listen(ctx context.Context) {
	pause := e.conn.poll
	for ctx.Err() == nil {
		err := e.hear(ctx, &pause)
		if ctx.Err() != nil {
			return
		}
		e.heard(false)
		e.conn.log.Info("not listening for changes, looking for them instead", zap.Error(err))
		_ = boundary.Pause(ctx, pause)
		pause = min(2*pause, 10*time.Second)
	}
}

// hear makes a connection and hears the bell on it until that is lost.
func (e *ear) hear(ctx context.Context, pause *time.Duration) error {
	connecting, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	var conn *pgx.Conn
	err := boundary.Call(func() (err error) { conn, err = e.connect(connecting); return err })
	if err != nil {
		return err
	}
	if conn == nil {
		return errors.New("postgres.WithListener: it returned no connection")
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), hanging)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(connecting, `LISTEN "holdfast_`+e.conn.schema+`"`, pgx.QueryExecModeExec); err != nil {
		return err
	}
	for {
		e.heard(true)
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		*pause = e.conn.poll
	}
}
