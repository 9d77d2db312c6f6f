//go:build linux

package sqlite

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

func BenchmarkAcquire(b *testing.B) {
	for _, n := range []int{1, 10, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := openAt(b, file(b))
			sess := open(b, s, 1, owner("a"), time.Hour)
			tokens := make([]store.Token, n)
			claims := make([]store.Claim, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for j := range claims {
					claims[j] = store.Claim{Name: fmt.Sprintf("name/%d", j), Nonce: uint64(i), Supersedes: tokens[j]}
				}
				out, err := s.Acquire(context.Background(), sess, claims)
				if err != nil {
					b.Fatal(err)
				}
				for j := range out {
					tokens[j] = out[j].Record.Token
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/name")
		})
	}
}

func BenchmarkRelease(b *testing.B) {
	s := openAt(b, file(b))
	sess := open(b, s, 1, owner("a"), time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r := win(b, s, sess, "name")
		b.StartTimer()
		if _, err := s.Release(context.Background(), []store.Held{r.Held()}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenew(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := openAt(b, file(b))
			var sessions []store.Session
			for i := range n {
				sessions = append(sessions, open(b, s, store.SessionID(i+1), owner("a"), time.Hour))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Renew(context.Background(), sessions); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := openAt(b, file(b))
	win(b, s, open(b, s, 1, owner("a"), time.Hour), "name")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(context.Background(), "name"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommit is what the disk takes: one page, with and without waiting for it.
func BenchmarkCommit(b *testing.B) {
	for name, synced := range map[string]bool{"synced": true, "not": false} {
		b.Run(name, func(b *testing.B) {
			s := openAt(b, file(b))
			for b.Loop() {
				err := s.write(context.Background(), "bench", synced, func(t *tx) error {
					return t.exec("UPDATE holdfast_meta SET last = last + 1")
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdleWatch is the processor's time that a watch of a quiet file takes each second.
func BenchmarkIdleWatch(b *testing.B) {
	for _, every := range []time.Duration{time.Millisecond, 5 * time.Millisecond, DefaultPollInterval, 50 * time.Millisecond} {
		b.Run(every.String(), func(b *testing.B) {
			s := openAt(b, file(b), WithPollInterval(every))
			ctx, cancel := context.WithCancel(context.Background())
			synced, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for e := range s.Watch(ctx, store.Scope{}) {
					if e.Kind == store.EventSynced {
						close(synced)
					}
				}
			}()
			<-synced
			began, before := time.Now(), used(b)
			for b.Loop() {
				time.Sleep(100 * time.Millisecond)
			}
			b.ReportMetric(float64((used(b)-before).Microseconds())/time.Since(began).Seconds(), "cpu-µs/s")
			cancel()
			<-done
		})
	}
}

func used(tb testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNews is how long another process's change takes to be told.
func BenchmarkNews(b *testing.B) {
	path := file(b)
	mine, other := openAt(b, path), openAt(b, path)
	sess := open(b, other, 1, owner("a"), time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	told, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for range mine.Watch(ctx, store.Scope{}) {
			told <- struct{}{}
		}
	}()
	<-told
	for b.Loop() {
		b.StopTimer()
		r := win(b, other, sess, "name")
		<-told
		b.StartTimer()
		if _, err := other.Release(context.Background(), []store.Held{r.Held()}); err != nil {
			b.Fatal(err)
		}
		<-told
	}
	cancel()
	<-done
}
