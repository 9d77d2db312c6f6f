package sharding

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/quiet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is what the nodes of a type must agree on. On the number of shards they
// must at any time, and by their versions they must understand each other: Start fails.
// Other settings may differ while they are changed, node by node: it is told.

// ErrProtocol: a node that takes part is of a version that this one does not talk to.
var ErrProtocol = errors.New("the versions of two nodes are too far apart")

// checkProtocol compares the version of a record's writer with this node's: one apart
// is a rolling upgrade.
func checkProtocol(r lease.Record) error {
	there, err := strconv.Atoi(r.Metadata[keyProtocol])
	if err != nil && r.Metadata[keyProtocol] != "" {
		return fmt.Errorf("%q: %w: its protocol is %.32q", r.Name, lease.ErrBadRecord, r.Metadata[keyProtocol])
	}
	if there > wire.Protocol+1 || there < wire.Protocol-1 {
		return fmt.Errorf("%w: protocol %d here, %d at node %q", ErrProtocol, wire.Protocol, there, r.Owner.ID)
	}
	return nil
}

// agreement is what should be the same on every node, as people and records read it.
func (r *Region) agreement() string {
	s := &r.set
	return fmt.Sprintf("message=%d remember=%t state=%d moves=%d perHost=%d strategy=%.64s",
		r.payload+wire.Headroom, s.store != nil, s.stateLimit, s.limits.Moves, s.limits.PerHost, strings.ReplaceAll(fmt.Sprintf("%T", s.strategy), " ", ""))
}

// maxAgreement bounds what is read of another node's, in bytes.
const maxAgreement = 1024

// unlike says in what another node's agreement is not this one's; empty if it is. A
// setting that only one of them knows of is of another version, and no difference.
func (r *Region) unlike(theirs string) string {
	here := map[string]string{}
	for _, f := range strings.Fields(r.agreement()) {
		k, v, _ := strings.Cut(f, "=")
		here[k] = v
	}
	var all []string
	for _, f := range strings.Fields(theirs[:min(len(theirs), maxAgreement)]) {
		k, v, _ := strings.Cut(f, "=")
		if own, ok := here[k]; ok && own != v {
			all = append(all, fmt.Sprintf("%s is %s here, %s there", k, own, quiet.Cut(v)))
		}
	}
	return strings.Join(all, "; ")
}

// notice tells once of a node that has other settings.
func (r *Region) notice(rec lease.Record) (differs string) {
	if differs = r.unlike(rec.Metadata[keySettings]); differs != "" {
		r.log.Warn("a node has other settings, which should be the same on every node", zap.String("node", quiet.Cut(rec.Owner.ID)), zap.String("differs", differs))
	}
	return differs
}
