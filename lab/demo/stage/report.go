//go:build linux

package stage

import (
	"encoding/json"
	"io"
	"sync"
)

// NodeEnv marks a process as a node that another one started.
const NodeEnv = "HOLDFAST_DEMO_NODE"

// JSONReports returns a function that writes reports as lines of JSON, and each
// before it returns: what a node did before it was killed is then told. failed is
// called when nobody reads any more.
func JSONReports[R any](w io.Writer, failed func(error)) func(R) {
	var mu sync.Mutex
	enc := json.NewEncoder(w)
	return func(r R) {
		mu.Lock()
		defer mu.Unlock()
		if err := enc.Encode(r); err != nil {
			failed(err)
		}
	}
}
