package membership

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/lease"
)

// Preference says which of two members should host, by a label (WithLabels). Prefer makes it. It is
// data: give all nodes the same.
type Preference struct {
	label string
	by    Order
}

// Order is how a Preference compares the values of its label: Newest, Oldest, or what Equal returns.
type Order string

// Newest and Oldest compare values as versions: runs of digits by their number, all else byte by
// byte, without the v in front of a digit. What is longer is newer, but a hyphen begins a
// pre-release: 1.2.0-rc1 is before 1.2.0, and that is before 1.2.0.1 and before 1.10. So what git
// describe says of commits after a tag, 1.2.0-5-gabc, is before the tag. Days and times with the
// largest unit first compare so, too: those of a release, not of each start.
const (
	Newest Order = "newest"
	Oldest Order = "oldest"
)

// Equal prefers members whose label has that value, 1 to MaxRole bytes, to all others, which are
// equal.
func Equal(value string) Order { return equal + Order(value) }

const equal Order = "equal "

// value is that of Equal.
func (o Order) value() (value string, is bool) { return strings.CutPrefix(string(o), string(equal)) }

// Prefer prefers by a label: first the members whose value comes first by that Order, last those
// without the label.
func Prefer(label string, by Order) Preference { return Preference{label, by} }

// Preferences count one after the other: the next between members that are equal by those before.
type Preferences []Preference

// MaxPreferences bounds them.
const MaxPreferences = 8

// Validate returns an error that is lease.ErrInvalid unless there are 1 to MaxPreferences, each with
// a label and a value as a member may have them, and with an Order of this package.
func (p Preferences) Validate() error {
	if len(p) < 1 || len(p) > MaxPreferences {
		return fmt.Errorf("preferences: %w: %d, must be 1 to %d", lease.ErrInvalid, len(p), MaxPreferences)
	}
	for _, x := range p {
		if err := checkWord("Prefer: label", x.label); err != nil {
			return err
		}
		value, is := x.by.value()
		switch {
		case is:
			if err := checkWord("Equal: value", value); err != nil {
				return err
			}
		case x.by != Newest && x.by != Oldest:
			return fmt.Errorf("Prefer: order %.32q: %w: must be \"newest\" or \"oldest\" (Newest, Oldest), or of Equal", x.by, lease.ErrInvalid)
		}
	}
	return nil
}

// Compare returns less than 0 if a member with the labels a is preferred to one with the labels b,
// more than 0 for the reverse, and 0 if they are equal.
func (p Preferences) Compare(a, b map[string]string) int {
	for _, x := range p {
		if c := x.compare(a[x.label], b[x.label]); c != 0 {
			return c
		}
	}
	return 0
}

// Moving returns those of p that move what is hosted elsewhere at once (Equal), and those that only
// say where to host what has to move anyway (Newest, Oldest): package placement tells them apart.
func (p Preferences) Moving() (at, later Preferences) {
	for _, x := range p {
		if _, is := x.by.value(); is {
			at = append(at, x)
		} else {
			later = append(later, x)
		}
	}
	return at, later
}

// String returns p as people read it, such as "zone equal eu, version newest".
func (p Preferences) String() string {
	all := make([]string, len(p))
	for i, x := range p {
		all[i] = x.label + " " + string(x.by)
	}
	return strings.Join(all, ", ")
}

// compare compares two values; an empty one is none.
func (p Preference) compare(a, b string) int {
	value, is := p.by.value()
	switch {
	case is:
		return last(a != value, b != value)
	case a == "" || b == "":
		return last(a == "", b == "")
	case p.by == Newest:
		return versions(b, a)
	}
	return versions(a, b)
}

// last compares two of which one may come last.
func last(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// versions compares two values as Newest says: less than 0 if a is older.
func versions(a, b string) int {
	a, b = bare(a), bare(b)
	for a != "" && b != "" {
		if x, y := digits(a), digits(b); x != "" && y != "" {
			a, b = a[len(x):], b[len(y):]
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
				return c
			}
			continue
		}
		if a[0] != b[0] {
			break
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(weight(a), weight(b))
}

// weight is that of what is left of a version: a pre-release, nothing, or more.
func weight(rest string) int {
	switch {
	case rest == "":
		return 1
	case rest[0] == '-':
		return 0
	}
	return 2 + int(rest[0])
}

// bare is a version without the v in front of its number.
func bare(s string) string {
	if v := strings.TrimPrefix(s, "v"); digits(v) != "" {
		return v
	}
	return s
}

// digits are those that s begins with.
func digits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}
