package apicheck

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/stretchr/testify/require"
)

const before = `package p
import "context"
type T struct { A int; hidden int; embedded }
type embedded struct{}
func (*embedded) Promoted(n int) error { return nil }
func (T) M(ctx context.Context) {}
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
	cfg := types.Config{Importer: importer.ForCompiler(files, "source", nil)}
	pkg, err := cfg.Check("p", files, []*ast.File{file}, nil)
	require.NoError(t, err)
	return lines(pkg)
}

func TestWhatIsWrittenDown(t *testing.T) {
	require.Equal(t, []string{
		"const C N = 3",
		`const S untyped string = "x"`,
		"field G.F func(K) V",
		"field T.A int",
		"func F(int, func(string)) (int, error)",
		"func Of[A any](A) *T",
		"method (*T) Promoted(int) error",
		"method (T) M(context.Context)",
		"type G[K comparable, V any] struct",
		"type I interface{M(int) error}",
		"type N int",
		"type Other = T",
		"type T struct",
		"var Err error",
	}, parse(t, before))
}

// TestABreakMustBeTold: each line that goes, or is another now, is asked for until
// CHANGELOG.md names it where it should, and until the next release.
func TestABreakMustBeTold(t *testing.T) {
	was := []string{"field T.A int", "func F(int)", "func G()", "method (*T) M()", "type T struct"}
	now := []string{"func F(string)", "func G()", "func H()", "type T struct"}
	recorded := next(was, now, false)
	require.Equal(t, []string{"- field T.A int", "- func F(int)", "- method (*T) M()", "func F(string)", "func G()", "func H()", "type T struct"}, recorded)
	require.Equal(t, recorded, next(recorded, now, false), "what was removed stays")
	require.Equal(t, now, next(recorded, now, true), "until it is released")
	require.NotContains(t, next(recorded, append(now, "field T.A int"), false), "- field T.A int", "it is back")

	api := map[string][]string{"a/b": recorded}
	require.Len(t, missing(api, nil), 3)
	require.Contains(t, missing(api, nil)[1], "- `a/b.F`: …")
	for changes, want := range map[string]int{
		"## Unreleased\n### Breaks\n- `a/b.T.A` and `a/b.F` are gone\n- `a/b.T.M`, too\n": 0,
		"## Unreleased\n### Breaks\n- `a/b.T` is another\n":                               1,
		"## Unreleased\n- `a/b.F` is new\n":                                               3,
		"## Unreleased\n### Breaks\n\n## 0.1\n### Breaks\n- `a/b.F`\n":                    3,
		"## Unreleased\n### Breaks\n- `b.F`, `F`\n":                                       3,
	} {
		require.Len(t, missing(api, told(changes)), want, changes)
	}
}
