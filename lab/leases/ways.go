//go:build linux

package leases

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/open"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register" // its URLs
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// The ways to hold a name: ours, those of etcd's client, and those that people use on PostgreSQL.
const (
	holdfast   = "holdfast"
	mutex      = "concurrency.Mutex"
	ownSession = "Mutex, a session each"
	election   = "concurrency.Election"
	bare       = "bare requests"
	advisory   = "advisory lock"
	table      = "leader table"
)

// waysOn are those of a store. Ours is the first.
func waysOn(store string) []string {
	if store == onEtcd {
		return []string{holdfast, mutex, ownSession, election, bare}
	}
	return []string{holdfast, advisory, table}
}

// candidate is one process's way to one name. It is used by one goroutine at a time, and fails by scene.Check.
type candidate struct {
	try     func(context.Context) bool // asks once
	await   func(context.Context)      // returns once the name is its own
	renew   func(context.Context)      // does once what keeps the name
	release func(context.Context)
	close   func()
}

// holding says who holds which name, and in which way. URL leads past all faults.
type holding struct {
	Store, Way, URL, Name string
	TTL                   time.Duration
}

// keeper makes a Keeper over a client of its own. end leaves what it holds to expire.
func (h holding) keeper(ctx context.Context, id string) (k *lease.Keeper, end func()) {
	var store store.Store
	var closeStore func() error
	if h.Store == onPostgres {
		var err error
		store, closeStore, err = open.Open(ctx, h.URL+"&holdfast_listen=true")
		scene.Check(err)
	} else {
		client := h.etcd()
		store, closeStore = scene.Must(etcd.New(client, etcd.WithLogger(zap.NewNop()))), client.Close
	}
	k = newKeeper(store, id, h.TTL)
	return k, func() { abandon(k); _ = closeStore() }
}

// newKeeper makes a Keeper by the machine's clock.
func newKeeper(store store.Store, id string, ttl time.Duration) *lease.Keeper {
	return scene.Must(lease.NewKeeper(store, lease.Config{ID: id, TTL: ttl, Clock: lab.Clock{}, Logger: zap.NewNop()}))
}

func (h holding) etcd() *clientv3.Client {
	return scene.Must(clientv3.New(clientv3.Config{Endpoints: []string{h.URL}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}))
}

// candidate returns one that ends with the bed.
func (b *bed) candidate(ctx context.Context, h holding, id string) (c candidate) {
	switch h.Way {
	case holdfast:
		k, end := h.keeper(ctx, id)
		l := scene.Must(k.Lease(h.Name))
		c = candidate{func(ctx context.Context) bool { return scene.Must(l.Acquire(ctx)) }, func(ctx context.Context) { scene.Check(hold(ctx, l)) },
			func(ctx context.Context) { scene.Check(l.Renew(ctx)) }, func(ctx context.Context) { scene.Check(l.Release(ctx)) }, end}
	case advisory:
		c = h.lock(scene.Must(pgx.Connect(ctx, h.URL)))
	case table:
		c = h.leader(scene.Must(pgx.Connect(ctx, h.URL)), id)
	default:
		c = h.theirs()
	}
	b.atEnd(c.close)
	return c
}

// theirs is a way of etcd's client, or the requests that a lock takes at the least.
func (h holding) theirs() candidate {
	client := h.etcd()
	key, own := h.Way+"/"+h.Name, h.Way == ownSession
	var s *concurrency.Session
	session := func() { s = scene.Must(concurrency.NewSession(client, concurrency.WithTTL(int(h.TTL/time.Second)))) }
	if !own {
		session()
	}
	c := candidate{
		renew: func(ctx context.Context) { scene.Must(client.KeepAliveOnce(ctx, s.Lease())) },
		close: func() {
			if s != nil {
				s.Orphan() // what is held is left to expire
			}
			_ = client.Close()
		},
	}
	switch h.Way {
	case mutex, ownSession:
		var m *concurrency.Mutex
		begin := func(lock func(*concurrency.Mutex, context.Context) error) func(context.Context) {
			return func(ctx context.Context) {
				if own {
					session()
				}
				m = concurrency.NewMutex(s, key)
				scene.Check(lock(m, ctx))
			}
		}
		try := begin((*concurrency.Mutex).TryLock)
		c.try = func(ctx context.Context) bool { try(ctx); return true }
		c.await = begin((*concurrency.Mutex).Lock)
		c.release = func(ctx context.Context) {
			scene.Check(m.Unlock(ctx))
			if own {
				scene.Check(s.Close())
			}
		}
	case election:
		e := concurrency.NewElection(s, key)
		c.await = func(ctx context.Context) { scene.Check(e.Campaign(ctx, "candidate")) }
		c.try = func(ctx context.Context) bool { c.await(ctx); return true }
		c.release = func(ctx context.Context) { scene.Check(e.Resign(ctx)) }
	default:
		put := func(ctx context.Context) *clientv3.TxnResponse {
			return scene.Must(client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, "held", clientv3.WithLease(s.Lease()))).Commit())
		}
		c.try = func(ctx context.Context) bool { return put(ctx).Succeeded }
		c.await = func(ctx context.Context) {
			for resp := put(ctx); !resp.Succeeded; resp = put(ctx) {
				watching, cancel := context.WithCancel(ctx)
				for w := range client.Watch(watching, key, clientv3.WithRev(resp.Header.Revision+1)) {
					if scene.Check(w.Err()); len(w.Events) > 0 {
						break
					}
				}
				cancel()
			}
		}
		c.release = func(ctx context.Context) { scene.Must(client.Delete(ctx, key)) }
	}
	return c
}

// lock is a session advisory lock, on a connection that is kept for it, and tried for once a second.
func (h holding) lock(conn *pgx.Conn) candidate {
	ask := func(ctx context.Context, sql string) (ok bool) {
		scene.Check(conn.QueryRow(ctx, "SELECT "+sql+"(hashtextextended($1, 0))", h.Name).Scan(&ok))
		return ok
	}
	c := candidate{try: func(ctx context.Context) bool { return ask(ctx, "pg_try_advisory_lock") }, close: func() { hangUp(conn) }}
	c.await = func(ctx context.Context) {
		for !c.try(ctx) {
			scene.Check(lab.Pause(ctx, time.Second))
		}
	}
	// Nothing but the connection tells that the lock is lost.
	c.renew = func(ctx context.Context) { scene.Must(conn.Exec(ctx, "SELECT 1")) }
	c.release = func(ctx context.Context) { held(ask(ctx, "pg_advisory_unlock")) }
	return c
}

// held fails unless what was to be renewed or released was held.
func held(ok bool) {
	if !ok {
		scene.Check(errors.New("the name was not held"))
	}
}

// leaderSchema is the table of a leader, as River has it: one row for each name, not logged.
const leaderSchema = `CREATE UNLOGGED TABLE leader (
	name text PRIMARY KEY, id text NOT NULL, elected_at timestamptz NOT NULL, expires_at timestamptz NOT NULL)`

// What the leader table is asked: each try and each renewal is a transaction that removes a row
// that ran out, and then puts one or extends its own; who resigns notifies the others.
const (
	removeOld = "DELETE FROM leader WHERE name = $1 AND expires_at < now()"
	elect     = "INSERT INTO leader (name, id, elected_at, expires_at) VALUES ($1, $2, now(), now() + $3::interval) ON CONFLICT (name) "
	electNew  = elect + "DO NOTHING"
	electOld  = elect + "DO UPDATE SET expires_at = excluded.expires_at WHERE leader.id = excluded.id"
	resign    = "WITH mine AS (DELETE FROM leader WHERE name = $1 AND id = $2 RETURNING name) SELECT pg_notify('leader', name) FROM mine"
)

// leader is a row of the leader table.
func (h holding) leader(conn *pgx.Conn, id string) candidate {
	put := func(ctx context.Context, statement string) (ok bool) {
		scene.Check(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, removeOld, h.Name); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, statement, h.Name, id, h.TTL)
			ok = tag.RowsAffected() == 1
			return err
		}))
		return ok
	}
	c := candidate{try: func(ctx context.Context) bool { return put(ctx, electNew) }, close: func() { hangUp(conn) }}
	// await tries each third of the TTL, and a fifth of that later at the most; a notification has it
	// try within 50 ms.
	c.await = func(ctx context.Context) {
		scene.Must(conn.Exec(ctx, "LISTEN leader"))
		for !c.try(ctx) {
			pause, cancel := context.WithTimeout(ctx, h.TTL/3+rand.N(h.TTL/15))
			for told := false; pause.Err() == nil && !told; {
				n, err := conn.WaitForNotification(pause)
				if told = err == nil && n.Payload == h.Name; told {
					_ = lab.Pause(pause, rand.N(50*time.Millisecond))
				}
			}
			cancel()
			scene.Check(ctx.Err())
		}
	}
	c.renew = func(ctx context.Context) { held(put(ctx, electOld)) }
	c.release = func(ctx context.Context) { held(scene.Must(conn.Exec(ctx, resign, h.Name, id)).RowsAffected() == 1) }
	return c
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
