//go:build unix

package redis_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/store"
)

func BenchmarkAcquire(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b, server(b).Client(b), prefix())
			sess := session(b, s, "a", lasting)
			b.ReportAllocs()
			for b.Loop() {
				var claims []store.Claim
				var held []store.Held
				for i := range n {
					claims = append(claims, claim(fmt.Sprint("job/", i)))
				}
				for _, out := range ask(b, s, sess, claims...) {
					held = append(held, out.Record.Held())
				}
				b.StopTimer()
				must(s.Release(b.Context(), held))(b)
				b.StartTimer()
			}
		})
	}
}

func BenchmarkRelease(b *testing.B) {
	s := open(b, server(b).Client(b), prefix())
	sess := session(b, s, "a", lasting)
	for b.Loop() {
		b.StopTimer()
		r := win(b, s, sess, "job")
		b.StartTimer()
		must(s.Release(b.Context(), []store.Held{r.Held()}))(b)
	}
}

func BenchmarkRenew(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := open(b, server(b).Client(b), prefix())
			var sessions []store.Session
			for range n {
				sessions = append(sessions, session(b, s, "a", lasting))
			}
			b.ReportAllocs()
			for b.Loop() {
				must(s.Renew(b.Context(), sessions))(b)
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := open(b, server(b).Client(b), prefix())
	win(b, s, session(b, s, "a", lasting), "job")
	b.ReportAllocs()
	for b.Loop() {
		must(s.Get(b.Context(), "job"))(b)
	}
}

// filled is a Store with many records of one session.
func filled(b *testing.B, n int) (*redis.Store, store.Session) {
	s := open(b, server(b).Client(b), prefix())
	sess := session(b, s, "a", lasting)
	for i := range n / 100 {
		var claims []store.Claim
		for k := range 100 {
			claims = append(claims, claim(fmt.Sprintf("job/%d", 100*i+k)))
		}
		ask(b, s, sess, claims...)
	}
	return s, sess
}

func BenchmarkList(b *testing.B) {
	s, sess := filled(b, 100_000)
	for what, q := range map[string]store.Query{"prefix": {Prefix: "job/"}, "session": {Session: sess.ID}} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				n := 0
				for _, err := range s.List(b.Context(), q) {
					require.NoError(b, err)
					n++
				}
				require.Equal(b, 100_000, n)
			}
		})
	}
}

func BenchmarkBeginAWatch(b *testing.B) {
	s, _ := filled(b, 100_000)
	for b.Loop() {
		for e, err := range s.Watch(b.Context(), store.Scope{}) {
			require.NoError(b, err)
			if e.Kind == store.EventSynced {
				break
			}
		}
	}
}
