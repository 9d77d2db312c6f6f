// Package register makes stores in files of SQLite known to package open, under these URLs:
//
//	sqlite:PATH               of a file, also a relative one: sqlite:leases.db
//	sqlite:///absolute/path   the same
//
// It is imported for that alone:
//
//	import _ "github.com/holdfast-go/holdfast/backends/sqlite/register"
//
// In a path %XX is a byte, so that '%' is %25 and '?' is %3F. One setting may follow a question
// mark: poll=DURATION is sqlite.WithPollInterval. The close that open.Open returns closes the Store.
package register

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/store"
)

func init() {
	if err := open.Register("sqlite", openSQLite); err != nil {
		panic(err) // another package has taken the scheme
	}
}

func openSQLite(ctx context.Context, rest string) (store.Store, func() error, error) {
	path, opts, err := parse(rest)
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlite.New(ctx, path, opts...)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// parse reads what stands behind "sqlite:".
func parse(rest string) (path string, opts []sqlite.Option, err error) {
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(rest, "#") || strings.Contains(query, "#") {
		return "", nil, fmt.Errorf("%w: a fragment (#) has no meaning; in a path it is %%23", store.ErrInvalid)
	}
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(host, "/") {
			return "", nil, fmt.Errorf("%w: %.64q is a host: sqlite:///path is absolute, sqlite:path is relative",
				store.ErrInvalid, host)
		}
		rest = host
	}
	if path, err = url.PathUnescape(rest); err != nil || path == "" {
		return "", nil, fmt.Errorf("path: %w: %.64q, must be a path, in which %%XX is a byte", store.ErrInvalid, rest)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, fmt.Errorf("settings: %w: what stands behind '?' is no query", store.ErrInvalid)
	}
	for k, v := range q {
		if k != "poll" {
			return "", nil, fmt.Errorf("setting %.64q: %w: is not known, of poll", k, store.ErrInvalid)
		}
		d, err := time.ParseDuration(v[0])
		if err != nil || len(v) != 1 {
			return "", nil, fmt.Errorf("setting poll: %w: %.64q, must be one duration such as 10ms", store.ErrInvalid, v)
		}
		opts = append(opts, sqlite.WithPollInterval(d))
	}
	return path, opts, nil
}
