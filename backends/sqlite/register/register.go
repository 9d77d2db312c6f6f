// Package register makes stores in files of SQLite known to package open, under these URLs:
//
//	sqlite:PATH               of a file, also a relative one: sqlite:leases.db
//	sqlite:///absolute/path   the same
//
// It is imported for that alone:
//
//	import _ "github.com/holdfast-go/holdfast/backends/sqlite/register"
//
// In a path %XX is a byte, so that '%' is %25 and '?' is %3F. The close that open.Open returns closes the
// Store.
package register

import (
	"context"
	"fmt"
	"net/url"
	"strings"

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
	path, err := parse(rest)
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlite.New(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// parse reads what stands behind "sqlite:".
func parse(rest string) (string, error) {
	if strings.ContainsAny(rest, "?#") {
		return "", fmt.Errorf("%w: there are no settings (?) and no fragment (#); in a path they are %%3F and %%23", store.ErrInvalid)
	}
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(host, "/") {
			return "", fmt.Errorf("%w: %.64q is a host: sqlite:///path is absolute, sqlite:path is relative",
				store.ErrInvalid, host)
		}
		rest = host
	}
	path, err := url.PathUnescape(rest)
	if err != nil || path == "" {
		return "", fmt.Errorf("path: %w: %.64q, must be a path, in which %%XX is a byte", store.ErrInvalid, rest)
	}
	return path, nil
}
