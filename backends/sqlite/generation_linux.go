package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
)

// This file keeps the processes of one path to one file, also when that is deleted or replaced
// while they run. Each keeps a shared lock on a small file beside it, which says which file and
// generation of it they use. Another file, or the same again, is begun only under the exclusive
// lock, so when no process is left that may hold something in the former one.
//
//	.NAME-holdfast: "ID DEV INODE BORN" ── is it what stands there? ──yes──▶ join: shared lock
//	                                          │ no
//	                                          ▼
//	                     exclusive lock? ──yes──▶ begin: no session stands; write the line; shared lock
//	                                     ──no───▶ ErrReplaced: others still use the former file

// join has this process take part in the generation that stands. use opens the file: with
// begin, for a new generation, of which it returns the ID; else it returns
// errOtherGeneration if the file is not of the generation that has the ID.
func (p *place) join(ctx context.Context, use func(begin bool, id string) (string, error)) (err error) {
	name := filepath.Join(filepath.Dir(p.path), "."+filepath.Base(p.path)+"-holdfast")
	p.lock, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o664)
	if errors.Is(err, fs.ErrPermission) { // of another user, which has begun
		if lock, other := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0); other == nil {
			p.lock, p.readOnly, err = lock, true, nil
		}
	}
	if err != nil {
		return fmt.Errorf("the file beside it, for locks: %w", err)
	}
	var why error // of an attempt before
	for deadline := time.Now().Add(joinPatience); ; {
		err := p.tryJoin(use)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrReplaced):
			why = err
		case why != nil && ctx.Err() != nil: // in the middle of an attempt
			p.leave()
			return fmt.Errorf("%w: %w", why, err)
		}
		if !errors.Is(err, ErrReplaced) || time.Now().After(deadline) {
			p.leave()
			return err
		}
		select {
		case <-ctx.Done():
			p.leave()
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(time.Millisecond + rand.N(20*time.Millisecond)):
		}
	}
}

// tryJoin holds the shared lock if it returns nil, else none. An error that is ErrReplaced may
// be of this moment only.
func (p *place) tryJoin(use func(begin bool, id string) (string, error)) (err error) {
	defer func() {
		if err != nil {
			_ = p.flock(unix.LOCK_UN)
		}
	}()
	var why error // the file is of another generation
	for _, how := range []int{unix.LOCK_SH, unix.LOCK_EX} {
		if err := p.flock(how | unix.LOCK_NB); err != nil {
			if !errors.Is(err, unix.EWOULDBLOCK) {
				return fmt.Errorf("%s: %w", p.lock.Name(), err)
			}
			if errors.Is(why, ErrOtherMachine) { // and yet locks reach them, so it is of this kernel
				return fmt.Errorf("%w: processes of another boot ID still use %s, as in a container that has one of its own: %w",
					ErrReplaced, p.path, why)
			}
			return fmt.Errorf("%w: processes still use the file that stood at %s: end them, or wait until they noticed",
				ErrReplaced, p.path)
		}
		id, was := p.line()
		stands, err := p.look()
		if err == nil && id != "" && stands == was { // perhaps only now: the locks are taken one after the other
			p.file = stands
			_, why = use(false, id)
			switch {
			case why == nil:
				return p.flock(unix.LOCK_SH)
			case !errors.Is(why, errOtherGeneration):
				return why
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if p.readOnly {
		return fmt.Errorf("%w: %s may not be written by this user, and must be: another file, or the first use of a boot",
			store.ErrDenied, p.lock.Name())
	}
	id, err := use(true, "")
	if err != nil {
		return err
	}
	if p.file, err = p.look(); err != nil {
		return err
	}
	line := fmt.Sprintf("%s %s\n", id, p.file)
	if err := p.lock.Truncate(0); err != nil {
		return fmt.Errorf("%s: %w", p.lock.Name(), err)
	}
	if _, err := p.lock.WriteAt([]byte(line), 0); err != nil {
		return fmt.Errorf("%s: %w", p.lock.Name(), err)
	}
	return p.flock(unix.LOCK_SH)
}

func (p *place) flock(how int) error {
	for {
		if err := unix.Flock(int(p.lock.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// line is what the file beside it says; an empty ID if that is nothing yet.
func (p *place) line() (id string, file identity) {
	b, err := io.ReadAll(io.NewSectionReader(p.lock, 0, 256))
	if err != nil {
		return "", file
	}
	if n, _ := fmt.Sscanf(string(b), "%s %d %d %d\n", &id, &file.dev, &file.ino, &file.born); n != 4 {
		return "", file
	}
	return id, file
}

// leave takes part no longer.
func (p *place) leave() {
	if p.lock != nil {
		_ = p.lock.Close()
		p.lock = nil
	}
}
