// Package redis keeps leases in Redis 7.0 or Valkey 7.2, or later, through the go-redis client that
// a program has. docs/redis.md begins with what it cannot promise: Redis replicates without
// waiting, so a fail-over may forget leases, and two holders may believe in one for up to a TTL.
// Tokens grow all the same, unless the new primary's clock is behind.
//
//	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
//	s, err := redis.New(ctx, client)
//	…
//	keeper, err := lease.NewKeeper(s, lease.Config{ID: "node-1"})
//
// Each call is one script, which Redis runs as one step:
//
//	Store ──script──▶ rev      the last revision; a token is the revision of the change that gave it
//	                  ends     sessions, by their end on the server's clock
//	                  session  what a session is: TTL, owner
//	                  lease    what stands under a name: token, nonce, session, metadata
//	                  own      the names of each session
//	                  change   a stream of the last 20 000 changes
//	      ◀──XREAD────┘        read by one connection for all watches of a Store
//
// No key has a TTL of Redis's own: what has run out is decided by the server's clock in the script,
// so it is over for everybody from the same moment. Every call that writes also sweeps some of it.
//
// When something fails: an error says that it is not known what was applied, and the Keeper settles
// that. store.ErrDenied is definite. The client's own retries are switched off for what the Store
// sends: the second attempt of an acquisition that was applied would be refused by the first.
package redis
