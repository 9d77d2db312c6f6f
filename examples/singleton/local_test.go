//go:build linux || darwin || freebsd

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestWhatEtcdAppliedIsTakenFromEtcdAlone(t *testing.T) {
	applied := []placed{
		{10, entry{"a", 9, 1 * ms, began, 0, written}},
		{11, entry{"a", 9, 2 * ms, worked, 1, written}}, // of which a was killed before it could tell
		{14, entry{"b", 13, 8 * ms, began, 0, written}},
	}
	entries, passes := merge(applied, map[string][]report{
		"a": {
			{At: 1 * ms, What: didPass, Token: 9},
			{At: 1 * ms, What: didWrite, Token: 9, Kind: began, Outcome: written, Revision: 10},
			{At: 9 * ms, What: didWrite, Token: 9, Kind: worked, Number: 2, Outcome: refused, Revision: 14},
			{At: 9 * ms, What: didLose, Token: 9},
		},
		"b": {{At: 9 * ms, What: didWrite, Token: 13, Kind: worked, Number: 1, Outcome: repeated, Revision: 14}},
	})
	require.Equal(t, []pass{{"a", 9, 1 * ms}}, passes)
	require.Equal(t, []entry{
		applied[0].entry, applied[1].entry, applied[2].entry,
		{"b", 13, 9 * ms, worked, 1, repeated},
		{"a", 9, 9 * ms, worked, 2, refused},
	}, entries)
}

func TestReportsTravelAsLinesOfJSON(t *testing.T) {
	var out bytes.Buffer
	tell := jsonReports(&out, func(err error) { t.Error(err) })
	tell(report{At: 5, What: didWrite, Token: 7, Kind: worked, Number: 3, Outcome: repeated, Revision: 9})
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
		require.Equal(t, 2, program(t.Context(), strings.Fields(args), strings.NewReader(""), &bytes.Buffer{}, &logs), args)
		require.Contains(t, logs.String(), strings.TrimSpace(strings.TrimPrefix(field, "no ")))
	}
}
