package membership

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/lease"
)

// Bounds of what a member says of itself.
const (
	MaxRoles    = 64      // how many roles a member may have
	MaxRole     = 128     // bytes of one role, of a label's name, and of its value
	MaxCapacity = 1 << 20 // of a member
	MaxLabels   = 16      // how many labels a member may have
)

// The metadata of member and leaving records. Keys may be added under the same
// format; a reader refuses another one.
const (
	keyFormat   = "format"
	keyRoles    = "roles"    // JSON, sorted
	keyCapacity = "capacity" // decimal
	keyLabels   = "labels"   // JSON; absent: none
	keyMember   = "member"   // of a leaving record: the token of the membership that ends
	format      = "1"
)

// names are the lease names of one group.
type names struct {
	group   string
	leader  string
	members string // the prefix of all
	leaving string // the prefix of all
}

func namesOf(group string) (names, error) {
	leaving, err := lease.Name("leaving", group) // the longest of them
	if err != nil {
		return names{}, err
	}
	of := strings.TrimPrefix(leaving, "leaving")
	return names{group, "leader" + of, "member" + of + "/", leaving + "/"}, nil
}

// own returns the names of one owner's leases.
func (n names) own(o lease.Owner) (member, leaving string, err error) {
	if member, err = lease.Name("member", n.group, o.ID, o.Incarnation); err != nil {
		return "", "", err
	}
	leaving, err = lease.Name("leaving", n.group, o.ID, o.Incarnation)
	return member, leaving, err
}

// objection is the name of the lease by which an earlier life of an owner's ID says
// that it goes on.
func (n names) objection(o lease.Owner) (string, error) {
	return lease.Name("objection", n.group, o.ID, o.Incarnation)
}

// memberKey and leavingKey return what both names of one owner end with.
func (n names) memberKey(name string) (string, bool)  { return strings.CutPrefix(name, n.members) }
func (n names) leavingKey(name string) (string, bool) { return strings.CutPrefix(name, n.leaving) }

func memberMetadata(m Member) map[string]string {
	roles, _ := json.Marshal(m.Roles) // strings never fail
	labels, _ := json.Marshal(m.Labels)
	return map[string]string{keyFormat: format, keyRoles: string(roles), keyCapacity: strconv.Itoa(m.Capacity),
		keyLabels: string(labels)}
}

func noticeMetadata(member lease.Token) map[string]string {
	return map[string]string{keyFormat: format, keyMember: strconv.FormatUint(uint64(member), 10)}
}

// readMember reads a member record: an error is ErrBadRecord.
func (n names) readMember(rec lease.Record) (Member, error) {
	want, _, err := n.own(rec.Owner)
	if err == nil && want != rec.Name {
		err = fmt.Errorf("its owner's is %q", want)
	}
	if err != nil {
		return Member{}, unreadable(rec, "%v", err)
	}
	if f := rec.Metadata[keyFormat]; f != format {
		return Member{}, unreadable(rec, "format %q, this version reads %q", f, format)
	}
	m := Member{ID: rec.Owner.ID, Incarnation: rec.Owner.Incarnation, Address: rec.Owner.Address, Token: rec.Token}
	if err := json.Unmarshal([]byte(rec.Metadata[keyRoles]), &m.Roles); err != nil {
		return Member{}, unreadable(rec, "roles %.64q: %v", rec.Metadata[keyRoles], err)
	}
	if m.Roles, err = cleanRoles(m.Roles); err != nil {
		return Member{}, unreadable(rec, "%v", err)
	}
	m.Capacity, err = strconv.Atoi(rec.Metadata[keyCapacity])
	if err != nil || m.Capacity < 1 || m.Capacity > MaxCapacity {
		return Member{}, unreadable(rec, "capacity %.64q", rec.Metadata[keyCapacity])
	}
	if labels, ok := rec.Metadata[keyLabels]; ok { // earlier writers have none
		if err := json.Unmarshal([]byte(labels), &m.Labels); err != nil {
			return Member{}, unreadable(rec, "labels %.64q: %v", labels, err)
		}
		if err := checkLabels(m.Labels); err != nil {
			return Member{}, unreadable(rec, "%v", err)
		}
	}
	return m, nil
}

// readNotice reads a leaving record: an error is ErrBadRecord.
func (n names) readNotice(rec lease.Record) (of lease.Token, err error) {
	if f := rec.Metadata[keyFormat]; f != format {
		return 0, unreadable(rec, "format %q, this version reads %q", f, format)
	}
	t, err := strconv.ParseUint(rec.Metadata[keyMember], 10, 64)
	if err != nil || t == 0 {
		return 0, unreadable(rec, "member %.64q", rec.Metadata[keyMember])
	}
	return lease.Token(t), nil
}

// cleanRoles returns roles sorted, each once. An error is ErrInvalid.
func cleanRoles(roles []string) ([]string, error) {
	for _, r := range roles {
		if err := checkWord("role", r); err != nil {
			return nil, err
		}
	}
	roles = slices.Clone(roles)
	slices.Sort(roles)
	if roles = slices.Compact(roles); len(roles) > MaxRoles {
		return nil, fmt.Errorf("roles: %w: %d, at most %d", lease.ErrInvalid, len(roles), MaxRoles)
	}
	return roles, nil
}

// checkLabels returns an error that is ErrInvalid unless a member may have these labels.
func checkLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("labels: %w: %d, at most %d", lease.ErrInvalid, len(labels), MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := checkWord("label", name); err != nil {
			return err
		}
		if err := checkWord(fmt.Sprintf("value of label %q", name), labels[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkWord checks a role, the name of a label, or its value.
func checkWord(what, s string) error {
	switch {
	case s == "" || len(s) > MaxRole:
		return fmt.Errorf("%s %.32q: %w: %d bytes, must have 1 to %d", what, s, lease.ErrInvalid, len(s), MaxRole)
	case strings.ToValidUTF8(s, "") != s:
		return fmt.Errorf("%s %.32q: %w: not UTF-8", what, s, lease.ErrInvalid)
	}
	return nil
}

func unreadable(rec lease.Record, format string, args ...any) error {
	return fmt.Errorf("%q: %w: %s", rec.Name, lease.ErrBadRecord, fmt.Sprintf(format, args...))
}
