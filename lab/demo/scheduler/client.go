//go:build linux

package scheduler

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

const (
	jobEvery = 40 * time.Millisecond
	// twiceEvery says which jobs are sent twice at once, as an impatient client
	// would: duplicates must do no harm.
	twiceEvery = 50
	// window bounds the jobs that wait for an acknowledgement; while there are
	// as many, no new one is sent.
	window = 1000
)

// client sends numbered jobs to the singleton, wherever that runs, and each
// again until it is acknowledged: delivery is at least once.
type client struct {
	to       *actor.PID // a manager: the front door
	resend   time.Duration
	books    *books
	timeline *stage.Timeline

	next    int
	waiting map[int]*sending
	silent  bool // something had to be sent again
	timer   *time.Timer
}

type sending struct {
	at    time.Time // of the last time
	times int
}

// spawnClient starts a client on a node that reaches the singleton.
func spawnClient(on *peer, ttl time.Duration, b *books, t *stage.Timeline) *actor.PID {
	it := &client{to: on.manager.PID(), resend: max(ttl/4, 5*jobEvery), books: b, timeline: t}
	t.Say("client", "sends a job every %v", jobEvery)
	return on.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return it }))
}

// pulse is what the client sends itself.
type pulse struct{}

// Receive implements actor.Actor.
func (c *client) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		c.waiting = map[int]*sending{}
		c.pulse(ctx)
	case pulse:
		c.send(ctx, time.Now())
		c.pulse(ctx)
	case done:
		c.acknowledged(msg)
	case *actor.Stopping:
		c.timer.Stop()
	}
	// Whatever else comes, such as word of a dead letter, is no acknowledgement:
	// the job is sent again when its time has come.
}

func (c *client) pulse(ctx actor.Context) {
	system, self := ctx.ActorSystem(), ctx.Self()
	c.timer = time.AfterFunc(jobEvery, func() { system.Root.Send(self, pulse{}) })
}

func (c *client) send(ctx actor.Context, now time.Time) {
	first := 0 // the lowest number that is sent again
	for n, s := range c.waiting {
		if now.Sub(s.at) < c.resend {
			continue
		}
		s.at, s.times = now, s.times+1
		c.books.resent()
		ctx.Request(c.to, job{Number: n})
		if first == 0 || n < first {
			first = n
		}
	}
	if first > 0 && !c.silent {
		c.silent = true
		c.timeline.Say("client", "no answer to job %d for %v: sends again what is not acknowledged", first, c.resend)
	}
	if len(c.waiting) < window && c.books.open() {
		c.next++
		c.waiting[c.next] = &sending{at: now, times: 1}
		c.books.sent()
		ctx.Request(c.to, job{Number: c.next})
		if c.next%twiceEvery == 0 {
			ctx.Request(c.to, job{Number: c.next})
		}
	}
}

func (c *client) acknowledged(d done) {
	c.books.acknowledged(d.Number)
	delete(c.waiting, d.Number)
	if !c.silent {
		return
	}
	for _, s := range c.waiting {
		if s.times > 1 {
			return
		}
	}
	c.silent = false
	c.timeline.Say("client", "all that was sent again is acknowledged, the last by %s under token %d", d.Node, d.Token)
}

// books is what the client did and was told. Safe for concurrent use.
type books struct {
	mu      sync.Mutex
	closed  bool
	total   int // jobs sent, numbered from 1
	resends int
	acked   map[int]int // how often each was acknowledged
}

func (b *books) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.closed
}

// close ends new jobs; what was sent is still sent again.
func (b *books) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

func (b *books) sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total++
}

func (b *books) resent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resends++
}

func (b *books) acknowledged(number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.acked == nil {
		b.acked = map[int]int{}
	}
	b.acked[number]++
}

// balance returns how many jobs were sent, how often one was sent again, and
// which were acknowledged.
func (b *books) balance() (sent, resends int, acked map[int]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	acked = make(map[int]bool, len(b.acked))
	for n := range b.acked {
		acked[n] = true
	}
	return b.total, b.resends, acked
}

// settled reports whether all that was sent is acknowledged.
func (b *books) settled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.acked) == b.total
}
