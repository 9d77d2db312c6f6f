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
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// place is where a file is. The file itself is never opened here: to close it would take away
// every lock that this process has on it.
type place struct {
	path string   // absolute, without links
	file string   // which file it was, as long as it was that one; see identify
	lock *os.File // the file beside it, see join
}

// identify tells a file from another that later has its name, by its device, its inode, and when it was
// made, where that is known. An inode alone does not: the next file may get that of one that was deleted.
func identify(s *unix.Statx_t) string {
	return fmt.Sprintf("%d %d %d", unix.Mkdev(s.Dev_major, s.Dev_minor), s.Ino, s.Btime.Sec*1e9+int64(s.Btime.Nsec))
}

// locate returns the place of a file that is on this machine's own disk, or may be made there.
func locate(path string) (*place, error) {
	if path == "" || strings.ContainsRune(path, 0) || path == ":memory:" || strings.HasPrefix(path, "file:") {
		return nil, fmt.Errorf("path: %w: %.64q, must be the path of a file, not :memory: or a URI", store.ErrInvalid, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) { // then its folder must be there
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
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
// no others, share: ext2 to ext4, xfs, btrfs, tmpfs, ramfs, overlay, f2fs, zfs, bcachefs, jfs, reiserfs,
// nilfs2, ecryptfs.
var localTypes = []uint32{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, 0x2fc12fc1, 0xca451a4e, 0x3153464a,
	unix.REISERFS_SUPER_MAGIC, unix.NILFS_SUPER_MAGIC, 0xf15f,
}

// local returns an error unless the file's folder is on a file system of this machine.
func (p *place) local() error {
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(p.path), &s); err != nil {
		return fmt.Errorf("path: %w: %s: %w", store.ErrInvalid, filepath.Dir(p.path), err)
	}
	if magic := uint32(s.Type); !slices.Contains(localTypes, magic) {
		return fmt.Errorf("%s: %w: on a file system that is not known to be of this machine alone (type %#x): "+
			"leases need a local disk, no network's (NFS, SMB, FUSE, 9p)", p.path, store.ErrUnsupported, magic)
	}
	return nil
}

func stat(path string) (s unix.Statx_t, err error) {
	const mask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BTIME | unix.STATX_MNT_ID
	if err = unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, mask, &s); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return s, err
}

// look returns which file stands there; an error that is fs.ErrNotExist if there is none.
func (p *place) look() (string, error) {
	s, err := stat(p.path)
	if err != nil {
		return "", err
	}
	dir, err := stat(filepath.Dir(p.path))
	switch {
	case err != nil:
		return "", err
	case s.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", fmt.Errorf("path: %w: %s is no file", store.ErrInvalid, p.path)
	case s.Nlink > 1:
		return "", fmt.Errorf("path: %w: %s has %d names (hard links), must have one: "+
			"SQLite finds the log of a file by its name", store.ErrInvalid, p.path, s.Nlink)
	case s.Mask&dir.Mask&unix.STATX_MNT_ID != 0 && s.Mnt_id != dir.Mnt_id:
		return "", fmt.Errorf("path: %w: %s is mounted by itself: mount its folder, "+
			"as SQLite keeps two more files beside it", store.ErrInvalid, p.path)
	}
	return identify(&s), nil
}

// replaced returns an error if what stands there is not the file that was opened.
func (p *place) replaced() error {
	s, err := stat(p.path)
	switch {
	case err == nil && identify(&s) == p.file:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s is another file now", ErrReplaced, p.path)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: %s is gone", ErrReplaced, p.path)
	}
	return err
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
	if p.lock, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o664); err != nil {
		return fmt.Errorf("the file beside it, for locks: %w", err)
	}
	defer func() {
		if err != nil {
			p.leave()
		}
	}()
	var why error // of the attempt before
	for {
		err := p.tryJoin(use)
		if err != nil && why != nil && !errors.Is(err, ErrReplaced) {
			return fmt.Errorf("%w: %w", why, err)
		}
		if why = err; !errors.Is(err, ErrReplaced) {
			return err
		}
		if ended := boundary.Pause(ctx, time.Millisecond+rand.N(20*time.Millisecond)); ended != nil {
			return fmt.Errorf("%w: %w", err, ended)
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
				return err
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
		if err == nil && stands == was { // perhaps only now: the locks are taken one after the other
			p.file = stands
			if _, why = use(false, id); why == nil {
				return p.flock(unix.LOCK_SH)
			}
			if !errors.Is(why, errOtherGeneration) {
				return why
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	id, err := use(true, "")
	if err != nil {
		return err
	}
	if p.file, err = p.look(); err != nil {
		return err
	}
	if err := p.lock.Truncate(0); err != nil {
		return err
	}
	if _, err := p.lock.WriteAt([]byte(id+" "+p.file), 0); err != nil {
		return err
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

// line is what the file beside it says; nothing if that can't be read.
func (p *place) line() (id, file string) {
	b, _ := io.ReadAll(io.NewSectionReader(p.lock, 0, 256))
	id, file, _ = strings.Cut(strings.TrimSpace(string(b)), " ")
	return id, file
}

// leave takes part no longer.
func (p *place) leave() {
	if p.lock != nil {
		_ = p.lock.Close()
		p.lock = nil
	}
}
