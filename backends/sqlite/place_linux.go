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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
)

// place is where a file is. The file itself is never opened here: to close it would take away
// every lock that this process has on it.
type place struct {
	path string   // absolute, without links
	file identity // which file it was, as long as it was that one
	lock *os.File // the file beside it, see join

	readOnly bool // this user may not write the file beside it
}

// identity tells a file from another that later has its name. An inode alone does not: the next
// file may get that of one that was deleted.
type identity struct {
	dev, ino uint64
	born     int64 // when it was made, in nanoseconds since 1970; 0 where that is not known
}

func (i identity) String() string { return fmt.Sprintf("%d %d %d", i.dev, i.ino, i.born) }

// identify is the identity in s.
func identify(s *unix.Statx_t) identity {
	i := identity{dev: unix.Mkdev(s.Dev_major, s.Dev_minor), ino: s.Ino}
	if s.Mask&unix.STATX_BTIME != 0 {
		i.born = s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
	}
	return i
}

// locate returns the place of a file that is on this machine's own disk, or may be made there.
func locate(path string) (*place, error) {
	switch {
	case path == "" || strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("path: %w: %q, must name a file", store.ErrInvalid, path)
	case path == ":memory:" || strings.HasPrefix(path, "file:"):
		return nil, fmt.Errorf("path: %w: %.64q, must be the path of a file, not :memory: or a URI", store.ErrInvalid, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, bad := os.Readlink(path); bad == nil {
			return nil, fmt.Errorf("path: %w: %s is a symbolic link to %s, and nothing is there", store.ErrInvalid, path, to)
		}
		var dir string
		if dir, err = filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			real = filepath.Join(dir, filepath.Base(path))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("path: %w: %w", store.ErrInvalid, err)
	}
	p := &place{path: real}
	if err := p.local(); err != nil {
		return nil, err
	}
	if _, err := p.look(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return p, nil
}

// localTypes are the file systems whose locks and shared memory all processes of a machine, and
// no others, share.
var localTypes = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext2 to ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.F2FS_SUPER_MAGIC: "f2fs", 0x2fc12fc1: "zfs", 0xca451a4e: "bcachefs", 0x3153464a: "jfs",
	unix.REISERFS_SUPER_MAGIC: "reiserfs", unix.NILFS_SUPER_MAGIC: "nilfs2", 0xf15f: "ecryptfs",
}

// local returns an error unless the file's folder is on a file system of this machine.
func (p *place) local() error {
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(p.path), &s); err != nil {
		return fmt.Errorf("path: %w: %s: %w", store.ErrInvalid, filepath.Dir(p.path), err)
	}
	if err := localType(int64(s.Type)); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	return nil
}

func localType(magic int64) error {
	if localTypes[magic&0xffffffff] == "" {
		return fmt.Errorf("%w: on a file system that is not known to be of this machine alone (type %#x): "+
			"leases need a local disk, no network's (NFS, SMB, FUSE, 9p)", store.ErrUnsupported, uint32(magic))
	}
	return nil
}

// look returns which file stands there; an error that is fs.ErrNotExist if there is none.
func (p *place) look() (identity, error) {
	var s, dir unix.Statx_t
	const mask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BTIME | unix.STATX_MNT_ID
	if err := unix.Statx(unix.AT_FDCWD, p.path, unix.AT_SYMLINK_NOFOLLOW, mask, &s); err != nil {
		return identity{}, fmt.Errorf("%s: %w", p.path, err)
	}
	if err := unix.Statx(unix.AT_FDCWD, filepath.Dir(p.path), 0, mask, &dir); err != nil {
		return identity{}, fmt.Errorf("%s: %w", filepath.Dir(p.path), err)
	}
	switch {
	case s.Mode&unix.S_IFMT != unix.S_IFREG:
		return identity{}, fmt.Errorf("path: %w: %s is no file", store.ErrInvalid, p.path)
	case s.Nlink > 1:
		return identity{}, fmt.Errorf("path: %w: %s has %d names (hard links), must have one: "+
			"SQLite finds the log of a file by its name", store.ErrInvalid, p.path, s.Nlink)
	case s.Mask&dir.Mask&unix.STATX_MNT_ID != 0 && s.Mnt_id != dir.Mnt_id:
		return identity{}, fmt.Errorf("path: %w: %s is mounted by itself: mount its folder, "+
			"as SQLite keeps two more files beside it", store.ErrInvalid, p.path)
	}
	return identify(&s), nil
}

// replaced returns an error if what stands there is not the file that was opened.
func (p *place) replaced() error {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, p.path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &s)
	switch {
	case err == nil && identify(&s) == p.file:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s is another file now", ErrReplaced, p.path)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: %s is gone", ErrReplaced, p.path)
	}
	return fmt.Errorf("%s: %w", p.path, err)
}

// What follows keeps the processes of one path to one file, also when that is deleted or replaced
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
