// Package observedtest has observed.Objects in memory: the reference for those who
// write others, and what tests of leases over objects run on.
//
//	objects := observedtest.NewMap()
//	store, err := observed.New(objects) // one Store for each node
package observedtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
)

// Map is observed.Objects in memory. A version is made of the value, as an ETag is, so
// that it comes again with the value. It is safe for concurrent use. Make one with
// NewMap.
type Map struct {
	mu      sync.Mutex
	objects map[string]observed.Object
	number  uint64 // of writes; a Numbered's versions
	counts  bool
	fault   Fault
}

// Numbered is a Map whose versions are numbers that grow for ever. Make one with
// NewNumbered.
type Numbered struct{ *Map }

// Fault decides whether and when a request is applied, and what its caller hears of
// it: an error, or nil for the outcome. op is "get", "put", "delete" or "list"; apply
// may be called once, also after the return.
type Fault func(ctx context.Context, op, key string, apply func()) error

// NewMap returns an empty Map.
func NewMap() *Map { return &Map{objects: map[string]observed.Object{}} }

// NewNumbered returns an empty Numbered.
func NewNumbered() Numbered {
	return Numbered{&Map{objects: map[string]observed.Object{}, counts: true}}
}

// Number reads a version.
func (n Numbered) Number(version string) (store.Token, error) {
	number, err := strconv.ParseUint(version, 10, 63)
	return store.Token(number), err
}

// SetFault lets f decide over every request from now on; nil: over none.
func (m *Map) SetFault(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Set writes an object without a condition, as a stranger might.
func (m *Map) Set(key string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(key, value)
}

// Remove deletes an object without a condition.
func (m *Map) Remove(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
}

// All returns what stands, as it is.
func (m *Map) All() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]string, len(m.objects))
	for key, o := range m.objects {
		all[key] = string(o.Value)
	}
	return all
}

func (m *Map) setLocked(key string, value []byte) string {
	m.number++
	version := strconv.FormatUint(m.number, 10)
	if !m.counts {
		sum := sha256.Sum256(value)
		version = hex.EncodeToString(sum[:])
	}
	m.objects[key] = observed.Object{Key: key, Value: slices.Clone(value), Version: version}
	return version
}

// do applies f under the lock, unless a fault has it otherwise.
func (m *Map) do(ctx context.Context, op, key string, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	apply := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		f()
	}
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if fault != nil {
		return fault(ctx, op, key, apply)
	}
	apply()
	return nil
}

// Get implements observed.Objects.
func (m *Map) Get(ctx context.Context, key string) (o observed.Object, ok bool, err error) {
	var read observed.Object
	var found bool
	if err := m.do(ctx, "get", key, func() { read, found = m.objects[key] }); err != nil {
		return observed.Object{}, false, err
	}
	read.Value = slices.Clone(read.Value)
	return read, found, nil
}

// Put implements observed.Objects.
func (m *Map) Put(ctx context.Context, key string, value []byte, ifVersion string) (string, bool, error) {
	var version string
	value = slices.Clone(value)
	if err := m.do(ctx, "put", key, func() {
		if m.objects[key].Version == ifVersion {
			version = m.setLocked(key, value)
		}
	}); err != nil {
		return "", false, err
	}
	return version, version != "", nil
}

// Delete implements observed.Objects.
func (m *Map) Delete(ctx context.Context, key, ifVersion string) (bool, error) {
	var ok bool
	if err := m.do(ctx, "delete", key, func() {
		if o, there := m.objects[key]; there && o.Version == ifVersion {
			delete(m.objects, key)
			ok = true
		}
	}); err != nil {
		return false, err
	}
	return ok, nil
}

// List implements observed.Objects; all as it stood at one moment.
func (m *Map) List(ctx context.Context, prefix string) iter.Seq2[observed.Object, error] {
	return func(yield func(observed.Object, error) bool) {
		var found []observed.Object
		if err := m.do(ctx, "list", prefix, func() {
			for key, o := range m.objects {
				if strings.HasPrefix(key, prefix) {
					o.Value = slices.Clone(o.Value)
					found = append(found, o)
				}
			}
		}); err != nil {
			yield(observed.Object{}, err)
			return
		}
		for _, o := range found {
			if !yield(o, nil) {
				return
			}
		}
	}
}
