package lease_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNothingDecidesByWhatIsTold: what terms and records tell people is read nowhere in what
// decides who owns what, or what runs.
func TestNothingDecidesByWhatIsTold(t *testing.T) {
	told := []string{"Granted", "TrustedUntil", "Renewals"}
	files := 0
	for _, dir := range []string{".", "../singleton", "../sharding", "../membership"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{"leasetest", "observed", "testdata"}, d.Name()): // kits, and a store that keeps it
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "term_info.go",
				path == "runlock/runlock.go": // Locks.Get tells it on
				return nil
			}
			files++
			parsed, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(told, sel.Sel.Name) {
					t.Errorf("%s reads %s", path, sel.Sel.Name)
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, files, 60)
}
