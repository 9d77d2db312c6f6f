//go:build linux

package stage

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestNoVerdictIsNotGood(t *testing.T) { require.False(t, Verdict{}.Good()) }

// No ownership stands behind token 0, and etcd says 0 of a key that is absent.
func TestAWriteWithoutATokenIsRefused(t *testing.T) {
	_, outcome, err := Write{Lease: "holdfast/job"}.Do(nil)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.Zero(t, outcome)
}

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
