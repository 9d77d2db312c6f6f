package singleton

import (
	"maps"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This file is what records of leases say of hosts: their versions and settings, and who the
// host is.

// ErrProtocol: the host is of a version that this node does not talk to (Status.Refused).
var ErrProtocol = agree.ErrProtocol

// said is what a host says of itself, under keys that are reserved for this package.
var said = agree.Keys{Protocol: "holdfast/protocol", Settings: "holdfast/settings"}

// keyPlain: "1" if the host takes Protocol Buffers messages as they are (package fastpath), else "0".
const keyPlain = "holdfast/plain"

// hostNoticed: the records name another host, or none.
type hostNoticed struct {
	record lease.Record
	known  bool
	reset  bool // the store's history went back: what was said before does not count
}

// directory follows the lease records of all singletons, for all managers of one
// Keeper.
type directory struct {
	stop func()

	mu      sync.Mutex
	records map[string]lease.Record
	said    map[string]string // the metadata of the last record: most have the same
	told    map[string]func(hostNoticed)
}

func (d *directory) onEvent(ev store.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := ev.Record.Name
	switch ev.Kind {
	case store.EventPut:
		rec := ev.Record
		rec.Name, rec.Metadata = strings.Clone(name), d.saidLocked(rec.Metadata)
		d.records[name] = rec
		if f := d.told[name]; f != nil {
			f(hostNoticed{record: rec, known: true})
		}
	case store.EventDelete:
		delete(d.records, name)
		if f := d.told[name]; f != nil {
			f(hostNoticed{})
		}
	case store.EventReset:
		clear(d.records)
		for _, f := range d.told {
			f(hostNoticed{reset: true})
		}
	}
}

// saidLocked is what is kept of a record's metadata.
func (d *directory) saidLocked(metadata map[string]string) map[string]string {
	is := said.Of(metadata)
	if metadata[keyPlain] == "1" {
		if is == nil {
			is = map[string]string{}
		}
		is[keyPlain] = "1"
	}
	if !maps.Equal(is, d.said) {
		d.said = is
	}
	return d.said
}

// follow tells f the present record of name, and every change, in order. f must
// not block.
func (d *directory) follow(name string, f func(hostNoticed)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told[name] = f
	rec, ok := d.records[name]
	f(hostNoticed{record: rec, known: ok})
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.told, name)
	}
}
