package singleton_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/singleton"
)

// countPlain counts what comes to a node by the short way for plain messages.
func countPlain(n *node, name string) (came *atomic.Int64) {
	came = new(atomic.Int64)
	p, ok := actors.FamiliesOf(n.system).Resolve(actors.FamilyID("%s/"+name, "1/"))
	require.True(n.c.t, ok)
	actors.FamiliesOf(n.system).Serve("%s/"+name, func(string) (actor.Process, bool) {
		came.Add(1)
		return p, true
	})
	return came
}

// Protocol Buffers messages travel to the host as they are, all else in envelopes; to a host
// that does not say that it takes them, all do.
func TestPlainMessagesToTheHost(t *testing.T) {
	for _, takes := range []bool{true, false} {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				actors.FamiliesOf(a.system).Enable(takes)
				a.hosts("x")
				came := countPlain(a, "x")
				mb := b.run("x")
				for i, msg := range []any{job{"b", 9}, wrapperspb.String("1 b"), job{"b", 2}, wrapperspb.String("3 b"),
					&actor.MessageEnvelope{Message: wrapperspb.String("4 b"), Header: map[string]string{"h": "v"}}} {
					synctest.Wait() // the controller is done
					before := came.Load()
					d, err := singleton.Ask[done](t.Context(), mb, msg)
					require.NoError(t, err)
					require.Equal(t, "a", d.Node)
					_, value := msg.(job)
					require.Equal(t, takes && i > 0 && !value, came.Load() > before, "%d: %v", i, msg)
				}
			})
		})
	}
}

// What other nodes send to the ids of the short way is checked as what they send in
// envelopes: no id of another form is anybody's, and a token yet to come is waited for, in
// vain.
func TestPlainMessagesThatWereMadeUp(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma := a.hosts("x")
		dead := a.deadLetters()
		for i, rest := range []string{"", "x", "/", "-1/", "99999999999999999999/", "1/x"} {
			b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", rest)), wrapperspb.String("1 b"))
			time.Sleep(time.Second)
			require.EqualValues(t, i+1, dead.Load(), "%q", rest)
		}
		b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", "1/")), &actor.Stopped{})
		b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", "1000/")), wrapperspb.String("2 b"))
		b.system.Root.Send(actor.NewPID("a:1", actors.FamilyID("%s/x", "0/")), wrapperspb.String("3 b"))
		time.Sleep(3 * ttl)
		require.Equal(t, 1, ma.Status().Undeliverable)
		require.Equal(t, 1, len(c.log.snapshot()[0].jobs))
		a.mustAsk(ma.PID(), 4)
	})
}

// What each of many senders sends, on the host's node and on another, is handled once and
// in order, while the door opens and shuts all the time, with messages of every kind.
func TestTheDoorKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		room := singleton.WithBuffer(100_000, hosting.DropNewest) // the door may be shut for long
		ma, mb := a.hosts("x", room), b.run("x", room)
		b.mustAsk(mb.PID(), 0)
		const each = 3000
		var all sync.WaitGroup
		ms := []*singleton.Manager{ma, mb}
		for i, n := range []*node{a, b} {
			m := ms[i]
			all.Go(func() {
				for range 2000 {
					n.system.Root.Send(m.PID(), &wire.Candidate{}) // which changes nothing
					runtime.Gosched()
				}
			})
			for s := range 3 {
				all.Go(func() {
					name := fmt.Sprint(n.id, s)
					for number := 1; number <= each; number++ {
						j := job{name, number}
						var msg any = formOf(j)
						switch number % 500 {
						case 7:
							msg = touchJob(j)
						case 8:
							msg = batchOf{formOf(j)}
						}
						n.system.Root.Send(m.PID(), msg)
					}
				})
			}
		}
		all.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		next := map[string]int{}
		for _, l := range c.log.snapshot() {
			for _, j := range l.jobs {
				if j.Number > 0 {
					require.Equal(t, next[j.Sender]+1, j.Number, j.Sender)
					next[j.Sender] = j.Number
				}
			}
		}
		require.Len(t, next, 6)
		for s, n := range next {
			require.Equal(t, each, n, s)
		}
	})
}

// Mail that goes straight to a host that does not read takes up the window of its node, and
// no more goes there, whichever form it travels in.
func TestStraightMailTakesRoomInTheWindow(t *testing.T) {
	for form, msg := range map[string]any{"plain": wrapperspb.String("1 s"), "enclosed": job{"s", 1}} {
		t.Run(form, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				a, b := c.node("a"), c.node("b")
				a.hosts("x")
				mb := b.run("x", singleton.WithBuffer(50, hosting.DropNewest))
				b.mustAsk(mb.PID(), 0)
				time.Sleep(time.Second) // it takes no room any more
				before, _ := c.net.Wire("b:1", "a:1")
				c.net.Freeze("a:1")
				for range transport.MaxMessages + 1000 {
					b.system.Root.Send(mb.PID(), msg)
				}
				time.Sleep(100 * time.Millisecond)
				require.Equal(t, 50, mb.Status().Buffered)
				require.Equal(t, 950, mb.Status().Dropped)
				after, _ := c.net.Wire("b:1", "a:1")
				require.Less(t, after-before, uint64(transport.MaxMessages+100))
				c.net.Thaw("a:1")
				until(t, 30*time.Second, "handled", func() bool {
					return mb.Status().Buffered == 0 && len(c.log.snapshot()[0].jobs) == transport.MaxMessages+50+1
				})
			})
		})
	}
}

// touchJob is a job that protoactor answers in place of the actor that gets it.
type touchJob job

// Job implements testkit.Worker.
func (t touchJob) Job() testkit.Job { return testkit.Job(t) }

func (t touchJob) GetAutoResponse(actor.Context) any { return "touched" }

// batchOf is a batch, which is handled after what is in it.
type batchOf []any

func (b batchOf) GetMessages() []any { return b }

// Who sent what the host can't read, by the ways past Envelopes, is told why.
func TestAPlainMessageThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		m := a.hosts("x")
		p, ok := actors.FamiliesOf(a.system).Resolve(actors.FamilyID("%s/x", "1/"))
		require.True(t, ok)
		for reason, what := range map[hosting.Reason]*wire.Unread{
			hosting.ReasonUndecodable: {Type: "google.protobuf.StringValue", Payload: []byte{0x0a, 1, 0xff}},
			hosting.ReasonUnknownType: {Type: "no.such.Type"},
		} {
			answer := actor.NewFuture(a.system, time.Second)
			p.SendUserMessage(actor.NewPID("a:1", "x"), &actor.MessageEnvelope{Message: what, Sender: answer.PID()})
			got, err := answer.Result()
			require.NoError(t, err)
			u, ok := got.(hosting.Undeliverable)
			require.True(t, ok, "%T", got)
			require.Equal(t, reason, u.Notice().Reason)
		}
		synctest.Wait() // it is told before it is published
		require.Equal(t, 2, m.Status().Undeliverable)
	})
}

// 3: headers take room in the window to a host that does not read, as payloads do.
func TestScenarioMail3LargeHeaders(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		a.hosts("x")
		mb := b.run("x", singleton.WithBuffer(1000, hosting.DropNewest))
		for _, msg := range []any{wrapperspb.String("1 b"), job{"b", 1}} { // by the short way, and in envelopes
			b.mustAsk(mb.PID(), 0)
			synctest.Wait()
			c.net.Freeze("a:1")
			for range 300 {
				b.system.Root.Send(mb.PID(), &actor.MessageEnvelope{Message: msg,
					Header: map[string]string{"h": strings.Repeat("h", 50<<10)}})
			}
			time.Sleep(time.Second)
			_, bytes := c.net.Peak("b:1", "a:1")
			require.LessOrEqual(t, bytes, transport.MaxBytes+128<<10, "%T", msg)
			require.Greater(t, bytes, transport.MaxBytes/2)
			c.net.Thaw("a:1")
			time.Sleep(5 * time.Second)
			require.Zero(t, mb.Status().Buffered)
		}
		require.Len(t, c.log.snapshot()[0].jobs, 602)
	})
}

// An actor may be called what questions' ids begin with: what its children ask, and end, is
// no question that is given up.
func TestTheChildrenOfAnActorCalledAsk(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		mb := b.run("x", singleton.WithProxyOnly())
		_, err := b.system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(*actor.Started); !ok {
				return
			}
			for _, number := range []int{1, 3} { // in both forms
				child := ctx.SpawnPrefix(actor.PropsFromFunc(func(ctx actor.Context) {
					if _, ok := ctx.Message().(*actor.Started); ok {
						ctx.Request(mb.PID(), formOf(job{"s", number}))
						ctx.Stop(ctx.Self())
					}
				}), "children")
				require.True(t, strings.HasPrefix(child.Id, "ask/children$"))
			}
		}), "ask")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, 2, mb.Status().Buffered)
		ma := a.run("x")
		until(t, time.Minute, "hosts", active(ma))
		time.Sleep(5 * time.Second)
		require.Zero(t, mb.Status().Undeliverable)
		require.Len(t, c.log.snapshot()[0].jobs, 2)
	})
}

// The dead letters of what came plainly have the PID that it was for, and nothing of how
// long its asker waits.
func TestDeadLettersOfPlainMessages(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		a.hosts("x")
		id := actors.FamilyID("%s/x", "1/")
		p, ok := actors.FamiliesOf(a.system).Resolve(id)
		require.True(t, ok)
		var dead []*actor.PID
		a.system.EventStream.Subscribe(func(e any) {
			if d, ok := e.(*actor.DeadLetterEvent); ok {
				dead = append(dead, d.PID)
			}
		})
		p.SendUserMessage(&actor.PID{Address: "holdfast:direct", Id: id, RequestId: 77}, &actor.Started{})
		synctest.Wait()
		require.Len(t, dead, 1)
		require.Equal(t, id, dead[0].Id)
		require.Equal(t, "a:1", dead[0].Address, "the mark by which a process is found is not shown")
		require.Zero(t, dead[0].RequestId)
	})
}
