//go:build unix

// Package planted plants known bugs in the library, one at a time, and tells which check finds each.
//
// A bug is a patch in bugs/: a few header lines, then a diff against the source of whichever module.
//
//	What: a release deletes by name, whatever the token
//	Found-by: lease ^TestSimulation$
//	Found-by: backends/memory ^TestConformanceOnFakeTime$
//	Spared-by: backends/postgres ^TestEdition$
//
// Found-by names a package and the tests to run, in the order in which they are tried. The test of
// Spared-by passes with the bug: it shows that a change that no compiler sees is no mere breakage. The
// patched files take the place of the source by an overlay (go help build) while a check is built.
package planted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// Check is some tests of a package.
type Check struct{ Package, Run string }

func (c Check) String() string { return c.Package + " " + c.Run }

// Bug is a planted bug.
type Bug struct {
	Name, What string
	FoundBy    []Check
	SparedBy   *Check
	Files      []string // that it changes, relative to the root
	patch      []byte
	negated    [2]int // or, with no patch, where the clause is that is negated
}

var changed = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`)

// Load reads the bugs of a folder.
func Load(dir string) (bugs []Bug) {
	for _, file := range scene.Must(filepath.Glob(filepath.Join(dir, "*.patch"))) {
		text := scene.Must(os.ReadFile(file))
		b := Bug{Name: strings.TrimSuffix(filepath.Base(file), ".patch")}
		header, _, ok := bytes.Cut(text, []byte("\n--- a/"))
		if !ok {
			scene.Check(fmt.Errorf("%s: there is no diff", file))
		}
		b.patch = text[len(header)+1:]
		for _, m := range changed.FindAllSubmatch(b.patch, -1) {
			b.Files = append(b.Files, string(m[1]))
		}
		for line := range strings.Lines(string(header)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			pkg, run, _ := strings.Cut(value, " ")
			switch key {
			case "What":
				b.What = value
			case "Found-by":
				b.FoundBy = append(b.FoundBy, Check{pkg, run})
			case "Spared-by":
				b.SparedBy = &Check{pkg, run}
			default:
				scene.Check(fmt.Errorf("%s: a header is What, Found-by or Spared-by, not %q", file, line))
			}
		}
		bugs = append(bugs, b)
	}
	return bugs
}

// Negations are a bug for each clause by which a file of Go decides, negated: each operand of && and ||
// in the conditions of its ifs, and of its switches that have no tag.
func Negations(root, file string, by Check) (bugs []Bug) {
	text, set := scene.Must(os.ReadFile(filepath.Join(root, file))), token.NewFileSet()
	var negate func(ast.Expr)
	negate = func(e ast.Expr) {
		if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
			negate(b.X)
			negate(b.Y)
			return
		}
		from, to := set.Position(e.Pos()), set.Position(e.End())
		bugs = append(bugs, Bug{
			Name: fmt.Sprintf("not-%s-%d", strings.TrimSuffix(filepath.Base(file), ".go"), len(bugs)),
			What: fmt.Sprintf("line %d, negated: %s", from.Line, text[from.Offset:to.Offset]), FoundBy: []Check{by},
			Files: []string{file}, negated: [2]int{from.Offset, to.Offset},
		})
	}
	ast.Inspect(scene.Must(parser.ParseFile(set, file, text, 0)), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			negate(n.Cond)
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				if n.Tag == nil {
					for _, e := range c.(*ast.CaseClause).List {
						negate(e)
					}
				}
			}
		}
		return true
	})
	return bugs
}

// All are the bugs of bugs/, and the negations of the machines that are explored.
func All(root string) []Bug {
	return append(Load(filepath.Join(root, "lab/planted/bugs")),
		Negations(root, "lease/internal/settle/settle.go", Check{"lease/internal/settle", "^(TestExplore|TestAcceptedHistory)$"})...)
}

// Choose returns the bugs whose whole name matches only, that change a file in the folder in, from the
// one named from on; an empty string chooses all. To choose none is an error.
func Choose(bugs []Bug, only, in, from string) (chosen []Bug) {
	name := scene.Must(regexp.Compile("^(?:" + only + ")$"))
	for _, b := range bugs {
		inside := slices.ContainsFunc(b.Files, func(f string) bool { return in == "" || strings.HasPrefix(f, strings.TrimSuffix(in, "/")+"/") })
		if b.Name >= from && inside && (only == "" || name.MatchString(b.Name)) {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 {
		scene.Check(fmt.Errorf("no planted bug is chosen by -only %q -in %q -from %q", only, in, from))
	}
	return chosen
}

// Plant writes the files that the bug changes, as they are with it, into dir, and returns their paths
// there by the path below root.
func (b Bug) Plant(root, dir string) map[string]string {
	planted := map[string]string{}
	for _, file := range b.Files {
		planted[file] = filepath.Join(dir, file)
		text := scene.Must(os.ReadFile(filepath.Join(root, file)))
		scene.Check(os.MkdirAll(filepath.Dir(planted[file]), 0o755))
		scene.Check(os.WriteFile(planted[file], text, 0o644))
	}
	if b.patch == nil {
		for _, path := range planted {
			text := scene.Must(os.ReadFile(path))
			from, to := b.negated[0], b.negated[1]
			scene.Check(os.WriteFile(path, fmt.Appendf(nil, "%s!(%s)%s", text[:from], text[from:to], text[to:]), 0o644))
		}
		return planted
	}
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(b.patch)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // dir is in no repository
	if out, err := cmd.CombinedOutput(); err != nil {
		scene.Check(fmt.Errorf("%s does not apply: %s", b.Name, bytes.TrimSpace(out)))
	}
	return planted
}

// Hunter runs checks with bugs planted.
type Hunter struct {
	Root   string
	Within time.Duration // of a check
	Out    io.Writer
	passed map[Check]bool // with nothing planted
}

// rounds is how often all checks of a bug run until one finds it: those that draw may miss it once.
const rounds = 3

// Hunt plants the bugs and returns the names of those that no check finds before ctx ends, or whose
// check does not pass with nothing planted.
func (h *Hunter) Hunt(ctx context.Context, bugs []Bug) (missed []string) {
	h.passed = map[Check]bool{}
	for i, b := range bugs {
		began := time.Now()
		verdict := ""
		if err := scene.Try(func() { verdict = "found by " + h.find(ctx, b) }); err != nil {
			verdict = err.Error()
			missed = append(missed, b.Name)
		}
		fmt.Fprintf(h.Out, "%d/%d %-26s %6.1f s  %s\n", i+1, len(bugs), b.Name, time.Since(began).Seconds(), verdict)
	}
	return missed
}

func (h *Hunter) find(ctx context.Context, b Bug) (by string) {
	scene.Check(context.Cause(ctx))
	dir := scene.Must(os.MkdirTemp("", "holdfast-planted"))
	defer os.RemoveAll(dir)
	planted := b.Plant(h.Root, dir)
	if b.SparedBy != nil {
		if failed := h.run(ctx, *b.SparedBy, dir, planted); failed != "" {
			scene.Check(fmt.Errorf("a breakage, and no bug: %s fails: %s", b.SparedBy, failed))
		}
	}
	for _, c := range slices.Repeat(b.FoundBy, rounds) {
		if !h.passed[c] {
			if failed := h.run(ctx, c, dir, nil); failed != "" {
				scene.Check(fmt.Errorf("%s fails with nothing planted: %s", c, failed))
			}
			h.passed[c] = true
		}
		if failed := h.run(ctx, c, dir, planted); failed != "" {
			return fmt.Sprintf("%s: %s", c, failed)
		}
	}
	scene.Check(errors.New("NOT FOUND"))
	return ""
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	suite      = regexp.MustCompile(`simulate\.New\("([a-z-]+)", (\d+), \d+\)`)
)

// run builds and runs a check with planted files in place of the source. failed says which test
// fails, and is empty if all pass.
func (h *Hunter) run(ctx context.Context, c Check, dir string, planted map[string]string) (failed string) {
	pkg := filepath.Join(h.Root, c.Package)
	replace := map[string]string{}
	for file, path := range planted {
		replace[filepath.Join(h.Root, file)] = path
	}
	overlay := scene.Must(json.Marshal(map[string]any{"Replace": replace}))
	scene.Check(os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	bin := filepath.Join(dir, "check.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, ".")
	build.Dir = pkg
	if out, err := build.CombinedOutput(); err != nil {
		scene.Check(fmt.Errorf("%s does not compile: %s", c.Package, out))
	}
	within, cancel := context.WithTimeout(ctx, h.Within)
	defer cancel()
	// A test that spins at one moment of fake time must not take all memory.
	args := append([]string{"-c", `ulimit -v 12000000; exec "$0" "$@"`, bin, "-test.run", c.Run, "-test.failfast", "-test.v"}, draws(pkg)...)
	cmd := exec.CommandContext(within, "sh", args...)
	cmd.Dir, cmd.WaitDelay = pkg, 10*time.Second
	cmd.Env = append(os.Environ(), "HOLDFAST_NIGHTLY=1") // explorers to their full bounds, disturbed servers
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	scene.Check(context.Cause(ctx))
	switch {
	case within.Err() != nil:
		return "it hangs"
	case err == nil && !bytes.Contains(out, []byte("--- PASS: ")):
		scene.Check(fmt.Errorf("%s: no test ran", c))
	case err != nil && !errors.As(err, &exit):
		scene.Check(err)
	case err == nil:
		return ""
	}
	if m := failedTest.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return "it ends: " + exit.Error()
}

// draws are the flags by which a package's tests make up twice the histories of the commit tier. As
// many as the nightly tier has would take too long for each bug.
func draws(pkg string) (flags []string) {
	files, _ := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, m := range suite.FindAllStringSubmatch(string(text), -1) {
			n, _ := strconv.Atoi(m[2])
			flags = append(flags, fmt.Sprintf("-%s.histories=%d", m[1], 2*n))
		}
	}
	return flags
}
