// Package open makes a store of a URL, so that a program's store is a setting.
//
//	store, closeStore, err := open.Open(ctx, os.Getenv("STORE"))
//
// It knows these:
//
//	memory:                         in the memory of this process
//	memory:NAME                     another one
//	etcd://HOST:PORT[,HOST:PORT…]   etcd, in plain text
//	etcds://HOST:PORT[,HOST:PORT…]  etcd, over TLS
//
// Two opens of one memory URL in one process give the same store, which lives as long
// as the process.
//
// A URL of etcd may have a user and a password before the hosts, and a prefix of keys
// behind them (etcd.DefaultPrefix if there is none): etcds://user:password@a:2379,b:2379/prefix/.
// Every host needs its port. With a user the client of etcd asks for a token at once, so
// that opening fails if no server answers within 5 s. These may follow a question mark:
//
//	ca=FILE           certificates that sign those of the servers; the system's by default
//	cert=FILE         certificate of this client; needs key
//	key=FILE          its key
//	server-name=NAME  name that the servers' certificates are for; the host's by default
//
// Other stores make themselves known with Register, as a rule from an init function
// of a package that is imported for that alone.
package open

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// Opener makes a store of a URL, of which it gets what stands behind the scheme and its
// colon. close ends what the store needs, such as connections; it is called once, and
// not before the last Keeper over the store was closed. A store that can't be reached
// is no error: its Keeper will hear of that. An error must not show a password.
type Opener func(ctx context.Context, rest string) (store store.Store, close func() error, err error)

var (
	mu      sync.Mutex
	openers = map[string]Opener{"memory": openMemory, "etcd": etcdOpener(false), "etcds": etcdOpener(true)}
)

var validScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// Register makes a scheme known: lower-case letters, digits, '+', '.' and '-', the
// first one a letter. An error is store.ErrInvalid: a scheme that can't be or is known
// already, or a nil Opener. It is safe for concurrent use.
func Register(scheme string, o Opener) error {
	mu.Lock()
	defer mu.Unlock()
	switch {
	case !validScheme.MatchString(scheme):
		return fmt.Errorf("open.Register: scheme: %w: %.64q, must be lower-case letters, digits, '+', '.' and '-'",
			store.ErrInvalid, scheme)
	case o == nil:
		return fmt.Errorf("open.Register: %s: %w: a nil Opener", scheme, store.ErrInvalid)
	case openers[scheme] != nil:
		return fmt.Errorf("open.Register: %s: %w: known already", scheme, store.ErrInvalid)
	}
	openers[scheme] = o
	return nil
}

// schemes returns the schemes that are known, in order.
func schemes() []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Sorted(maps.Keys(openers))
}

// Open makes a store of a URL. It may read files that the URL names, and waits for no
// server but for etcd's with a user. The store is used until close is called, once, after the last Keeper over it
// was closed. An error that is store.ErrInvalid means that the URL is wrong. It is safe
// for concurrent use.
func Open(ctx context.Context, url string) (s store.Store, close func() error, err error) {
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return nil, nil, fmt.Errorf("open.Open: %w", err)
	}
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, nil, fmt.Errorf("open.Open: %w: a URL without a scheme, must begin with one of %s", store.ErrInvalid,
			strings.Join(schemes(), ":, ")+":")
	}
	mu.Lock()
	o := openers[scheme]
	mu.Unlock()
	if o == nil {
		return nil, nil, fmt.Errorf("open.Open: %w: scheme %.64q is not known, of %s; is the store's register package imported?",
			store.ErrInvalid, scheme, strings.Join(schemes(), ", "))
	}
	if s, close, err = o(ctx, rest); err != nil {
		return nil, nil, fmt.Errorf("open.Open: %s: %w", scheme, err)
	}
	return s, close, nil
}

var (
	memoriesMu sync.Mutex
	memories   = map[string]*memory.Store{}
	memoryName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)
)

func openMemory(_ context.Context, name string) (store.Store, func() error, error) {
	if !memoryName.MatchString(name) {
		return nil, nil, fmt.Errorf("name: %w: %.64q, must be at most 64 letters, digits, '.', '_' and '-'", store.ErrInvalid, name)
	}
	memoriesMu.Lock()
	defer memoriesMu.Unlock()
	if memories[name] == nil {
		memories[name] = memory.New()
	}
	return memories[name], func() error { return nil }, nil
}
