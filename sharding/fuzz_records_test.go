package sharding

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// Whatever another node answers to an inquiry, it is taken up once, and what was
// taken up can be written again.
func FuzzAccount(f *testing.F) {
	good, err := json.Marshal(Info{Node: "n", Nodes: []NodeInfo{{ID: "n"}}})
	require.NoError(f, err)
	for _, s := range []string{string(good), "", "null", `{"Nodes":[{"ID":1}]}`, `{"Held":1e99}`,
		`[]`, `{"Table":[{"Phase":"\ud800"}]}`} {
		f.Add(uint64(1), []byte(s))
	}
	f.Add(uint64(2), good)
	f.Fuzz(func(t *testing.T, number uint64, body []byte) {
		c := &census{node: &node{names: directory.Names{Key: "g/t"}, log: zap.NewNop()}}
		answers := make(chan Info, 1)
		c.asking.Store(uint64(1), statusRequest{"n:1", answers})
		for range 2 {
			c.answered(&wire.Account{Type: "g/t", Number: number, From: &wire.Node{Address: "n:1"}, Json: body})
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
