//go:build linux

package nodes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// node is what runs in a process of the machine.
type node struct {
	settings
	accounts []string
	numbers  map[string]int // of accounts, as targets
	journal  *journal
	log      *zap.Logger
	system   *actor.ActorSystem
	remote   *remoting.Node
	client   Client
	witness  *witness
	keeper   *lease.Keeper
	leads    *membership.Static // nil unless it follows
	group    *membership.Group
	region   *sharding.Region // nil if there are no shards
	managers []*singleton.Manager
	load     load
	empty    weight // what it needs before it hosts anything

	held   atomic.Pointer[chan struct{}] // what workers wait for
	active atomic.Int64                  // accounts that run
	counts struct{ dead, order atomic.Int64 }
	cut    atomic.Bool  // what this node writes does not get to the store
	errors atomic.Int64 // lines in the Keeper's log
	leaks  leaks

	mu  sync.Mutex
	out *json.Encoder
}

// patience bounds what a node waits for before it says that it can't.
const patience = 60 * time.Second

// heapEvery is how often a node tells what is on its heap.
const heapEvery = 250 * time.Millisecond

// runNode is main for a node.
func runNode(arg string) error {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	n := &node{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(arg), &n.settings); err != nil {
		return fmt.Errorf("%s=%q: %w", nodeEnv, arg, err)
	}
	failed := make(chan error, 1)
	up := make(chan struct{})
	go func() {
		if err := scene.Try(func() { n.open() }); err != nil {
			failed <- fmt.Errorf("%s: %w", n.id(), err)
			return
		}
		close(up)
		n.say(said{What: isUp, Owner: n.keeper.Owner(), Weight: &n.empty})
		for range time.Tick(heapEvery) {
			n.say(said{What: hasHeap, Heap: machine.Heap(), RSS: machine.RSS(os.Getpid())})
		}
	}()
	go n.listen(up)
	select {
	case err := <-failed:
		return err
	case <-terms:
	}
	select {
	case <-up:
		return scene.Try(n.leave)
	default:
		return nil // it has not begun
	}
}

// listen reads orders, which are obeyed once the node is up. The end of the input is the end of
// all.
func (n *node) listen(up <-chan struct{}) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			fmt.Fprintf(os.Stderr, "%s: order %q: %v\n", n.id(), lines.Text(), err)
			os.Exit(2)
		}
		go func() {
			<-up
			n.obey(o)
		}()
	}
	os.Exit(2)
}

// obey does what is ordered, and says so.
func (n *node) obey(o order) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	r := said{What: o.Do, Number: o.Number}
	from := machine.Now()
	var err error
	switch o.Do {
	case doSweep, doWake:
		n.sweep(o.Within, o.Do == doWake)
	case doLoad:
		n.begin(o)
	case doQuiet:
		n.quiet()
	case doLead:
		n.leads.Set(o.Leader)
	case doHold:
		held := make(chan struct{})
		n.held.Store(&held)
	case doRelease:
		if held := n.held.Swap(nil); held != nil {
			close(*held)
		}
	case doBook:
		n.book(o.Count, o.Within)
	case doBurst:
		for range o.Count {
			n.post(senderOf(n.Index, n.Life, 1), 0)
		}
	case doStop:
		err = scene.Try(func() { n.stop(ctx) })
	case doDrain:
		err = n.region.Drain(ctx)
	case doUndrain:
		n.region.Undrain()
	case doCut:
		n.cut.Store(true)
		n.witness.Partition()
	case doMend:
		n.witness.Heal()
		n.cut.Store(false)
	case doSee:
		_, err = n.keeper.List(ctx, "none")
	case doHealth:
		r.Lines = int(n.errors.Load())
		r.Setback = errors.Is(n.keeper.Health(ctx), lease.ErrSetback) && errors.Is(singleton.Health(n.system)(ctx), lease.ErrSetback)
	case doAccept:
		err = n.keeper.AcceptHistory(ctx)
	case doWeigh:
		w := n.weigh()
		r.Weight = &w
	default:
		err = errors.New("unknown")
	}
	r.Took = machine.Now() - from
	if err != nil {
		r.Err = err.Error()
	}
	n.say(r)
}

// open starts everything.
func (n *node) open() {
	register()
	n.journal = machine.OpenJournal[entry](n.Journal)
	n.accounts, n.numbers, n.leaks.kinds = n.Names.accounts(), map[string]int{}, n.Leaks
	for i, id := range n.accounts {
		n.numbers[id] = n.Names.Singletons + i
	}
	n.log = zap.NewNop()
	if os.Getenv(logEnv) != "" {
		n.log = scene.Must(zap.NewDevelopment(zap.Fields(zap.String("node", fmt.Sprintf("%s.%d", n.id(), n.Life)))))
	}
	n.system = actor.NewActorSystem(remoting.LogTo(zap.NewNop()))
	n.system.EventStream.Subscribe(n.onEvent)
	config := scene.Must(remoting.Configure(n.Host, n.Port, remoting.WithPlaintext()))
	if len(n.Dials) > 0 {
		config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if to, ok := n.Dials[address]; ok {
				address = to
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}))
	}
	n.remote = scene.Must(remoting.Start(n.system, config))
	n.client = kindOf(n.Store).Open(context.Background(), n.URL)
	logged := n.log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		errors := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zapcore.ErrorLevel)
		return zapcore.NewTee(c, zapcore.RegisterHooks(errors, func(zapcore.Entry) error { n.errors.Add(1); return nil }))
	}))
	var store store.Store
	store, n.witness = witnessed(n.client.Leases, n.journal, n.Names)
	clock := machine.Clock{}
	if n.Broken {
		clock.Slow = clock.Now()
	}
	n.keeper = scene.Must(lease.NewKeeper(store, lease.Config{ID: n.id(), Address: n.remote.Address(), TTL: n.TTL, Clock: clock, Logger: logged}))
	if n.Follows {
		n.leads = membership.NewStatic(n.keeper.Owner())
		n.leads.Set(n.Leader)
	}
	n.empty = n.weigh()
	n.host()
}

// pass notes what passes the gate of a singleton ("singleton/lab-7", "host/lab-7") or of a shard.
func (n *node) pass(name string, token lease.Token, at time.Duration) {
	number := scene.Must(strconv.Atoi(name[strings.LastIndexAny(name, "/-")+1:]))
	if strings.HasPrefix(name, shardLease) {
		number += n.Names.Singletons
	}
	if n.Broken {
		at = machine.Now() // the clock that was read is of no use
	}
	n.journal.Note(entry{at: at, kind: passed, name: uint16(number), token: uint64(token)})
}

// host takes part in everything.
func (n *node) host() {
	proxy := n.Hosts > 0 && n.Index >= n.Hosts
	n.managers = make([]*singleton.Manager, n.Names.Singletons)
	for _, i := range rand.Perm(n.Names.Singletons) { // so that each node comes first with some
		opts := []singleton.Option{singleton.WithJournal(n.pass), singleton.WithLogger(n.log)}
		if n.Buffer > 0 {
			opts = append(opts, singleton.WithBuffer(n.Buffer, hosting.DropNewest))
		}
		if proxy {
			opts = append(opts, singleton.WithProxyOnly())
		} else if n.leads != nil {
			opts = append(opts, singleton.WithLeadership(n.leads))
		}
		n.managers[i] = scene.Must(singleton.Start(n.system, n.keeper, fmt.Sprintf("lab-%d", i),
			actor.PropsFromProducer(func() actor.Actor { return &worker{node: n, name: i, target: uint16(i)} }), opts...))
	}
	if n.Names.Shards == 0 {
		return
	}
	opts := []sharding.Option{sharding.WithLogger(n.log), sharding.WithJournal(n.pass),
		sharding.WithPassivation(n.Idle), sharding.WithMaxActive(n.MaxActive)}
	if n.Buffer > 0 {
		opts = append(opts, sharding.WithBuffer(n.Buffer, n.Buffer, hosting.DropNewest))
	}
	if n.Remember && n.client.Entities != nil { // they are started wherever their shard goes
		opts = append(opts, sharding.WithRemember(n.client.Entities, 0))
	}
	if proxy {
		opts = append(opts, sharding.WithProxyOnly())
	}
	made := func() actor.Actor {
		if n.State > 0 {
			return &account{worker: worker{node: n, name: -1}}
		}
		return &worker{node: n, name: -1}
	}
	for end := machine.Now() + patience; ; time.Sleep(100 * time.Millisecond) { // the store may be in trouble
		err := scene.Try(func() {
			if n.group == nil {
				ctx, cancel := context.WithTimeout(context.Background(), patience/2)
				defer cancel()
				n.group = scene.Must(membership.Join(ctx, n.keeper, "lab", membership.WithEvents(hosting.ToEventStream(n.system)), membership.WithLogger(n.log)))
			}
			t := sharding.Type{Name: "account", Shards: n.Names.Shards, Props: actor.PropsFromProducer(made)}
			n.region = scene.Must(sharding.Start(n.system, n.group, t, opts...))
		})
		if err == nil {
			return
		}
		if machine.Now() > end {
			scene.Check(err)
		}
	}
}

// shardKinds and singletonKinds are what is noted of events.
var (
	shardKinds = map[sharding.EventKind]kind{sharding.Hosted: hosted, sharding.HandedOff: unhosted, sharding.Released: unhosted,
		sharding.Lost: unhosted, sharding.Yielded: unhosted, sharding.Coordinating: coordinating, sharding.OrderNotKept: disordered, sharding.ColdStart: coldStart}
	singletonKinds = map[singleton.EventKind]kind{singleton.BecameHost: hosted, singleton.HandedOver: unhosted, singleton.Released: unhosted,
		singleton.Lost: unhosted, singleton.Yielded: unhosted, singleton.OrderNotKept: disordered}
)

func (n *node) onEvent(event any) {
	x := entry{at: machine.Now()}
	switch e := event.(type) {
	case *actor.DeadLetterEvent:
		if _, ok := e.Message.(letter); ok {
			n.counts.dead.Add(1)
		}
	case sharding.Event:
		x.kind, x.name, x.token = shardKinds[e.Kind], uint16(n.Names.Singletons+max(e.Shard, 0)), uint64(e.Token)
		if e.Kind == sharding.ColdStart {
			switch x.target = uint16(n.numbers[e.ID]); {
			case e.ID == "" && e.States == 0:
				x.kind = 0
			case e.ID == "":
				x.seq = uint64(e.States)
			}
		}
	case singleton.Event:
		i, err := strconv.Atoi(strings.TrimPrefix(e.Singleton, "lab-"))
		if err == nil {
			x.kind, x.name, x.token = singletonKinds[e.Kind], uint16(i), uint64(e.Token)
		}
	}
	if x.kind == disordered {
		n.counts.order.Add(1)
	}
	if x.kind != 0 {
		n.journal.Note(x)
	}
}

// say reports s, at this time.
func (n *node) say(s said) {
	s.At = machine.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.out.Encode(s); err != nil {
		os.Exit(2) // the scenario has ended
	}
}

// stop ends what is hosted here. A worker that is held goes on when its mail was
// turned away: it must not take any more of it.
func (n *node) stop(ctx context.Context) {
	if held := n.held.Swap(nil); held != nil {
		go func() {
			for !n.turnsAway() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			close(*held)
		}()
	}
	if n.region != nil {
		scene.Check(n.region.Stop(ctx)) // before StopAll, which ends its coordinator as well
	}
	scene.Check(singleton.StopAll(ctx, n.system))
}

// turnsAway reports whether the first target, which is hosted here, was told to stop.
func (n *node) turnsAway() bool {
	p := ""
	if len(n.managers) > 0 {
		p = n.managers[0].Status().Phase.String()
	} else {
		p = n.region.Info().Table[sharding.ShardOf(n.accounts[0], n.Names.Shards)].Phase
	}
	return p != "active" && p != "inviting"
}

// leave is how a node should go.
func (n *node) leave() {
	n.quiet()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n.stop(ctx)
	if n.group != nil {
		scene.Check(n.group.Leave(ctx))
	}
	scene.Check(n.keeper.Close(ctx))
	n.remote.Shutdown(true)
	n.journal.Note(entry{at: machine.Now(), kind: departed})
}

// load is what a node sends. The senders are numbered: see senderOf.
type load struct {
	end     chan struct{} // nil: nothing is sent
	running sync.WaitGroup
	asker   *actor.PID
	tellers []*actor.PID // those that are actors

	mu  sync.Mutex
	seq [senders][]uint64 // of each sender, to each target
}

// pace is between looks at what is due.
const pace = 5 * time.Millisecond

// answerWithin is for how long an asker waits for answers before it stops.
const answerWithin = 5 * time.Second

// next notes the next letter of a sender.
func (n *node) next(sender uint32, target int) letter {
	n.load.mu.Lock()
	seqs := &n.load.seq[sender%senders]
	if *seqs == nil {
		*seqs = make([]uint64, n.Names.targets())
	}
	(*seqs)[target]++
	l := letter{Sender: sender, Target: uint16(target), Seq: (*seqs)[target], Sent: int64(machine.Now()), Fill: uint32(max(0, n.Size-letterSize))}
	n.load.mu.Unlock()
	n.note(time.Duration(l.Sent), asked, l, 0)
	return l
}

// note notes what became of a letter, under which token.
func (n *node) note(at time.Duration, k kind, l letter, token uint64) {
	n.journal.Note(entry{at: at, kind: k, sent: time.Duration(l.Sent), token: token, seq: l.Seq,
		sender: l.Sender, target: l.Target, name: uint16(n.Names.of(int(l.Target)))})
}

// post sends the next letter of a sender that is no actor.
func (n *node) post(sender uint32, target int) {
	l := n.next(sender, target)
	if target < n.Names.Singletons {
		n.system.Root.Send(n.managers[target].PID(), l)
	} else {
		_ = n.region.Tell(n.accounts[target-n.Names.Singletons], l) // one that is refused is not handled: it is judged
	}
}

// request sends the next letter of an actor.
func (n *node) request(ctx actor.Context, sender uint32, target int) letter {
	l := n.next(sender, target)
	if target < n.Names.Singletons {
		ctx.Request(n.managers[target].PID(), l)
	} else {
		_ = n.region.Tell(n.accounts[target-n.Names.Singletons], &actor.MessageEnvelope{Message: l, Sender: ctx.Self()}) // likewise
	}
	return l
}

// begin begins to send.
func (n *node) begin(o order) {
	n.load.end = make(chan struct{})
	id := func(k int) uint32 { return senderOf(n.Index, n.Life, k) }
	tellers := senders - 1
	if n.Names.Shards > 0 {
		tellers = plain // all mail of accounts is sent outside of actors
	}
	for k := 1; k <= tellers && o.Rate > 0; k++ {
		rate, count := o.Rate/float64(tellers), o.Count/tellers
		if k <= plain {
			n.load.steadily(&due{rate: rate, count: count}, func() { n.post(id(k), rand.IntN(n.Names.targets())) })
			continue
		}
		n.load.tellers = append(n.load.tellers, n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
			return &sender{node: n, number: id(k), due: due{rate: rate, count: count}, pick: n.pick(rate)}
		})))
	}
	switch pick := n.pick(o.Asks); {
	case o.Within > 0:
		n.load.steadily(&due{rate: o.Asks}, func() { n.question(id(0), pick(), o.Within) })
	case o.Asks > 0:
		n.load.asker = n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
			return &sender{node: n, number: id(0), due: due{rate: o.Asks}, pick: pick,
				open: map[letterKey]letter{}}
		}))
	}
}

// steadily calls f as often as is due, until the load ends.
func (l *load) steadily(d *due, f func()) {
	l.running.Go(func() {
		for tick := time.NewTicker(pace); d.left(); {
			d.each(f)
			select {
			case <-tick.C:
			case <-l.end:
				return
			}
		}
	})
}

// question asks from a goroutine of its own, and notes how that ends.
func (n *node) question(sender uint32, target int, within time.Duration) {
	l := n.next(sender, target)
	n.load.running.Go(func() {
		got, err := n.inquire(l, within)
		end := answered
		if err != nil {
			end = failed
		}
		n.note(machine.Now(), end, l, got.Token)
	})
}

// quiet ends the load, and waits for answers.
func (n *node) quiet() {
	if n.load.end == nil {
		return
	}
	close(n.load.end)
	n.load.running.Wait()
	for _, pid := range append(n.load.tellers, n.load.asker) {
		if pid != nil {
			q := &quieting{until: machine.Now() + answerWithin, done: make(chan struct{})}
			n.system.Root.Send(pid, q)
			<-q.done
		}
	}
	n.load.end, n.load.asker, n.load.tellers = nil, nil, nil
}

// due says what is to be sent by now. A sender that was held up for long does not make up for it:
// that would be another load than the one asked for.
type due struct {
	rate  float64
	count int // in all; 0: no bound
	began time.Duration
	done  int
	sent  int
}

func (d *due) left() bool { return d.count == 0 || d.sent < d.count }

func (d *due) each(f func()) {
	if d.began == 0 {
		d.began = machine.Now()
	}
	due := int((machine.Now() - d.began).Seconds() * d.rate)
	for d.done = max(d.done, due-int(d.rate/10)-1); d.done < due && d.left(); d.done++ {
		f()
		d.sent++
	}
}

type (
	// beat is what a sender tells itself.
	beat struct{}
	// quieting tells a sender that it is to send no more, and to close done when all is answered.
	quieting struct {
		until time.Duration
		done  chan struct{}
	}
)

// sender is an actor that sends, without waiting for answers, and notes these.
type sender struct {
	*node
	number uint32
	due    due
	pick   func() int
	open   map[letterKey]letter // what was asked; nil: answers are not waited for
	quiet  *quieting
}

// Receive implements actor.Actor.
func (s *sender) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started, beat:
		s.beat(ctx)
	case receipt:
		key := letterKey{pairKey{s.number, msg.Target}, msg.Seq}
		if l, ok := s.open[key]; ok {
			delete(s.open, key)
			s.note(machine.Now(), answered, l, msg.Token)
		}
	case *quieting:
		s.quiet = msg
	}
}

func (s *sender) beat(ctx actor.Context) {
	maps.DeleteFunc(s.open, func(_ letterKey, l letter) bool {
		return machine.Now()-time.Duration(l.Sent) > 2*answerWithin
	})
	if q := s.quiet; q == nil {
		s.due.each(func() {
			if l := s.request(ctx, s.number, s.pick()); s.open != nil {
				s.open[letterKey{pairKey{l.Sender, l.Target}, l.Seq}] = l
			}
		})
	} else if len(s.open) == 0 || machine.Now() > q.until {
		close(q.done)
		s.quiet, s.due.rate = nil, 0
		return
	}
	system, self := ctx.ActorSystem(), ctx.Self()
	time.AfterFunc(pace, func() { system.Root.Send(self, beat{}) })
}

// pick says whom an asker asks next: any target. Where accounts are stopped for idleness it is of eight
// asks one a singleton, two the same as before, two an account that was asked so long ago that it is
// about to be stopped, and three any.
func (n *node) pick(rate float64) func() int {
	any := func() int { return rand.IntN(n.Names.targets()) }
	if n.MaxActive == 0 {
		return any
	}
	any = func() int { return n.Names.Singletons + rand.IntN(len(n.accounts)) }
	past := make([]int, max(4, int(rate*1.25*n.Idle.Seconds())))
	for i := range past {
		past[i] = any()
	}
	last, at := past[0], 0
	return func() int {
		switch rand.IntN(8) {
		case 0, 1:
		case 2, 3:
			last = past[(at+rand.IntN(len(past)/4))%len(past)] // of the oldest quarter
		case 4:
			if n.Names.Singletons > 0 {
				return rand.IntN(n.Names.Singletons)
			}
			fallthrough
		default:
			last = any()
		}
		past[at%len(past)] = last
		at++
		return last
	}
}

// atOnce is how many asks of a sweep are on the way at a time, at least.
const atOnce = 256

// sweep asks every name, or every target, until it answers, or for so long that it was judged.
func (n *node) sweep(within time.Duration, every bool) {
	var targets []int
	if every {
		targets = upTo(n.Names.targets())
	} else {
		for name := range n.Names.count() {
			targets = append(targets, n.Names.first(name))
		}
	}
	var all sync.WaitGroup
	room := make(chan struct{}, max(atOnce, len(targets)/8)) // all of a dead node's
	end := machine.Now() + patience
	for _, target := range targets {
		room <- struct{}{}
		all.Go(func() {
			for from := machine.Now(); !n.askOnce(target, within) && machine.Now() < end; from = machine.Now() {
				time.Sleep(within/10 - (machine.Now() - from)) // it may have failed at once
			}
			<-room
		})
	}
	all.Wait()
}

func (n *node) askOnce(target int, within time.Duration) bool {
	l := letter{Sender: senderOf(n.Index, n.Life, 0), Target: uint16(target), Sent: int64(machine.Now())}
	got, err := n.inquire(l, within)
	if err == nil {
		n.note(machine.Now(), swept, l, got.Token)
	}
	return err == nil
}

// inquire sends one letter, and waits for its receipt.
func (n *node) inquire(l letter, within time.Duration) (receipt, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if target := int(l.Target); target >= n.Names.Singletons {
		return sharding.Ask[receipt](ctx, n.region, n.accounts[target-n.Names.Singletons], l)
	}
	return singleton.Ask[receipt](ctx, n.managers[l.Target], l)
}

// weigh takes what the node needs.
func (n *node) weigh() weight {
	w := weight{Heap: machine.Live(), RSS: machine.RSS(os.Getpid()), Goroutines: runtime.NumGoroutine(), CPU: machine.Processor(),
		Active: int(n.active.Load()), Counted: map[string]int64{}}
	files, _ := os.ReadDir("/proc/self/fd") // of this process: it has no reason to fail
	w.Files, w.Sessions = len(files), n.witness.sessions()
	for _, m := range n.managers {
		s := m.Status()
		if s.Token != 0 {
			w.Hosted++
		}
		givenUp("", s, w.Counted)
	}
	if n.region != nil {
		in := n.region.Info()
		w.Hosted += in.Held
		w.Entries, w.Passivated = in.Entities, in.Passivated
		givenUp("", in, w.Counted)
	}
	givenUp("remoting.", n.remote.Stats(), w.Counted)
	w.Counted["dead letters"], w.Counted["order not kept"] = n.counts.dead.Load(), n.counts.order.Load()
	return w
}

// givesUp are the names of counters that say that a message was given up.
var givesUp = regexp.MustCompile(`(?i)dropped|undeliverable|lost|expired|refused`)

// givenUp adds the numbers in a struct of the product whose names say that messages were given up,
// whatever it calls them.
func givenUp(prefix string, of any, into map[string]int64) {
	text, err := json.Marshal(of)
	var all map[string]any
	if err != nil || json.Unmarshal(text, &all) != nil {
		panic(fmt.Sprintf("%T has no JSON: %v", of, err))
	}
	for name, v := range all {
		if n, ok := v.(float64); ok && givesUp.MatchString(name) {
			into[prefix+name] += int64(n)
		}
	}
}
