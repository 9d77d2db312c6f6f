//go:build linux

package soak

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// got is a message that node had at so many milliseconds, 1 ms after it was sent.
func got(at float64, node int, token uint64, sender uint32, seq uint64) seen {
	return seen{entry{at: ms(at), sent: ms(at - 1), kind: handled, token: token, sender: sender, seq: seq}, node}
}

// A change of hosts without a fault: two senders, on nodes 0 and 1.
func flawless() []seen {
	return []seen{
		got(1, 0, 7, 0, 1), got(2, 0, 7, 100, 1), got(3, 0, 7, 0, 2), got(4, 0, 7, 100, 2),
		got(14, 1, 9, 100, 3), got(15, 1, 9, 0, 3), got(16, 1, 9, 100, 4),
	}
}

var flawlessSent = map[uint32]uint64{0: 3, 100: 4}

func TestWhatIsOfAKindIsInTheOrderOfTime(t *testing.T) {
	es := flawless()
	es[0].kind = passed
	slices.Reverse(es)
	require.Equal(t, flawless()[1:], only(es, handled))
}

func TestDelivery(t *testing.T) {
	require.Equal(t, delivery{sent: 7, handled: 7}, judgeDelivery(flawless(), flawlessSent))
	for name, c := range map[string]struct {
		flaw func([]seen) []seen
		want delivery
	}{
		"a message lost": {
			func(es []seen) []seen { return slices.Delete(es, 2, 3) },
			delivery{sent: 7, handled: 6, lost: 1, firstLost: "sender 0: 2"},
		},
		"the last one lost": {
			func(es []seen) []seen { return es[:6] },
			delivery{sent: 7, handled: 6, lost: 1, firstLost: "sender 100: 4"},
		},
		"one doubled, at once": {
			func(es []seen) []seen { return slices.Insert(es, 3, got(3.5, 0, 7, 0, 2)) },
			delivery{sent: 7, handled: 8, doubled: 1},
		},
		"one doubled, at the next host": {
			func(es []seen) []seen { return append(es, got(17, 1, 9, 0, 2)) },
			delivery{sent: 7, handled: 8, doubled: 1},
		},
		"two reordered": {
			func(es []seen) []seen { es[4].seq, es[6].seq = 4, 3; return es },
			delivery{sent: 7, handled: 7, reordered: 1, firstReordered: "sender 100: 3 after 4"},
		},
		"one that came after all others of its sender": {
			func(es []seen) []seen { return append(es[1:], got(17, 1, 9, 0, 1)) },
			delivery{sent: 7, handled: 7, reordered: 1, firstReordered: "sender 0: 1 after 3"},
		},
		"one of another sender": {
			func(es []seen) []seen { return append(es, got(17, 1, 9, 1, 1)) },
			delivery{sent: 7, handled: 7, foreign: 1},
		},
		"one that was not sent yet": {
			func(es []seen) []seen { return append(es, got(17, 1, 9, 0, 4)) },
			delivery{sent: 7, handled: 7, foreign: 1},
		},
		"one without a number": {
			func(es []seen) []seen { return append(es, got(17, 1, 9, 0, 0)) },
			delivery{sent: 7, handled: 7, foreign: 1},
		},
		"nothing came": {
			func([]seen) []seen { return nil },
			delivery{sent: 7, lost: 7, firstLost: "sender 0: 1"},
		},
	} {
		require.Equal(t, c.want, judgeDelivery(c.flaw(flawless()), flawlessSent), name)
	}
}

func TestOrderIsPerSender(t *testing.T) {
	es := []seen{got(1, 0, 7, 100, 1), got(2, 0, 7, 100, 2), got(3, 0, 7, 0, 1)}
	require.Equal(t, delivery{sent: 3, handled: 3}, judgeDelivery(es, map[uint32]uint64{0: 1, 100: 2}))
}

func TestTwoHostsAtOnceAreFound(t *testing.T) {
	require.Zero(t, overlaps(flawless()))
	for name, c := range map[string]struct {
		more []seen
		n    int
	}{
		"the old host goes on":               {[]seen{got(15.5, 0, 7, 0, 9)}, 1},
		"at the very time of the new one":    {[]seen{got(14, 0, 7, 0, 9)}, 1},
		"the new host begins early":          {[]seen{got(2.5, 1, 9, 0, 9)}, 2},
		"two hosts under one token":          {[]seen{got(15.5, 2, 9, 0, 9)}, 1},
		"no token":                           {[]seen{got(0.5, 0, 0, 0, 9)}, 1},
		"a token of before comes back":       {[]seen{got(17, 2, 8, 0, 9)}, 1},
		"one host after the next but one":    {[]seen{got(20, 2, 11, 0, 9), got(21, 0, 7, 0, 10)}, 1},
		"two hosts after it, one early":      {[]seen{got(10, 2, 11, 0, 9), got(12, 0, 7, 0, 10)}, 4},
		"a token that has no message":        {nil, 0},
		"another host, later, higher, alone": {[]seen{got(17, 0, 10, 0, 9)}, 0},
	} {
		require.Equal(t, c.n, overlaps(append(flawless(), c.more...)), name)
	}
	require.Zero(t, overlaps(nil))
}

func TestSingletonsOverlapOnlyWithThemselves(t *testing.T) {
	a, b := got(1, 0, 7, 0, 1), got(2, 1, 5, 0, 1)
	require.Equal(t, 1, overlaps([]seen{a, b}))
	b.name = 1
	require.Zero(t, overlaps([]seen{a, b}))
}

func TestGapsOfAChange(t *testing.T) {
	g := judgeGaps(flawless(), []change{{at: ms(3.5), to: 1}}, ms(16.5))
	one := ms(1)
	require.Equal(t, gaps{host: []time.Duration{ms(10)}, silence: g.silence, worst: []time.Duration{one},
		calm: []time.Duration{one, one, one, one}}, g)
	require.ElementsMatch(t, []time.Duration{ms(12), ms(10)}, g.silence, "of senders on node 0 and node 1")
}

func TestAChangeThatNoMessageShows(t *testing.T) {
	es := flawless()
	for name, cs := range map[string][]change{
		"it never moved":     {{at: ms(0.5), to: 2}},
		"it was there":       {{at: ms(14.5), to: 1}},
		"nothing came again": {{at: ms(17), to: 1}},
	} {
		g := judgeGaps(es, cs, ms(20))
		require.Equal(t, 1, g.missing, name)
		require.Empty(t, g.host, name)
		require.NotEmpty(t, g.silence, name)
	}
	g := judgeGaps(es, []change{{at: ms(3.5), to: 1}, {at: ms(15.5), to: 0}}, ms(20))
	require.Equal(t, 1, g.missing)
	require.Equal(t, []time.Duration{ms(10)}, g.host)
}

func TestASilenceThatHasNotEndedCounts(t *testing.T) {
	es := append(flawless(), got(30, 1, 9, 100, 5))
	g := judgeGaps(es, []change{{at: ms(3.5), to: 1}}, ms(40))
	require.ElementsMatch(t, []time.Duration{ms(25), ms(14)}, g.silence, "node 0 was last heard at 15 ms")
}

func TestTheLongestWayIsOfWhatWasSentFromTheOrderOn(t *testing.T) {
	es := flawless()
	es[3].sent = ms(0)  // before the order: 4 ms
	es[4].sent = ms(5)  // 9 ms
	es[5].sent = ms(3)  // before the order, too: 12 ms
	es[6].sent = ms(12) // 4 ms
	after := got(500, 1, 9, 0, 5)
	after.sent = ms(300)
	g := judgeGaps(append(es, after), []change{{at: ms(3.5), to: 1}}, ms(300))
	require.Equal(t, []time.Duration{ms(9)}, g.worst)
	require.Equal(t, []time.Duration{ms(1), ms(1), ms(1), ms(4), ms(12)}, g.calm)
	g = judgeGaps(es, []change{{at: ms(3.5), to: 1}, {at: ms(11), to: 1}}, ms(300))
	require.Equal(t, []time.Duration{ms(9), ms(4)}, g.worst, "of each change")
}
