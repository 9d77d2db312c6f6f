//go:build linux

package nodes

import (
	"context"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// overRedis is one Redis that writes each change to the disk before it answers.
var overRedis = Store{Name: "redis", Start: startRedis, Open: openRedis}

// redisServer is that of a torture.
type redisServer struct{ *redistest.Server }

func startRedis(ctx context.Context, _ int) Servers {
	return redisServer{scene.Must(redistest.Run(ctx, redistest.Options{AOF: true}))}
}

func (redisServer) String() string { return "Redis, one server, appendfsync always" }

func (s redisServer) Addresses() []string { return []string{s.Addr()} }

func (redisServer) URL(addresses []string) string { return addresses[0] }

func (s redisServer) Troubles() []Trouble {
	return []Trouble{
		{Name: "kill -9 of Redis", Weight: 2, Least: 0.1, Most: 2, Do: func(context.Context, uint64) (string, undo, error) {
			return "", s.Restart, s.Kill()
		}},
		{Name: "stop of Redis", Weight: 3, Least: 0.5, Most: 3, Do: func(ctx context.Context, _ uint64) (string, undo, error) {
			return "", func(context.Context) error { return s.Resume() }, s.Pause(ctx)
		}},
	}
}

// The fenced journal: a list for each name, and the highest token that has written to it. Redis has no
// guard: the script compares tokens.
const (
	redisJournal = "lab:{journal}:"
	redisTokens  = redisJournal + "tokens"
)

var redisWrite = goredis.NewScript(`
	if ARGV[1] ~= '' then
		local last = tonumber(redis.call('HGET', KEYS[2], KEYS[1]) or '0')
		if tonumber(ARGV[1]) < last then return 0 end
		redis.call('HSET', KEYS[2], KEYS[1], ARGV[1])
	end
	redis.call('RPUSH', KEYS[1], ARGV[2])
	return 1`)

// openRedis makes a node's connection.
func openRedis(ctx context.Context, address string) Client {
	client := redisClient(address)
	leases := scene.Must(redis.New(ctx, client))
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		token := "" // no condition
		if o != nil {
			token = strconv.FormatUint(uint64(o.Token()), 10)
		}
		done, err := redisWrite.Run(ctx, client, []string{redisJournal + strconv.Itoa(name), redisTokens}, token, text).Int()
		if err == nil && done == 0 {
			err = lease.ErrStale
		}
		return err
	}
	read := func(ctx context.Context, name int) (string, error) {
		text, err := client.LIndex(ctx, redisJournal+strconv.Itoa(name), -1).Result()
		if err == goredis.Nil {
			err = nil
		}
		return text, err
	}
	return Client{Leases: leases, Write: write, Read: read, Close: func() error {
		err := leases.Close()
		if failed := client.Close(); err == nil {
			err = failed
		}
		return err
	}}
}

// silence keeps what the client tells of each dial that fails out of the report.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func init() { goredis.SetLogger(silence{}) }

func redisClient(address string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: address, MaxRetries: -1, DialTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second})
}

// History implements Servers. What the server confirmed it keeps: it is excused from no overlap, so there
// are no Changes.
func (s redisServer) History(ctx context.Context) (h History) {
	client := redisClient(s.Addr())
	defer client.Close()
	for _, key := range scene.Must(client.Keys(ctx, redisJournal+"*").Result()) {
		name, err := strconv.Atoi(strings.TrimPrefix(key, redisJournal))
		if err != nil {
			continue // the tokens
		}
		for i, text := range scene.Must(client.LRange(ctx, key, 0, -1).Result()) {
			h.Writes = append(h.Writes, Write{name, int64(i), text})
		}
	}
	return h
}
