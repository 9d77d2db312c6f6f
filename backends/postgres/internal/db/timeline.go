package db

import (
	"fmt"
	"math"
)

// The SQLSTATEs of the function on_timeline.
const (
	StateTimeline = "HF004" // the server is on another one
	StateSettings = "HF005" // the connection makes something else of what it is sent
)

// AnyTimeline is above all.
const AnyTimeline = math.MaxUint32

// On has a query, which has no condition of its own, fail on servers of other timelines, and on
// connections that are not fit. onTimeline is the name of the function that says so. The condition is
// decided before anything else of the query (a one-time filter), and if it were not, its error would
// still undo the rest.
func On(onTimeline string, least, most int64, query string, args []any) (string, []any) {
	n := len(args)
	query += fmt.Sprintf(" WHERE (SELECT %s($%d::bigint, $%d::bigint))", onTimeline, n+1, n+2)
	return query, append(args[:n:n], least, most)
}
