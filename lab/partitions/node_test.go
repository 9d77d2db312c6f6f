//go:build linux

package partitions

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/nodes"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/partition"
)

// The test binary is its own nodes.
func TestMain(m *testing.M) {
	if text := os.Getenv(nodeEnv); text != "" {
		if err := scene.Try(func() { runNode(text) }); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// nodeEnv makes the test binary a node: its settings as JSON.
const nodeEnv = "HOLDFAST_LAB_PARTITIONS"

// settings are those of a node.
type settings struct {
	ID, Store, URL, Journal string
	Count                   int
	TTL, Settle, Prepare    time.Duration
	Look                    time.Duration // between two looks of an Own at its lease; 0: at its begin and end only
	Hashed                  bool          // the node of a rendezvous hash
	Log                     bool
}

// report is what a node says: "up", once, and "figures" when it is asked for them.
type report struct {
	What          string
	Number        int
	Heap, Stacks  uint64 // in use after a garbage collection
	Goroutines    int
	Processor     time.Duration
	Owned, Passed int
}

// order is what a node is asked for.
type order struct {
	What   string // "figures" or "stop"
	Number int
}

// kind tells what an entry is about.
type kind uint16

const (
	began   kind = iota + 1 // Own was called, and its lease was alive at that time
	looked                  // the lease was alive at that time
	ended                   // the lease was alive at that time, and Own returns
	wrote                   // the store took a write with the token
	refused                 // the store refused a write with the token
	early                   // the lease was given up while Own had not returned
)

// entry is one thing that a node noted.
type entry struct {
	at     time.Duration // by the machine's clock
	token  uint64
	number uint16
	kind   kind
}

type node struct {
	settings
	journal *machine.Journal[entry]
	client  nodes.Client
}

// runNode is the whole of a node's process.
func runNode(text string) {
	n := &node{}
	scene.Check(json.Unmarshal([]byte(text), &n.settings))
	n.journal = machine.OpenJournal[entry](n.Journal)
	ctx, cancel := context.WithCancel(context.Background())
	if n.Hashed {
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.hashed(ctx)
		}()
		n.obey(func(*report) {}, func() { cancel(); <-done })
		return
	}
	for _, kind := range nodes.Stores {
		if kind.Name == n.Store {
			n.client = kind.Open(ctx, n.URL)
		}
	}
	config := lease.Config{ID: n.ID, Address: n.ID, TTL: n.TTL, Clock: machine.Clock{}, Logger: zap.NewNop()}
	if n.Log {
		config.Logger = scene.Must(zap.NewDevelopment()).With(zap.String("node", n.ID))
	}
	keeper := scene.Must(lease.NewKeeper(n.client.Leases, config))
	group := scene.Must(membership.Join(ctx, keeper, "lab"))
	cfg := partition.Config{Name: "orders", Count: n.Count, Own: n.own, Settle: n.Settle}
	if n.Prepare > 0 {
		cfg.Prepare = func(ctx context.Context, _ int) error { return machine.Pause(ctx, n.Prepare) }
	}
	p := scene.Must(partition.Start(ctx, group, cfg))
	scene.Check(machine.Until(ctx, upIn, "it takes part", func() bool { return p.Health(ctx) == nil }))
	n.obey(func(r *report) { r.Owned, r.Passed = len(p.Owned()), int(p.Info().Moves) }, func() {
		ctx, cancel := context.WithTimeout(ctx, stopsIn)
		defer cancel()
		scene.Check(errors.Join(p.Stop(ctx), group.Leave(ctx), keeper.Close(ctx), n.client.Close()))
		cancel()
	})
	cancel()
}

// obey says that the node is up, and does what is ordered until it is to stop.
func (n *node) obey(figures func(*report), stop func()) {
	out := json.NewEncoder(os.Stdout)
	scene.Check(out.Encode(report{What: "up"}))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		scene.Check(json.Unmarshal(lines.Bytes(), &o))
		if o.What == "stop" {
			stop()
			return
		}
		r := report{What: o.What, Number: o.Number, Heap: machine.Live(), Goroutines: runtime.NumGoroutine(), Processor: machine.Processor()}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		r.Stacks = m.StackInuse
		figures(&r)
		scene.Check(out.Encode(r))
	}
}

const (
	looksPerWrite = 100    // from one write to the next
	ends          = 5 * ms // at most: how long work takes to end
)

// own looks at its lease now and then, and writes behind its guard. When the lease was lost it tries to
// write once more, as a program does that has not seen its context.
func (n *node) own(ctx context.Context, o partition.Owned) error {
	note := func(k kind) (alive bool) {
		at, alive := o.Check()
		if alive {
			n.journal.Note(entry{at, uint64(o.Token()), uint16(o.Number), k})
		}
		return alive
	}
	note(began)
	var look <-chan time.Time
	if n.Look > 0 {
		tick := time.NewTicker(n.Look)
		defer tick.Stop()
		look = tick.C
	}
	for i := rand.IntN(looksPerWrite); ; i++ {
		select {
		case <-look:
			note(looked)
			if i%looksPerWrite == 0 {
				n.write(o)
			}
		case <-ctx.Done():
			if n.Look == 0 {
				note(ended)
				return nil
			}
			time.Sleep(rand.N(ends))
			if note(ended) {
				return nil
			}
			if cause := context.Cause(o.Context()); errors.Is(cause, lease.ErrReleased) || errors.Is(cause, lease.ErrTransferred) {
				n.journal.Note(entry{machine.Now(), uint64(o.Token()), uint16(o.Number), early})
			}
			n.write(o)
			return nil
		}
	}
}

func (n *node) write(o partition.Owned) {
	ctx, cancel := context.WithTimeout(context.Background(), n.TTL/2)
	defer cancel()
	did := wrote
	switch err := n.client.Write(ctx, o, o.Number, strconv.FormatUint(uint64(o.Token()), 10)); {
	case errors.Is(err, lease.ErrStale):
		did = refused
	case err != nil:
		return // it is not known; the history says
	}
	n.journal.Note(entry{machine.Now(), uint64(o.Token()), uint16(o.Number), did})
}

// hashed is what many programs do instead: each node holds a key under a lease of etcd, watches the keys
// of all, and owns the partitions for which a hash puts it first, while its session is alive as far as its
// client knows.
func (n *node) hashed(ctx context.Context) {
	client := scene.Must(clientv3.New(clientv3.Config{Endpoints: strings.Split(n.URL, ","), DialTimeout: 2 * time.Second, Logger: zap.NewNop()}))
	defer client.Close()
	for ctx.Err() == nil {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(n.TTL/time.Second)))
		if err == nil {
			err = n.member(ctx, client, session)
			_ = session.Close() // it may have ended
		}
		if err != nil {
			_ = machine.Pause(ctx, 100*time.Millisecond)
		}
	}
}

const members = "lab/members/"

// member takes part until the session has ended, or ctx has.
func (n *node) member(ctx context.Context, client *clientv3.Client, session *concurrency.Session) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := client.Put(watching, members+n.ID, "", clientv3.WithLease(session.Lease())); err != nil {
		return err
	}
	all, err := client.Get(watching, members, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	list := map[string]bool{}
	for _, kv := range all.Kvs {
		list[path.Base(string(kv.Key))] = true
	}
	changes := client.Watch(watching, members, clientv3.WithPrefix(), clientv3.WithRev(all.Header.Revision+1))
	owned := map[int]uint64{}
	note := func(number int, token uint64, k kind) {
		n.journal.Note(entry{machine.Now(), token, uint16(number), k})
	}
	var working sync.WaitGroup
	end := func(number int) {
		token := owned[number]
		delete(owned, number)
		working.Go(func() {
			time.Sleep(rand.N(ends))
			note(number, token, ended)
		})
	}
	defer func() { // it leaves when its work has ended
		for number := range owned {
			end(number)
		}
		working.Wait()
	}()
	tick := time.NewTicker(n.Look)
	defer tick.Stop()
	for {
		for number := range n.Count {
			mine := first(list, number) == n.ID
			switch _, had := owned[number]; {
			case mine && !had:
				owned[number] = uint64(machine.Now())
				note(number, owned[number], began)
			case mine:
				note(number, owned[number], looked)
			case had:
				end(number)
			}
		}
		select {
		case <-tick.C:
		case change, ok := <-changes:
			if err := change.Err(); err != nil || !ok {
				return errors.Join(err, errors.New("the watch has ended"))
			}
			for _, e := range change.Events {
				if id := path.Base(string(e.Kv.Key)); e.Type == clientv3.EventTypeDelete {
					delete(list, id)
				} else {
					list[id] = true
				}
			}
		case <-session.Done():
		case <-ctx.Done():
			return nil
		}
		select {
		case <-session.Done():
			return nil
		default:
		}
	}
}

// first is the member with the highest hash for a partition.
func first(list map[string]bool, number int) (best string) {
	most := uint64(0)
	for id := range list {
		hash := sha256.Sum256(fmt.Append(nil, id, "/", number))
		if sum := binary.BigEndian.Uint64(hash[:]); best == "" || sum > most || sum == most && id < best {
			best, most = id, sum
		}
	}
	return best
}
