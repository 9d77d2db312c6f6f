package lease

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatAFollowerRemembersIsBounded(t *testing.T) {
	var d heard
	d.forget()
	for i := range 3 * goneAtOnce {
		name := fmt.Sprint("n", i)
		d.put(name, mark{Token(i + 1), 1})
		d.delete(name)
		require.Equal(t, mark{Token(i + 1), 1}, d.last(name))
		require.LessOrEqual(t, len(d.gone)+len(d.goneBefore), 2*goneAtOnce)
	}
	require.Empty(t, d.stands)
	const last = 3 * goneAtOnce
	require.NotZero(t, d.last(fmt.Sprint("n", last-goneAtOnce)), "of the latest so many")
	// What is no record hides no token.
	d.put("n", mark{7, 1})
	d.put("n", mark{})
	require.Equal(t, mark{7, 1}, d.last("n"))
	d.delete("n")
	require.Equal(t, mark{7, 1}, d.last("n"))
}
