package inquiry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/journal"
)

// A report fits into a message, however many partitions fail at a time.
func TestReportsFit(t *testing.T) {
	r := Report{Boot: "b", Partitions: []Type{{Type: "few", Own: make([]Shard, 4)}, {Type: "many"}}}
	for i := range 2000 {
		r.Last = uint64(i + 1)
		r.Events = append(r.Events, Event{Event: journal.Event{Number: r.Last}})
		r.Partitions[1].Own = append(r.Partitions[1].Own, Shard{N: i, Failures: 5, Error: strings.Repeat("x", 512)})
	}
	const limit = 256 << 10
	body, err := r.within(limit)
	require.NoError(t, err)
	require.LessOrEqual(t, len(body), limit)
	var got Report
	require.NoError(t, json.Unmarshal(body, &got))
	require.NotEmpty(t, got.Partitions[1].Own)
	require.NotEmpty(t, got.Events)
	require.Equal(t, got.Last, got.Events[len(got.Events)-1].Number, "the asker goes on from there")
}
