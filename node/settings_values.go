package node

import (
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	yaml "go.yaml.in/yaml/v4"
)

// This file reads the values of settings.

// followed is what an alias stands for.
func followed(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// kind says to people what a node is.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "nothing"
		case "!!int", "!!float":
			return "a number"
		case "!!str":
			return "a text"
		}
		return "a " + strings.TrimLeft(n.ShortTag(), "!")
	}
	return "something else"
}

// scalar returns the text of a value that has one of the tags.
func (s *Settings) scalar(v *yaml.Node, at, must string, tags ...string) (string, bool) {
	if v = followed(v); v.Kind == yaml.ScalarNode {
		for _, tag := range tags {
			if v.ShortTag() == tag {
				return v.Value, true
			}
		}
	}
	s.bad(v.Line, at, "%s %.64q, must be %s", kind(v), v.Value, must)
	return "", false
}

// duration reads a duration as Go writes it.
func (s *Settings) duration(v *yaml.Node, at string) time.Duration {
	text, ok := s.scalar(v, at, "a duration with its unit, such as 30s; "+at[strings.LastIndex(at, " ")+1:]+"_s takes seconds", "!!str")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.bad(v.Line, at, "%.64q, must be a duration such as 30s, 1m30s or 500ms", text)
		return 0
	}
	return s.positive(v, at, d)
}

// decimal is how seconds are written.
var decimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// seconds reads a number of seconds.
func (s *Settings) seconds(v *yaml.Node, at string) time.Duration {
	text, ok := s.scalar(v, at, "a number of seconds, such as 30 or 0.5", "!!int", "!!float")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(text + "s")
	if err != nil || !decimal.MatchString(text) {
		s.bad(v.Line, at, "%.64q, must be a number of seconds such as 30 or 0.5, at most %v", text, input.Longest.Seconds())
		return 0
	}
	return s.positive(v, at, d)
}

// positive bounds a duration; those of TTLs are narrower.
func (s *Settings) positive(v *yaml.Node, at string, d time.Duration) time.Duration {
	if d < time.Millisecond || d > input.Longest {
		s.bad(v.Line, at, "%v, must be at least %v and at most %v", d, time.Millisecond, input.Longest)
		return 0
	}
	return d
}

// renewal reads a policy.
func (s *Settings) renewal(v *yaml.Node, at string) *lease.Renewal {
	text, ok := s.scalar(v, at, "a policy such as lazy, or a fraction of the TTL such as 0.4", "!!str", "!!int", "!!float")
	if !ok {
		return nil
	}
	var r lease.Renewal
	if err := r.UnmarshalText([]byte(text)); err != nil {
		s.bad(v.Line, at, "%s", reason(err))
		return nil
	}
	return &r
}
