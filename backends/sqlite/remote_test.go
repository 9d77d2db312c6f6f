//go:build linux

package sqlite

import (
	"context"
	"encoding/gob"
	"iter"
	"net"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// remote is a Store in another process.
type remote struct {
	socket, path string
	client       int
}

func (s *remote) call(ctx context.Context, r request, each func(reply) bool) error {
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.Path, r.Client = s.path, s.client
	if d, ok := ctx.Deadline(); ok {
		r.Left = max(1, time.Until(d))
	}
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	in := gob.NewDecoder(c)
	err = gob.NewEncoder(c).Encode(r)
	for err == nil {
		var a reply
		if err = in.Decode(&a); err != nil {
			break
		}
		if a.End {
			if each != nil {
				each(a)
			}
			return a.Err.err()
		}
		if !each(a) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// one is call for what is answered once.
func (s *remote) one(ctx context.Context, r request) (a reply, err error) {
	err = s.call(ctx, r, func(got reply) bool { a = got; return true })
	return a, err
}

func (a reply) grants() (out []store.Grant) {
	for i, g := range a.Grants {
		out = append(out, store.Grant{TTL: g.TTL, Err: a.Errs[i].err()})
	}
	return out
}

func (a reply) outcomes() (out []store.Outcome) {
	for i, o := range a.Outs {
		out = append(out, store.Outcome{OK: o.OK, Record: o.Record, Replaced: o.Replaced, Err: a.Errs[i].err()})
	}
	return out
}

func (s *remote) Limits() store.Limits { return limits }

func (s *remote) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	a, err := s.one(ctx, request{Op: "open", Session: want})
	if err != nil {
		return store.Grant{}, err
	}
	return a.grants()[0], nil
}

func (s *remote) CloseSession(ctx context.Context, want store.Session) error {
	_, err := s.one(ctx, request{Op: "closeSession", Session: want})
	return err
}

func (s *remote) Acquire(ctx context.Context, want store.Session, c []store.Claim) ([]store.Outcome, error) {
	a, err := s.one(ctx, request{Op: "acquire", Session: want, Claims: c})
	return a.outcomes(), err
}

func (s *remote) Renew(ctx context.Context, want []store.Session) ([]store.Grant, error) {
	a, err := s.one(ctx, request{Op: "renew", Sessions: want})
	return a.grants(), err
}

func (s *remote) Release(ctx context.Context, h []store.Held) ([]store.Outcome, error) {
	a, err := s.one(ctx, request{Op: "release", Held: h})
	return a.outcomes(), err
}

func (s *remote) Transfer(ctx context.Context, m []store.Transfer) ([]store.Outcome, error) {
	a, err := s.one(ctx, request{Op: "transfer", Moves: m})
	return a.outcomes(), err
}

func (s *remote) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	a, err := s.one(ctx, request{Op: "get", Names: names})
	return a.Records, err
}

func (s *remote) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		stopped := false
		err := s.call(ctx, request{Op: "list", Query: q}, func(a reply) bool {
			if !a.End {
				stopped = !yield(a.Records[0], a.Err.err())
			}
			return !stopped
		})
		if err != nil && !stopped {
			yield(store.Record{}, err)
		}
	}
}

func (s *remote) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		stopped := false
		err := s.call(ctx, request{Op: "watch", Scope: of}, func(a reply) bool {
			if !a.End {
				stopped = !yield(a.Event, a.Err.err())
			}
			return !stopped
		})
		if err != nil && !stopped {
			yield(store.Event{}, err)
		}
	}
}
