package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

// TestTimelines: of one database system only later ones are used; of two none is compared.
func TestTimelines(t *testing.T) {
	t.Parallel()
	var p primary
	require.NoError(t, p.use(7, 3))
	require.NoError(t, p.use(7, 3))
	require.EqualValues(t, 3, p.checked())
	p.forget()
	require.Zero(t, p.checked())
	err := p.use(7, 2)
	require.ErrorIs(t, err, ErrOldPrimary)
	require.ErrorIs(t, err, lease.ErrDenied)
	require.ErrorIs(t, p.older(7, 2), ErrOldPrimary)
	require.Zero(t, p.checked(), "of what was refused")
	require.EqualValues(t, 3, p.highest())
	require.NoError(t, p.use(7, 4))
	require.EqualValues(t, 4, p.checked())
	require.NoError(t, p.use(8, 1), "another system")
	require.EqualValues(t, 1, p.highest())
	require.NoError(t, p.use(7, 2), "what was forgotten with it")
	p.accept()
	require.Zero(t, p.checked())
	require.NoError(t, p.use(7, 1))
}
