package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// TestMain is the program where this binary is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-dsn" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The demonstration, on a server of its own.
func TestMoneyMovesOnce(t *testing.T) {
	s := postgrestest.Start(t)
	require.NoError(t, demonstrate(t.Context(), s.URL(), "quick.yaml"))
}
