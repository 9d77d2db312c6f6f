//go:build linux

package stage

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no paper") }

func TestTheTimelineTellsOfAWriterThatFails(t *testing.T) {
	line := NewTimeline(broken{})
	line.Say("x", "y")
	require.ErrorContains(t, line.Close(), "no paper")
	line.Say("x", "too late, and harmless")
}

func TestVerboseLinesAreTheNodesOwn(t *testing.T) {
	var out bytes.Buffer
	line := NewTimeline(&out)
	line.Logger("node-9", true).Info("hello")
	line.Logger("node-8", false).Info("nothing")
	require.NoError(t, line.Close())
	require.Regexp(t, `^ +0\.\d{3}s  node-9    \| hello\n$`, out.String())
}
