// Package inputtest gives bad input to everything that a package exports, so that what
// is added later is tried, too. What there is it finds by reflection, and in the source.
package inputtest

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
)

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
)

// patience is how long a call may take that has nothing to do.
const patience = 10 * time.Second

// guarded calls f; a panic, or a call that does not return, fails the test.
func guarded(t *testing.T, what string, f func() error) (err error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- boundary.Call(f) }()
	select {
	case err = <-done:
	case <-time.After(patience):
		require.FailNow(t, "it does not return", what)
	}
	if err != nil {
		require.NotContains(t, err.Error(), "it panicked", what)
	}
	return err
}

func refused(t *testing.T, what, names string, err error) {
	t.Helper()
	require.ErrorIs(t, err, lease.ErrInvalid, what)
	require.ErrorContains(t, err, names, what)
}

// judge fails unless what was tried is refused, or accepted where it is fine.
func judge(t *testing.T, what, names string, fine map[string]string, err error) {
	t.Helper()
	if _, ok := fine[what]; ok {
		require.NoError(t, err, what)
		return
	}
	refused(t, what, names, err)
}

// None is no context.
var None context.Context

// Contexts calls every method of v that takes a context without one: each must return
// lease.ErrInvalid, as its error or as that of what it iterates.
func Contexts(t *testing.T, v any) {
	t.Helper()
	calls := 0
	r := reflect.ValueOf(v)
	for i := range r.NumMethod() {
		m, what := r.Method(i), fmt.Sprintf("%T.%s with a nil context", v, r.Type().Method(i).Name)
		takes := slices.Collect(m.Type().Ins())
		if !slices.Contains(takes, contextType) {
			continue
		}
		calls++
		refused(t, what, "ctx", guarded(t, what, func() error { return lastError(m.Call(plain(m.Type(), nil))) }))
	}
	require.NotZero(t, calls, "%T has no method that takes a context", v)
}

// plain are arguments for a call: functions that do nothing, ctx, and else zero values.
func plain(f reflect.Type, ctx context.Context) (args []reflect.Value) {
	for i := range f.NumIn() {
		in := f.In(i)
		switch {
		case f.IsVariadic() && i == f.NumIn()-1:
		case in == contextType && ctx != nil:
			args = append(args, reflect.ValueOf(ctx))
		case in.Kind() == reflect.Func:
			args = append(args, reflect.MakeFunc(in, func([]reflect.Value) (out []reflect.Value) {
				for j := range in.NumOut() {
					out = append(out, reflect.Zero(in.Out(j)))
				}
				return out
			}))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	return args
}

// lastError is the error of a call: its last result, or what it yields last.
func lastError(results []reflect.Value) (err error) {
	if len(results) == 0 {
		return nil
	}
	last := results[len(results)-1]
	if last.Type() == errorType {
		err, _ = last.Interface().(error)
	} else if last.Type().CanSeq2() {
		for _, v := range last.Seq2() {
			err, _ = v.Interface().(error)
		}
	}
	return err
}

// Zeros calls every method of the zero values that are given, as pointers: none may
// panic, or not return. Each type of the package that has methods, and is no interface,
// must be among them, or in except with the reason why not.
func Zeros(t *testing.T, except map[string]string, zeros ...any) {
	t.Helper()
	table := map[string]any{}
	for name, why := range except {
		require.NotEmpty(t, why, name)
		table[name] = why
	}
	for _, z := range zeros {
		name, _, _ := strings.Cut(reflect.TypeOf(z).Elem().Name(), "[") // of a generic type
		require.NotContains(t, table, name)
		table[name] = z
	}
	var names []string
	for _, d := range exported(t) {
		if d.receiver != "" {
			names = append(names, d.receiver)
		}
	}
	complete(t, "type with methods", names, table)
	for _, z := range zeros {
		r := reflect.ValueOf(z)
		for i := range r.NumMethod() {
			m, what := r.Method(i), fmt.Sprintf("%s of a zero %T", r.Type().Method(i).Name, z)
			_ = guarded(t, what, func() error {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				return lastError(m.Call(plain(m.Type(), ctx)))
			})
		}
	}
}

// bad are values of a type that are out of all bounds. typedNils are pointers and
// functions that are nil, for interfaces that they implement.
func bad(t *testing.T, of reflect.Type, typedNils []any) (values []reflect.Value) {
	t.Helper()
	add := func(vs ...any) {
		for _, v := range vs {
			values = append(values, reflect.ValueOf(v).Convert(of))
		}
	}
	switch of.Kind() {
	case reflect.Int:
		add(math.MinInt, -1, math.MaxInt)
	case reflect.Int64:
		add(int64(math.MinInt64), int64(-1), int64(math.MaxInt64))
	case reflect.Uint8:
		add(uint8(math.MaxUint8))
	case reflect.Float64:
		add(math.NaN(), math.Inf(1), math.Inf(-1), -1.0)
	case reflect.Func, reflect.Pointer:
		values = append(values, reflect.Zero(of))
	case reflect.Interface:
		values = append(values, reflect.Zero(of))
		for _, n := range typedNils {
			if reflect.TypeOf(n).Implements(of) {
				values = append(values, reflect.ValueOf(n).Convert(of))
			}
		}
		require.Greater(t, len(values), 1, "no nil pointer or function is given that is a %v", of)
	case reflect.Struct:
		for i := range of.NumField() {
			if !of.Field(i).IsExported() {
				continue
			}
			for _, v := range bad(t, of.Field(i).Type, typedNils) {
				s := reflect.New(of).Elem()
				s.Field(i).Set(v)
				values = append(values, s)
			}
		}
	}
	return values
}

// describe tells a bad value in a few words.
func describe(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Func, reflect.Pointer:
		return "nil"
	case reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return fmt.Sprintf("a nil %v", v.Elem().Type())
	case reflect.Struct:
		return fmt.Sprintf("%+v", v.Interface())
	}
	if v.CanInt() {
		switch v.Int() {
		case math.MinInt64:
			return "least"
		case math.MaxInt64:
			return "most"
		}
		return fmt.Sprint(v.Int())
	}
	return fmt.Sprint(v.Interface())
}

// Options tries each option of the package: each function that returns an O, which
// table must have, with arguments that are good. Each argument in its turn is replaced
// by what is out of all bounds; then start must return lease.ErrInvalid and name the
// option. fine has what is accepted nevertheless, such as "WithLogger(nil)", and why:
// then start must work.
func Options[O any](t *testing.T, table map[string][]any, typedNils []any, fine map[string]string, start func(O) error) {
	t.Helper()
	var names []string
	for _, d := range exported(t) {
		if d.receiver == "" && len(d.results) == 1 && d.results[0] == reflect.TypeFor[O]().Name() {
			names = append(names, d.name)
		}
	}
	complete(t, "option", names, table)
	unused := maps.Clone(fine)
	for name, entry := range table {
		option := reflect.ValueOf(entry[0])
		good := make([]reflect.Value, 0, len(entry)-1)
		for i, v := range entry[1:] {
			in := option.Type().In(min(i, option.Type().NumIn()-1))
			if option.Type().IsVariadic() && i >= option.Type().NumIn()-1 {
				in = in.Elem()
			}
			good = append(good, reflect.New(in).Elem())
			if v != nil {
				good[i].Set(reflect.ValueOf(v))
			}
		}
		try := func(what string, args []reflect.Value) error {
			return guarded(t, what, func() error { return start(option.Call(args)[0].Interface().(O)) })
		}
		require.NoError(t, try(name, good), name)
		for i := range good {
			for _, v := range bad(t, good[i].Type(), typedNils) {
				args := slices.Clone(good)
				args[i] = v
				what := fmt.Sprintf("%s(%s)", name, describe(v))
				judge(t, what, name, fine, try(what, args))
				delete(unused, what)
			}
		}
	}
	require.Empty(t, unused, "nothing that was tried")
}

// Fields is Options for the fields of a struct, of which good is accepted: each in its
// turn is set to what is out of all bounds. An interface, function or pointer may be
// left out, so nil itself is not tried.
func Fields[C any](t *testing.T, good C, typedNils []any, fine map[string]string, start func(C) error) {
	t.Helper()
	require.NoError(t, start(good))
	unused := maps.Clone(fine)
	of := reflect.TypeFor[C]()
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Type.Kind() == reflect.Struct {
			continue // with a test of its own
		}
		for _, v := range bad(t, field.Type, typedNils) {
			if describe(v) == "nil" {
				continue
			}
			c := good
			reflect.ValueOf(&c).Elem().Field(i).Set(v)
			what := fmt.Sprintf("%s: %s", field.Name, describe(v))
			err := guarded(t, what, func() error { return start(c) })
			judge(t, what, field.Name, fine, err)
			delete(unused, what)
		}
	}
	require.Empty(t, unused, "nothing that was tried")
}

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
