//go:build linux

package cluster

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Handling is one message that was handled: number Seq of its Sender, sent and handled
// at a time of the machine's clock, by the host with a token.
type Handling struct {
	Sender   uint32
	Seq      uint64
	Token    uint64
	Sent, At time.Duration
}

// Mail is what became of numbered messages. Order is that of what one sender sent to
// one receiver: a sender that has several has a number for each.
type Mail struct {
	Sent, Handled int // messages; handled ones once
	Lost          int // sent and never handled
	Doubled       int // handled more than once
	Most          int // how often one was, at most
	Reordered     int // handled for the first time after a later one of its sender
	Unknown       int // handled, and never sent
	Took          []time.Duration
}

// JudgeMail judges what was handled, in any order, against the last number that each
// sender sent.
func JudgeMail(sent map[uint32]uint64, handled []Handling) (m Mail) {
	for _, n := range sent {
		m.Sent += int(n)
	}
	by := map[uint32][]Handling{}
	for _, h := range handled {
		if h.Seq == 0 || h.Seq > sent[h.Sender] {
			m.Unknown++
			continue
		}
		by[h.Sender] = append(by[h.Sender], h)
	}
	for _, hs := range by {
		m.judge(hs)
	}
	m.Lost = m.Sent - m.Handled
	return m
}

// judge takes what was handled of one sender's.
func (m *Mail) judge(hs []Handling) {
	slices.SortStableFunc(hs, func(a, b Handling) int { return cmp.Compare(a.At, b.At) })
	times := map[uint64]int{}
	highest := uint64(0)
	for _, h := range hs {
		times[h.Seq]++
		m.Most = max(m.Most, times[h.Seq])
		switch times[h.Seq] {
		case 1:
			m.Handled++
			m.Took = append(m.Took, h.At-h.Sent)
			if h.Seq < highest {
				m.Reordered++
			}
		case 2:
			m.Doubled++
		}
		highest = max(highest, h.Seq)
	}
}

// Percentile is the smallest sample that at least p percent of all do not exceed. No
// samples: the longest duration, which keeps no bound.
func Percentile(samples []time.Duration, p float64) time.Duration {
	if len(samples) == 0 {
		return math.MaxInt64
	}
	s := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p / 100 * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}
