package directory

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Names are the names of one type's leases and actors.
type Names struct {
	Key         string // group and type, escaped
	Coordinator string // the coordinator's lease
	Shards      string // the prefix of the shards' leases
	Regions     string // the prefix of the nodes' leases
	Layout      string // of the lists of remembered entities
	Process     string // where other nodes reach this one; the same on every node
	Refs        string // the prefix of Refs' ids
}

// NamesOf returns the names of a type in a group. The error is lease.ErrInvalid.
func NamesOf(group, typ string) (n Names, err error) {
	key, err := lease.Name("type", group, typ)
	if err != nil {
		return n, err
	}
	n.Key = strings.TrimPrefix(key, "type/")
	n.Coordinator, n.Shards, n.Regions = "coordinator/"+n.Key, "shard/"+n.Key+"/", "region/"+n.Key+"/"
	n.Layout = "layout/" + n.Key
	n.Process = "holdfast/sharding/" + n.Key
	n.Refs = n.Process + "/ref/"
	// The longest that is made of it.
	return n, store.ValidateName(n.Shards + strconv.Itoa(MaxShards))
}

// Shard is the name of a shard's lease.
func (n Names) Shard(i int) string { return n.Shards + strconv.Itoa(i) }

// Number is the inverse of Shard.
func (n Names) Number(name string, shards int) (int, bool) {
	s, ok := strings.CutPrefix(name, n.Shards)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(s)
	return i, err == nil && i >= 0 && i < shards && strconv.Itoa(i) == s
}

// Region is the lease by which a node takes part.
func (n Names) Region(o lease.Owner) (string, error) {
	name, err := lease.Name("region", o.ID, o.Incarnation)
	if err != nil {
		return "", err
	}
	name = n.Regions + strings.TrimPrefix(name, "region/")
	return name, store.ValidateName(name)
}

// The metadata of a type's leases.
const (
	keyShards = "shards" // decimal
	keyHosts  = "hosts"  // of a region: "1" if it hosts, else "0"
	keyPlain  = "plain"  // of a region: "1" if it takes messages by the short way, else "0"
)

// Said is what the metadata says of the writer: of every lease the version, of a region
// the settings, too.
var Said = agree.Keys{Protocol: "protocol", Settings: "settings"}

// Metadata is that of a lease of the type. It has every key that is read, so that one of
// the user's (WithLeaseOptions) is not taken for it.
func Metadata(shards int, hosts bool) map[string]string {
	m := Said.Metadata("")
	m[keyShards], m[keyHosts] = strconv.Itoa(shards), yesNo(hosts)
	return m
}

// RegionMetadata is that of the lease by which a node takes part: whether it hosts, takes
// messages by the short way, and its settings, which should be the same on every node.
func RegionMetadata(shards int, hosts, plain bool, settings string) map[string]string {
	m := Metadata(shards, hosts)
	m[keyPlain], m[Said.Settings] = yesNo(plain), settings
	return m
}

func yesNo(is bool) string {
	if is {
		return "1"
	}
	return "0"
}

// CountOf reads how many shards the writer of a record knew of.
func CountOf(r lease.Record) (int, error) {
	n, err := strconv.Atoi(r.Metadata[keyShards])
	if err != nil || CheckShards(n) != nil {
		return 0, fmt.Errorf("%q: %w: its number of shards is %.32q", r.Name, lease.ErrBadRecord, r.Metadata[keyShards])
	}
	return n, nil
}

// MaxShards bounds the number of shards of a type.
const MaxShards = 1 << 16

// ShardOf returns the shard of an entity's id, of shards in all; of fewer than 1 it is
// as of 1. It is FNV-1a with 64 bits over the id's bytes, the result mixed by the
// finalizer of MurmurHash3 (fmix64, so that ids which differ only at their end
// spread as well), modulo shards. It is the same on every machine, and will stay
// so: records and remembered entities depend on it.
//
// FNV-1a: Fowler, Noll, Vo, http://www.isthe.com/chongo/tech/comp/fnv. fmix64:
// Austin Appleby, https://github.com/aappleby/smhasher.
func ShardOf(id string, shards int) int {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h ^= uint64(id[i])
		h *= 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return int(h % uint64(max(shards, 1)))
}

// CheckShards returns an error unless a type may have n shards.
func CheckShards(n int) error {
	if n < 1 || n > MaxShards {
		return fmt.Errorf("shards: %d, must be 1 to %d", n, MaxShards)
	}
	return nil
}
