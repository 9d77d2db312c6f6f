// Package apicheck holds the exported API to its lists. The directory api has one file for
// each public package, with one line for each exported name as other packages use it.
//
//	go test ./internal/apicheck -update   # write the lists of what is exported now
//
// From the first release on, a line that a list had at the last release and has no more may
// break programs: "## Unreleased" of CHANGELOG.md must name it.
package apicheck

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// LastRelease returns the highest version of the library, such as v0.1.0, that is a tag of
// the commit checked out in dir or of one before it. It is empty if there is none: a shallow
// clone may lack the tag, and what is no clone lacks all.
func LastRelease(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, ".git")); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	tags, err := git(dir, "-c", "versionsort.suffix=-", "tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v[0-9]*.[0-9]*.[0-9]*")
	tag, _, _ := strings.Cut(tags, "\n")
	return tag, err
}

func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %q: %w: %s", args, err, &problems)
	}
	return string(out), nil
}
