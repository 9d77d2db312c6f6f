package sharding

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultclock"
)

// Whatever stands in the records of a type, what is made of them does not panic and
// keeps within its bounds: a number of shards is one that can be, tokens of a shard
// never go back, and only nodes whose record has their name take part.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 5, 1, 1, 2, 6, 0, 2, 3, 4, 0}, "shard/g/t/1", "n", "n-1", "4", "1")
	f.Add([]byte{0, 0, 5, 0, 0, 0, 3, 0, 0, 64, 0, 0}, "shard/g/t/01", "", "", "65537", "")
	f.Add([]byte{1, 0, 9, 0, 1, 64, 9, 0}, "region/g/t/n/n-1", "n", "n-1", "-4", "x")
	f.Fuzz(func(t *testing.T, script []byte, name, id, incarnation, count, hosts string) {
		n, err := namesOf("g", "t")
		require.NoError(t, err)
		r := &Region{typ: Type{Name: "t", Shards: 4}, names: n, log: zap.NewNop(), clock: faultclock.New(),
			self: &wire.Node{Incarnation: "self"}, shards: make([]shard, 4)}
		r.over.Store(true) // there is no control loop to tell
		for i := range r.shards {
			r.shards[i].name = n.shard(i)
		}
		r.table = newTable(r)
		owner := lease.Owner{ID: id, Incarnation: incarnation}
		for len(script) >= 4 {
			what, kind, token, shard := script[0], script[1], lease.Token(script[2]), script[3]
			script = script[4:]
			rec := lease.Record{Name: name, Owner: owner, Token: token, Metadata: map[string]string{keyShards: count,
				keyHosts: hosts}}
			if what&0x80 != 0 {
				rec.Metadata = metadata(4, true)
			}
			if got, err := countOf(rec); err == nil {
				require.True(t, got >= 1 && got <= MaxShards)
			} else {
				require.ErrorIs(t, err, lease.ErrBadRecord)
			}
			ev := lease.Event{Kind: lease.EventKind(kind % 5), Revision: token}
			before := r.table.all()
			switch what & 0x7f % 4 {
			case 0:
				if shard&1 != 0 {
					rec.Name = n.shard(int(shard>>1) % 5)
				}
				ev.Record = rec
				r.table.onShard(ev)
			case 1:
				if own, err := n.region(owner); err == nil && shard&1 != 0 {
					rec.Name = own
				}
				ev.Record = rec
				r.table.onRegion(ev)
			default:
				if shard&1 != 0 {
					rec.Name = n.coordinator
				}
				ev.Record = rec
				r.table.onBoss(ev)
			}
			for i, st := range r.table.all() {
				require.GreaterOrEqual(t, st.last, before[i].last)
				require.True(t, !st.held || st.rec.Name == n.shard(i))
			}
			_, _ = r.table.bossOf()
			for _, g := range r.table.participants(false) {
				own, err := n.region(g.owner)
				require.NoError(t, err)
				require.NotEmpty(t, own)
			}
		}
		for i := range 4 { // shards' names are read as they are written, and no others
			back, ok := n.number(n.shard(i), 4)
			require.True(t, ok)
			require.Equal(t, i, back)
		}
		if i, ok := n.number(name, 4); ok {
			require.Equal(t, n.shard(i), name)
		}
	})
}

// Whatever another node answers to an inquiry, it is taken up once, and what was
// taken up can be written again.
func FuzzAccount(f *testing.F) {
	good, err := json.Marshal(Info{Node: "n", Nodes: []NodeInfo{{ID: "n"}}, Recent: []Move{{What: HandedOff, Reason: "r"}}})
	require.NoError(f, err)
	for _, s := range []string{string(good), "", "null", `{"Recent":[{"What":"nothing","At":"x"}]}`, `{"Held":1e99}`,
		`[]`, `{"Table":[{"Phase":"\ud800"}]}`} {
		f.Add(uint64(1), []byte(s))
	}
	f.Add(uint64(2), good)
	f.Fuzz(func(t *testing.T, number uint64, body []byte) {
		c := &controller{Region: &Region{names: names{key: "g/t"}, log: zap.NewNop()}}
		answers := make(chan Info, 1)
		c.asking.Store(uint64(1), inquiry{"n:1", answers})
		for range 2 {
			c.onAccount(&wire.Account{Type: "g/t", Number: number, From: &wire.Node{Address: "n:1"}, Json: body})
		}
		select {
		case in := <-answers:
			require.Equal(t, uint64(1), number)
			b, err := json.Marshal(in)
			require.NoError(t, err)
			var again Info
			require.NoError(t, json.Unmarshal(b, &again))
			b2, err := json.Marshal(again)
			require.NoError(t, err)
			require.JSONEq(t, string(b), string(b2))
		default:
			require.True(t, number != 1 || json.Unmarshal(body, new(Info)) != nil)
		}
	})
}
