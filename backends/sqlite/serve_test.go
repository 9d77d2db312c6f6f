//go:build linux

package sqlite

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// wireError is an error on its way between processes.
type wireError struct {
	Text string
	Are  []int // of sentinels
}

var sentinels = []error{
	store.ErrInvalid, store.ErrSessionGone, store.ErrBadRecord, store.ErrParentLost, store.ErrUnsupported, store.ErrDenied,
	store.ErrSetback, context.DeadlineExceeded, context.Canceled, ErrWatchOverrun, ErrReplaced, errClosed,
}

func toWire(err error) *wireError {
	if err == nil {
		return &wireError{} // gob has no nil in a slice
	}
	w := &wireError{Text: err.Error()}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			w.Are = append(w.Are, i)
		}
	}
	return w
}

func (w *wireError) Error() string { return w.Text }

func (w *wireError) Is(target error) bool {
	for _, i := range w.Are {
		if sentinels[i] == target {
			return true
		}
	}
	return false
}

func (w *wireError) err() error {
	if w == nil || w.Text == "" {
		return nil
	}
	return w
}

type request struct {
	Op, Path string
	Query    store.Query
	Scope    store.Scope
	Client   int
	Left     time.Duration
	Session  store.Session
	Sessions []store.Session
	Claims   []store.Claim
	Held     []store.Held
	Moves    []store.Transfer
	Names    []string
}

// grant and outcome are what of these can travel.
type grant struct {
	TTL time.Duration
}

type outcome struct {
	OK       bool
	Record   store.Record
	Replaced store.Token
}

type reply struct {
	Grants  []grant
	Outs    []outcome
	Errs    []*wireError // of grants or outcomes; one of no text is none
	Records []store.Record
	Event   store.Event
	Err     *wireError
	End     bool
}

// serve answers one request on each connection.
func serve() {
	l, err := net.Listen("unix", os.Getenv("SOCKET"))
	if err != nil {
		panic(err)
	}
	go func() { _, _ = os.Stdin.Read(make([]byte, 1)); os.Exit(0) }()
	fmt.Println("serving")
	var mu sync.Mutex
	stores := map[string]*Store{}
	of := func(r request) (*Store, error) {
		mu.Lock()
		defer mu.Unlock()
		key := fmt.Sprint(r.Path, r.Client)
		if r.Op == "close" {
			s := stores[key]
			delete(stores, key)
			if s == nil {
				return nil, errClosed
			}
			return s, s.Close()
		}
		if stores[key] == nil {
			s, err := New(context.Background(), r.Path)
			if err != nil {
				return nil, err
			}
			stores[key] = s
		}
		return stores[key], nil
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer c.Close()
			in, out := gob.NewDecoder(c), gob.NewEncoder(c)
			var r request
			if in.Decode(&r) != nil {
				return
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if r.Left > 0 {
				ctx, cancel = context.WithTimeout(ctx, r.Left)
				defer cancel()
			}
			go func() { _ = in.Decode(&r.Op); cancel() }() // the other side is gone
			s, err := of(r)
			if err != nil || r.Op == "close" {
				_ = out.Encode(reply{Err: toWire(err), End: true})
				return
			}
			answer(ctx, s, r, func(a reply) bool { return out.Encode(a) == nil })
		}()
	}
}

func answer(ctx context.Context, s *Store, r request, send func(reply) bool) {
	last := reply{End: true}
	var grants []store.Grant
	var outs []store.Outcome
	var err error
	switch r.Op {
	case "open":
		grants = make([]store.Grant, 1)
		grants[0], err = s.OpenSession(ctx, r.Session)
	case "closeSession":
		err = s.CloseSession(ctx, r.Session)
	case "acquire":
		outs, err = s.Acquire(ctx, r.Session, r.Claims)
	case "renew":
		grants, err = s.Renew(ctx, r.Sessions)
	case "release":
		outs, err = s.Release(ctx, r.Held)
	case "transfer":
		outs, err = s.Transfer(ctx, r.Moves)
	case "get":
		last.Records, err = s.Get(ctx, r.Names...)
	case "list":
		for rec, err := range s.List(ctx, r.Query) {
			if !send(reply{Records: []store.Record{rec}, Err: toWire(err)}) {
				return
			}
		}
	case "watch":
		for e, err := range s.Watch(ctx, r.Scope) {
			if !send(reply{Event: e, Err: toWire(err)}) {
				return
			}
		}
	}
	for _, g := range grants {
		last.Grants = append(last.Grants, grant{g.TTL})
		last.Errs = append(last.Errs, toWire(g.Err))
	}
	for _, o := range outs {
		last.Outs = append(last.Outs, outcome{o.OK, o.Record, o.Replaced})
		last.Errs = append(last.Errs, toWire(o.Err))
	}
	last.Err = toWire(err)
	send(last)
}
