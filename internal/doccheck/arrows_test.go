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
	{"sharding", []string{
		// what users call, and the beginning
		"doc.go", "ask.go", "start.go",
		// what becomes of shards: the control loop and what it does
		"loop.go", "leave.go", "coordinate.go", "layout.go", "hosting.go", "orders.go", "handoff.go", "passivate.go",
		// what is told
		"entity.go", "info.go",
		// mail, from where it comes in to the entity
		"frontdoor.go", "mail.go", "entry.go", "recover.go",
		// what a node keeps: of a shard, and of the type
		"shard.go", "region.go",
		// what knows neither
		"events.go", "type.go", "remember.go", "errors.go",
	}, 10},
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
		t.Logf("%s: %d of %d arrows between %d files run upward: %v", l.pkg, len(up), count(uses), len(uses), up)
		require.LessOrEqual(t, len(up), l.arrows, "%s: arrows between its files that run upward: %v", l.pkg, up)
	}
}

// Leases and membership are of use without actors.
func TestLeasesAndMembershipImportNoActors(t *testing.T) {
	for _, pkg := range []string{"./lease", "./membership"} {
		_, exports := compiled(t, pkg)
		for of := range exports {
			require.NotContains(t, of, "/protoactor-go", "%s rests on it", pkg)
		}
	}
}

func count(uses map[string]map[string]bool) (n int) {
	for _, of := range uses {
		n += len(of)
	}
	return n
}

// usesBetweenFiles says which files of a package use what which others declare: functions,
// types, methods, fields, variables and constants. Tests do not count.
func usesBetweenFiles(t *testing.T, pkg string) map[string]map[string]bool {
	t.Helper()
	dir, exports := compiled(t, "./"+pkg)
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	fset := token.NewFileSet()
	uses := map[string]map[string]bool{}
	var files []*ast.File
	for _, name := range names {
		if ok, _ := filepath.Match("*_test.go", filepath.Base(name)); ok {
			continue
		}
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

// compiled returns where a package is, and the export data of all it imports.
func compiled(t *testing.T, pkg string) (dir string, exports map[string]string) {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Export,Dir,DepOnly", pkg)
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Dir string
			DepOnly                 bool
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return dir, exports
		} else {
			require.NoError(t, err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			dir = p.Dir
		}
	}
}
