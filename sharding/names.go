package sharding

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/lease"
)

// names are the names of one type's leases and actors.
type names struct {
	key         string // group and type, escaped
	coordinator string // the coordinator's lease
	shards      string // the prefix of the shards' leases
	regions     string // the prefix of the nodes' leases
	layout      string // of the lists of remembered entities
	process     string // where other nodes reach this one; the same on every node
	refs        string // the prefix of Refs' ids
}

func namesOf(group, typ string) (n names, err error) {
	key, err := lease.Name("type", group, typ)
	if err != nil {
		return n, err
	}
	n.key = strings.TrimPrefix(key, "type/")
	n.coordinator, n.shards, n.regions = "coordinator/"+n.key, "shard/"+n.key+"/", "region/"+n.key+"/"
	n.layout = "layout/" + n.key
	n.process = "holdfast/sharding/" + n.key
	n.refs = n.process + "/ref/"
	// The longest that is made of it.
	return n, lease.ValidateName(n.shards + strconv.Itoa(MaxShards))
}

func (n names) shard(i int) string { return n.shards + strconv.Itoa(i) }

// number is the inverse of shard.
func (n names) number(name string, shards int) (int, bool) {
	s, ok := strings.CutPrefix(name, n.shards)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(s)
	return i, err == nil && i >= 0 && i < shards && strconv.Itoa(i) == s
}

// region is the lease by which a node takes part.
func (n names) region(o lease.Owner) (string, error) {
	name, err := lease.Name("region", o.ID, o.Incarnation)
	if err != nil {
		return "", err
	}
	name = n.regions + strings.TrimPrefix(name, "region/")
	return name, lease.ValidateName(name)
}

// The metadata of a type's leases.
const (
	keyShards = "shards" // decimal
	keyHosts  = "hosts"  // of a region: "1" if it hosts, else "0"
	keyPlain  = "plain"  // of a region: "1" if it takes messages by the short way, else "0"
)

// said is what the metadata says of the writer: of every lease the version, of a region
// the settings, too, see agreement.
var said = agree.Keys{Protocol: "protocol", Settings: "settings"}

// metadata writes every key that is read, so that one of the user's (WithLeaseOptions)
// is not taken for it.
func metadata(shards int, hosts bool) map[string]string {
	m := said.Metadata("")
	m[keyShards], m[keyHosts] = strconv.Itoa(shards), yesNo(hosts)
	return m
}

func yesNo(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// countOf reads how many shards the writer of a record knew of.
func countOf(r lease.Record) (int, error) {
	n, err := strconv.Atoi(r.Metadata[keyShards])
	if err != nil || checkShards(n) != nil {
		return 0, fmt.Errorf("%q: %w: its number of shards is %.32q", r.Name, lease.ErrBadRecord, r.Metadata[keyShards])
	}
	return n, nil
}
