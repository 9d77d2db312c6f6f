package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	_ "github.com/holdfast-go/holdfast/backends/kubernetes/register" // their URLs
	"github.com/holdfast-go/holdfast/backends/open"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register"
	_ "github.com/holdfast-go/holdfast/backends/redis/register"
	_ "github.com/holdfast-go/holdfast/backends/sqlite/register"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

const (
	answerTime   = 10 * time.Second // for a store or a node to answer
	maxAnswer    = 64 << 20         // bytes of one
	reach        = time.Hour        // how far back events reach, by default
	storeExample = "etcd://localhost:2379"
	nodeExample  = "http://localhost:8080/admin/holdfast/"
)

// source is what the commands read from: a node's page, or the console of a store alone.
type source interface {
	Snapshot(ctx context.Context, since time.Time) (console.Snapshot, error)
}

// with opens the source that was named, for f.
func (a *app) with(ctx context.Context, f func(source) error) error {
	switch {
	case a.node != "":
		p, err := a.page()
		if err != nil {
			return err
		}
		return f(p)
	case a.store != "":
		return a.alone(ctx, func(c *console.Console) error { return f(c) })
	}
	return usage("no store and no node: give --store or HOLDFAST_STORE, such as %s, "+
		"or --node or HOLDFAST_NODE, such as %s", storeExample, nodeExample)
}

// alone opens the console of a store alone, for f.
func (a *app) alone(ctx context.Context, f func(*console.Console) error) error {
	return a.over(ctx, func(o *opened) error {
		c, err := console.New(o.keeper, nil, console.Config{})
		if err == nil {
			defer c.Close()
			err = f(c)
		}
		return o.say(err)
	})
}

// snapshot reads once, and says on the log what the answer lacks.
func (a *app) snapshot(ctx context.Context, since time.Duration) (s console.Snapshot, err error) {
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	err = a.with(ctx, func(from source) error { s, err = from.Snapshot(ctx, time.Now().Add(-since)); return err })
	for _, m := range s.Missing {
		fmt.Fprintf(a.log, "holdfast: %s did not answer: %s\n", safe(m.Node), safe(m.Error))
	}
	if why := s.Cluster.StoreFailure; why != "" && err == nil {
		fmt.Fprintf(a.log, "holdfast: the records may be out of date: %s\n", safe(why))
	}
	return s, err
}

// page is a node's page.
type page struct{ at *url.URL }

func (a *app) page() (page, error) {
	u, err := url.Parse(a.node)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return page{}, usage("--node: not the URL of a node's page, such as %s", nodeExample)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/"
	return page{u}, nil
}

func (p page) fail(format string, args ...any) error {
	return fmt.Errorf("node %s: "+format, append([]any{p.at.Redacted()}, args...)...)
}

// call sends a request, and decodes an answer below 400.
func (p page) call(ctx context.Context, method, path string, body []byte, into any) error {
	q, err := http.NewRequestWithContext(ctx, method, p.at.String()+"api/"+console.Version+"/"+path, bytes.NewReader(body))
	if err != nil {
		return p.fail("%w", err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Holdfast-Action", "1")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		var dial *net.OpError
		if method == "POST" && !(errors.As(err, &dial) && dial.Op == "dial") {
			return &coded{codeUnknown, fmt.Errorf("node %w: it may or may not have been begun", err)}
		}
		return fmt.Errorf("node %w", err) // it has the URL, without a password
	}
	defer func() { _ = r.Body.Close() }()
	answer := json.NewDecoder(io.LimitReader(r.Body, maxAnswer))
	if r.StatusCode < 400 {
		if err = answer.Decode(into); err != nil {
			err = p.fail("its answer is no JSON of a Holdfast page: %w", err)
		}
		return err
	}
	var f console.Failure
	if answer.Decode(&f) != nil || f.Error.Code == "" {
		return p.fail("%s: is a Holdfast page mounted there?", r.Status)
	}
	code := map[string]int{"conflict": codeHeld, "invalid": codeUsage}[f.Error.Code]
	if f.Error.Code == "unavailable" && method == "POST" {
		code = codeUnknown
	}
	return &coded{max(code, codeError), p.fail("%s: %s", f.Error.Code, f.Error.Text)}
}

func (p page) Snapshot(ctx context.Context, since time.Time) (s console.Snapshot, err error) {
	return s, p.call(ctx, "GET", "snapshot?since="+time.Since(since).String(), nil, &s)
}

func (p page) act(ctx context.Context, r console.Request) (a console.Accepted, err error) {
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	body, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	return a, p.call(ctx, "POST", "actions", body, &a)
}

// opened is a store, and a Keeper over it.
type opened struct {
	store  store.Store
	keeper *lease.Keeper
	where  string // for people
	close  func() error
}

// open opens the store that was named.
func (a *app) open(ctx context.Context) (*opened, error) {
	if a.store == "" {
		return nil, usage("no store: give --store or HOLDFAST_STORE, such as %s or sqlite:leases.db", storeExample)
	}
	if rest, ok := strings.CutPrefix(a.store, "sqlite:"); ok { // which makes a file where there is none
		path, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
		path, _ = url.PathUnescape(path)
		if _, err := os.Stat(path); path != "" && errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("sqlite: no file %q: the first process that takes a lease makes it", path)
		}
	}
	return a.connect(ctx, lease.Config{ID: fmt.Sprintf("holdfast-%d", os.Getpid()), Logger: zap.NewNop()})
}

// over opens the store that was named, for f.
func (a *app) over(ctx context.Context, f func(*opened) error) error {
	o, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer o.Close()
	return f(o)
}

// connect opens the store, and a Keeper over it.
func (a *app) connect(ctx context.Context, cfg lease.Config) (*opened, error) {
	s, closeStore, err := open.Open(ctx, a.store)
	if errors.Is(err, store.ErrInvalid) {
		err = &coded{codeUsage, err}
	}
	if err != nil {
		return nil, err
	}
	o := &opened{store: s, where: s.Limits().Name, close: closeStore}
	if at := s.Limits().Endpoints; len(at) > 0 {
		o.where += " at " + strings.Join(at, ", ")
	}
	if o.keeper, err = lease.NewKeeper(s, cfg); err != nil {
		return nil, errors.Join(o.say(err), closeStore())
	}
	return o, nil
}

// Close releases what is held, and leaves no session behind if the store answers within a second.
func (o *opened) Close() {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_ = o.keeper.Close(ctx) // what it can't release ends with its TTL
	_ = o.close()
}

// say names the store in an error.
func (o *opened) say(err error) error {
	if err != nil {
		err = fmt.Errorf("store %s: %w", o.where, err)
	}
	return err
}
