package remoting_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/remoting"
)

// No connection is tried to what is too long for an address: that alone would keep a
// processor busy, and a peer may say what it likes of where it is.
func TestWhatCanBeNoAddressIsNotConnectedTo(t *testing.T) {
	a, b := start(t), start(t)
	long := "127.0.0.1:" + strings.Repeat("0", 10<<10)
	a.do("ask %s hello", long)
	require.Contains(t, a.expect("answer "), "dead letter")
	a.do("watch %s echo", long)
	require.Equal(t, "echo NotFound", a.expect("terminated "))
	works(a, b)
	require.Equal(t, remoting.Stats{Unsendable: 2}, a.stats())
}
