package node

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v4"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Settings are how long leases live and when they are renewed, read from a file: for all that a
// node starts, and for single names. LoadSettings reads them, Config.Settings has a node heed them.
// They are never changed once they are read, so several nodes may have the same. The zero Settings
// say nothing.
type Settings struct {
	file  string
	all   *timing            // at the top of the file
	group *timing            // nil: none
	parts map[string]timings // by their key in the file
}

// timings are those of one kind of names.
type timings map[string]*timing

// The keys of the parts; all but the group have names.
const (
	ofGroup      = "group"
	ofSingletons = "singletons"
	ofSharded    = "sharded"
	ofLeases     = "leases"
)

// entry is what one mapping of the file may have.
type entry struct {
	TTL              *time.Duration `yaml:"lease_ttl"`
	TTLSeconds       *seconds       `yaml:"lease_ttl_s"`
	Heartbeat        *time.Duration `yaml:"heartbeat"`
	HeartbeatSeconds *seconds       `yaml:"heartbeat_s"`
	Renewal          *lease.Renewal `yaml:"renewal"`
}

// settings is what the file may have.
type settings struct {
	Top        entry `yaml:",inline"`
	Group      *entry
	Singletons timings
	Sharded    timings
	Leases     timings
}

// timing is what one mapping of the file says.
type timing struct {
	entry
	what      string // for people
	name      string // of a lease that it is about; empty if that is not known
	line      int
	ttl       time.Duration // 0: nothing
	heartbeat time.Duration // 0: nothing
}

// UnmarshalYAML implements yaml.Unmarshaler. A name of which nothing is said is an entry, too: what it had
// may be commented out.
func (ts *timings) UnmarshalYAML(n *yaml.Node) error {
	var entries map[string]*entry
	if err := n.Load(&entries, yaml.WithKnownFields()); err != nil {
		return err
	}
	*ts = timings{}
	for name, e := range entries {
		(*ts)[name] = &timing{entry: *cmp.Or(e, &entry{}), line: line(n, name)}
	}
	return nil
}

// line is that of a key of n, which is a mapping; of n itself if it came by a merge.
func line(n *yaml.Node, key string) int {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i].Line
		}
	}
	return n.Line
}

// seconds is a number of seconds, in decimal: 010 is 8 in YAML.
type seconds time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *seconds) UnmarshalYAML(n *yaml.Node) error {
	d, err := time.ParseDuration(n.Value + "s")
	if err != nil || !slices.Contains([]string{"!!int", "!!float"}, n.ShortTag()) {
		return fmt.Errorf("%.64q, must be a number of seconds such as 30 or 0.5", n.Value)
	}
	*s = seconds(d)
	return nil
}

// LoadSettings reads a YAML file of settings:
//
//	lease_ttl: 10s            # of all leases that nothing else is said of
//	heartbeat: 3s             # the time between renewals
//	group: {lease_ttl: 5s}    # of membership and leadership
//	singletons:
//	  cron: {lease_ttl_s: 30, renewal: lazy}
//	sharded:
//	  account: {lease_ttl_s: 15, heartbeat_s: 5}
//	leases:                   # those of Node.Lease
//	  cache/rates: {lease_ttl: 10m, renewal: never}
//	  session/: {lease_ttl: 15m, renewal: activity}   # all whose names begin with session/
//
// Everywhere it takes lease_ttl, a duration as Go writes it, or lease_ttl_s, a number of seconds;
// and heartbeat or heartbeat_s, beside a TTL, or renewal: what lease.Renewal.UnmarshalText reads, so default,
// eager, lazy, adaptive, activity, manual, never, or a fraction of the TTL. What is renewed for as
// long as it runs, so all but named leases, can't have activity, manual or never. An entry that
// does not say when to renew does so after the fraction of its TTL, or by the policy, that stands at
// the top.
//
// Every mistake is an error, which is lease.ErrInvalid and names the file and the line: an unknown
// key, a key without a name or that is given twice, a value of another kind than it must be or out of its
// bounds, several documents. A key without a value counts as not given. Bounds that hang on the store and
// on Config are checked by Start. A file that can't be read is the error of that.
func LoadSettings(path string) (*Settings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("node.LoadSettings: %w", err)
	}
	return ParseSettings(path, data)
}

// ParseSettings is LoadSettings of what is in memory. Errors name the file so.
func ParseSettings(file string, data []byte) (*Settings, error) {
	root, doc, err := document(data)
	if err != nil {
		return nil, malformed(file, err)
	}
	s := &Settings{file: file, all: &timing{entry: doc.Top, line: root.Line},
		parts: map[string]timings{ofSingletons: doc.Singletons, ofSharded: doc.Sharded, ofLeases: doc.Leases}}
	if doc.Group != nil {
		s.group = &timing{entry: *doc.Group, what: ofGroup, line: line(root, ofGroup)}
	}
	if err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
}

// document loads the only document.
func document(data []byte) (root *yaml.Node, s settings, err error) {
	defer boundary.Contain(&err)
	var docs []yaml.Node
	if err = yaml.Load(data, &docs, yaml.WithAllDocuments()); err != nil {
		return nil, s, err
	}
	if len(docs) > 1 {
		return nil, s, fmt.Errorf("%d documents, must be one", len(docs))
	}
	if len(docs) == 0 || len(docs[0].Content) == 0 {
		return &yaml.Node{Line: 1}, s, nil
	}
	root = docs[0].Content[0]
	if n := unnamed(root); n != nil {
		return nil, s, &yaml.LoadError{Mark: yaml.Mark{Line: n.Line}, Message: "a key without a name"}
	}
	return root, s, root.Load(&s, yaml.WithKnownFields())
}

// unnamed is the first key that is null, as one that was made of an empty variable is; else nil.
// Structures and maps would pass it over.
func unnamed(n *yaml.Node) *yaml.Node {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.ShortTag() == "!!null" {
			return c
		}
		if bad := unnamed(c); bad != nil {
			return bad
		}
	}
	return nil
}

// malformed tells of what the YAML library found.
func malformed(file string, err error) error {
	var at *yaml.LoadError
	mistakes := &yaml.LoadErrors{}
	if !errors.As(err, &mistakes) {
		if !errors.As(err, &at) || at.Mark.Line == 0 {
			return fmt.Errorf("%s: %w: %w", file, lease.ErrInvalid, err)
		}
		mistakes.Errors = append(mistakes.Errors, at)
	}
	var all []error
	for _, at := range mistakes.Errors {
		all = append(all, fmt.Errorf("%s:%d: %w: %s", file, at.Mark.Line, lease.ErrInvalid, reason(strings.Replace(at.Message, "not found in type node.", "is unknown in the file's ", 1))))
	}
	return errors.Join(all...)
}

// read takes up what the entries say, and returns what is wrong in them.
func (s *Settings) read() error {
	var all []error
	unfit := map[*timing]error{}
	for part, entries := range s.parts {
		for name, t := range entries {
			t.what = fmt.Sprintf("%s %.64q", part, name)
			t.name, unfit[t] = leaseName(part, name)
		}
	}
	for _, t := range s.each() {
		if err := cmp.Or(unfit[t], t.read()); err != nil {
			all = append(all, fmt.Errorf("%s: %w: %s", s.at(t), lease.ErrInvalid, reason(err.Error())))
		}
	}
	return errors.Join(all...)
}

// read takes up what the entry says.
func (t *timing) read() (err error) {
	if t.ttl, err = span("lease_ttl", t.TTL, t.TTLSeconds); err != nil {
		return err
	}
	if t.heartbeat, err = span("heartbeat", t.Heartbeat, t.HeartbeatSeconds); err != nil {
		return err
	}
	switch {
	case t.ttl > 0 && t.ttl < lease.MinTTL:
		return fmt.Errorf("a TTL of %v, must be at least %v", t.ttl, lease.MinTTL)
	case t.heartbeat > 0 && t.Renewal != nil:
		return errors.New("heartbeat and renewal, must be one of them")
	case t.heartbeat > 0 && t.ttl == 0:
		return fmt.Errorf("a heartbeat of %v without a TTL, needs lease_ttl or lease_ttl_s beside it", t.heartbeat)
	case t.heartbeat > 0 && t.heartbeat >= t.ttl:
		return fmt.Errorf("a heartbeat of %v, must be below the TTL of %v", t.heartbeat, t.ttl)
	case t.Renewal != nil && !t.named() && !t.Renewal.Automatic():
		return fmt.Errorf("renewal %v, must be a policy that renews for as long as the lease is held: default, eager, lazy, adaptive or a fraction", t.Renewal)
	}
	return nil
}

// span is a time that is given as a duration or as a number of seconds; 0 if it is not given.
func span(key string, d *time.Duration, s *seconds) (time.Duration, error) {
	switch {
	case d != nil && s != nil:
		return 0, fmt.Errorf("%s and %s_s, must be one of them", key, key)
	case s != nil:
		d = (*time.Duration)(s)
	case d == nil:
		return 0, nil
	}
	if *d < time.Millisecond || *d > input.Longest {
		return 0, fmt.Errorf("%s: %v, must be at least %v and at most %v", key, *d, time.Millisecond, input.Longest)
	}
	return *d, nil
}

// leaseName is the name of a lease that an entry is about, or of the first of them.
func leaseName(part, name string) (string, error) {
	switch part {
	case ofSingletons:
		return lease.Name("singleton", name)
	case ofSharded:
		return lease.Name("shard", "group", name, "0")
	}
	name = strings.TrimSuffix(name, "/")
	return name, store.ValidateName(name)
}

// reason is what the text of an error that is lease.ErrInvalid says behind that.
func reason(text string) string {
	if _, why, ok := strings.Cut(text, lease.ErrInvalid.Error()+": "); ok {
		return why
	}
	return text
}

// named reports whether t is a named lease's.
func (t *timing) named() bool { return strings.HasPrefix(t.what, ofLeases+" ") }

// each returns all timings, in the order of the file.
func (s *Settings) each() []*timing {
	if s == nil { // of a zero Node
		return nil
	}
	all := []*timing{s.all}
	if s.group != nil {
		all = append(all, s.group)
	}
	for _, part := range s.parts {
		for _, t := range part {
			all = append(all, t)
		}
	}
	slices.SortFunc(all[1:], func(a, b *timing) int { return cmp.Or(a.line-b.line, strings.Compare(a.what, b.what)) })
	return all
}
