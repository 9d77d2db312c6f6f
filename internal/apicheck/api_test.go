package apicheck

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/holdfast-go/holdfast/"

// public says whether a package of the module is for other modules.
func public(path, name string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "internal" || part == "test" || part == "examples" {
			return false
		}
	}
	return name != "main"
}

// readCode reads the code of the module. go list reads it in a process of its own, and go
// test keeps a result until a file changes that the test itself has read.
func readCode(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && file != root {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			_, err = os.ReadFile(file)
		}
		return err
	}))
}

// readLists reads the files under api of a repository.
func readLists(repository fs.FS) (map[string][]string, error) {
	lists := map[string][]string{}
	err := fs.WalkDir(repository, "api", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(repository, file)
		lists[file] = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		return err
	})
	return lists, err
}

// exported returns the lists of all public packages, by their files: what each exports.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	readCode(t)
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Name}} {{.Export}}", "./...")
	list.Dir = root
	var problems bytes.Buffer
	list.Stderr = &problems
	out, err := list.Output()
	require.NoError(t, err, "go list: %s", &problems)
	files := map[string]string{}
	var paths []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		require.GreaterOrEqual(t, len(f), 2, line)
		if len(f) > 2 {
			files[f[0]] = f[2]
		}
		if path, ok := strings.CutPrefix(f[0], module); ok && public(path, f[1]) {
			paths = append(paths, path)
		}
	}
	require.NotEmpty(t, paths)
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	api := map[string][]string{}
	for _, path := range paths {
		pkg, err := imports.Import(module + path)
		require.NoError(t, err)
		if l := lines(pkg); len(l) > 0 {
			api["api/"+path+".txt"] = l
		}
	}
	return api
}

// lines has a line for each exported name of a package: its kind, its name, and what
// others rely on. The names of parameters are none of it.
func lines(pkg *types.Package) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	text := func(typ types.Type) string { return types.TypeString(nameless(typ), types.RelativeTo(pkg)) }
	signature := func(s *types.Signature) string { return strings.TrimPrefix(text(s), "func") }
	members := func(name string, named *types.Named) {
		if types.IsInterface(named) {
			return // its methods are part of its line: one more breaks who implements it
		}
		if u, ok := named.Underlying().(*types.Struct); ok {
			for f := range u.Fields() {
				if f.Exported() {
					say("field %s.%s %s", name, f.Name(), text(f.Type()))
				}
			}
		}
		value := types.NewMethodSet(named)
		for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
			if !m.Obj().Exported() {
				continue
			}
			receiver := name
			if value.Lookup(pkg, m.Obj().Name()) == nil {
				receiver = "*" + name
			}
			say("method (%s) %s%s", receiver, m.Obj().Name(), signature(m.Type().(*types.Signature)))
		}
	}
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		switch o := o.(type) {
		case *types.Const:
			say("const %s %s = %s", name, text(o.Type()), o.Val().ExactString())
		case *types.Var:
			say("var %s %s", name, text(o.Type()))
		case *types.Func:
			say("func %s%s", name, signature(o.Signature()))
		case *types.TypeName:
			if o.IsAlias() {
				of := types.Unalias(o.Type())
				say("type %s = %s", name, text(of))
				if named, ok := of.(*types.Named); ok && strings.HasPrefix(named.Obj().Pkg().Path(), module) {
					members(name, named)
				}
				continue
			}
			named := o.Type().(*types.Named)
			if _, ok := named.Underlying().(*types.Struct); ok {
				say("type %s%s struct", name, params(named, text))
			} else {
				say("type %s%s %s", name, params(named, text), text(named.Underlying()))
			}
			members(name, named)
		}
	}
	slices.Sort(all)
	return all
}

// params are the type parameters of a type.
func params(n *types.Named, text func(types.Type) string) string {
	var all []string
	for p := range n.TypeParams().TypeParams() {
		all = append(all, p.Obj().Name()+" "+text(p.Constraint()))
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// nameless takes the names of parameters and results out of a function or an interface.
func nameless(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		tuple := func(from *types.Tuple) *types.Tuple {
			var to []*types.Var
			for v := range from.Variables() {
				to = append(to, types.NewParam(v.Pos(), v.Pkg(), "", nameless(v.Type())))
			}
			return types.NewTuple(to...)
		}
		var typeParams []*types.TypeParam
		for p := range t.TypeParams().TypeParams() {
			obj := types.NewTypeName(p.Obj().Pos(), p.Obj().Pkg(), p.Obj().Name(), nil)
			typeParams = append(typeParams, types.NewTypeParam(obj, p.Constraint()))
		}
		return types.NewSignatureType(nil, nil, typeParams, tuple(t.Params()), tuple(t.Results()), t.Variadic())
	case *types.Interface:
		if t.IsImplicit() || !t.IsMethodSet() {
			return t // a constraint
		}
		var methods []*types.Func
		for m := range t.Methods() {
			methods = append(methods, types.NewFunc(m.Pos(), m.Pkg(), m.Name(), nameless(m.Signature()).(*types.Signature)))
		}
		return types.NewInterfaceType(methods, nil).Complete()
	}
	return t
}
