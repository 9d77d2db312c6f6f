//go:build unix

package etcdtest

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Options say what to run. The zero value is one member, plain, with auth off.
type Options struct {
	// Members is the size of the cluster: 1, 3 or 5. Default 1.
	Members int
	// Dir is where data and logs go, one directory for each member; they stay
	// after Close. Default: a temporary directory, removed by Close.
	Dir string
	// Binary is the etcd to run. Default: what Binary returns.
	Binary string
	// Fsync makes members write through to the disk. Default false, which is
	// faster; data survives Kill either way, since the machine does not crash.
	Fsync bool
	// Election is the election timeout; the shortest lease TTL that etcd grants
	// is 1.5 times this, rounded up to whole seconds. From 5 heartbeats to 50 s.
	// Default 1 s.
	Election time.Duration
	// Heartbeat is the interval of the leader's heartbeats, at least 1 ms.
	// Default 100 ms.
	Heartbeat time.Duration
	// Quota is the size of the database in bytes beyond which writes are refused,
	// at least 1 MiB. Default: etcd's own, 2 GiB. FillQuota needs one.
	Quota int64
	// TLS makes members ask clients for certificates, and generates what both
	// sides need. Members talk to each other in plain.
	TLS bool
	// Auth calls EnableAuth before the cluster is handed out.
	Auth bool
	// Args are further flags for etcd, after all others.
	Args []string
}

// Option changes one thing of Options.
type Option func(*Options)

// WithMembers sets Options.Members.
func WithMembers(n int) Option { return func(o *Options) { o.Members = n } }

// WithTLS sets Options.TLS.
func WithTLS() Option { return func(o *Options) { o.TLS = true } }

// WithAuth sets Options.Auth.
func WithAuth() Option { return func(o *Options) { o.Auth = true } }

// WithQuota sets Options.Quota.
func WithQuota(bytes int64) Option { return func(o *Options) { o.Quota = bytes } }

// WithTimes sets Options.Election and Options.Heartbeat.
func WithTimes(election, heartbeat time.Duration) Option {
	return func(o *Options) { o.Election, o.Heartbeat = election, heartbeat }
}

// WithFsync sets Options.Fsync.
func WithFsync() Option { return func(o *Options) { o.Fsync = true } }

// WithArgs adds to Options.Args.
func WithArgs(args ...string) Option {
	return func(o *Options) { o.Args = append(o.Args, args...) }
}

const (
	maxElection = 50 * time.Second
	minQuota    = 1 << 20
)

// complete fills in defaults and checks bounds.
func (o Options) complete() (Options, error) {
	if o.Members == 0 {
		o.Members = 1
	}
	if o.Election == 0 {
		o.Election = time.Second
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 100 * time.Millisecond
	}
	bad := func(field string, v any, bound string) (Options, error) {
		return o, fmt.Errorf("etcdtest: %s: %w: %v, must be %s", field, lease.ErrInvalid, v, bound)
	}
	switch {
	case o.Members != 1 && o.Members != 3 && o.Members != 5:
		return bad("Members", o.Members, "1, 3 or 5")
	case o.Heartbeat < time.Millisecond:
		return bad("Heartbeat", o.Heartbeat, "at least 1ms")
	case o.Election < 5*o.Heartbeat || o.Election > maxElection:
		return bad("Election", o.Election, fmt.Sprintf("from 5 heartbeats (%v) to %v", 5*o.Heartbeat, maxElection))
	case o.Quota != 0 && o.Quota < minQuota:
		return bad("Quota", o.Quota, fmt.Sprintf("0 or at least %d bytes", minQuota))
	}
	return o, nil
}
