//go:build linux

package nodes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatesGoToOneAccountAfterTheOther(t *testing.T) {
	at := func(at int, x entry) seen { x.at = time.Duration(at); return seen{entry: x} }
	left := at(1, entry{kind: leftState, target: 2, token: 5, seq: 1})
	got := at(2, entry{kind: gotState, target: 2, token: 7, seq: 5, sender: 1})
	other := at(2, entry{kind: gotState, target: 3, token: 7, seq: 5, sender: 1})
	again := at(3, entry{kind: gotState, target: 2, token: 9, seq: 5, sender: 1})
	back := at(2, entry{kind: gotState, target: 2, token: 5, seq: 5, sender: 1})
	for _, c := range []struct {
		what string
		es   []seen
		want int
	}{
		{"left and taken up", []seen{left, got}, 0},
		{"left and lost", []seen{left}, 0},
		{"taken up before it was left", []seen{got, left}, 1},
		{"another's", []seen{left, other}, 1},
		{"taken up twice", []seen{left, got, again}, 1},
		{"under the same token", []seen{left, back}, 1},
	} {
		j := &judgement{}
		j.states(evidence{entries: c.es})
		require.Len(t, j.violations, c.want, c.what)
	}
}
