//go:build !unix

package sharding_test

import "time"

// processorTime is not known here.
func processorTime() time.Duration { return 1 }
