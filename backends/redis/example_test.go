//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/lease"
)

func begin(ctx context.Context, addr string) (*goredis.Client, *redis.Store, *lease.Keeper, error) {
	client := goredis.NewClient(&goredis.Options{Addr: addr})
	store, err := redis.New(ctx, client)
	if err != nil {
		return nil, nil, nil, err
	}
	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
	return client, store, keeper, err
}

// fenced writes unless a later holder has written.
var fenced = goredis.NewScript(`
	if tonumber(ARGV[1]) < tonumber(redis.call("GET", KEYS[2]) or "0") then
		return redis.error_reply("STALE a later holder has written")
	end
	redis.call("SET", KEYS[2], ARGV[1])
	return redis.call("SET", KEYS[1], ARGV[2])`)

func write(ctx context.Context, client goredis.UniversalClient, token lease.Token, value string) error {
	keys := []string{"{report}:value", "{report}:token"}
	return fenced.Run(ctx, client, keys, uint64(token), value).Err()
}

// A report is written by one node at a time.
func Example() {
	ctx := context.Background()
	client, store, keeper, err := begin(ctx, "localhost:6379")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // last
	defer store.Close()
	defer keeper.Close(ctx)
	job, err := keeper.Lease("report")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = lease.Run(ctx, job, func(ctx context.Context, term lease.Term) error {
		return write(ctx, client, term.Token(), "made by node-1")
	})
	fmt.Println(err)
}

// TestATokenInAScript: a user's script that compares tokens refuses what a former holder writes late.
func TestATokenInAScript(t *testing.T) {
	t.Parallel()
	client := server(t).Client(t)
	s, _ := fresh(t)
	a, b := session(t, s, "a", lasting), session(t, s, "b", lasting)
	first := win(t, s, a, "report")
	require.NoError(t, write(t.Context(), client, first.Token, "a"))
	require.NoError(t, s.CloseSession(t.Context(), a))
	second := win(t, s, b, "report")
	require.NoError(t, write(t.Context(), client, second.Token, "b"))
	require.ErrorContains(t, write(t.Context(), client, first.Token, "late"), "STALE")
	require.Equal(t, "b", must(client.Get(t.Context(), "{report}:value").Result())(t))
}
