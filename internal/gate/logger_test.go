package gate_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
)

// A journal or an actor on its way out panics, and so does the logger that is told of it, or
// does not return: the message passes, and the actor comes to its end.
func TestALoggerThatFailsEndsNothing(t *testing.T) {
	at := func(r slog.Record) bool { return strings.HasPrefix(r.Message, "gate:") }
	simulate.UnkindLoggers(t, at, func(t *testing.T, logger *slog.Logger) {
		system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return logger }))
		term := newDeadlineTerm(lease.SystemClock(), time.Hour)
		defer term.end(nil)
		notes, got := 0, 0
		g, err := gate.New(gate.Options{Term: term, Divert: func(any) {}, Journal: func(string, lease.Token, time.Duration) {
			if notes++; notes == 2 {
				panic("a journal's bug")
			}
		}})
		require.NoError(t, err)
		pid := system.Root.Spawn(g.Props(actor.PropsFromFunc(func(ctx actor.Context) {
			switch ctx.Message().(type) {
			case num:
				got++
			case *actor.Stopped:
				panic("on the way out")
			}
		})))
		synctest.Wait()
		g.Post(num(1))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, got)
		system.Root.Stop(pid)
		select {
		case <-g.Done():
		case <-time.After(time.Minute):
			require.Fail(t, "the actor does not come to its end")
		}
	})
}
