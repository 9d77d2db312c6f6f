package gate_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/wire"
)

type (
	stranger struct{ N int }
	outsider struct{ N int }
	friend   struct{ N int }
)

var run int

// A message that reaches its actor because that is on the sender's node is warned of once
// for each type, with what cures it; on a node that no other can reach it is not.
func TestMailThatCanNotTravelIsWarnedOf(t *testing.T) {
	require.NoError(t, wire.Register[friend](wire.Default, "gate.friend", nil))
	run++ // once in a process: so they are other types in each run of the test
	strangers, outsiders := reflect.ArrayOf(run, reflect.TypeFor[stranger]()), reflect.ArrayOf(run, reflect.TypeFor[outsider]())
	named := func(of string) string { return fmt.Sprintf("[%d]gate_test.%s", run, of) }
	for _, address := range []string{"a:1", "nonhost"} {
		perform(t, func(s *stage) {
			var text bytes.Buffer
			s.system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
				return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
			}))
			s.system.ProcessRegistry.Address = address
			s.spawn()
			for range 2 {
				for _, m := range []any{
					reflect.Zero(strangers).Interface(), reflect.Zero(strangers).Interface(), reflect.New(outsiders).Interface(),
					friend{}, &friend{}, wrapperspb.Int64(1),
				} {
					s.post(m)
					s.post(&actor.MessageEnvelope{Message: m})
				}
			}
			s.send(num(1)) // it did not come by the front door
			synctest.Wait()
			if address == "nonhost" {
				require.Empty(t, text.String())
				return
			}
			lines := strings.Split(strings.TrimSpace(text.String()), "\n")
			require.Len(t, lines, 2, text.String())
			require.Contains(t, lines[0], fmt.Sprintf(`on node a:1: %[1]s is not registered: give it to node.Types, or call remoting.Register[%[1]s](`, named("stranger")))
			require.Contains(t, lines[1], fmt.Sprintf(`call remoting.Register[%s](`, named("outsider")))
		})
	}
}
