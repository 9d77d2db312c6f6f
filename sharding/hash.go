package sharding

import (
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// ShardOf returns the shard of an entity's id, of shards in all; of fewer than 1 it is
// as of 1: shard 0. It is FNV-1a with 64 bits over the id's bytes, the result mixed by the
// finalizer of MurmurHash3 (fmix64, so that ids which differ only at their end
// spread as well), modulo shards. It is the same on every machine, and will stay
// so: records and remembered entities depend on it.
//
// FNV-1a: Fowler, Noll, Vo, http://www.isthe.com/chongo/tech/comp/fnv. fmix64:
// Austin Appleby, https://github.com/aappleby/smhasher.
func ShardOf(id string, shards int) int { return directory.ShardOf(id, shards) }
