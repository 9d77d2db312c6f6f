// Package labelled counts the goroutines that a test started, by profiler label: a goroutine
// passes its labels on to those that it starts. Goroutines of time.AfterFunc have none.
package labelled

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
)

const key = "holdfast"

// Do runs f under a label. It may contain anything but must not be that of another
// that runs at the time.
func Do(ctx context.Context, label string, f func(context.Context)) {
	pprof.Do(ctx, pprof.Labels(key, label), f)
}

// group is one stack in the profile: how many goroutines, and their labels.
var group = regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: (.*)$`)

// Count returns how many goroutines bear the label, the caller's own included if
// it is called under it.
func Count(label string) int {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		panic(err) // a buffer takes everything
	}
	want, total := fmt.Sprintf("%q:%q", key, label), 0
	for _, m := range group.FindAllStringSubmatch(b.String(), -1) {
		if strings.Contains(m[2], want) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				panic(err) // digits
			}
			total += n
		}
	}
	return total
}
