package etcd

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/store"
)

// TestHistories plays random histories of a cluster and one client of it: members lag,
// answers overtake each other, watches and keepalives tell of a member's own revision.
// None of it is an alarm. Then the history goes back, and the first linearizable answer
// to what is asked after that is one; the histories in which it goes on beyond all, by
// the same cluster or by another, heal.
func TestHistories(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var h history
		cluster, rev := uint64(7), int64(1+r.IntN(50))
		members := []int64{rev, rev, rev} // what each has applied
		type answer struct {
			m  mark
			hd *pb.ResponseHeader
		}
		var underWay []answer
		hear := func(i int) bool {
			return h.heard(h.mark().age, &pb.ResponseHeader{ClusterId: cluster, Revision: members[i]})
		}
		ask := func(id uint64, revision int64) error {
			m := h.mark()
			return h.answered(m, &pb.ResponseHeader{ClusterId: id, Revision: revision})
		}
		for range 40 {
			i := r.IntN(len(members))
			switch r.IntN(6) {
			case 0:
				rev += int64(r.IntN(4))
			case 1:
				members[i] += r.Int64N(rev - members[i] + 1)
			case 2: // a linearizable answer is made by a member that has caught up
				m := h.mark()
				members[i] = rev
				underWay = append(underWay, answer{m, &pb.ResponseHeader{ClusterId: cluster, Revision: rev}})
			case 3:
				if len(underWay) > 0 {
					j := r.IntN(len(underWay))
					require.NoError(t, h.answered(underWay[j].m, underWay[j].hd), "seed %d", seed)
					underWay = append(underWay[:j], underWay[j+1:]...)
				}
			case 4:
				hear(i)
			case 5: // a member that is behind what was probed answers for none of it
				require.NoError(t, ask(cluster, rev), "seed %d", seed)
				h.probe(rev)
				behind := members[i] < rev
				require.Equal(t, !behind, h.answers(&pb.ResponseHeader{ClusterId: cluster, Revision: members[i]}), "seed %d", seed)
			}
		}
		require.NoError(t, ask(cluster, rev), "seed %d", seed)

		next := cluster
		if r.IntN(2) == 0 {
			next++
		}
		if r.IntN(3) == 0 { // restored beyond all
			require.NoError(t, ask(next, rev+1000))
			for _, a := range underWay { // of before, and late
				require.NoError(t, h.answered(a.m, a.hd), "seed %d", seed)
			}
			if next != cluster { // and the one before is still there
				require.ErrorIs(t, ask(cluster, rev+2000), store.ErrSetback, "seed %d: two clusters answer", seed)
			}
			continue
		}
		back := r.Int64N(rev)
		if next == cluster {
			members[0] = back
			require.True(t, hear(0), "seed %d: a keepalive of a lower revision casts a doubt", seed)
		}
		require.ErrorIs(t, ask(next, back), store.ErrSetback, "seed %d: %d after %d", seed, back, rev)
		require.ErrorIs(t, ask(next, rev+1), store.ErrSetback, "seed %d: it is for mend to say that it is over", seed)
		require.ErrorIs(t, h.isLost(), store.ErrSetback)
	}
}
