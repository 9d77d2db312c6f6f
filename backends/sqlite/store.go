package sqlite

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
	_ store.Watcher     = (*Store)(nil)
)

// Store is a store.Store in a file of SQLite. Make one with New, and end it with Close. It is
// safe for concurrent use, and any number of processes may have one of the same file.
type Store struct {
	transactions
	hub     feed.Hub
	closing sync.Once
}

// patience bounds how long New waits for others: for their locks, and for their end where they use a
// former file.
const patience = 10 * time.Second

// New returns a Store in the file at path, which it makes if there is none. A database of the
// user's own may be given: the tables, whose names begin with holdfast_, are made in it, and
// its journal becomes a write-ahead log.
//
// The file must be on a local disk of a Linux machine, and the process must have the machine's
// clock: else the error is store.ErrUnsupported. It is store.ErrInvalid for a path that can't be,
// ErrSchema for tables of another version or of which some are missing, ErrReplaced if
// the file was replaced and processes are left that use the former one, store.ErrDenied for a file
// that is no database, is damaged, or can't be written. New waits for others until ctx is
// done, and 10 seconds at most.
func New(ctx context.Context, path string) (*Store, error) {
	c, err := machineClock()
	if err != nil {
		return nil, failed("new", err)
	}
	return newStore(ctx, path, c)
}

func newStore(ctx context.Context, path string, c clock) (*Store, error) {
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return nil, failed("new", err)
	}
	p, err := locate(path)
	if err != nil {
		return nil, failed("new", err)
	}
	s := &Store{}
	s.place, s.clock, s.wall, s.changed = p, c, time.Now, s.hub.Wake
	s.writer, s.readers = make(chan *link, 1), make(chan *link, readerCount)
	s.life, s.end = context.WithCancelCause(context.Background())
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var writer *link
	err = p.join(ctx, func(begin bool, id string) (is string, err error) {
		if writer, err = openLink(ctx, p.path, begin); err != nil {
			return "", err
		}
		if s.id, err = s.open(ctx, writer, begin, id); err != nil {
			writer.close()
		}
		return s.id, err
	})
	if err != nil {
		if writer != nil {
			writer.close() // join may fail after it was opened
		}
		return nil, failed("new", fmt.Errorf("%s: %w", p.path, denied(err)))
	}
	s.writer <- writer
	for range readerCount {
		s.readers <- nil
	}
	return s, nil
}

// open makes sure that the file is of the generation that has the ID or, with begin, begins a new one,
// whose ID it returns.
func (s *Store) open(ctx context.Context, l *link, begin bool, id string) (string, error) {
	for _, c := range []struct{ pragma, want string }{{"encoding", "UTF-8"}, {"journal_mode = WAL", "wal"}} {
		var is string
		if err := waitFor(ctx, func() error { return l.get("PRAGMA "+c.pragma, nil, &is) }); err != nil {
			return "", fmt.Errorf("PRAGMA %s: %w", c.pragma, err)
		}
		if is != c.want {
			return "", fmt.Errorf("%w: PRAGMA %s: it is %s, must be %s", store.ErrUnsupported, c.pragma, is, c.want)
		}
	}
	err := l.synced(begin)
	if err == nil {
		err = l.begin(ctx, "BEGIN IMMEDIATE")
	}
	if err == nil {
		err = prepare(l, begin)
	}
	var m meta
	if err == nil {
		m, err = readMeta(l)
	}
	if err == nil {
		err = whole(l)
	}
	switch {
	case err != nil:
	case begin:
		var file string
		if file, err = s.place.look(); err == nil {
			id, err = m.beginGeneration(l, file, s.clock.boot)
		}
	case m.boot != s.clock.boot:
		err = fmt.Errorf("%w: %w", errOtherGeneration, otherMachine(m.boot, s.clock))
	case m.id != id:
		err = errOtherGeneration
	}
	if err == nil {
		err = l.exec("UPDATE holdfast_meta SET last = last WHERE 0") // may it be written?
	}
	if err == nil {
		s.seen.Store(m.last)
		err = l.exec("COMMIT")
	}
	return id, err
}

// Limits returns the bounds of this store: 500 names a call, as others wait meanwhile, and
// 1 MiB of metadata.
func (s *Store) Limits() store.Limits { return limits }

// Close ends the Store and waits for what it does, which is no more than the disk takes: calls that
// wait for a lock, or for others, end with an error, as Watches do; those that have begun to write are
// completed. Sessions are left to end by themselves. It may be called more than once.
func (s *Store) Close() error {
	if err := input.Call(context.Background(), s.place != nil, "sqlite.New", store.ErrInvalid); err != nil {
		return failed("close", err)
	}
	s.closing.Do(func() {
		s.mu.Lock()
		s.end(errClosed)
		s.mu.Unlock()
		s.running.Wait()
		for _, all := range []chan *link{s.writer, s.readers} {
			for range cap(all) {
				if l := <-all; l != nil {
					l.close()
				}
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.place.leave()
	})
	return nil
}
