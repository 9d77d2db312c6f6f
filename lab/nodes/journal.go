//go:build linux

package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// kind tells what an entry is about.
type kind uint16

const (
	passed       kind = iota + 1 // a gate let a message through; at is the reading that decided it
	asked                        // a numbered letter was sent
	handled                      // an actor has a letter, and its lease was alive after the clock was read
	overran                      // an actor has a letter, and its lease was not alive any more
	answered                     // an ask had its answer
	swept                        // an ask of a sweep had its answer
	began                        // an actor was started under a token, and its lease was alive
	ended                        // an actor has stopped
	lost                         // the context of an actor is done, as its lease was lost; seq is 1 if it ran out
	confirmed                    // the store confirmed a session, which is the token: request sent, reply at, seq is the TTL granted
	disordered                   // a move after which order is not known to be kept
	wrote                        // the store took a write with the token
	refused                      // the store refused a write with the token
	departed                     // the process has left in order
	gaveUp                       // the store is about to be asked to end or move the ownership with the token
	closed                       // the store is about to be asked to end a session, which is the token
	leftState                    // an account that has ended left its state, number seq under the token
	gotState                     // an account began with a state: that left under the token seq, with the number sender
	hosted                       // the name may run here, as the product says
	unhosted                     // it may no more
	coordinating                 // the coordinator of all shards is in charge here
	booked                       // a client sends a job, until
	finished                     // it is answered
	holding                      // a worker is in the middle of its work, and stays there
	coldStart                    // the product says that an account, or, with seq, so many of a shard, began without its state
	failed                       // an ask ended with an error
)

var kinds = [...]string{"?", "passed", "asked", "handled", "overran", "answered", "swept", "began", "ended", "lost", "confirmed", "disordered",
	"wrote", "refused", "departed", "gave up", "closed", "left its state", "got a state", "hosted", "unhosted", "coordinating", "booked", "finished", "holding", "cold start", "failed"}

func (k kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return kinds[0]
}

// entry is one thing that a node noted.
type entry struct {
	at     time.Duration // by the machine's clock
	sent   time.Duration
	token  uint64
	seq    uint64 // of the sender to the target, from 1
	sender uint32 // of the cluster
	name   uint16 // of the lease, by number
	target uint16 // singleton or account, by number
	kind   kind
}

// journal is what a node notes, and everybody reads.
type journal = machine.Journal[entry]

// witness is a store that notes what the real one confirmed, and when that was
// asked, and what it was asked to end: a judge that does not trust the Keeper. It has every
// optional capability of a store, as faultstore has, which adds no fault here; where the real one lacks
// it, the answer is lease.ErrUnsupported.
type witness struct {
	*faultstore.Store
	journal *journal
	names   names

	mu   sync.Mutex
	open map[store.SessionID]bool
}

// sessions is how many are open.
func (w *witness) sessions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}

func (w *witness) opened(id store.SessionID, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is {
		w.open[id] = true
	} else {
		delete(w.open, id)
	}
}

// historian is a witness of a store that minds its history.
type historian struct {
	*witness
	store.Historian
}

// witnessed returns a witness of a store.
func witnessed(s store.Store, j *journal, n names) (store.Store, *witness) {
	w := &witness{Store: faultstore.Wrap(s), journal: j, names: n, open: map[store.SessionID]bool{}}
	if h, ok := s.(store.Historian); ok {
		return historian{w, h}, w
	}
	return w, w
}

// OpenSession implements store.Store.
func (w *witness) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	sent := machine.Now()
	g, err := w.Store.OpenSession(ctx, s)
	if err == nil {
		w.opened(s.ID, true)
		w.confirm(s, entry{sent: sent}, g)
	}
	return g, err
}

// Renew implements store.Store.
func (w *witness) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	sent := machine.Now()
	gs, err := w.Store.Renew(ctx, sessions)
	if err == nil {
		for i, g := range gs {
			w.confirm(sessions[i], entry{sent: sent}, g)
		}
	}
	return gs, err
}

func (w *witness) confirm(s store.Session, e entry, g store.Grant) {
	if g.Err == nil {
		e.at, e.kind, e.token, e.seq = machine.Now(), confirmed, uint64(s.ID), uint64(g.TTL)
		w.journal.Note(e)
	}
}

// CloseSession implements store.Store.
func (w *witness) CloseSession(ctx context.Context, s store.Session) error {
	w.journal.Note(entry{at: machine.Now(), kind: closed, token: uint64(s.ID)})
	err := w.Store.CloseSession(ctx, s)
	if err == nil {
		w.opened(s.ID, false)
	}
	return err
}

// Release implements store.Store.
func (w *witness) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	for _, h := range held {
		w.giveUp(h)
	}
	return w.Store.Release(ctx, held)
}

// Transfer implements store.Transferrer.
func (w *witness) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	for _, m := range moves {
		w.giveUp(m.Held)
	}
	return w.Store.Transfer(ctx, moves)
}

func (w *witness) giveUp(h store.Held) {
	if i, ok := w.names.number(h.Name); ok {
		w.journal.Note(entry{at: machine.Now(), kind: gaveUp, name: uint16(i), token: uint64(h.Token)})
	}
}

// The names of the leases that actors run under, without their numbers.
const (
	singletonLease = "singleton/lab-"
	shardLease     = "shard/lab/account/"
)

// number is that of the name with a lease; false if actors run under no such.
func (n names) number(name string) (int, bool) {
	after, first, bound := "", 0, n.Singletons
	var ok bool
	if after, ok = strings.CutPrefix(name, singletonLease); !ok {
		if after, ok = strings.CutPrefix(name, shardLease); !ok {
			return 0, false
		}
		first, bound = n.Singletons, n.Shards
	}
	i, err := strconv.Atoi(after)
	return first + i, err == nil && i >= 0 && i < bound
}

// In the scenarios scheduler and bank all work goes into a ledger that is fenced by leases: the
// journal of each target, whose last page is all that its next life begins with. Clients send each
// job until it is answered, and a ledger knows by its number a job that was done before.

// page is what a write to the ledger says: the job, and the state with it.
type page struct {
	Sender      uint32            `json:",omitempty"` // and number: of a job
	Seq         uint64            `json:",omitempty"`
	Amount      int64             `json:",omitempty"`
	Balance     int64             // with it
	Tick        uint64            `json:",omitempty"` // of a singleton
	Done        map[uint32]uint64 // the last job of each client
	Name, Place int               `json:"-"`
}

// bookkeeper is the part of a worker that keeps the ledger.
type bookkeeper struct {
	last page
	over bool // a write was refused: the lease is another's
}

// tickEvery is how often a singleton writes by itself.
const tickEvery = 100 * time.Millisecond

// open reads the last page. A predecessor can't write any more: the store guards each write by the
// lease, which is this worker's.
func (w *worker) open(ctx actor.Context) {
	reading, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	text, err := w.node.client.Read(reading, int(w.target))
	if err == nil && text != "" {
		w.last, err = pageOf(text)
	}
	if err != nil {
		panic(fmt.Sprintf("reading the ledger: %v", err)) // the worker is started again
	}
	if w.last.Done == nil {
		w.last.Done = map[uint32]uint64{}
	}
	w.tickLater(ctx)
}

func (w *worker) tickLater(ctx actor.Context) {
	if w.name < w.node.Names.Singletons && !w.over {
		system, self := ctx.ActorSystem(), ctx.Self()
		time.AfterFunc(tickEvery, func() { system.Root.Send(self, beat{}) })
	}
}

// tick writes the next tick.
func (w *worker) tick(ctx actor.Context) {
	next := w.last
	next.Sender, next.Seq, next.Amount = 0, 0, 0
	next.Tick++
	w.write(next)
	w.tickLater(ctx)
}

// job does one job, and reports whether it is done, now or before.
func (w *worker) job(l letter) bool {
	if w.last.Done[l.Sender] >= l.Seq {
		return true
	}
	next := w.last
	next.Sender, next.Seq, next.Amount, next.Balance = l.Sender, l.Seq, l.Amount, w.last.Balance+l.Amount
	next.Done = maps.Clone(w.last.Done)
	next.Done[l.Sender] = l.Seq
	return w.write(next)
}

// write appends a page, which the store takes if the lease is still this worker's.
func (w *worker) write(next page) bool {
	if w.over {
		return false
	}
	text, err := json.Marshal(next)
	if err == nil {
		err = w.append(writeText(uint64(w.own.Token()), w.node.Index, w.node.Life, w.n) + " " + string(text))
	}
	switch {
	case errors.Is(err, lease.ErrStale):
		w.over = true
		return false
	case err != nil:
		panic(fmt.Sprintf("writing the ledger: %v", err)) // not known what is written: the worker is started again, and reads
	}
	w.last = next
	return true
}

func pageOf(text string) (p page, err error) {
	_, rest, _ := strings.Cut(text, " {")
	if err := json.Unmarshal([]byte("{"+rest), &p); err != nil {
		return p, fmt.Errorf("the page %q: %w", text, err)
	}
	return p, nil
}

// book has clients send jobs until the load ends: to a singleton, or transfers between accounts, which
// are two jobs.
func (n *node) book(clients int, every time.Duration) {
	n.load.end = make(chan struct{})
	for k := 1; k <= clients; k++ {
		client := senderOf(n.Index, n.Life, k)
		n.load.running.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for seq := uint64(1); ; seq++ {
				select {
				case <-tick.C:
				case <-n.load.end:
					return
				}
				to, amount := rand.IntN(n.Names.targets()), int64(0)
				if len(n.accounts) > 1 {
					from := (to + 1 + rand.IntN(n.Names.targets()-1)) % n.Names.targets()
					amount = 1 + rand.Int64N(20)
					n.insist(letter{Sender: client, Target: uint16(from), Seq: seq, Amount: -amount})
				}
				n.insist(letter{Sender: client, Target: uint16(to), Seq: seq, Amount: amount})
			}
		})
	}
}

// insist sends a job until it is answered.
func (n *node) insist(l letter) {
	l.Sent = int64(machine.Now())
	n.note(time.Duration(l.Sent), booked, l, 0)
	for end := machine.Now() + patience; ; time.Sleep(20 * time.Millisecond) {
		if got, err := n.inquire(l, max(n.TTL/4, 100*time.Millisecond)); err == nil {
			n.note(machine.Now(), finished, l, got.Token)
			return
		}
		if machine.Now() > end {
			return // it is judged
		}
	}
}

// ledger is what the oracle finds in the pages and in the journals of the clients.
type ledger struct {
	jobs, ticks              int
	broken, twice            int // pages that don't follow from the one before; jobs done twice
	unfinished, hollow, sums int // jobs without an answer; with one, and not in the ledger; the sum of all balances
}

// judgeLedger judges the pages, which are in the order of their positions for each target. legs is of
// how many jobs a transfer consists.
func judgeLedger(pages []page, es []seen, legs int) (j ledger) {
	last := map[int]page{}
	type key struct {
		sender uint32
		seq    uint64
	}
	done, sum := map[key]int{}, map[key]int64{}
	slices.SortStableFunc(pages, func(a, b page) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Place, b.Place)) })
	for _, p := range pages {
		was := last[p.Name]
		switch {
		case p.Seq == 0:
			j.ticks++
			if p.Tick != was.Tick+1 || p.Balance != was.Balance {
				j.broken++
			}
		case p.Seq <= was.Done[p.Sender]:
			j.twice++
		default:
			j.jobs++
			if p.Balance != was.Balance+p.Amount || p.Tick != was.Tick {
				j.broken++
			}
			k := key{p.Sender, p.Seq}
			done[k]++
			sum[k] += p.Amount
		}
		last[p.Name] = p
	}
	for _, p := range last {
		j.sums += int(p.Balance)
	}
	sent, answers := map[key]int{}, map[key]int{}
	for _, e := range es {
		switch k := (key{e.sender, e.seq}); e.kind {
		case booked:
			sent[k]++
		case finished:
			answers[k]++
		}
	}
	for k := range sent {
		switch {
		case answers[k] < legs:
			j.unfinished++
		case done[k] != legs || sum[k] != 0:
			j.hollow++
		}
	}
	return j
}

// books is a scenario of clients whose jobs go into a ledger while hosts are killed, and stopped for
// longer than the TTL, in the middle of one.
type books struct {
	hosts   int
	names   names
	joins   bool // and before that one joins, and one leaves in order
	clients int
	target  role
}

func (b books) play(ctx context.Context, r *scene.Run) {
	stretch := 3 * time.Second
	if r.Short {
		stretch = time.Second
	}
	joins, client := b.hosts, b.hosts+1
	c := newLocal(ctx, r, b.hosts+2, settings{TTL: 2 * time.Second, Names: b.names, Hosts: b.hosts + 1, Ledger: true})
	defer c.end()
	c.up(ctx, append(upTo(b.hosts), client)...)
	c.answered(ctx, "start until all names answer", machine.Now(), 0, patience)
	c.order(ctx, order{Do: doBook, Count: b.clients, Within: 15 * time.Millisecond}, patience, client)
	scene.Check(machine.Pause(ctx, stretch))
	if b.joins {
		c.up(ctx, joins)
		c.settled(ctx, patience, 0, append(upTo(b.hosts), joins)...)
		scene.Check(c.leaveBy(c.slots[0], leaveBound))
		r.Printf("   node-%d has joined, and node-0 has left in order", joins)
		scene.Check(machine.Pause(ctx, stretch))
	}
	random := rand.New(rand.NewPCG(r.Seed, 2))
	bound := c.settings.TTL + nameBound
	first, at := c.midWork(ctx, b.target, random)
	r.Printf("   node-%d is killed in the middle of a job", first)
	scene.Check(c.kill(c.slots[first]))
	c.answered(ctx, "kill until all names answer", at, bound, patience, client)
	scene.Check(machine.Pause(ctx, stretch))
	second, at := c.midWork(ctx, b.target, random)
	p := c.slots[second].current()
	r.Printf("   node-%d is stopped (SIGSTOP) in the middle of a job", second)
	scene.Check(p.Signal(syscall.SIGSTOP))
	c.answered(ctx, "stop until all names answer", at, bound, patience, client)
	scene.Check(machine.Pause(ctx, at+5*c.settings.TTL/2-machine.Now()))
	scene.Check(p.Signal(syscall.SIGCONT))
	c.order(ctx, order{Do: doRelease}, patience, second)
	scene.Check(machine.Pause(ctx, stretch))
	c.order(ctx, order{Do: doQuiet}, patience, client)
	for _, i := range c.all() {
		if err := c.leaveBy(c.slots[i], leaveBound); err != nil {
			c.Violation("late: %s: %v", ruleDeparted, err)
		}
	}
	b.judge(ctx, c, r)
}

// midWork returns which node is in the middle of a job, where it stays, and since when.
func (c *crew) midWork(ctx context.Context, by role, random *rand.Rand) (i int, since time.Duration) {
	i, at := c.pick(by, random), machine.Now()
	c.order(ctx, order{Do: doHold}, patience, i)
	what := fmt.Sprintf("node-%d gets a job", i)
	c.until(ctx, patience, what, func(v *view) bool { return v.held[i] >= at })
	return i, machine.Now()
}

func (b books) judge(ctx context.Context, c *crew, r *scene.Run) {
	h := c.servers.History(ctx)
	var pages []page
	var ws []Write
	for _, w := range h.Writes {
		p := scene.Must(pageOf(w.Text))
		p.Name, p.Place = w.Name, int(w.Position)
		pages = append(pages, p)
		ws = append(ws, Write{b.names.of(w.Name), w.Position, w.Text})
	}
	es, j := c.judged(func(ev *evidence) { ev.Writes, ev.whole = ws, false })
	legs := 1
	if b.names.Singletons == 0 {
		legs = 2
	}
	l := judgeLedger(pages, es, legs)
	r.Printf("   ledger: %d writes in the store's history, %d refused as stale: %d jobs, %d ticks", j.records, j.refused, l.jobs, l.ticks)
	r.None("pages that don't follow from the one before", l.broken)
	r.None("jobs done twice", l.twice)
	r.None("answered, and not in the ledger as it was to be", l.hollow)
	r.None("money that is too much or too little", max(l.sums, -l.sums))
	r.AtMost("jobs that were not answered", float64(l.unfinished), 0, "")
	if j.refused == 0 {
		r.Violation("the node that was stopped in the middle of a job was not refused what it wrote")
	}
	if l.jobs == 0 {
		scene.Check(errNothing)
	}
}
