//go:build !unix

package compared

import "time"

// processorTime is not known here.
func processorTime() time.Duration { return 1 }
