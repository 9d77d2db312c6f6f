package agree_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

var keys = agree.Keys{Protocol: "protocol", Settings: "settings"}

func record(metadata map[string]string) lease.Record {
	return lease.Record{Name: "a/b", Owner: lease.Owner{ID: "n"}, Metadata: metadata}
}

func TestANodeAgreesWithItself(t *testing.T) {
	const settings = "message=100 state=5 strategy=*x.y"
	r := record(keys.Metadata(settings))
	require.NoError(t, keys.Check(r))
	require.Empty(t, keys.Differs(r, settings))
	require.Equal(t, r.Metadata, keys.Of(r.Metadata))
	require.NotContains(t, keys.Metadata(""), keys.Settings)
}

func TestVersionsOneApartUnderstandEachOther(t *testing.T) {
	for there := wire.Protocol - 3; there <= wire.Protocol+3; there++ {
		err := keys.Check(record(map[string]string{"protocol": strconv.Itoa(there)}))
		if there >= wire.Protocol-1 && there <= wire.Protocol+1 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, agree.ErrProtocol)
		}
	}
	require.Equal(t, keys.Check(record(map[string]string{"protocol": "0"})), keys.Check(record(nil)), "absent: 0")
	require.ErrorIs(t, keys.Check(record(map[string]string{"protocol": "1.0"})), lease.ErrBadRecord)
}

func TestDifferencesAreNamed(t *testing.T) {
	for theirs, want := range map[string]string{
		"":                     "",
		"a=1 b=2":              "",
		"b=2 a=1":              "",
		"a=1":                  "", // an older version does not know b
		"a=1 b=2 c=3":          "", // a newer one knows more
		"a=2 b=2":              "a is 1 here, 2 there",
		"a=2 b= c=4":           "a is 1 here, 2 there; b is 2 here,  there",
		"nothing of the form ": "",
	} {
		require.Equal(t, want, keys.Differs(record(map[string]string{"settings": theirs}), "a=1 b=2"), theirs)
	}
}

func TestAWordIsOneWord(t *testing.T) {
	long := strings.Repeat("ü", 100)
	words := map[string]bool{}
	for _, s := range []string{"", "a", "a b", "a_b", "a  b", long, long + "1", "x" + long, "a\xff b"} {
		w := agree.Word(s)
		require.LessOrEqual(t, len(w), 64)
		require.LessOrEqual(t, len(strings.Fields(w)), 1)
		require.False(t, words[w], "%q stands for another, too", s)
		words[w] = true
	}
	require.Equal(t, "a,b", agree.Word("a,b"))
}

// Whatever a record says, what is made of it keeps within bounds: it is refused for one
// of two reasons, and what differs is short enough to be kept and logged.
func FuzzRecord(f *testing.F) {
	f.Add("1", "message=1 state=2", "message=2 state=2")
	f.Add("-9223372036854775808", "=", "= =")
	f.Add("00000000000000000000000000000001", strings.Repeat("a=1 ", 5000), "a=2")
	f.Add("", "\xff=\x00", "\xff")
	f.Fuzz(func(t *testing.T, protocol, theirs, here string) {
		r := record(map[string]string{"protocol": protocol, "settings": theirs, "other": "x"})
		if err := keys.Check(r); err == nil {
			n, _ := strconv.Atoi(protocol)
			require.True(t, n >= wire.Protocol-1 && n <= wire.Protocol+1)
		} else {
			require.True(t, strings.Contains(err.Error(), agree.ErrProtocol.Error()) || strings.Contains(err.Error(), lease.ErrBadRecord.Error()))
			require.Less(t, len(err.Error()), 300)
		}
		of := keys.Of(r.Metadata)
		require.Len(t, of, 2)
		require.LessOrEqual(t, len(of["settings"]), 1024)
		differs := keys.Differs(r, here)
		require.Equal(t, differs, keys.Differs(record(of), here), "what is kept says as much")
		if len(here) <= 1024 {
			require.LessOrEqual(t, len(differs), len(here)+200*len(strings.Fields(here)))
			words := strings.Fields(here)
			unique := map[string]bool{}
			for _, w := range words {
				name, _, _ := strings.Cut(w, "=")
				unique[name] = true
			}
			if len(unique) == len(words) {
				require.Empty(t, keys.Differs(record(map[string]string{"settings": here}), here))
			}
		}
		require.LessOrEqual(t, len(agree.Word(theirs)), 64)
	})
}
