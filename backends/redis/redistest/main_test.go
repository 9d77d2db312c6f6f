//go:build unix

package redistest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// soon bounds, generously, how long things take on a machine that is busy.
const soon = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
