//go:build linux

package stage

import "syscall"

// diesWithParent has the kernel kill the child when its parent ends, even if the
// child is stopped.
func diesWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
