package sequencer_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
)

// owned is an ownership of the test's.
type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

func seq(name string, token lease.Token) sequencer.Sequencer {
	return sequencer.Sequencer{Name: name, Token: token}
}

func TestTheTextOfASequencer(t *testing.T) {
	for text, s := range map[string]sequencer.Sequencer{
		"singleton/cron@42":             seq("singleton/cron", 42),
		"a@1":                           seq("a", 1),
		"a@18446744073709551615":        seq("a", math.MaxUint64),
		"singleton/a%252Fb@7":           seq("singleton/a%2Fb", 7),
		"a%20b%2Cc%40d%22@7":            seq(`a b,c@d"`, 7),
		"%C3%BC%E6%97%A5@9":             seq("ü日", 9),
		"-._~Z/0@10":                    seq("-._~Z/0", 10),
		strings.Repeat("x", 512) + "@3": seq(strings.Repeat("x", 512), 3),
		strings.Repeat("%40", 512) + "@18446744073709551615": seq(strings.Repeat("@", 512), math.MaxUint64),
	} {
		require.Equal(t, text, s.String())
		require.LessOrEqual(t, len(text), sequencer.MaxText)
		got, err := sequencer.Parse(text)
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	require.Len(t, seq(strings.Repeat("@", 512), math.MaxUint64).String(), sequencer.MaxText)
}

func TestTextThatIsNoSequencerIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                              "no @",
		"a":                             "no @",
		"@1":                            "empty",
		"a@":                            "above 0",
		"a@0":                           "above 0",
		"a@01":                          "leading zeros",
		"a@+1":                          "digits alone",
		"a@-1":                          "digits alone",
		"a@1 ":                          "digits alone",
		"a@1.0":                         "digits alone",
		"a@1e3":                         "digits alone",
		"a@1_0":                         "digits alone",
		"a@0x1":                         "leading zeros",
		"a@1@2":                         "digits alone",
		"a@١":                           "digits alone",
		"a@18446744073709551616":        "at most 18446744073709551615",
		" a@1":                          "byte 0 must be written as %20",
		"a b@1":                         "byte 1 must be written as %20",
		"a,b@1":                         "must be written as %2C",
		"ü@1":                           "must be written as %C3",
		"a%@1":                          "two of 0-9 and A-F",
		"a%2@1":                         "two of 0-9 and A-F",
		"a%2f@1":                        "two of 0-9 and A-F",
		"a%zz@1":                        "two of 0-9 and A-F",
		"%61@1":                         "%61 must be written as a",
		"a%2Fb@1":                       "%2F must be written as /",
		"a%25 b@1":                      "byte 4 must be written as %20",
		"%FF@1":                         "not UTF-8",
		"a%00b@1":                       "control character",
		"a%0Ab@1":                       "control character",
		"/a@1":                          "empty segment",
		"a//b@1":                        "empty segment",
		strings.Repeat("x", 513) + "@1": "513 bytes, at most 512",
		strings.Repeat("x", sequencer.MaxText) + "@1":         "at most",
		strings.Repeat("%40", 512) + "@184467440737095516150": "at most",
	} {
		s, err := sequencer.Parse(text)
		require.ErrorIs(t, err, lease.ErrInvalid, text)
		require.ErrorContains(t, err, says, text)
		require.Zero(t, s)
	}
}

func TestSequencersOfOwnerships(t *testing.T) {
	s, err := sequencer.Of(owned{"a", 7})
	require.NoError(t, err)
	require.Equal(t, seq("a", 7), s)
	for says, o := range map[string]lease.Ownership{"nil": nil, "ownership": (*owned)(nil), "token 0": owned{"a", 0}, "name": owned{"", 1}} {
		s, err := sequencer.Of(o)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.Zero(t, s)
	}
}

func TestSequencersInJSON(t *testing.T) {
	type job struct {
		Under sequencer.Sequencer
		By    map[sequencer.Sequencer]int
	}
	b, err := json.Marshal(job{seq("a b", 7), map[sequencer.Sequencer]int{seq("c", 1): 2}})
	require.NoError(t, err)
	require.Equal(t, `{"Under":"a%20b@7","By":{"c@1":2}}`, string(b))
	var j job
	require.NoError(t, json.Unmarshal(b, &j))
	require.Equal(t, job{seq("a b", 7), map[sequencer.Sequencer]int{seq("c", 1): 2}}, j)
	require.Error(t, json.Unmarshal([]byte(`{"Under":"a@0"}`), &j))
	require.Equal(t, seq("a b", 7), j.Under, "what is refused changes nothing")
	_, err = json.Marshal(job{})
	require.ErrorIs(t, err, lease.ErrInvalid)
}

// What is read is what was written, and what is taken is what would have been written.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a@1", "singleton/a%252Fb@7", "%C3%BC@9", "a@18446744073709551615", "a%2", "@", "%%@1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := sequencer.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.Zero(t, s)
			return
		}
		require.NoError(t, s.Validate())
		require.Equal(t, text, s.String())
	})
}

func FuzzString(f *testing.F) {
	f.Add("singleton/a%2Fb", uint64(7))
	f.Add("ü @", uint64(math.MaxUint64))
	f.Add("\xff", uint64(0))
	f.Fuzz(func(t *testing.T, name string, token uint64) {
		s := seq(name, lease.Token(token))
		text := s.String()
		for i := range len(text) {
			require.True(t, text[i] > ' ' && text[i] < 0x7f, "%q", text)
		}
		got, err := sequencer.Parse(text)
		marshalled, mErr := s.MarshalText()
		if s.Validate() != nil {
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorIs(t, mErr, lease.ErrInvalid)
			return
		}
		require.NoError(t, err)
		require.Equal(t, s, got)
		require.NoError(t, mErr)
		require.Equal(t, text, string(marshalled))
	})
}
