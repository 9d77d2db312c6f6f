package hosting_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
)

func TestNames(t *testing.T) {
	require.Equal(t, "DropNewest", hosting.DropNewest.String())
	require.Equal(t, "DropOldest", hosting.DropOldest.String())
	require.Equal(t, "7", hosting.DropPolicy(7).String())
	require.Equal(t, "KeepLease", hosting.KeepLease.String())
	require.Equal(t, "ReleaseAfterTTL", hosting.ReleaseAfterTTL.String())
	require.Equal(t, "2", hosting.Overdue(2).String())
	require.Equal(t, "unspecified", hosting.ReasonUnspecified.String())
	require.Equal(t, "too new", hosting.ReasonTooNew.String())
	require.Equal(t, "-1", hosting.Reason(-1).String())
}

func TestUndeliverableErrorSaysWhatIsKnown(t *testing.T) {
	for want, err := range map[string]*hosting.UndeliverableError{
		"message undeliverable:  went to the dead letters":    {},
		"message undeliverable: job went to the dead letters": {Type: "job"},
		"message undeliverable: job: overflow": {Type: "job",
			Notice: &hosting.Notice{Reason: hosting.ReasonOverflow, Name: "singleton/x", Type: "job"}},
		`message undeliverable: job: too large, sent as "work": 5 MiB`: {Type: "job",
			Notice: &hosting.Notice{Reason: hosting.ReasonTooLarge, Type: "work", Detail: "5 MiB"}},
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		require.NotErrorIs(t, err, hosting.ErrUnconfirmed)
	}
}
