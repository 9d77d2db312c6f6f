package node

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	yaml "go.yaml.in/yaml/v4"
)

// Settings are how long leases live and when they are renewed, read from a file: for all that a
// node starts, and for single names. LoadSettings reads them, Config.Settings has a node heed them.
// They are never changed once they are read, so several nodes may have the same. The zero Settings
// say nothing.
type Settings struct {
	file   string
	all    *timing            // at the top of the file
	group  *timing            // nil: none
	parts  map[string]timings // by their key in the file
	errors []error            // while it is read
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

// timing is what one mapping of the file says.
type timing struct {
	what      string // for people
	name      string // of a lease that it is about; empty if that is not known
	line      int
	ttl       time.Duration // 0: nothing
	heartbeat time.Duration // 0: nothing
	renewal   *lease.Renewal
}

// maxSettings is the largest file of settings, in bytes.
const maxSettings = 1 << 20

// mostErrors bounds how many mistakes an error lists.
const mostErrors = 20

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
// key, a key that is given twice, a value that is no text, number or mapping as it must be or is
// out of its bounds, several documents, more than maxSettings bytes. Bounds that hang on the store
// and on Config are checked by Start. A file that can't be read is the error of that.
func LoadSettings(path string) (*Settings, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("node.LoadSettings: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSettings+1))
	if err != nil {
		return nil, fmt.Errorf("node.LoadSettings: %w", err)
	}
	return ParseSettings(path, data)
}

// ParseSettings is LoadSettings of what is in memory. Errors name the file so.
func ParseSettings(file string, data []byte) (*Settings, error) {
	s := &Settings{file: file, parts: map[string]timings{}}
	if len(data) > maxSettings {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", file, lease.ErrInvalid, maxSettings)
	}
	doc, err := document(data)
	if err != nil {
		return nil, malformed(file, err)
	}
	s.all = s.timing(doc, "", map[string]func(key, value *yaml.Node){
		ofGroup: func(key, v *yaml.Node) {
			s.group = s.timing(v, ofGroup, nil)
			s.group.line = key.Line
		},
		ofSingletons: func(_, v *yaml.Node) { s.names(v, ofSingletons) },
		ofSharded:    func(_, v *yaml.Node) { s.names(v, ofSharded) },
		ofLeases:     func(_, v *yaml.Node) { s.names(v, ofLeases) },
	})
	s.bounds()
	if len(s.errors) > 0 {
		return nil, errors.Join(s.errors...)
	}
	return s, nil
}

// document returns the root of the only document; nil if there is nothing in it.
func document(data []byte) (root *yaml.Node, err error) {
	var docs []yaml.Node
	err = func() (err error) {
		defer boundary.Contain(&err)
		return yaml.Load(data, &docs, yaml.WithAllDocuments())
	}()
	switch {
	case err != nil:
		return nil, err
	case len(docs) > 1:
		return nil, fmt.Errorf("%d documents, must be one", len(docs))
	case len(docs) == 0 || len(docs[0].Content) == 0:
		return nil, nil
	}
	return docs[0].Content[0], nil
}

// malformed says where the YAML is none.
func malformed(file string, err error) error {
	var at *yaml.LoadError
	if errors.As(err, &at) && at.Mark.Line > 0 {
		return fmt.Errorf("%s:%d: %w: %s", file, at.Mark.Line, lease.ErrInvalid, at.Message)
	}
	return fmt.Errorf("%s: %w: %w", file, lease.ErrInvalid, err)
}

// bad notes a mistake.
func (s *Settings) bad(line int, what, format string, args ...any) {
	if what != "" {
		what += ": "
	}
	switch len(s.errors) {
	case mostErrors:
	case mostErrors - 1:
		s.errors = append(s.errors, fmt.Errorf("%s: %w: and more", s.file, lease.ErrInvalid))
	default:
		s.errors = append(s.errors, fmt.Errorf("%s:%d: %s%w: %s", s.file, line, what, lease.ErrInvalid, fmt.Sprintf(format, args...)))
	}
}

// mapping calls f for the keys and values of a mapping, each key once. An empty value is an empty
// mapping: what was in it may be commented out.
func (s *Settings) mapping(n *yaml.Node, what string, f func(key, value *yaml.Node)) {
	if n = followed(n); n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		s.bad(n.Line, what, "%s, must have keys and values", kind(n))
		return
	}
	seen := map[string]int{}
	// Nothing is read behind the last mistake that is reported: aliases may repeat it.
	for i := 0; i+1 < len(n.Content) && len(s.errors) < mostErrors; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key = followed(key); key.Kind != yaml.ScalarNode {
			s.bad(key.Line, what, "%s as a key, must be a text", kind(key))
			continue
		}
		if first, twice := seen[key.Value]; twice {
			s.bad(key.Line, what, "%.64q is given twice, first in line %d", key.Value, first)
			continue
		}
		seen[key.Value] = key.Line
		f(key, value)
	}
}

// timing reads a mapping of timing keys, and others.
func (s *Settings) timing(n *yaml.Node, what string, others map[string]func(key, value *yaml.Node)) *timing {
	t := &timing{what: what}
	if n != nil {
		t.line = n.Line
	}
	given := map[string]string{} // which key of several that say the same
	once := func(which string, f func(*timing, *yaml.Node, string)) func(*yaml.Node, string) {
		return func(v *yaml.Node, key string) {
			if before, ok := given[which]; ok {
				s.bad(v.Line, what, "%s and %s, must be one of them", before, key)
				return
			}
			given[which] = key
			f(t, v, inside(what, key))
		}
	}
	keys := map[string]func(*yaml.Node, string){
		"lease_ttl":   once("ttl", func(t *timing, v *yaml.Node, at string) { t.ttl = s.duration(v, at) }),
		"lease_ttl_s": once("ttl", func(t *timing, v *yaml.Node, at string) { t.ttl = s.seconds(v, at) }),
		"heartbeat":   once("renewal", func(t *timing, v *yaml.Node, at string) { t.heartbeat = s.duration(v, at) }),
		"heartbeat_s": once("renewal", func(t *timing, v *yaml.Node, at string) { t.heartbeat = s.seconds(v, at) }),
		"renewal":     once("renewal", func(t *timing, v *yaml.Node, at string) { t.renewal = s.renewal(v, at) }),
	}
	s.mapping(n, what, func(key, value *yaml.Node) {
		if read, ok := keys[key.Value]; ok {
			read(value, key.Value)
			return
		}
		if read, ok := others[key.Value]; ok {
			read(key, value)
			return
		}
		known := slices.Sorted(maps.Keys(keys))
		known = append(known, slices.Sorted(maps.Keys(others))...)
		slices.Sort(known)
		s.bad(key.Line, what, "unknown key %.64q, must be one of %s", key.Value, strings.Join(known, ", "))
	})
	return t
}

// names reads a mapping of names to timings.
func (s *Settings) names(n *yaml.Node, part string) {
	all := timings{}
	s.parts[part] = all
	s.mapping(n, part, func(key, value *yaml.Node) {
		what := fmt.Sprintf("%s %.64q", part, key.Value)
		name, err := leaseName(part, key.Value)
		if err != nil {
			s.bad(key.Line, what, "%s", reason(err))
			return
		}
		t := s.timing(value, what, nil)
		t.line, t.name = key.Line, name
		all[key.Value] = t
	})
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
	return name, lease.ValidateName(name)
}

// reason is what an error that is lease.ErrInvalid says behind that.
func reason(err error) string {
	text := err.Error()
	if _, why, ok := strings.Cut(text, lease.ErrInvalid.Error()+": "); ok {
		return why
	}
	return text
}

// bounds checks what is known without a store.
func (s *Settings) bounds() {
	for _, t := range s.each() {
		switch {
		case t.ttl > 0 && (t.ttl < lease.MinTTL || t.ttl > input.Longest):
			s.bad(t.line, t.what, "a TTL of %v, must be at least %v and at most %v", t.ttl, lease.MinTTL, input.Longest)
		case t.heartbeat > 0 && t.ttl == 0:
			s.bad(t.line, t.what, "a heartbeat of %v without a TTL, needs lease_ttl or lease_ttl_s beside it", t.heartbeat)
		case t.heartbeat > 0 && t.heartbeat >= t.ttl:
			s.bad(t.line, t.what, "a heartbeat of %v, must be below the TTL of %v", t.heartbeat, t.ttl)
		case t.renewal != nil && !s.named(t) && !t.renewal.Automatic():
			s.bad(t.line, t.what, "renewal %v, must be a policy that renews for as long as the lease is held: "+
				"default, eager, lazy, adaptive or a fraction", t.renewal)
		}
	}
}

// named reports whether t is a named lease's.
func (s *Settings) named(t *timing) bool { return strings.HasPrefix(t.what, ofLeases+" ") }

// each returns all timings, in the order of the file.
func (s *Settings) each() []*timing {
	if s == nil || s.all == nil {
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
	slices.SortFunc(all[1:], func(a, b *timing) int {
		if a.line != b.line {
			return a.line - b.line
		}
		return strings.Compare(a.what, b.what)
	})
	return all
}

// inside names a key of what.
func inside(what, key string) string {
	if what == "" {
		return key
	}
	return what + ": " + key
}
