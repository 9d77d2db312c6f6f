package doccheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers are the files of a package, the highest first: a file is to use what is declared in
// files below it. arrows is how many pairs of files do it the other way round.
type layers struct {
	pkg    string
	files  []string
	arrows int
}

var layered = []layers{
	{"lease", []string{
		// what users call
		"slots.go", "run.go", "handle.go", "ask.go", "keeper.go",
		// what becomes of operations, and what is heard of the store's records
		"ops.go", "follow.go", "reconcile.go", "wait.go", "setback.go",
		// sessions, and the names that are claimed under them
		"sessions.go", "term_info.go", "state.go", "term.go",
		// the store, as it is reached
		"reach.go", "core.go", "metrics.go",
		// what users read and choose
		"config.go", "renewal.go", "lease.go",
	}, 0},
	{"sharding", []string{
		// what users call, and the beginning
		"doc.go", "start.go", "entity.go", "region.go",
		// the control loop and what it does
		"loop.go", "leave.go", "coordinate.go", "registration.go", "info.go", "passivate.go", "frontdoor.go",
		// what becomes of a shard
		"hosting.go", "handoff.go", "shard.go",
		// its entities and its mail
		"remember.go", "entry.go", "mail.go",
		// what all of it shares
		"node.go", "type.go", "events.go",
	}, 2},
	{"membership", []string{
		// what users call
		"doc.go", "join.go", "leave.go", "run.go", "group.go",
		// who leads, and who is there
		"election.go", "membership.go", "rival.go", "base.go", "core.go",
		// what users choose and read
		"options.go", "prefer.go", "record.go", "member.go", "metrics.go", "static.go", "leader.go",
	}, 0},
	{"backends/etcd", []string{
		"doc.go",
		// what a Store does: reads, and writes
		"watch.go", "session.go", "ownership.go", "read.go", "guard.go", "store.go",
		// how records are written and read
		"txn.go", "record.go",
		// the servers, as they are reached
		"version.go", "conn.go", "keepalive.go", "history.go", "errors.go",
	}, 0},
	{"backends/postgres", []string{
		"doc.go",
		// what a Store does
		"migrate.go", "watch.go", "read.go", "guard.go", "ownership.go", "session.go", "store.go",
		// what runs beside it
		"hub.go", "bell.go", "sweep.go", "gaps.go", "record.go",
		// the server, as it is reached
		"conn.go", "check.go", "found.go", "primary.go", "errors.go",
	}, 0},
	{"backends/sqlite", []string{
		"doc.go",
		// what a Store does
		"watch.go", "read.go", "ownership.go", "session.go", "guard.go", "store.go",
		// the changes, and transactions that write and read
		"follow.go", "transaction.go", "record.go",
		// the file and the machine
		"opened.go", "schema.go", "link.go", "place_linux.go", "clock_linux.go", "clock.go", "errors.go",
	}, 0},
	{"singleton", []string{
		// what users call, and the beginning
		"doc.go", "start.go",
		// the actor, and how it ends
		"controller.go", "end.go",
		// the lease and the child, as they move: to the next host, here, from the last host
		"handover.go", "child.go", "successor.go",
		// who would host
		"candidates.go", "leader.go",
		// mail, from where it comes in to the gate or the next node
		"door.go", "proxy.go", "host.go",
		// what a node has: of the lease, of one singleton, of all of them
		"tenure.go", "health.go", "registry.go", "manager.go",
		// what knows none of that
		"record.go", "events.go", "options.go", "machine.go",
	}, 0},
}

// TestFilesUseFilesBelowThem: a file that uses what a file above it declares makes a package
// a tangle, which can be understood, tested and taken apart as a whole only.
func TestFilesUseFilesBelowThem(t *testing.T) {
	for _, l := range layered {
		uses := usesBetweenFiles(t, l.pkg)
		for file := range uses {
			require.Contains(t, l.files, file, "%s: give the file its place among the layers", l.pkg)
		}
		var up [][2]string
		for i, file := range l.files {
			require.Contains(t, uses, file, "%s has no such file", l.pkg)
			for _, above := range l.files[:i] {
				if uses[file][above] {
					up = append(up, [2]string{file, above})
				}
			}
		}
		require.LessOrEqual(t, len(up), l.arrows, "%s: arrows between its files that run upward: %v", l.pkg, up)
	}
}

// A package that no one sees whole has an order of its files.
func TestLargePackagesHaveLayers(t *testing.T) {
	packages := map[string]int{}
	for _, file := range sources(t, ".") {
		pkg, _ := filepath.Rel(root, filepath.Dir(file))
		packages[filepath.ToSlash(pkg)]++
	}
	for pkg, n := range packages {
		if n > 10 {
			require.True(t, slices.ContainsFunc(layered, func(l layers) bool { return l.pkg == pkg }), "%s has %d files", pkg, n)
		}
	}
}

// Leases and membership are of use without actors.
func TestLeasesAndMembershipImportNoActors(t *testing.T) {
	for _, pkg := range []string{"lease", "membership"} {
		_, exports := compiled(t, pkg)
		for of := range exports {
			require.NotContains(t, of, "/protoactor-go", "%s rests on it", pkg)
		}
	}
}

// usesBetweenFiles says which files of a package use what which others declare: functions,
// types, methods, fields, variables and constants. Tests do not count.
func usesBetweenFiles(t *testing.T, pkg string) map[string]map[string]bool {
	t.Helper()
	names, exports := compiled(t, pkg)
	fset := token.NewFileSet()
	uses := map[string]map[string]bool{}
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, f)
		uses[filepath.Base(name)] = map[string]bool{}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	checked, err := config.Check(pkg, fset, files, info)
	require.NoError(t, err)
	for id, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		from, to := filepath.Base(fset.File(id.Pos()).Name()), filepath.Base(fset.File(object.Pos()).Name())
		if from != to {
			uses[from][to] = true
		}
	}
	return uses
}

// compiled returns the files of a package on Linux, but for tests, and the export data of all it
// imports. The package may be of another module.
func compiled(t *testing.T, pkg string) (files []string, exports map[string]string) {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Export,Dir,GoFiles,DepOnly", ".")
	list.Dir, list.Env = filepath.Join(root, pkg), append(os.Environ(), "GOOS=linux")
	out, err := list.Output()
	require.NoError(t, err)
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return files, exports
		} else {
			require.NoError(t, err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			for _, name := range p.GoFiles {
				files = append(files, filepath.Join(p.Dir, name))
			}
		}
	}
}
