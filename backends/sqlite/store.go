package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	writes
	follow follower
}

type options struct {
	missing  input.Missing
	interval time.Duration
}

// Option changes a setting of New.
type Option func(*options)

// DefaultPollInterval is how often a Store that is watched looks for changes by other
// processes.
const DefaultPollInterval = 10 * time.Millisecond

// WithPollInterval sets how often a Store that is watched looks whether another process
// has changed something, 1 ms to 1 s; DefaultPollInterval by default. Changes by this Store
// hear at once.
func WithPollInterval(d time.Duration) Option { return func(o *options) { o.interval = d } }

// New returns a Store in the file at path, which it makes if there is none. A database of the
// user's own may be given: the tables, whose names begin with holdfast_, are made in it, and
// its journal becomes a write-ahead log.
//
// The file must be on a local disk of a Linux machine, and the process must have the machine's
// clock: else the error is store.ErrUnsupported. It is store.ErrInvalid for a path or an option
// that can't be, ErrSchema for tables of another version or of which some are missing, ErrReplaced if
// the file was replaced and processes are left that use the former one, store.ErrDenied for a file
// that is no database, is damaged, or can't be written. New waits for others' locks until ctx is
// done, and some seconds at most.
func New(ctx context.Context, path string, opts ...Option) (*Store, error) {
	c, err := machineClock()
	if err != nil {
		return nil, failed("new", err)
	}
	return newStore(ctx, path, c, opts...)
}

func newStore(ctx context.Context, path string, c clock, opts ...Option) (*Store, error) {
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return nil, failed("new", err)
	}
	o := options{interval: DefaultPollInterval}
	if err := input.Apply(&o, &o.missing, store.ErrInvalid, opts); err != nil {
		return nil, failed("new", err)
	}
	if o.interval < time.Millisecond || o.interval > time.Second {
		return nil, failed("new",
			fmt.Errorf("sqlite.WithPollInterval: %w: %v, must be 1ms to 1s", store.ErrInvalid, o.interval))
	}
	p, err := locate(path)
	if err != nil {
		return nil, failed("new", err)
	}
	s := &Store{}
	s.place, s.clock, s.wall = p, c, time.Now
	s.turn, s.readers, s.past = make(chan struct{}, 1), make(chan *link, readerCount), make(chan *past, 1)
	s.follow.w, s.follow.interval = &s.writes, o.interval
	s.lost, s.changed = s.follow.endLocked, s.follow.kick
	s.life, s.end = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, 2*joinPatience)
	defer cancel()
	if err := p.join(ctx, func(begin bool, id string) (string, error) { return s.open(ctx, begin, id) }); err != nil {
		s.closeWriter() // join may fail after it was opened
		return nil, failed("new", fmt.Errorf("%s: %w", p.path, denied(err)))
	}
	s.turn <- struct{}{}
	for range readerCount {
		s.readers <- nil
	}
	s.past <- &past{now: always}
	return s, nil
}

// open opens the file, of the generation that has the ID or, with begin, for a new one.
func (s *Store) open(ctx context.Context, begin bool, id string) (is string, err error) {
	l, err := openLink(ctx, s.place.path, begin)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			l.close()
			return
		}
		s.writer, s.id = l, is
	}()
	var encoding, mode string
	if err := waitFor(ctx, func() error { return l.get("PRAGMA encoding", nil, &encoding) }); err != nil {
		return "", err
	}
	if encoding != "UTF-8" {
		return "", fmt.Errorf("%w: the database's encoding is %s, must be UTF-8", store.ErrUnsupported, encoding)
	}
	if err := waitFor(ctx, func() error { return l.get("PRAGMA journal_mode = WAL", nil, &mode) }); err != nil {
		return "", fmt.Errorf("the write-ahead log: %w", err)
	}
	if mode != "wal" {
		return "", fmt.Errorf("%w: the journal's mode is %s, must be wal", store.ErrUnsupported, mode)
	}
	if err := l.synced(begin); err != nil {
		return "", err
	}
	if err := l.begin(ctx, "BEGIN IMMEDIATE"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			l.rollback()
		}
	}()
	if begin {
		if err := prepare(l); err != nil {
			return "", err
		}
	}
	m, err := readMeta(l)
	if err == nil {
		err = whole(l)
	}
	switch {
	case !begin && errors.Is(err, errNoVersion): // the tables are gone
		return "", errOtherGeneration
	case err != nil:
		return "", err
	case begin:
		file, err := s.place.look()
		if err == nil {
			is, err = m.beginGeneration(l, file.String(), s.clock.boot)
		}
		if err != nil {
			return "", err
		}
	case m.boot != s.clock.boot:
		return "", fmt.Errorf("%w: %w", errOtherGeneration, m.otherMachine(s.clock))
	case m.id != id:
		return "", errOtherGeneration
	default:
		is = id
	}
	if err := l.exec("UPDATE holdfast_meta SET last = last WHERE 0"); err != nil { // may it be written?
		return "", err
	}
	if err := l.exec(index); err != nil {
		return "", err
	}
	s.seen.Store(m.last)
	return is, l.exec("COMMIT")
}

// Limits returns the bounds of this store: 500 names a call, as others wait meanwhile, and
// 1 MiB of metadata.
func (s *Store) Limits() store.Limits { return limits }

// Path is that of the file, absolute and without symbolic links.
func (s *Store) Path() string {
	if s.place == nil {
		return ""
	}
	return s.place.path
}

// Close ends the Store and waits for what it does, which is no more than the disk takes: calls that
// wait for a lock, or for others, end with an error, as Watches do; those that have begun to write are
// completed. Sessions are left to end by themselves. It may be called more than once.
func (s *Store) Close() error {
	if s.place == nil {
		return failed("close", errUnmade)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.running.Wait()
		return nil
	}
	s.closed = true
	s.end()
	s.follow.endLocked(errClosed)
	s.mu.Unlock()
	s.running.Wait()
	s.closeWriter()
	for range readerCount {
		if l := <-s.readers; l != nil {
			l.close()
		}
	}
	if p := <-s.past; p.link != nil {
		p.link.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place.leave()
	return nil
}

func (s *Store) closeWriter() {
	if s.writer != nil {
		s.writer.close()
	}
}
