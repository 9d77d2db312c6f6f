package hostile_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
)

// Bounds of what may be left when all is over.
const (
	// The node keeps a link to itself by its other name, to which it was made to send;
	// that and what is left of others comes to some 15 goroutines. An attack that left
	// one for each peer, name or connection would leave hundreds.
	moreGoroutines = 30
	// What waits for the shards that nobody hosts and for owners who are not known is
	// bounded by number: 16 shards and the singleton keep up to 100 messages each, and
	// 256 markers, of 100 KB if one of their names is huge, which is one in 50: 2 of
	// some names in each, 20 MB. Buffers of gRPC come to that.
	moreHeap = 48 << 20
)

func (s *siege) judge(t *testing.T) {
	var r report
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		s.node.ask("report", &r)
		if r.Goroutines <= s.before.Goroutines+moreGoroutines && r.Heap <= s.before.Heap+moreHeap || time.Now().After(end) {
			break
		}
	}
	var a tally
	s.asker.ask("stop", &a)
	s.node.ask("report", &r)
	t.Logf("goroutines %d, then %d; heap %d KB, then %d KB; dead letters %d; %+v", s.before.Goroutines, r.Goroutines, s.before.Heap>>10, r.Heap>>10, r.DeadLetters, r.Stats)
	t.Logf("asked %d, answered %d, longest %v; entities %d, waiting %d and %d, undeliverable %d and %d; dropped %d and %d", a.Asked, a.Answered, a.Longest,
		r.Hosted.Entities, r.Hosted.Waiting, r.Free.Waiting, r.Hosted.Undeliverable, r.Free.Undeliverable, r.Hosted.Dropped, r.Free.Dropped)
	t.Logf("%+v", r.Boss)

	require.Equal(t, s.attacker.node.Pid, r.Pid)
	require.LessOrEqual(t, r.Goroutines, s.before.Goroutines+moreGoroutines)
	require.LessOrEqual(t, r.Heap, s.before.Heap+moreHeap)

	require.Equal(t, a.Asked, a.Answered, "every ask was answered")
	if a.Disorder > 0 || r.Disorder > 0 || r.Twice > 0 {
		tier.Unsafe(t, "%d answers and %d asks out of order, %d actors ran twice", a.Disorder, r.Disorder, r.Twice)
	}
	require.Zero(t, a.Lost, "over one link")
	require.Zero(t, r.LostLinks[a.Address])

	require.Zero(t, r.Errors, "nothing panicked")
	require.Equal(t, shards, r.Hosted.Held)
	require.Equal(t, s.before.Boss.Token, r.Boss.Token)
	require.Equal(t, 1, r.Boss.Lives)

	// What the node itself sent to another of its names came in there, and was refused;
	// and so was what it was to answer at addresses that can't be one.
	require.GreaterOrEqual(t, r.Stats.Misaddressed, s.want.Stats.Misaddressed)
	require.GreaterOrEqual(t, r.Stats.Unsendable, s.want.Stats.Unsendable)
	s.want.Stats.Misaddressed, s.want.Stats.Unsendable = r.Stats.Misaddressed, r.Stats.Unsendable
	require.Equal(t, s.want.Stats, r.Stats)
	require.GreaterOrEqual(t, r.Hosted.Undeliverable, s.want.Hosted.Undeliverable)
	require.GreaterOrEqual(t, r.Boss.Undeliverable, s.want.Boss.Undeliverable)
	require.GreaterOrEqual(t, r.DeadLetters, s.letters)
	require.GreaterOrEqual(t, r.Free.Dropped, s.want.Free.Dropped)
	require.LessOrEqual(t, r.Free.Waiting, shards*(perShard+256))
	require.LessOrEqual(t, r.Boss.Buffered, perShard+256)
}
