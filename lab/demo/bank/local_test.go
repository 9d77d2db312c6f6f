//go:build linux

package bank

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
)

func TestWhatEtcdAppliedIsTakenFromEtcdAlone(t *testing.T) {
	a, b := writer{"a", "account-0", "shard/0", 9}, writer{"b", "account-0", "shard/0", 13}
	applied := []stage.Placed[entry]{
		{Revision: 10, Entry: entry{writer: a, At: 1 * ms, Kind: opened, Outcome: stage.Written}},
		{Revision: 11, Entry: entry{writer: a, At: 2 * ms, Kind: noted, Number: 1, Outcome: stage.Written}}, // of which a was killed before it could tell
		{Revision: 14, Entry: entry{writer: b, At: 8 * ms, Kind: opened, Outcome: stage.Written}},
	}
	late := entry{writer: a, At: 9 * ms, Kind: noted, Number: 2, Outcome: stage.Refused}
	again := entry{writer: b, At: 9 * ms, Kind: posted, ID: "1-out", Outcome: stage.Repeated}
	entries, passes := merge(applied, map[string][]report{
		"a": {
			{At: 1 * ms, What: didPass, Shard: "shard/0", Token: 9},
			{At: 1 * ms, What: didWrite, Entry: &applied[0].Entry, Revision: 10},
			{At: 9 * ms, What: didWrite, Entry: &late, Revision: 14},
		},
		"b": {{At: 9 * ms, What: didWrite, Entry: &again, Revision: 14}},
	})
	require.Equal(t, []pass{{"a", "shard/0", 9, 1 * ms}}, passes)
	require.Equal(t, []entry{applied[0].Entry, applied[1].Entry, applied[2].Entry, again, late}, entries)
}

func TestReportsTravelAsLinesOfJSON(t *testing.T) {
	var out bytes.Buffer
	tell := stage.JSONReports[report](&out, func(err error) { t.Error(err) })
	tell(report{At: 5, What: didWrite, Revision: 9, Entry: &entry{writer: writer{"a", "account-0", "shard/0", 7}, At: 4, Kind: noted, Number: 3, Outcome: stage.Repeated}})
	tell(report{At: 6, What: didPass, Shard: "shard/0", Token: 7})
	require.Equal(t, `{"at":5,"what":"write","entry":{"Node":"a","Account":"account-0","Shard":"shard/0","Token":7,"At":4,"Kind":"memo","Number":3,"Outcome":"repeated"},"revision":9}
{"at":6,"what":"pass","shard":"shard/0","token":7}
`, out.String())
}
