//go:build linux

package scheduler

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

func TestWhatEtcdAppliedIsTakenFromEtcdAlone(t *testing.T) {
	applied := []stage.Placed[entry]{
		{Revision: 10, Entry: entry{"a", 9, 1 * ms, began, 0, stage.Written}},
		{Revision: 11, Entry: entry{"a", 9, 2 * ms, worked, 1, stage.Written}}, // of which a was killed before it could tell
		{Revision: 14, Entry: entry{"b", 13, 8 * ms, began, 0, stage.Written}},
	}
	entries, passes := merge(applied, map[string][]report{
		"a": {
			{At: 1 * ms, What: didPass, Token: 9},
			{At: 1 * ms, What: didWrite, Token: 9, Kind: began, Outcome: stage.Written, Revision: 10},
			{At: 9 * ms, What: didWrite, Token: 9, Kind: worked, Number: 2, Outcome: stage.Refused, Revision: 14},
			{At: 9 * ms, What: didLose, Token: 9},
		},
		"b": {{At: 9 * ms, What: didWrite, Token: 13, Kind: worked, Number: 1, Outcome: stage.Repeated, Revision: 14}},
	})
	require.Equal(t, []pass{{"a", 9, 1 * ms}}, passes)
	require.Equal(t, []entry{
		applied[0].Entry, applied[1].Entry, applied[2].Entry,
		{"b", 13, 9 * ms, worked, 1, stage.Repeated},
		{"a", 9, 9 * ms, worked, 2, stage.Refused},
	}, entries)
}

func TestReportsTravelAsLinesOfJSON(t *testing.T) {
	var out bytes.Buffer
	tell := stage.JSONReports[report](&out, func(err error) { t.Error(err) })
	tell(report{At: 5, What: didWrite, Token: 7, Kind: worked, Number: 3, Outcome: stage.Repeated, Revision: 9})
	tell(report{At: 6, What: didPass, Token: 7})
	require.Equal(t, `{"at":5,"what":"write","token":7,"kind":"job","number":3,"outcome":"repeated","revision":9}
{"at":6,"what":"pass","token":7}
`, out.String())
	var k entryKind
	require.ErrorIs(t, k.UnmarshalText([]byte("jab")), lease.ErrInvalid)
}

func TestSettingsOfProcessesOutOfBoundsAreRefusedByName(t *testing.T) {
	for field, args := range map[string]string{
		"-ttl: ":      "-etcd local -ttl 1s",
		"-ttl:":       "-etcd local -ttl 2500ms",
		"-duration":   "-etcd local -duration 8s",
		"-id":         "-etcd http://127.0.0.1:1 -id=",
		"-listen":     "-etcd http://127.0.0.1:1 -listen nowhere",
		"no argument": "-etcd local now",
	} {
		var logs bytes.Buffer
		require.Equal(t, 2, Main(t.Context(), strings.Fields(args), strings.NewReader(""), &bytes.Buffer{}, &logs), args)
		require.Contains(t, logs.String(), strings.TrimSpace(strings.TrimPrefix(field, "no ")))
	}
}
