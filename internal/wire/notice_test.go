package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
)

// TestUsersKnowTheReasons: each reason has its number, and its words, for users, too.
func TestUsersKnowTheReasons(t *testing.T) {
	require.Len(t, Reason_name, int(hosting.ReasonTooNew)+1)
	for number, name := range Reason_name {
		n := (&Nack{Reason: Reason(number), Name: "n", Key: "k", Type: "t", Detail: "d"}).Notice()
		require.EqualValues(t, number, n.Reason)
		require.Equal(t, strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "REASON_"), "_", " ")), n.Reason.String())
		require.Equal(t, hosting.Notice{Reason: n.Reason, Name: "n", Key: "k", Type: "t", Detail: "d"}, n)
	}
	require.Equal(t, "300", (&Nack{Reason: 300}).Notice().Reason.String(), "of a newer version")
	require.Zero(t, (*Nack)(nil).Notice())
}
