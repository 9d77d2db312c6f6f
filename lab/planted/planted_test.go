//go:build unix

package planted

import (
	"bytes"
	"context"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/scene"
)

const root = "../.."

func load(t *testing.T) []Bug {
	t.Helper()
	bugs := All(root)
	require.Greater(t, len(bugs), 99)
	return bugs
}

var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// Every bug applies to the source as it is, compiles, and names tests that exist.
func TestBugsFitTheSource(t *testing.T) {
	source := &sources{set: token.NewFileSet(), files: map[string]*ast.File{}, exports: map[string]string{}}
	source.config.Importer = importer.ForCompiler(source.set, "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(source.exports[pkg]) })
	dir := t.TempDir()
	for _, b := range load(t) {
		var planted map[string]string
		if err := scene.Try(func() { planted = b.Plant(root, dir) }); err != nil {
			t.Error(err)
			continue
		}
		if b.What == "" || len(b.FoundBy) == 0 {
			t.Errorf("%s: What or Found-by is missing", b.Name)
		}
		folders := map[string]bool{}
		for file := range planted {
			if filepath.Ext(file) == ".go" {
				folders[filepath.Dir(file)] = true
			} else if b.SparedBy == nil {
				t.Errorf("%s: no compiler sees %s, so Spared-by must name a test that passes", b.Name, file)
			}
		}
		for folder := range folders {
			if err := source.check(t, folder, planted); err != nil {
				t.Errorf("%s: %v", b.Name, err)
			}
		}
		checks := b.FoundBy
		if b.SparedBy != nil {
			checks = append(checks[:len(checks):len(checks)], *b.SparedBy)
		}
		for _, c := range checks {
			run, _, _ := strings.Cut(c.Run, "/")
			if !exists(t, c.Package, regexp.MustCompile(run)) {
				t.Errorf("%s: %s: there is no such test", b.Name, c)
			}
		}
	}
}

func exists(t *testing.T, pkg string, test *regexp.Regexp) bool {
	files, _ := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			if test.Match(m[1]) {
				return true
			}
		}
	}
	return false
}

// sources type-checks packages, and parses each file that is not planted once.
type sources struct {
	set     *token.FileSet
	files   map[string]*ast.File
	exports map[string]string // of the packages that are imported
	config  types.Config
}

func (s *sources) check(t *testing.T, folder string, planted map[string]string) error {
	if s.exports[module+folder] == "" {
		cmd := exec.Command("go", "list", "-trimpath", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
		cmd.Dir, cmd.Stderr = filepath.Join(root, folder), os.Stderr
		out, err := cmd.Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			pkg, export, _ := strings.Cut(strings.TrimSpace(line), " ")
			if s.exports[pkg] == "" {
				s.exports[pkg] = export
			}
		}
	}
	pkg, err := build.ImportDir(filepath.Join(root, folder), 0)
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		path := filepath.Join(root, folder, name)
		file := s.files[path]
		if other := planted[filepath.Join(folder, name)]; other != "" {
			file, err = parser.ParseFile(s.set, other, nil, parser.SkipObjectResolution)
		} else if file == nil {
			file, err = parser.ParseFile(s.set, path, nil, parser.SkipObjectResolution)
			s.files[path] = file
		}
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err = s.config.Check(module+folder, s.set, files, nil)
	return err
}

const module = "github.com/holdfast-go/holdfast/"

// A check finds a bug if it passes without it and fails, or hangs, with it.
func TestHunt(t *testing.T) {
	src := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":               "module planted\n",
		"p/p.go":               "package p\n\nfunc answer() int { return 42 }\n",
		"p/p_test.go":          "package p\n\nimport \"testing\"\n\nfunc TestAnswer(t *testing.T) {\n\tif answer() != 42 {\n\t\tt.Fail()\n\t}\n}\n\nfunc TestFails(t *testing.T) { t.Fail() }\n\nfunc TestPasses(t *testing.T) {}\n",
		"bugs/found.patch":     "What: w\nFound-by: p ^TestPasses$\nFound-by: p ^TestAnswer$\nSpared-by: p ^TestPasses$\n" + diff("return 43"),
		"bugs/hangs.patch":     "What: w\nFound-by: p ^TestAnswer$\n" + diff("for {}"),
		"bugs/missed.patch":    "What: w\nFound-by: p ^TestAnswer$\n" + diff("return 6 * 7"),
		"bugs/unclean.patch":   "What: w\nFound-by: p ^TestFails$\n" + diff("return 43"),
		"bugs/nothing.patch":   "What: w\nFound-by: p ^TestNone$\n" + diff("return 43"),
		"bugs/broken.patch":    "What: w\nFound-by: p ^TestAnswer$\n" + diff("return none"),
		"bugs/breakage.patch":  "What: w\nFound-by: p ^TestAnswer$\nSpared-by: p ^TestAnswer$\n" + diff("return 43"),
		"bugs/elsewhere.patch": "What: w\nFound-by: p ^TestAnswer$\n" + strings.Replace(diff("return 43"), "-func answer", "-func other", 1),
	} {
		file = filepath.Join(src, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	bugs := Load(filepath.Join(src, "bugs"))
	for want, c := range map[string][3]string{"found": {"fo.*", "", ""}, "missed nothing unclean": {"", "p", "missed"}, "": {"", "q", ""}} {
		var names []string
		err := scene.Try(func() {
			for _, b := range Choose(bugs, c[0], c[1], c[2]) {
				names = append(names, b.Name)
			}
		})
		require.Equal(t, want, strings.Join(names, " "), c)
		require.Equal(t, want == "", err != nil, c)
	}
	var out bytes.Buffer
	h := &Hunter{Root: src, Within: 4 * time.Second, Out: &out}
	missed := strings.Join(h.Hunt(t.Context(), bugs), " ")
	require.Equal(t, "breakage broken elsewhere missed nothing unclean", missed, &out)
	for _, want := range []string{"found by p ^TestAnswer$: TestAnswer", "it hangs", "NOT FOUND", "fails with nothing planted", "no test ran", "undefined: none", "a breakage, and no bug", "does not apply"} {
		require.Contains(t, out.String(), want)
	}
	ended, end := context.WithCancel(t.Context())
	end() // as by Ctrl-C
	require.Len(t, h.Hunt(ended, bugs), len(bugs))
}

func diff(instead string) string {
	return "\n--- a/p/p.go\n+++ b/p/p.go\n@@ -3,1 +3,1 @@\n-func answer() int { return 42 }\n+func answer() int { " + instead + " }\n"
}
