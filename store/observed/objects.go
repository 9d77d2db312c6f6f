package observed

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// Objects is a store of small objects, each linearizable by itself. It is safe for
// concurrent use and honours the context's deadline. An error always means that
// nothing is known: a write may or may not be applied, now or later. Values that
// are passed or returned are not changed afterwards by either side.
//
// It may also be Numbered, Sized and Limited.
type Objects interface {
	// Get returns the object as it stands; false if there is none.
	Get(ctx context.Context, key string) (Object, bool, error)
	// Put writes value if the object has the version ifVersion or, if that is empty,
	// if there is no object; it returns the new version. false: that was surely not
	// so, and nothing was or will be written.
	Put(ctx context.Context, key string, value []byte, ifVersion string) (version string, ok bool, err error)
	// Delete removes the object if it has the version ifVersion, which is not empty.
	// false: that was surely not so.
	Delete(ctx context.Context, key, ifVersion string) (bool, error)
	// List yields each object whose key begins with prefix, once, in any order: all
	// that stand throughout the call, as they stood at some moment of it. An error
	// ends it and means that it is incomplete.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// Object is one object as it was read.
type Object struct {
	Key   string
	Value []byte
	// Version is not empty, and another for each value that the key ever had.
	Version string
}

// Numbered is implemented by Objects whose versions are numbers that grow for ever.
type Numbered interface {
	// Number returns the number of a version: positive, and higher than that of
	// every earlier write of the key, also when it was deleted in between. An error
	// means that version is no such number.
	Number(version string) (store.Token, error)
}

// Sized is implemented by Objects that are bounded. What is longer is refused with
// store.ErrInvalid, and not sent.
type Sized interface {
	// Sizes are the longest key and the longest value in bytes; 0: no bound.
	Sizes() (key, value int)
}

// Limited is implemented by Objects that bound what a Store over them is asked for.
type Limited interface {
	Limits() store.Limits
}

// careful is Objects that answer, or fail: a panic is an error.
type careful struct{ objects Objects }

func (c careful) Get(ctx context.Context, key string) (o Object, ok bool, err error) {
	err = boundary.Call(func() (err error) { o, ok, err = c.objects.Get(ctx, key); return err })
	return o, ok, err
}

func (c careful) Put(
	ctx context.Context, key string, value []byte, ifVersion string,
) (version string, ok bool, err error) {
	err = boundary.Call(func() (err error) { version, ok, err = c.objects.Put(ctx, key, value, ifVersion); return err })
	return version, ok, err
}

func (c careful) Delete(ctx context.Context, key, ifVersion string) (ok bool, err error) {
	err = boundary.Call(func() (err error) { ok, err = c.objects.Delete(ctx, key, ifVersion); return err })
	return ok, err
}

// all is List whole.
func (c careful) all(ctx context.Context, prefix string) (all []Object, err error) {
	err = boundary.Call(func() error {
		for o, err := range c.objects.List(ctx, prefix) {
			if err != nil {
				return err
			}
			all = append(all, o)
		}
		return nil
	})
	return all, err
}
