package stage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestNoVerdictIsNotGood(t *testing.T) { require.False(t, Verdict{}.Good()) }

func TestAnOutcomeIsReadAsItIsWritten(t *testing.T) {
	for _, o := range []Outcome{Written, Repeated, Refused} {
		text, err := o.MarshalText()
		require.NoError(t, err)
		var read Outcome
		require.NoError(t, read.UnmarshalText(text))
		require.Equal(t, o, read)
	}
	require.ErrorIs(t, new(Outcome).UnmarshalText([]byte("rewritten")), lease.ErrInvalid)
}
