package main

import (
	"go/ast"
	"go/build"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
)

const root = "../.."

// Every mutant can be planted in the source as it is, and is hunted.
func TestMutantsFitTheSource(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			require.NotEmpty(t, m.name)
			require.False(t, names[m.name], "the name is taken")
			names[m.name] = true
			require.NotEmpty(t, m.does)
			require.NotEmpty(t, m.edits)
			require.NotEmpty(t, m.hunters)
			files, err := mutate(root, m.edits)
			require.NoError(t, err)
			for file, text := range files {
				if filepath.Ext(file) != ".go" {
					require.NotEmpty(t, m.spares, "%s: no compiler sees whether it is broken", file)
					continue
				}
				_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.AllErrors)
				require.NoError(t, err)
				_, err = format.Source([]byte(text))
				require.NoError(t, err, file)
			}
			checks := m.hunters
			if m.spares != (check{}) {
				checks = append(slices.Clone(checks), m.spares)
			}
			for _, c := range checks {
				test, _, _ := strings.Cut(c.run, "/") // what follows is of its subtests
				require.True(t, slices.ContainsFunc(tests(t, c.pkg), regexp.MustCompile(test).MatchString), "%s: there is no such test", c)
			}
		})
	}
}

var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// tests returns the names of the tests of a package, one of which a check must match.
func tests(t *testing.T, pkg string) (names []string) {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	require.NotEmpty(t, names, "package %s has no tests", pkg)
	return names
}

// Every package that a mutant edits still compiles: edits rot as the source changes.
func TestMutantsCompile(t *testing.T) {
	dirs := map[string][]string{} // of each module, with an edit in Go
	for _, m := range mutants {
		for _, e := range m.edits {
			if filepath.Ext(e.file) == ".go" {
				module, at := moduleOf(root, filepath.Dir(e.file))
				dirs[module] = append(dirs[module], "./"+at)
			}
		}
	}
	for module, dirs := range dirs {
		t.Run(module, func(t *testing.T) {
			if testing.Short() && module != "." {
				t.Skip("it needs what other modules depend on")
			}
			cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, dirs...)...)
			cmd.Dir, cmd.Stderr = filepath.Join(root, module), os.Stderr
			out, err := cmd.Output()
			require.NoError(t, err)
			exports := map[string]string{}
			for line := range strings.Lines(string(out)) {
				pkg, export, _ := strings.Cut(strings.TrimSpace(line), " ")
				exports[pkg] = export
			}
			set, source := token.NewFileSet(), map[string]*ast.File{}
			config := types.Config{Importer: importer.ForCompiler(set, "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(exports[pkg]) })}
			for _, m := range mutants {
				compiles(t, m, module, set, config, source)
			}
		})
	}
}

// compiles checks the packages of a module that m edits. source keeps files as they are on disk.
func compiles(t *testing.T, m mutant, module string, set *token.FileSet, config types.Config, source map[string]*ast.File) {
	files, err := mutate(root, m.edits)
	require.NoError(t, err)
	for edited := range files {
		dir := filepath.Dir(edited)
		if of, _ := moduleOf(root, dir); of != module || filepath.Ext(edited) != ".go" {
			continue
		}
		pkg, err := build.ImportDir(filepath.Join(root, dir), 0)
		require.NoError(t, err)
		var parsed []*ast.File
		for _, name := range pkg.GoFiles {
			at := filepath.Join(root, dir, name)
			file, err := source[at], error(nil)
			if text, mutated := files[filepath.Join(dir, name)]; mutated {
				file, err = parser.ParseFile(set, at, text, parser.SkipObjectResolution)
			} else if file == nil {
				file, err = parser.ParseFile(set, at, nil, parser.SkipObjectResolution)
				source[at] = file
			}
			require.NoError(t, err)
			parsed = append(parsed, file)
		}
		_, err = config.Check("github.com/holdfast-go/holdfast/"+dir, set, parsed, nil)
		require.NoError(t, err, m.name)
	}
}

// Each edit applies to the source as it is, not to what another edit left.
func TestMutate(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two three"), 0o600))
	files, err := mutate(dir, []edit{{"a.go", "one", "three"}, {"a.go", "three", "one"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.go": "three two two one"}, files)
	for want, e := range map[string]edit{
		"occurs 0 times":  {"a.go", "four", "five"},
		"occurs 2 times":  {"a.go", "two", "one"},
		"exactly once":    {"a.go", "", "one"},
		"changes nothing": {"a.go", "one", "one"},
		"no such file":    {"b.go", "one", "two"},
	} {
		_, err := mutate(dir, []edit{e})
		require.ErrorContains(t, err, want)
		_, err = plant(dir, []edit{e})
		require.ErrorContains(t, err, want)
	}
}

// A check finds a bug if it passes without the edits, and with them fails or hangs.
func TestTry(t *testing.T) {
	tier.NightlyOnly(t, "TestMutantsCompile applies and type-checks each")
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module planted\n",
		"p/p.go": "package p\n\nimport _ \"embed\"\n\n//go:embed said\nvar said string\n\nfunc answer() int { return 42 }\n",
		"p/said": "yes",
		"p/p_test.go": `package p

import "testing"

func TestAnswer(t *testing.T) {
	if answer() != 42 {
		t.Fail()
	}
}

func TestSaid(t *testing.T) {
	if said != "yes" {
		t.Fail()
	}
}

func TestFails(t *testing.T) { t.Fail() }
`,
		// A module of its own, which uses the first.
		"of/other/go.mod":   "module other\n\nrequire planted v0.0.0\n\nreplace planted => ../..\n",
		"of/other/sub/o.go": "package sub\n\nvar least = 1\n",
		"of/other/sub/o_test.go": `package sub

import (
	"testing"

	"planted/q"
)

func TestLeast(t *testing.T) {
	if q.Answer() < least {
		t.Fail()
	}
}
`,
		"q/q.go": "package q\n\nfunc Answer() int { return 1 }\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	h := &hunter{root: dir, within: 4 * time.Second, clean: &builder{root: dir, dir: t.TempDir()}, passed: map[check]bool{}}
	try := func(instead, test string) error {
		return h.try(mutant{edits: []edit{{"p/p.go", "return 42", instead}}, hunters: []check{{"p", test}}})
	}
	require.NoError(t, try("return 43", "TestAnswer"))
	for _, e := range []edit{{"p/said", "yes", "no"}, {"q/q.go", "return 1", "return 0"}, {"of/other/sub/o.go", "= 1", "= 2"}} {
		for _, c := range []check{{"p", "TestSaid"}, {"of/other/sub", "TestLeast"}} {
			err := h.try(mutant{edits: []edit{e}, hunters: []check{c}})
			require.Equal(t, (c.pkg == "p") == (e.file == "p/said"), err == nil, "%v by %v: %v", e, c, err)
		}
	}
	require.NoError(t, try("for {}", "TestAnswer"), "it hangs")
	require.ErrorContains(t, try("return 6*7", "TestAnswer"), "NOT FOUND")
	require.ErrorContains(t, try("return none", "TestAnswer"), "undefined: none")
	require.ErrorContains(t, try("return 43", "TestFails"), "fails with nothing planted: TestFails")
	require.ErrorContains(t, try("return 43", "TestNone"), "there is no such test")
	m := mutant{edits: []edit{{"p/p.go", "return 42", "return 43"}}, hunters: []check{{"p", "TestAnswer"}}, spares: check{"p", "TestSaid"}}
	require.NoError(t, h.try(m))
	m.spares = check{"p", "TestAnswer"}
	require.ErrorContains(t, h.try(m), "no bug but a breakage")
}

func TestChoice(t *testing.T) {
	list := []mutant{{name: "a"}, {name: "b", edits: []edit{{file: "x/y.go"}, {file: "m/z.sql"}}}, {name: "b-2", edits: []edit{{file: "mm/z.go"}}}}
	for want, c := range map[string]choice{"a b b-2": {}, "b b-2": {from: "b"}, "b": {only: "b"}, "a b": {only: "a|b"}, " b": {in: "m/"}} {
		chosen, err := c.of(list)
		require.NoError(t, err)
		var names []string
		for _, m := range chosen {
			names = append(names, m.name)
		}
		require.Equal(t, strings.Fields(want), names)
	}
	for _, c := range []choice{{only: "c"}, {from: "c"}, {in: "z"}, {only: "a", from: "b"}, {only: "("}} {
		_, err := c.of(list)
		require.Error(t, err)
	}
}
