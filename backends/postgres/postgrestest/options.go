//go:build unix

package postgrestest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Superuser is the role that owns everything, and that connections are made as unless told
// otherwise. No role needs a password.
const Superuser = "postgres"

// Options say what to run. The zero value is one server with PostgreSQL's own settings, but for
// those that doc.go names.
type Options struct {
	// Settings are parameters of postgresql.conf, as ALTER SYSTEM takes them.
	Settings map[string]string
	// Faketime runs the server under libfaketime, so that SetClock can step its clock. Everything
	// the server does is slower then.
	Faketime bool
	// Disk, if not 0, is the size in bytes of a file system in memory that holds the server's
	// data, so that it can be full: see FillDisk. At least 128 MiB. It needs the right to mount.
	Disk int64
}

// Option changes one thing of Options.
type Option func(*Options)

// WithSetting sets one of Options.Settings.
func WithSetting(name, value string) Option {
	return func(o *Options) {
		o.Settings = maps.Clone(o.Settings)
		if o.Settings == nil {
			o.Settings = map[string]string{}
		}
		o.Settings[name] = value
	}
}

// WithFaketime sets Options.Faketime.
func WithFaketime() Option { return func(o *Options) { o.Faketime = true } }

// WithDisk sets Options.Disk.
func WithDisk(bytes int64) Option { return func(o *Options) { o.Disk = bytes } }

// needs is what Skip is to look for.
func (o Options) needs() (n []func() error) {
	if o.Faketime {
		n = append(n, needFaketime)
	}
	if o.Disk != 0 {
		n = append(n, canMount)
	}
	return n
}

// quote makes a value of postgresql.conf, and of a connection string.
func quote(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// configuration is a postgresql.conf; later settings count.
func configuration(settings ...map[string]string) []byte {
	var b strings.Builder
	for _, group := range settings {
		for _, name := range slices.Sorted(maps.Keys(group)) {
			fmt.Fprintf(&b, "%s = %s\n", name, quote(group[name]))
		}
	}
	return []byte(b.String())
}
