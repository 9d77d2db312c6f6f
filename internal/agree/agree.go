// Package agree is what nodes must agree on, as the records of their leases say it. By
// their versions they must understand each other, or the node that finds out refuses the
// other. Settings that should be the same may differ while they are changed, node by
// node: it is logged.
package agree

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// ErrProtocol: a node that takes part is of a version that this one does not talk to.
var ErrProtocol = errors.New("the versions of two nodes are too far apart")

// Keys are the names under which the metadata of a record says it.
type Keys struct {
	Protocol string // decimal: wire.Protocol of the writer; absent: 0
	Settings string // words of the form name=value
}

// Metadata says it of this node; of settings nothing if they are empty.
func (k Keys) Metadata(settings string) map[string]string {
	m := map[string]string{k.Protocol: strconv.Itoa(wire.Protocol)}
	if settings != "" {
		m[k.Settings] = settings
	}
	return m
}

// Of returns a copy of what metadata says of it, bounded, and nothing else.
func (k Keys) Of(metadata map[string]string) map[string]string {
	is := make(map[string]string, 2)
	for _, key := range []string{k.Protocol, k.Settings} {
		if v, ok := metadata[key]; ok {
			is[key] = strings.Clone(v[:min(len(v), maxSettings)])
		}
	}
	return is
}

// Check compares the version of a record's writer with this node's: one apart is a
// rolling upgrade. An error is ErrProtocol, or lease.ErrBadRecord for what is no version.
func (k Keys) Check(r lease.Record) error {
	there, err := strconv.Atoi(r.Metadata[k.Protocol])
	if err != nil && r.Metadata[k.Protocol] != "" {
		return fmt.Errorf("%q: %w: its protocol is %.32q", r.Name, lease.ErrBadRecord, r.Metadata[k.Protocol])
	}
	if there > wire.Protocol+1 || there < wire.Protocol-1 {
		return fmt.Errorf("%w: protocol %d here, %d at node %.64q", ErrProtocol, wire.Protocol, there, r.Owner.ID)
	}
	return nil
}

// maxSettings bounds what is read of another node's, in bytes.
const maxSettings = 1024

// Differs says in what the settings of a record's writer are not these; empty if they
// are. A setting that only one of them knows of is of another version, and no difference.
func (k Keys) Differs(r lease.Record, settings string) string {
	here := map[string]string{}
	for _, f := range strings.Fields(settings) {
		name, v, _ := strings.Cut(f, "=")
		here[name] = v
	}
	theirs := r.Metadata[k.Settings]
	var all []string
	for _, f := range strings.Fields(theirs[:min(len(theirs), maxSettings)]) {
		name, v, _ := strings.Cut(f, "=")
		if own, ok := here[name]; ok && own != v {
			all = append(all, fmt.Sprintf("%s is %s here, %s there", name, own, boundary.Cut(v)))
			delete(here, name) // once is enough
		}
	}
	return strings.Join(all, "; ")
}

// Tell writes of a node that has other settings to a log.
func Tell(log *zap.Logger, r lease.Record, differs string, more ...zap.Field) {
	log.Warn("a node has other settings, which should be the same on every node",
		append(more, zap.String("peer", boundary.Cut(r.Owner.ID)), zap.String("differs", differs))...)
}

// maxWord bounds a Word, in bytes.
const maxWord = 64

// Word makes a text a value of settings: it has no space, and of a long one the
// beginning and a hash stand for the whole.
func Word(s string) string {
	word := strings.Join(strings.Fields(s), "_")
	if len(word) <= maxWord && word == s {
		return word
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // never fails
	return fmt.Sprintf("%s~%08x", strings.ToValidUTF8(word[:min(len(word), maxWord-9)], ""), h.Sum32())
}
