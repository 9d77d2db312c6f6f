//go:build linux

package nodes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLedgerIsJudged(t *testing.T) {
	const a, b = uint32(1), uint32(2) // clients
	at := func(target, place int, p page) page { p.Name, p.Place = target, place; return p }
	job := func(target, place int, client uint32, seq uint64, amount, balance int64, done map[uint32]uint64) page {
		return at(target, place, page{Sender: client, Seq: seq, Amount: amount, Balance: balance, Done: done})
	}
	note := func(k kind, client uint32, target uint16, seq uint64) seen {
		return seen{entry: entry{kind: k, sender: client, target: target, seq: seq}}
	}
	// Client a moves 5 from account 0 to 1, then client b 2 from 1 to 0.
	sound := func() ([]page, []seen) {
		var es []seen
		for _, k := range []kind{booked, finished} {
			es = append(es, note(k, a, 0, 1), note(k, a, 1, 1), note(k, b, 1, 1), note(k, b, 0, 1))
		}
		return []page{job(1, 2, b, 1, -2, 3, map[uint32]uint64{a: 1, b: 1}), job(0, 1, a, 1, -5, -5, map[uint32]uint64{a: 1}),
			job(1, 1, a, 1, 5, 5, map[uint32]uint64{a: 1}), job(0, 2, b, 1, 2, -3, map[uint32]uint64{a: 1, b: 1})}, es
	}
	for name, c := range map[string]struct {
		broken func(ps []page, es []seen) ([]page, []seen)
		want   ledger
	}{
		"nothing": {func(ps []page, es []seen) ([]page, []seen) { return ps, es }, ledger{jobs: 4}},
		"a balance that does not follow": {func(ps []page, es []seen) ([]page, []seen) { ps[0].Balance = 4; return ps, es },
			ledger{jobs: 4, broken: 1, sums: 1}},
		"a job done twice": {func(ps []page, es []seen) ([]page, []seen) {
			return append(ps, job(0, 3, b, 1, 2, -1, nil)), es
		}, ledger{jobs: 4, twice: 1, sums: 2}},
		"half of a transfer": {func(ps []page, es []seen) ([]page, []seen) { return ps[1:], es }, ledger{jobs: 3, hollow: 1, sums: 2}},
		"no answer":          {func(ps []page, es []seen) ([]page, []seen) { return ps, es[:7] }, ledger{jobs: 4, unfinished: 1}},
		"a tick of an account": {func(ps []page, es []seen) ([]page, []seen) {
			return append(ps, at(0, 3, page{Tick: 1, Balance: -3})), es
		}, ledger{jobs: 4, ticks: 1}},
		"a tick too many": {func(ps []page, es []seen) ([]page, []seen) {
			return append(ps, at(0, 3, page{Tick: 2, Balance: -3})), es
		}, ledger{jobs: 4, ticks: 1, broken: 1}},
	} {
		ps, es := c.broken(sound())
		require.Equal(t, c.want, judgeLedger(ps, es, 2), name)
	}
	p, err := pageOf(writeText(7, 1, 2, 3) + ` {"Sender":1,"Seq":2,"Balance":-4,"Done":{"1":2}}`)
	require.NoError(t, err)
	require.Equal(t, page{Sender: 1, Seq: 2, Balance: -4, Done: map[uint32]uint64{1: 2}}, p)
	_, err = pageOf("nothing")
	require.Error(t, err)
}
