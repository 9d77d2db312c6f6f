package db

import (
	"fmt"
	"math"
)

// StateTimeline is the SQLSTATE of the function on_timeline: the server is on another one.
const StateTimeline = "HF004"

// AnyTimeline is above all.
const AnyTimeline = math.MaxUint32

// On has a query, which has no condition of its own, fail on servers of other timelines. onTimeline
// is the name of the function that says so. The condition is decided before anything else of the
// query (a one-time filter), and if it were not, its error would still undo the rest.
func On(onTimeline string, least, most int64, query string, args []any) (string, []any) {
	n := len(args)
	query += fmt.Sprintf(" WHERE (SELECT %s($%d::bigint, $%d::bigint))", onTimeline, n+1, n+2)
	return query, append(args[:n:n], least, most)
}
