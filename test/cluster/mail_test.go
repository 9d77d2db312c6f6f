//go:build linux

package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMailIsJudgedByNumbers(t *testing.T) {
	h := func(sender uint32, seq uint64, at int) Handling {
		return Handling{Sender: sender, Seq: seq, Sent: time.Duration(at - 1), At: time.Duration(at)}
	}
	for _, c := range []struct {
		what    string
		sent    map[uint32]uint64
		handled []Handling
		want    Mail
	}{
		{"all in order", map[uint32]uint64{1: 2, 2: 1}, []Handling{h(1, 1, 1), h(2, 1, 2), h(1, 2, 3)}, Mail{Sent: 3, Handled: 3, Most: 1}},
		{"the journal's order does not matter", map[uint32]uint64{1: 2}, []Handling{h(1, 2, 3), h(1, 1, 1)}, Mail{Sent: 2, Handled: 2, Most: 1}},
		{"one is lost", map[uint32]uint64{1: 3}, []Handling{h(1, 1, 1), h(1, 3, 2)}, Mail{Sent: 3, Handled: 2, Lost: 1, Most: 1}},
		{"one comes three times", map[uint32]uint64{1: 1}, []Handling{h(1, 1, 1), h(1, 1, 2), h(1, 1, 3)},
			Mail{Sent: 1, Handled: 1, Doubled: 1, Most: 3}},
		{"one is overtaken by two", map[uint32]uint64{1: 3}, []Handling{h(1, 2, 1), h(1, 3, 2), h(1, 1, 3)},
			Mail{Sent: 3, Handled: 3, Reordered: 1, Most: 1}},
		{"a second time is not out of order", map[uint32]uint64{1: 2}, []Handling{h(1, 1, 1), h(1, 2, 2), h(1, 1, 3)},
			Mail{Sent: 2, Handled: 2, Doubled: 1, Most: 2}},
		{"nobody sent it", map[uint32]uint64{1: 1}, []Handling{h(1, 2, 1), h(2, 1, 1)}, Mail{Sent: 1, Lost: 1, Unknown: 2}},
	} {
		got := JudgeMail(c.sent, c.handled)
		require.Len(t, got.Took, got.Handled, c.what)
		got.Took = nil
		require.Equal(t, c.want, got, c.what)
	}
}

func TestPercentiles(t *testing.T) {
	require.Equal(t, time.Duration(2), Percentile([]time.Duration{3, 1, 2, 4}, 50))
	require.Equal(t, time.Duration(4), Percentile([]time.Duration{3, 1, 2, 4}, 99))
	require.Greater(t, Percentile(nil, 50), 1000*time.Hour)
}
