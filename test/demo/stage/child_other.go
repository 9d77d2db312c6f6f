//go:build darwin || freebsd

package stage

import "syscall"

// diesWithParent does nothing: here a child finds out when its standard input
// ends, and one that is stopped when it is continued.
func diesWithParent(*syscall.SysProcAttr) {}
