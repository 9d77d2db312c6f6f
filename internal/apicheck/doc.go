// Package apicheck holds the exported API to what was promised. The directory api has one
// file for each public package, with one line for each exported name as it is used by
// others. A name that is removed or changed breaks programs: its former line stays in the
// file, marked with a minus, until the next release, and CHANGELOG.md must name it.
//
//	go test ./internal/apicheck -update   # write down what the code exports now
//	go test ./internal/apicheck -release  # the same, and forget what was removed: at a release
//
// What came and went since the last commit was promised to nobody: restore api from that
// commit before -update.
package apicheck
