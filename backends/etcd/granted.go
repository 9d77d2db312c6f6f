package etcd

import (
	"strconv"
	"strings"
	"time"
)

// This file is the time of the grant in a value. It stands last in the JSON, so that what
// the records of one owner have in common is one text before it, which is written and read
// once. Versions that know nothing of it pass over the field.
const grantedField = `,"at":`

// stamp adds the time to a value that encode has made, to the millisecond.
func stamp(value string, at time.Time) string {
	return value[:len(value)-1] + grantedField + strconv.FormatInt(at.UnixMilli(), 10) + "}"
}

// stamped takes the time off the JSON of a value: what is before it lacks the closing brace.
// ok is false if there is none.
func stamped(text string) (before string, at time.Time, ok bool) {
	i := strings.LastIndex(text, grantedField)
	if i < 0 || !strings.HasSuffix(text, "}") {
		return text, time.Time{}, false
	}
	ms, err := strconv.ParseInt(text[i+len(grantedField):len(text)-1], 10, 64)
	if err != nil {
		return text, time.Time{}, false
	}
	return text[:i], time.UnixMilli(ms), true
}

// grantedNow is the time of a grant as values have it.
func grantedNow() time.Time { return time.UnixMilli(time.Now().UnixMilli()) }
