//go:build unix && !linux

package postgrestest

import (
	"errors"
	"fmt"
)

func (s *Server) mountDisk() error { return canMount() }

func (s *Server) unmountDisk() error { return nil }

func canMount() error {
	return fmt.Errorf("a file system in memory: %w: %w", errors.ErrUnsupported, ErrMissing)
}

func removeSharedMemory(string) {}
