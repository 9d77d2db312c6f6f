package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/store"
)

// script is one that the server runs. Without flags it is refused as a whole when memory is
// short; those that free memory, or keep what stands, are not.
type script struct {
	source, sha string
	waits       bool // what it grants must not be forgotten: see WithWait
}

//go:embed lua
var files embed.FS

const allowOOM = " flags=allow-oom"

func load(name, flags string, waits bool) *script {
	source := "#!lua" + flags + "\n"
	for _, part := range []string{"lib", name} {
		if text, _ := files.ReadFile("lua/" + part + ".lua"); name != "check" || part != "lib" {
			source += string(text)
		}
	}
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:]), waits}
}

// No script has the flag no-writes, not even one that reads: a replica refuses it then, and its
// reads would be of the past.
var (
	openScript     = load("open", "", false)
	acquireScript  = load("acquire", "", true)
	transferScript = load("transfer", "", true)
	renewScript    = load("renew", allowOOM, true)
	releaseScript  = load("release", allowOOM, false)
	closeScript    = load("close", allowOOM, false)
	getScript      = load("get", allowOOM, false)
	listScript     = load("list", allowOOM, false)
	ownScript      = load("own", allowOOM, false)
	lookScript     = load("look", allowOOM, false)
	checkScript    = load("check", allowOOM, false)
)

// pageChanges is how many changes one request reads.
const pageChanges = 1000

// goRedis is a client of go-redis. None of its methods repeats what may have been applied.
type goRedis struct {
	client  goredis.UniversalClient
	keys    []string
	timeout time.Duration // the client's ReadTimeout
	wait    wait
}

// newGoRedis is an error, which is store.ErrInvalid, for a client that can't be used.
func newGoRedis(c goredis.UniversalClient) (g *goRedis, endpoints []string, err error) {
	var pool int
	var timeout time.Duration
	switch c := c.(type) {
	case *goredis.Client:
		if c != nil {
			o := c.Options()
			endpoints, pool, timeout = []string{o.Addr}, o.PoolSize, o.ReadTimeout
		}
	case *goredis.ClusterClient:
		if c != nil {
			o := c.Options()
			endpoints, pool, timeout = o.Addrs, o.PoolSize, o.ReadTimeout
		}
	}
	switch {
	case endpoints == nil:
		return nil, nil, fmt.Errorf("redis.New: client: %w: %T, must be a *redis.Client or *redis.ClusterClient "+
			"of go-redis, not nil; a Ring moves keys between servers that know nothing of each other", store.ErrInvalid, c)
	case pool < 2:
		return nil, nil, fmt.Errorf("redis.New: client: %w: PoolSize %d, must be at least 2: a watch takes one connection",
			store.ErrInvalid, pool)
	case timeout < 10*time.Millisecond:
		return nil, nil, fmt.Errorf("redis.New: client: %w: ReadTimeout %v, must be at least 10ms: "+
			"requests to a server that hangs would have no end", store.ErrInvalid, timeout)
	}
	return &goRedis{client: c, timeout: timeout}, endpoints, nil
}

// once is a command that go-redis must not repeat. It repeats one that failed, by default up to
// three times, and can't know whether it was applied. What MOVED, ASK, TRYAGAIN or NOSCRIPT answers
// was not.
type once struct{ goredis.Cmder }

func (once) NoRetry() bool { return true }

// run runs a script, which may write. With a wait, acked is how many replicas have confirmed it.
func (g *goRedis) run(ctx context.Context, of *script, args []any) (answer any, acked int64, err error) {
	answer, acked, err = g.send(ctx, "evalsha", of.sha, of.waits, args)
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		answer, acked, err = g.send(ctx, "eval", of.source, of.waits, args)
	}
	if err != nil {
		return nil, 0, g.explain(err)
	}
	return answer, acked, nil
}

func (g *goRedis) send(ctx context.Context, verb, what string, waits bool, args []any) (any, int64, error) {
	line := []any{verb, what, len(g.keys)}
	for _, k := range g.keys {
		line = append(line, k)
	}
	cmd := goredis.NewCmd(ctx, append(line, args...)...)
	if !waits || g.wait.replicas == 0 {
		_ = g.client.Process(ctx, once{cmd})
		answer, err := cmd.Result()
		return answer, 0, err
	}
	// WAIT is for the writes of its own connection: both go as one pipeline to the slot's master.
	node, err := g.node(ctx)
	if err != nil {
		return nil, 0, err
	}
	pipe := node.Pipeline()
	_ = pipe.Process(ctx, once{cmd})
	acked := goredis.NewCmd(ctx, "wait", g.wait.replicas, g.wait.timeout.Milliseconds())
	_ = pipe.Process(ctx, acked)
	_, err = pipe.Exec(ctx)
	if cmd.Err() == nil && acked.Err() != nil {
		err = fmt.Errorf("wait: %v", acked.Err()) // the script is applied: no refusal of WAIT is definite
	}
	n, _ := acked.Int64()
	return cmd.Val(), n, err
}

// node is the client of the server that has the keys.
func (g *goRedis) node(ctx context.Context) (goredis.UniversalClient, error) {
	if c, ok := g.client.(*goredis.ClusterClient); ok {
		return c.MasterForKey(ctx, g.keys[0])
	}
	return g.client, nil
}

// changes waits for entries of the stream behind after, for up to block, and returns up to pageChanges
// of them.
func (g *goRedis) changes(ctx context.Context, after string, block time.Duration) ([]goredis.XMessage, error) {
	// A client of a cluster may send what only reads to a replica.
	node, err := g.node(ctx)
	if err != nil {
		return nil, err
	}
	block = max(min(block, g.timeout/2), time.Millisecond) // BLOCK 0 has no end
	cmd := goredis.NewXStreamSliceCmd(ctx, "xread", "count", pageChanges, "block", block.Milliseconds(),
		"streams", g.keys[len(g.keys)-1], after)
	_ = node.Process(ctx, once{cmd}) // a second attempt would only take longer to fail
	streams, err := cmd.Result()
	if errors.Is(err, goredis.Nil) || err == nil && len(streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, g.explain(err)
	}
	return streams[0].Messages, nil
}

// refusals are errors by which a server says that it will go on to refuse until its operator
// changes something, and has applied nothing.
var refusals = []struct {
	prefix, means string
	keys          bool // it is about them
}{
	{"NOPERM", "the user may not do that, or not with such keys", true},
	{"NOAUTH", "the client gives no password", false},
	{"WRONGPASS", "the user or the password is wrong", false},
	{"WRONGTYPE", "another program has one of such keys", true},
}

// explain says what an error of go-redis means. What goes missing for a command within a script,
// while it runs, is no refusal: the commands before it are applied.
func (g *goRedis) explain(err error) error {
	text := err.Error()
	for _, r := range refusals {
		if goredis.HasErrorPrefix(err, r.prefix) && !strings.Contains(text, "executing the script") {
			if r.keys {
				r.means += " as " + g.keys[0]
			}
			return fmt.Errorf("%w: %s: %w", store.ErrDenied, r.means, err)
		}
	}
	if cluster, ok := g.client.(*goredis.ClusterClient); ok {
		cluster.ReloadState(context.Background()) // for the next attempt; it does not wait
	} else if _, moved := goredis.IsMovedError(err); moved {
		return fmt.Errorf("%w: the server is one of a cluster, which needs redis.NewClusterClient: %w", store.ErrDenied, err)
	}
	switch {
	case strings.Contains(text, "compiling script"):
		return fmt.Errorf("%w: the server reads no flags of scripts; Redis 7.0 or Valkey 7.2, or later, is needed: %w",
			store.ErrDenied, err)
	case strings.Contains(text, "equal or smaller than the target stream"):
		return fmt.Errorf("%w: %s is behind %s: delete both, and tokens go on by the clock: %w",
			store.ErrDenied, g.keys[0], g.keys[len(g.keys)-1], err)
	}
	return err
}

// reply is what each script answers.
type reply struct {
	rev  int64 // the last revision
	said string
	list []any
}

func replyOf(v any) (reply, error) {
	parts := list(v)
	if len(parts) != 3 {
		return reply{}, fmt.Errorf("%w: a script has answered %.64q", store.ErrInconsistent, fmt.Sprint(v))
	}
	return reply{number(parts[0]), text(parts[1]), list(parts[2])}, nil
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func text(v any) string {
	t, _ := v.(string)
	return t
}

// number is 0 for what is none.
func number(v any) int64 {
	if n, ok := v.(int64); ok {
		return n
	}
	n, _ := strconv.ParseInt(text(v), 10, 64)
	return n
}
