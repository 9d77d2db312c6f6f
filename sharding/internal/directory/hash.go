package directory

import "fmt"

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
