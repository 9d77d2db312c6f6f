package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/health"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/partition"
)

// Health tells why the node is not ready; nil if it is: the store answers, leases are
// held, the group is joined, singletons, sharded types and partitions are well, and the node does
// not stop. Its text names leases and hosts.
func (n *Node) Health(ctx context.Context) error {
	if err := n.check(ctx); err != nil {
		return err
	}
	if n.life.Err() != nil {
		return context.Cause(n.life)
	}
	errs := []error{n.keeper.Health(ctx), n.parts(ctx)}
	select {
	case <-n.joined:
		if errs = append(errs, n.gone); n.group != nil {
			errs = append(errs, n.group.Health(ctx))
		}
	default:
		errs = append(errs, fmt.Errorf("group %q is not joined yet", n.cfg.Group))
	}
	n.mu.Lock()
	regions := n.regions
	n.mu.Unlock()
	for _, r := range regions {
		errs = append(errs, r.Health(ctx))
	}
	for _, p := range n.spreading() {
		errs = append(errs, p.Health(ctx))
	}
	return errors.Join(errs...)
}

// Handler serves GET /livez, which is ok while the process answers; /readyz, which is
// Health; and /info, what runs here and how it stands, in JSON, as the console gets it; with
// Config.Console the page is at /holdfast/. It is what Config.HTTP serves. It names leases and hosts:
// it is not for the public.
func (n *Node) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/livez", health.Handler(time.Second))
	mux.Handle("/readyz", health.Handler(5*time.Second, n.Health))
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		r, _ := inquiry.Of(n.system).Ask(q.Context(), "", inquiry.Request{}) // the own report has no error
		r.Events = nil
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(struct {
			ID, Address string
			inquiry.Report
		}{n.cfg.ID, n.keeper.Owner().Address, r}) // an error: the client has gone
	})
	if n.page != nil {
		mux.Handle("/holdfast/", http.StripPrefix("/holdfast", n.page))
	}
	return mux
}

// report is the node's own part of what a console asks for. Health asks nothing of the store here.
func (n *Node) report(ctx context.Context, q inquiry.Request, r *inquiry.Report) {
	r.Group, r.Stopping = n.cfg.Group, n.life.Err() != nil
	switch {
	case q.Do == nil:
	case q.Do.Action == "drain":
		inquiry.Of(n.system).Begin(q, r, n.Drain)
	case q.Do.Action == "undrain":
		inquiry.Of(n.system).Begin(q, r, func(context.Context) error { return n.Undrain() })
	}
	errs := []error{n.parts(ctx)}
	if g := n.Group(); g != nil {
		errs = append(errs, g.Health(ctx))
	}
	for _, p := range n.spreading() {
		errs = append(errs, p.Health(ctx))
		x := typeOf(p.Info())
		r.Partitions, r.Draining = append(r.Partitions, x), r.Draining || x.Draining
	}
	if err := errors.Join(errs...); err != nil {
		r.Unhealthy = append(r.Unhealthy, strings.Split(err.Error(), "\n")...)
	}
}

// mostFree bounds how many partitions without an owner are named.
const mostFree = 100

// typeOf is what of this node's part in partitions the records do not tell. While another layout counts,
// no partition of this node's layout needs an owner.
func typeOf(in partition.Info) inquiry.Type {
	x := inquiry.Type{Group: in.Group, Type: in.Name, Shards: len(in.Table), Draining: in.Draining}
	for _, s := range in.Table {
		if s.Phase != "" && s.Phase != "active" || s.Failures > 0 || s.Owner == "" && in.Layout == in.Counts && len(x.Own) < mostFree {
			x.Own = append(x.Own, inquiry.Shard{N: s.Number, Key: s.Key, Phase: s.Phase, Stopping: s.Stopping, Failures: s.Failures, Error: s.Error})
		}
	}
	return x
}

func (n *Node) serve() error {
	if n.cfg.HTTP == "" {
		return nil
	}
	l, err := net.Listen("tcp", n.cfg.HTTP)
	if err != nil {
		return about("HTTP", err)
	}
	n.web = &web{address: l, server: &http.Server{Handler: n.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}}
	n.web.serves.Go(func() { _ = n.web.server.Serve(l) }) // until close
	return nil
}

// web is what serves the node's pages.
type web struct {
	server  *http.Server
	address net.Listener
	serves  sync.WaitGroup // for as long as address is listened on
}

// close returns when the address is listened on no longer, also if Serve had not begun.
func (w *web) close(ctx context.Context) error {
	defer w.serves.Wait()
	if err := w.server.Shutdown(ctx); err != nil {
		return errors.Join(err, w.server.Close())
	}
	return nil
}
