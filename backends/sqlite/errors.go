package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	sqlite3 "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

var (
	// ErrReplaced: the file was deleted or replaced while processes use it, or an older copy was
	// written over it. A Store that finds that answers nothing else from then on, so that its
	// Keeper ends every term at once: it is a store.ErrSetback. New returns it while such
	// processes are left.
	ErrReplaced = fmt.Errorf("the file of leases was replaced: %w", store.ErrSetback)
	// ErrOtherMachine: another machine, or the same after a boot that this process outlived,
	// has begun to use the file. It is a store.ErrSetback, too.
	ErrOtherMachine = fmt.Errorf("the file of leases is used by another machine: %w", store.ErrSetback)
	// ErrSchema: the file's tables are not those of this version, or not all there. It is a store.ErrDenied.
	ErrSchema = fmt.Errorf("the tables of leases have another version: %w", store.ErrDenied)

	// errOtherGeneration: the file is not of the generation that was asked for.
	errOtherGeneration = errors.New("another generation")

	errClosed = errors.New("the store is closed")
)

// failed says in what err came; nil if that is nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlite store: %s: %w", op, err)
}

// denied adds store.ErrDenied to an error that nothing but an operator ends, of a transaction
// that was surely not applied.
func denied(err error) error {
	switch is := code(err); {
	case is == lib.SQLITE_CORRUPT:
		return fmt.Errorf("%w: the file is damaged: %w", store.ErrDenied, err)
	case is == lib.SQLITE_READONLY, is == lib.SQLITE_PERM, is == lib.SQLITE_CANTOPEN, is == lib.SQLITE_NOTADB,
		is == lib.SQLITE_AUTH, errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", store.ErrDenied, err)
	}
	return err
}

// ended is the error of a call whose context is done; see also opened.run.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errClosed) || errors.Is(cause, store.ErrSetback) {
		return cause
	}
	return boundary.Ended(ctx)
}

// code is SQLite's primary result code; 0 if err has none.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite3.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool {
	switch code(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return true
	}
	return false
}
