//go:build unix

package etcdtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCertificatesThatAreMissingAreSaid(t *testing.T) {
	_, err := Run(t.Context(), Options{TLS: t.TempDir()})
	require.ErrorContains(t, err, "TLS")
}
