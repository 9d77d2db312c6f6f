// Package inputtest gives bad input to everything that a package exports, so that what
// is added later is tried, too. What there is it finds by reflection, and in the source.
package inputtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decl is what is declared by one function or method that is exported.
type decl struct {
	receiver string // empty for a function
	name     string
	params   []string // types, as the source has them
	results  []string
}

// exported are the functions and methods of exported types that the package in the
// present directory, which is that of the test, exports.
func exported(t *testing.T) (all []decl) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			x := decl{name: f.Name.Name, params: typesOf(f.Type.Params), results: typesOf(f.Type.Results)}
			if f.Recv != nil {
				x.receiver = strings.TrimPrefix(typesOf(f.Recv)[0], "*")
			}
			if x.receiver == "" || ast.IsExported(x.receiver) {
				all = append(all, x)
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

func typesOf(fields *ast.FieldList) (types []string) {
	if fields == nil {
		return nil
	}
	for _, f := range fields.List {
		for range max(1, len(f.Names)) {
			types = append(types, typeName(f.Type))
		}
	}
	return types
}

// typeName is the name of a type; empty if it has none, as a func or a map.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return "*" + typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return ""
}

// complete fails unless a table has an entry for each that the source has, and no other.
func complete[V any](t *testing.T, what string, source []string, table map[string]V) {
	t.Helper()
	slices.Sort(source)
	source = slices.Compact(source)
	require.NotEmpty(t, source, what)
	for _, name := range source {
		require.Contains(t, table, name, "%s without an entry in the table of bad input", what)
	}
	for name := range table {
		require.Contains(t, source, name, "an entry of the table is no %s", what)
	}
}

// Functions calls each function of the package that takes a context, which the table
// must have, without one.
func Functions(t *testing.T, table map[string]func() error) {
	t.Helper()
	var names []string
	for _, d := range exported(t) {
		if d.receiver == "" && slices.Contains(d.params, "context.Context") {
			names = append(names, d.name)
		}
	}
	complete(t, "function that takes a context", names, table)
	for name, call := range table {
		refused(t, name+" with a nil context", "ctx", guarded(t, name, call))
	}
}
