//go:build linux

package soak

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

func TestLettersArriveAsTheyWereSent(t *testing.T) {
	want := letter{Sender: 1 << 30, Seq: 1 << 40, Sent: 1 << 50, Fill: 80}
	data, err := letterCodec{}.Marshal(&want)
	require.NoError(t, err)
	require.Len(t, data, 100)
	var got letter
	require.NoError(t, letterCodec{}.Unmarshal(data, &got))
	require.Equal(t, want, got)
	require.ErrorContains(t, letterCodec{}.Unmarshal(data[:19], &got), "19 bytes")
}

func TestSendersHaveNumbersOfTheirOwn(t *testing.T) {
	seen := map[uint32]bool{}
	for i := range 3 {
		s := mailSettings{Index: i, Shards: 4, Each: 2}
		for number := range tellersPerNode {
			for target := range s.targets() {
				n := s.teller(number, target)
				require.False(t, seen[n])
				require.Less(t, n, uint32(firstAsk))
				seen[n] = true
			}
		}
	}
	require.Equal(t, 1, mailSettings{Singleton: true, Shards: 9, Each: 9}.targets())
}

func TestWhatTheProductCountsIsFoundByName(t *testing.T) {
	got := map[string]int64{}
	counters("", sharding.Info{Dropped: 2, Undeliverable: 3, Relayed: 5}, got)
	counters("", singleton.Status{Dropped: 7, Buffered: 11}, got)
	counters("remoting.", remoting.Stats{TooLarge: 13}, got)
	counters("", struct{ InFlightLost int }{17}, got)
	require.Equal(t, map[string]int64{"Dropped": 9, "Undeliverable": 3, "InFlightLost": 17}, got)
	got["remoting.Dropped"], got["order not kept"] = 100, 100
	require.EqualValues(t, 29, givenUp(got))
	require.Equal(t, "Dropped 9, InFlightLost 17", countedText(map[string]int64{"Dropped": 9, "InFlightLost": 17, "Undeliverable": 0}))
}

func TestColdStartsAreHeldToWhatWasTold(t *testing.T) {
	at := func(k entryKind, entity uint64, at time.Duration) entry { return entry{at: at, kind: k, seq: entity} }
	for _, c := range []struct {
		what       string
		es         []entry
		want, made string
	}{
		{"all had their state", []entry{at(startsCold, 1, 1), at(startsWarm, 1, 11)}, "told: 0", "state: 0"},
		{"one was told of", []entry{at(startsCold, 1, 11), at(wentCold, 1, 10)}, "told: 0", "state: 0"},
		{"both nodes told of it", []entry{at(startsCold, 1, 11), at(wentCold, 1, 10), at(wentCold, 1, 12)}, "told: 0", "state: 0"},
		{"one was not", []entry{at(startsCold, 1, 11), at(wentCold, 1, 10), at(startsCold, 2, 11)}, "told: 1", "state: 0"},
		{"some were told of by number", []entry{at(startsCold, 1, 11), at(startsCold, 2, 11), at(startsCold, 3, 11), at(manyCold, 2, 12)}, "told: 1", "state: 0"},
		{"it had its state", []entry{at(startsWarm, 1, 11), at(wentCold, 1, 10)}, "told: 0", "state: 1"},
	} {
		var out bytes.Buffer
		judgeCold(&report{out: &out}, "", 10, c.es)
		require.Contains(t, out.String(), "states lost that no event "+c.want, c.what)
		require.Contains(t, out.String(), "had their "+c.made, c.what)
	}
}

func TestAWindowCountsWhatWasSentInIt(t *testing.T) {
	w := window{span{10, 20}, 300}
	es := []entry{
		{kind: handled, sent: 9, at: 12}, {kind: handled, sent: 10, at: 11}, {kind: handled, sent: 19, at: 30}, {kind: handled, sent: 20, at: 30},
		{kind: answered, sent: 12, at: 15}, {kind: askFailed, sent: 13, at: 18}, {kind: answered, sent: 25, at: 26},
	}
	require.InDelta(t, 150, w.perMessage(es), 0.001)
	require.Equal(t, []time.Duration{3, 5}, w.asks(es))
	require.Zero(t, window{span{90, 99}, 300}.perMessage(es))
}

func TestBadFlagsOfChecksOfMail(t *testing.T) {
	for _, c := range []struct {
		check check
		args  []string
		want  string
	}{
		{congestion, []string{"-for", "1s"}, "-for must be"},
		{congestion, []string{"-part", "3"}, "-part 0 to 2"},
		{backlog, []string{"-n", "0"}, "must be 1 to"},
		{backlog, []string{"-sizes", "many"}, "-sizes"},
		{backlog, []string{"-what", "else"}, "-what must be"},
		{slowLink, []string{"-entities", "1"}, "-entities must be"},
		{slowLink, []string{"-only", "else"}, "-only open"},
		{singletonLoad, []string{"-for", "1s"}, "-for must be"},
		{singletonLoad, []string{"-for", "1h"}, "at most"},
	} {
		require.ErrorContains(t, c.check(context.Background(), c.args, &report{out: &bytes.Buffer{}}), c.want)
	}
}
