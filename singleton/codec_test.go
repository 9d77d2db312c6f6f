package singleton_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

// slowWriter and slowReader are messages whose codecs take their time.
type (
	slowWriter struct{ Number int }
	slowReader struct{ Number int }
)

const codecTakes = 10 * time.Second

func (m slowWriter) MarshalJSON() ([]byte, error) {
	time.Sleep(codecTakes)
	return json.Marshal(m.Number)
}

var slowlyRead atomic.Int32

func (m *slowReader) UnmarshalJSON(data []byte) error {
	slowlyRead.Add(1)
	time.Sleep(codecTakes)
	return json.Unmarshal(data, &m.Number)
}

// A codec that takes its time to read holds up the link that the message came over for a
// second, once, and its message is undeliverable.
func TestACodecThatReadsSlowly(t *testing.T) {
	require.NoError(t, remoting.Register[slowReader]("test.slowReader"))
	bubble(t, func(t *testing.T, c *cluster) {
		slowlyRead.Store(0)
		a, p := c.node("a"), c.node("p")
		ma := a.run("x")
		until(t, time.Second, "hosts", active(ma))
		mp := p.run("x", singleton.WithProxyOnly())
		p.mustAsk(mp.PID(), 1)
		time.Sleep(time.Second) // its door is open
		began := time.Now()
		for i := range 5 {
			p.system.Root.Send(mp.PID(), slowReader{i})
		}
		_, err := singleton.Ask[done](t.Context(), mp, wrapperspb.String("2 p"))
		require.NoError(t, err)
		require.Less(t, time.Since(began), 1100*time.Millisecond)
		require.EqualValues(t, 1, slowlyRead.Load(), "while one has not returned no other is begun")
		require.Equal(t, 5, ma.Status().Undeliverable)
		time.Sleep(codecTakes)
	})
}

// Nor does one that is to write hold up the manager, and what waits behind its message.
func TestACodecThatWritesSlowly(t *testing.T) {
	require.NoError(t, remoting.Register[slowWriter]("test.slowWriter"))
	bubble(t, func(t *testing.T, c *cluster) {
		a, p := c.node("a"), c.node("p")
		mp := p.run("x", singleton.WithProxyOnly())
		for i := range 5 {
			p.system.Root.Send(mp.PID(), slowWriter{i})
		}
		answered := make(chan error, 1)
		go func() {
			_, err := singleton.Ask[done](t.Context(), mp, wrapperspb.String("2 p"))
			answered <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		a.run("x")
		require.NoError(t, <-answered)
		require.Less(t, time.Since(began), 3*time.Second)
		require.Equal(t, 5, mp.Status().Undeliverable)
		time.Sleep(codecTakes)
	})
}
