package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mountDisk puts the server's data on a file system in memory.
func (s *Server) mountDisk() error {
	if err := s.g.account.mkdir(s.data); err != nil {
		return err
	}
	options := fmt.Sprintf("size=%d,mode=0700", s.opts.Disk)
	if c := s.g.account.credential; c != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", c.Uid, c.Gid)
	}
	if err := syscall.Mount("tmpfs", s.data, "tmpfs", syscall.MS_NODEV|syscall.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount a tmpfs of %d bytes: %w", s.opts.Disk, err)
	}
	s.disk = s.data
	return nil
}

func (s *Server) unmountDisk() error {
	if err := syscall.Unmount(s.disk, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", s.disk, err)
	}
	s.disk = ""
	return nil
}

// canMount tries it.
func canMount() error {
	dir, err := os.MkdirTemp("", "postgrestest-mount-")
	if err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4096"); err != nil {
		return errors.Join(fmt.Errorf("no right to mount a tmpfs (%w): %w", err, ErrMissing), os.Remove(dir))
	}
	return errors.Join(syscall.Unmount(dir, 0), os.Remove(dir))
}

// removeSharedMemory removes the segment of a server that was killed, which the next one with the
// same data would have taken over. postmaster.pid names it.
func removeSharedMemory(data string) {
	pid, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return // it ended by itself, and took it along
	}
	lines := strings.Split(string(pid), "\n")
	if len(lines) < 7 {
		return
	}
	var key, id uintptr
	if _, err := fmt.Sscan(lines[6], &key, &id); err == nil {
		_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, id, 0, 0) // IPC_RMID; it may be gone
	}
}
