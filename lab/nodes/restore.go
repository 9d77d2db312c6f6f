//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// restoreSlack is what a machine that does other things may add to a bound.
const restoreSlack = 8 * time.Second

// restoring is a run of restore.
type restoring struct {
	*crew
	etcd  *etcdtest.Member
	admin *clientv3.Client // past the network of the nodes
	since time.Duration    // tokens are compared from then on
	said  []int            // lines of each node's log about errors, until the last setback
}

// restore has the data of a live etcd lost, put back to an older copy, and put
// back with its revision beyond all that was, under nodes with singletons.
func restore(ctx context.Context, r *scene.Run) {
	nodes, set := 3, settings{TTL: 4 * time.Second, Names: names{Singletons: 20}}
	if r.Short {
		nodes, set = 2, settings{TTL: 2 * time.Second, Names: names{Singletons: 3}}
	}
	c := newCrew(ctx, r, nodes, 1, func(servers []string) network { return newProxies(servers, nodes) }, set)
	defer c.end()
	s := &restoring{crew: c, etcd: c.onEtcd().Members()[0]}
	s.admin = scene.Must(c.onEtcd().NewClient(func(o *clientv3.Config) { o.Endpoints = []string{s.etcd.Direct()} }))
	defer s.admin.Close()
	c.up(ctx, upTo(nodes)...)
	s.reached(ctx, "start until all names answered every node", machine.Now(), time.Minute)
	copied := filepath.Join(r.Dir, "copy")
	s.replace(ctx, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	lost := func(data string) error { return errors.Join(os.RemoveAll(data), os.MkdirAll(data, 0o700)) }
	older := func(data string) error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied))) }
	for _, x := range []struct {
		what   string
		change func(string) error
		bump   bool
	}{{"data lost", lost, false}, {"an older copy", older, false}, {"an older copy, bumped", older, true}} {
		s.once(ctx, x.what, x.change, x.bump)
	}
}

// replace stops etcd, changes its data and starts it again.
func (s *restoring) replace(ctx context.Context, change func(data string) error) {
	scene.Check(s.etcd.Kill())
	scene.Check(change(filepath.Join(filepath.Dir(strings.TrimPrefix(s.etcd.Direct(), "unix://")), "data")))
	scene.Check(s.etcd.Restart(ctx))
}

// write has the revision grow by so many, or until it is there.
func (s *restoring) write(ctx context.Context, more, until int64) (rev int64) {
	for first := int64(0); first == 0 || rev < max(first+more, until); {
		resp := scene.Must(s.admin.Put(ctx, "lab/restore", ""))
		if rev = resp.Header.Revision; first == 0 {
			first = rev
		}
	}
	return rev
}

// reached has every node ask every singleton until it answers.
func (s *restoring) reached(ctx context.Context, what string, since, bound time.Duration) {
	s.answered(ctx, what, since, bound, 2*time.Minute)
}

// once plays one setback.
func (s *restoring) once(ctx context.Context, what string, change func(string) error, bump bool) {
	what += ": "
	rev := s.write(ctx, 500, 0)
	s.order(ctx, order{Do: doSee}, patience) // so that all have seen it
	s.count(ctx, "", 0)
	cut := func(is bool) {
		for i := range s.slots {
			scene.Check(s.net.store(i, machine.Shape{Cut: is}, machine.Shape{Cut: is}))
		}
	}
	cut(true)
	s.replace(ctx, change)
	if bump {
		s.write(ctx, 0, rev+1000)
	}
	began := machine.Now()
	cut(false)
	if bump {
		s.reached(ctx, what+"dark, no decision needed", began, 4*s.settings.TTL+restoreSlack)
		s.count(ctx, what, 0)
		return
	}
	for waits := true; waits; {
		got := s.order(ctx, order{Do: doHealth}, patience)
		waits = false
		for _, h := range got {
			waits = waits || !h.Setback
		}
		if waits && machine.Now()-began > time.Minute {
			scene.Check(fmt.Errorf("health does not say that the store went back: %+v", got))
		}
		scene.Check(machine.Pause(ctx, 20*time.Millisecond))
	}
	s.Within(what+"until every Health said so", machine.Now()-began, s.settings.TTL+restoreSlack)
	scene.Check(machine.Pause(ctx, s.settings.TTL))
	held := 0
	for _, w := range s.weights(ctx) {
		held += w.Hosted
	}
	s.AtMost(what+"hosted before a decision", float64(held), 0, "")
	s.since = machine.Now()
	s.order(ctx, order{Do: doAccept}, patience)
	s.reached(ctx, what+"held and reached after the decision", s.since, s.settings.TTL+restoreSlack)
	s.Printf("   %sdark for %v from etcd's return, %v of it before the decision", what, scene.Short(machine.Now()-began), scene.Short(s.since-began))
	s.count(ctx, what, 1)
}

// count looks at what holds after every setback: each log has had so many lines about it, no node is set
// back any more, and no name answered under a token that is lower than one before. An empty what only
// counts.
func (s *restoring) count(ctx context.Context, what string, lines int) {
	got := s.order(ctx, order{Do: doHealth}, patience)
	unsaid, still := 0, 0
	for i, h := range got {
		if len(s.said) <= i {
			s.said = append(s.said, 0)
		}
		if h.Lines-s.said[i] != lines {
			unsaid++
		}
		if s.said[i] = h.Lines; h.Setback {
			still++
		}
	}
	if what == "" {
		return
	}
	s.AtMost(what+fmt.Sprintf("nodes whose log did not say it %d times", lines), float64(unsaid), 0, "")
	s.AtMost(what+"nodes that are set back still", float64(still), 0, "")
	s.None(what+"answers under tokens that went back", goneBack(s.evidence(), s.since))
}

// goneBack counts answers, from a time on, under a token that is lower than one that answered before they
// were asked for.
func goneBack(es []seen, since time.Duration) (n int) {
	for _, e := range es {
		for _, before := range es {
			if e.kind == swept && before.kind == swept && e.name == before.name && before.at >= since && before.at <= e.sent && e.token < before.token {
				n++
				break
			}
		}
	}
	return n
}
