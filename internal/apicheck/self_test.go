package apicheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const before = `package p
type T struct { A int; hidden int; embedded }
type embedded struct{}
func (*embedded) Promoted(n int) error { return nil }
func (T) M(n int) {}
type I interface { M(a int) (err error) }
type G[K comparable, V any] struct{ F func(k K) V }
type N int
const C N = 3
const S = "x"
var Err error
func F(a int, f func(b string)) (n int, err error) { return 0, nil }
func Of[A any](a A) *T { return nil }
type Other = T
func private() {}
`

func parse(t *testing.T, source string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", source, 0)
	require.NoError(t, err)
	pkg, err := (&types.Config{}).Check("p", files, []*ast.File{file}, nil)
	require.NoError(t, err)
	return lines(pkg)
}

func TestListing(t *testing.T) {
	require.Equal(t, []string{
		"const C N = 3",
		`const S untyped string = "x"`,
		"field G.F func(K) V",
		"field T.A int",
		"func F(int, func(string)) (int, error)",
		"func Of[A any](A) *T",
		"method (*T) Promoted(int) error",
		"method (T) M(int)",
		"type G[K comparable, V any] struct",
		"type I interface{M(int) error}",
		"type N int",
		"type Other = T",
		"type T struct",
		"var Err error",
	}, parse(t, before))
}

// TestSinceTheLastRelease: without a tag nothing is compared. From a tag on, each line that
// went or changed since must be named under "## Unreleased", or its type.
func TestSinceTheLastRelease(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		_, err := git(dir, append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
		require.NoError(t, err)
	}
	release := func(want string) {
		t.Helper()
		tag, err := LastRelease(dir)
		require.NoError(t, err)
		require.Equal(t, want, tag)
	}
	commit := func(lines string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "api", "a"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "api", "a", "b.txt"), []byte(lines), 0o644))
		run("add", ".")
		run("commit", "-m", "c")
	}
	left := map[string][]string{"api/a/b.txt": {"func F(string)", "func G()", "func H()", "type T struct"}}
	check := func(changes string, want ...string) {
		t.Helper()
		names, err := unnamed(dir, left, changes)
		require.NoError(t, err)
		require.Equal(t, want, names, changes)
	}

	release("") // no clone
	run("init", "--initial-branch=main")
	commit("func Early()\n")
	run("tag", "backends/sqlite/v0.9.0")
	run("tag", "nightly")
	release("")
	check("")
	run("tag", "-m", "v0.1.0", "v0.1.0")
	commit("field T.A int\nfunc F(int)\nfunc G()\nmethod (*T) M()\ntype T struct\n")
	release("v0.1.0")
	check("", "a/b.Early")
	run("tag", "v0.2.0")
	run("tag", "v0.2.0-rc.1")
	commit(strings.Join(left["api/a/b.txt"], "\n"))
	release("v0.2.0")

	all := []string{"a/b.T.A", "a/b.F", "a/b.T.M"}
	check("", all...)
	check("## Unreleased\n\n- `a/b.T.A` and `a/b.F` are gone\n- `a/b.T.M`, too\n")
	check("# Changes\n\n## Unreleased\n- `a/b.T` is another\n", "a/b.F")
	check("## Unreleased\n\n## v0.2.0\n- `a/b.F`, `a/b.T`\n", all...)
	check("## Unreleased\n- `b.F`, `F`\n", all...)
	run("checkout", "-q", "-b", "older", "v0.1.0")
	release("v0.1.0")
}
