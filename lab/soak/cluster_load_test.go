//go:build linux

package soak

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASenderKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sender{number: 101, rate: 1000, began: time.Now()}
		var got []parcel
		for range 500 {
			time.Sleep(pace)
			s.due(func(p parcel) { got = append(got, p) })
		}
		require.Len(t, got, 1000)
		for i, p := range got {
			require.Equal(t, uint64(i+1), p.Seq)
			require.Equal(t, uint32(101), p.Sender)
		}
		require.Equal(t, 1, nodeOf(101))
	})
}

func TestASenderThatWasHeldUpMakesUpForATenthOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sender{rate: 1000, began: time.Now()}
		n := 0
		count := func(parcel) { n++ }
		time.Sleep(time.Second)
		s.due(count)
		require.InDelta(t, 100, n, 1)
		time.Sleep(50 * time.Millisecond)
		s.due(count)
		require.InDelta(t, 150, n, 2, "and keeps its rate from then on")
	})
}

func TestParcelsTravel(t *testing.T) {
	p := parcel{Sender: 201, Seq: 1 << 40, Sent: 1<<62 + 1}
	b, err := parcelCodec{}.Marshal(&p)
	require.NoError(t, err)
	require.Len(t, b, 20)
	var q parcel
	require.NoError(t, parcelCodec{}.Unmarshal(b, &q))
	require.Equal(t, p, q)
	for _, bad := range [][]byte{nil, b[:19], append(b, 0)} {
		require.Error(t, parcelCodec{}.Unmarshal(bad, &q))
	}
}

func TestTheMemoryOfThisProcess(t *testing.T) {
	require.Greater(t, resident(), uint64(1<<20))
	require.Less(t, resident(), uint64(1<<40))
}
