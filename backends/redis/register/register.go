// Package register makes URLs of Redis known to backends/open. It is imported for that alone:
//
//	import _ "github.com/holdfast-go/holdfast/backends/redis/register"
//
//	store, closeStore, err := open.Open(ctx, "redis://app:secret@localhost:6379/0?prefix={app}")
//
// These are the forms; rediss:// is the same over TLS:
//
//	redis://USER:PASSWORD@HOST:PORT/DB                     one server
//	redis://USER:PASSWORD@HOST:PORT,HOST:PORT/DB?master=M  these Sentinels, which know primary M
//	redis://USER:PASSWORD@HOST:PORT,HOST:PORT?cluster=1    a cluster with these nodes
//
// User and password are the servers'; Sentinels that ask for one need redis.New and a client of
// your own. These settings may follow a question mark, besides those of go-redis (read_timeout=1s,
// pool_size=20; see ParseURL there):
//
//	prefix=PREFIX              redis.WithPrefix
//	wait=N, wait_timeout=TIME  redis.WithWait; both or neither
//
// The close that open.Open returns closes Store and client.
package register

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/store"
)

func init() {
	for _, scheme := range []string{"redis", "rediss"} {
		opener := func(ctx context.Context, rest string) (store.Store, func() error, error) {
			return openRedis(ctx, scheme+":"+rest)
		}
		if err := open.Register(scheme, opener); err != nil {
			panic(err) // another package has taken the scheme
		}
	}
}

func openRedis(ctx context.Context, text string) (store.Store, func() error, error) {
	client, opts, err := parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	s, err := redis.New(ctx, client, opts...)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return s, func() error { return errors.Join(s.Close(), client.Close()) }, nil
}

var errURL = errors.New("no URL of Redis, or a setting that go-redis does not know; " +
	"each of several hosts needs its port; in a user and a password '@', ':', '/', ',', '?' and '#' must be escaped")

// parse shows nothing of what it refuses: there may be a password in it.
func parse(text string) (goredis.UniversalClient, []redis.Option, error) {
	base, query, _ := strings.Cut(text, "?")
	first, others, several := strings.Cut(base, ",")
	hosts, path := others, ""
	if i := strings.Index(others, "/"); i >= 0 {
		hosts, path = others[:i], others[i:]
	}
	u, err := url.Parse(first + path)
	q, err2 := url.ParseQuery(query)
	if err != nil || err2 != nil || u.Host == "" || u.Opaque != "" || strings.ContainsAny(text, "#") || strings.Contains(others, "@") {
		return nil, nil, errURL
	}
	take := func(name string) string {
		v := q.Get(name)
		q.Del(name)
		return v
	}
	var opts []redis.Option
	if p := take("prefix"); p != "" {
		opts = append(opts, redis.WithPrefix(p))
	}
	if n, timeout := take("wait"), take("wait_timeout"); n != "" || timeout != "" {
		replicas, err := strconv.Atoi(n)
		d, err2 := time.ParseDuration(timeout)
		if err != nil || err2 != nil {
			return nil, nil, errors.New("settings wait and wait_timeout: must be a number and a duration such as 100ms")
		}
		opts = append(opts, redis.WithWait(replicas, d))
	}
	master, cluster := take("master"), take("cluster")
	switch {
	case cluster != "" && cluster != "1" || cluster != "" && master != "":
		return nil, nil, errors.New("setting cluster: must be 1, and without master")
	case several && cluster == "" && master == "":
		return nil, nil, errors.New("several hosts need master=NAME, of Sentinel, or cluster=1")
	case cluster != "" && strings.Trim(u.Path, "/") != "":
		return nil, nil, errors.New("a cluster has no databases: nothing may stand behind the hosts")
	}
	if several {
		q["addr"] = strings.Split(hosts, ",")
	}
	user := u.User.Username()
	password, _ := u.User.Password()
	if master != "" {
		q.Set("master_name", master)
		u.User = nil // it would be the Sentinels'
	}
	u.RawQuery = q.Encode()
	switch {
	case cluster != "":
		if o, err := goredis.ParseClusterURL(u.String()); err == nil {
			return goredis.NewClusterClient(o), opts, nil
		}
	case master != "":
		if o, err := goredis.ParseFailoverURL(u.String()); err == nil {
			o.Username, o.Password = user, password
			return goredis.NewFailoverClient(o), opts, nil
		}
	default:
		if o, err := goredis.ParseURL(u.String()); err == nil {
			return goredis.NewClient(o), opts, nil
		}
	}
	return nil, nil, errURL
}
