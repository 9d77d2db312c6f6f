package node

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
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
	TTLSeconds       *float64       `yaml:"lease_ttl_s"`
	Heartbeat        *time.Duration `yaml:"heartbeat"`
	HeartbeatSeconds *float64       `yaml:"heartbeat_s"`
	Renewal          *lease.Renewal `yaml:"renewal"`
}

// settings is what the file may have.
type settings struct {
	Top        entry `yaml:",inline"`
	Group      *timing
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

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *timing) UnmarshalYAML(n *yaml.Node) error {
	t.line = n.Line
	return n.Load(&t.entry, yaml.WithKnownFields())
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
	if len(data) > maxSettings {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", file, lease.ErrInvalid, maxSettings)
	}
	var docs []settings
	err := func() (err error) {
		defer boundary.Contain(&err)
		return yaml.Load(data, &docs, yaml.WithAllDocuments(), yaml.WithKnownFields())
	}()
	if len(docs) > 1 && err == nil {
		err = fmt.Errorf("%d documents, must be one", len(docs))
	}
	if err != nil {
		return nil, malformed(file, err)
	}
	doc := append(docs, settings{})[0]
	s := &Settings{file: file, all: &timing{entry: doc.Top, line: 1}, group: doc.Group,
		parts: map[string]timings{ofSingletons: doc.Singletons, ofSharded: doc.Sharded, ofLeases: doc.Leases}}
	if err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
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
		all = append(all, fmt.Errorf("%s:%d: %w: %s", file, at.Mark.Line, lease.ErrInvalid, reason(at.Message)))
	}
	return listed(all)
}

// listed joins mistakes, as many as mostErrors.
func listed(all []error) error {
	if more := len(all) - mostErrors; more > 0 {
		all = append(all[:mostErrors-1], fmt.Errorf("and %d more", more+1))
	}
	return errors.Join(all...)
}

// read takes up what the entries say, and returns what is wrong in them.
func (s *Settings) read() error {
	var all []error
	bad := func(t *timing, err error) {
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w: %s", strings.TrimPrefix(s.at(t), "Settings: "), lease.ErrInvalid, reason(err.Error())))
		}
	}
	if s.group != nil {
		s.group.what = ofGroup
	}
	for part, entries := range s.parts {
		maps.DeleteFunc(entries, func(_ string, t *timing) bool { return t == nil }) // nothing is said of it
		for name, t := range entries {
			var err error
			t.what = fmt.Sprintf("%s %.64q", part, name)
			t.name, err = leaseName(part, name)
			bad(t, err)
		}
	}
	for _, t := range s.each() {
		bad(t, t.read())
	}
	return listed(all)
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
func span(key string, d *time.Duration, seconds *float64) (time.Duration, error) {
	switch {
	case d != nil && seconds != nil:
		return 0, fmt.Errorf("%s and %s_s, must be one of them", key, key)
	case seconds != nil && !(*seconds >= 0.001 && *seconds <= input.Longest.Seconds()): // NaN, too
		return 0, fmt.Errorf("%s_s: %v, must be at least 0.001 and at most %.0f", key, *seconds, input.Longest.Seconds())
	case seconds != nil:
		d = new(time.Duration(math.Round(*seconds * float64(time.Second))))
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
	return name, lease.ValidateName(name)
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
