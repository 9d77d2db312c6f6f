//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/etcdstore"
)

// overEtcd is etcd, a cluster of three.
var overEtcd = Store{Name: "etcd", Start: startEtcd, Open: openEtcd}

// journalKeys is what the keys begin with under which workers write: the fenced journal.
const journalKeys = "lab/journal/"

const scheme = "etcd://"

// openEtcd makes a node's connection.
func openEtcd(_ context.Context, url string) (c Client, err error) {
	hosts, ok := strings.CutPrefix(url, scheme)
	if !ok {
		return c, fmt.Errorf("%q is no URL of etcd", url)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(hosts, ","), DialTimeout: 2 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return c, err
	}
	store, err := etcd.New(client)
	if err != nil {
		return c, err
	}
	entities, err := etcdstore.New(client, store)
	if err != nil {
		return c, err
	}
	write := func(ctx context.Context, o lease.Ownership, name int, text string) (bool, error) {
		var condition []clientv3.Cmp
		if o != nil {
			condition = append(condition, store.Guard(o))
		}
		r, err := client.Txn(ctx).If(condition...).Then(clientv3.OpPut(journalKeys+strconv.Itoa(name), text)).Commit()
		return err == nil && r.Succeeded, err
	}
	read := func(ctx context.Context, name int) (text string, err error) {
		r, err := client.Get(ctx, journalKeys+strconv.Itoa(name))
		if err == nil && len(r.Kvs) > 0 {
			text = string(r.Kvs[0].Value)
		}
		return text, err
	}
	return Client{Leases: store, Entities: entities, Write: write, Read: read, Close: client.Close}, nil
}

// etcdServers are an etcd of three members.
type etcdServers struct{ *etcdtest.Cluster }

func startEtcd(ctx context.Context, members int) (Servers, error) {
	c, err := etcdtest.Run(ctx, etcdtest.Options{Members: members})
	if err != nil {
		return nil, err
	}
	return etcdServers{c}, nil
}

func (s etcdServers) String() string {
	return fmt.Sprintf("etcd %s with members: %d, no fsync", etcdtest.Version, len(s.Members()))
}

func (s etcdServers) Addresses() (all []string) {
	for _, m := range s.Members() {
		all = append(all, m.Direct())
	}
	return all
}

func (etcdServers) URL(addresses []string) string { return scheme + strings.Join(addresses, ",") }

// leader is the member that leads; on a machine so busy that none is known, another.
func (s etcdServers) leader(ctx context.Context, pick uint64) *etcdtest.Member {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	m, err := s.Leader(ctx)
	if err != nil {
		return s.any(pick)
	}
	return m
}

func (s etcdServers) any(pick uint64) *etcdtest.Member {
	all := s.Members()
	return all[pick%uint64(len(all))]
}

func (s etcdServers) Troubles() []Trouble {
	type undo = func(context.Context) error
	return []Trouble{
		{Name: "kill -9 of etcd's leader", Weight: 2, Least: 0.2, Most: 2, Do: func(ctx context.Context, pick uint64) (string, undo, error) {
			m := s.leader(ctx, pick)
			return m.Name(), m.Restart, m.Kill()
		}},
		{Name: "stop of a member of etcd", Weight: 3, Least: 0.5, Most: 3, Do: func(ctx context.Context, pick uint64) (string, undo, error) {
			m, what := s.any(pick/2), ""
			if pick%2 == 0 {
				m, what = s.leader(ctx, pick/2), ", the leader"
			}
			return m.Name() + what, func(context.Context) error { return m.Cont() }, m.Stop(ctx)
		}},
		{Name: "etcd's leader isolated from the other members", Weight: 2, Least: 0.5, Most: 3, Do: func(ctx context.Context, pick uint64) (string, undo, error) {
			m := s.leader(ctx, pick)
			return m.Name(), func(context.Context) error { return m.Rejoin() }, m.Isolate()
		}},
		{Name: "kill -9 of all of etcd", Weight: 1, Least: 0.1, Most: 2.5, Do: func(context.Context, uint64) (string, undo, error) {
			restart := func(ctx context.Context) error {
				return s.each(func(m *etcdtest.Member) error { return m.Restart(ctx) })
			}
			return "", restart, s.each((*etcdtest.Member).Kill)
		}},
	}
}

// each does something to all members at once.
func (s etcdServers) each(do func(*etcdtest.Member) error) error {
	all := s.Members()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() { errs[i] = do(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// History implements Servers, by etcd's own history: it is never compacted.
func (s etcdServers) History(ctx context.Context) (h History, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Members()[0].Direct()}, Logger: zap.NewNop()})
	if err != nil {
		return h, err
	}
	defer client.Close()
	last, err := client.Put(ctx, "lab/end", "")
	if err != nil {
		return h, err
	}
	h.Changes = []Change{}
	for w := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := w.Err(); err != nil {
			return h, err
		}
		for _, e := range w.Events {
			if e.Kv.ModRevision == last.Header.Revision {
				return h, nil
			}
			key := string(e.Kv.Key)
			if text, ok := strings.CutPrefix(key, journalKeys); ok {
				name, err := strconv.Atoi(text)
				if err != nil {
					return h, fmt.Errorf("the key %q: %w", key, err)
				}
				h.Writes = append(h.Writes, Write{Name: name, Position: e.Kv.ModRevision, Text: string(e.Kv.Value)})
			} else if name, ok := strings.CutPrefix(key, etcd.DefaultPrefix); ok {
				h.Changes = append(h.Changes, Change{Lease: name, Token: lease.Token(e.Kv.ModRevision), Session: uint64(e.Kv.Lease)})
			}
		}
	}
	return h, fmt.Errorf("etcd's history ends: %w", ctx.Err())
}
