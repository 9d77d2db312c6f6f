// Mutants plants known bugs, one at a time, and tells which check finds each. It exits
// 1 if no check finds a bug, or if a check fails with nothing planted.
//
//	go run ./test/mutants [-only names] [-in folder] [-from name] [-within 6m]
//
// A bug is a list of edits to the library's source, of whichever module of this repository. The
// product has no code for it: an overlay (go help build) puts edited copies in the place of the
// files while a check is built, also of files that are embedded. The text that an edit replaces
// must occur exactly once in its file.
//
// The checks are simulations, kits, fault and scenario tests; each is built in the module that its
// package is in. A check that hangs has found the bug too.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	var c choice
	flag.StringVar(&c.only, "only", "", "regular expression that matches the whole name of each")
	flag.StringVar(&c.in, "in", "", "folder in which each has an edit, as backends/postgres")
	flag.StringVar(&c.from, "from", "", "the first of them, in the order of the list")
	within := flag.Duration("within", 6*time.Minute, "time for each check")
	flag.Parse()
	chosen, err := c.of(mutants)
	if err == nil {
		err = hunt(chosen, *within)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// choice says which mutants to plant; the zero choice is all.
type choice struct{ only, in, from string }

// of returns the mutants of a list that are chosen.
func (c choice) of(list []mutant) (chosen []mutant, err error) {
	only, err := regexp.Compile("^(?:" + c.only + ")$")
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	began := c.from == ""
	var names []string
	for _, m := range list {
		names = append(names, m.name)
		began = began || m.name == c.from
		in := c.in == "" || slices.ContainsFunc(m.edits, func(e edit) bool { return strings.HasPrefix(e.file, path.Clean(c.in)+"/") })
		if began && in && (c.only == "" || only.MatchString(m.name)) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant is chosen by %+v; there are %s", c, strings.Join(names, ", "))
	}
	return chosen, nil
}

func hunt(chosen []mutant, within time.Duration) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	h := &hunter{within: within, passed: map[check]bool{}}
	dir, err := os.MkdirTemp("", "holdfast-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h.root, h.clean = strings.TrimSpace(string(root)), &builder{root: strings.TrimSpace(string(root)), dir: dir}
	var bad []string
	for i, m := range chosen {
		fmt.Printf("%d/%d ", i+1, len(chosen))
		if err := h.try(m); err != nil {
			fmt.Printf("%-22s %v\n", m.name, err)
			bad = append(bad, m.name)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("not found, or not told from none: %s", strings.Join(bad, ", "))
	}
	fmt.Println("every mutant was found")
	return nil
}

type hunter struct {
	root   string
	within time.Duration
	clean  *builder       // plants nothing
	passed map[check]bool // with nothing planted
}

// rounds is how often all checks of a mutant are run until one finds it: what checks random
// histories may miss it once.
const rounds = 3

// try runs the checks until one finds the mutant.
func (h *hunter) try(m mutant) error {
	planted, err := plant(h.root, m.edits)
	if err != nil {
		return err
	}
	defer planted.remove()
	if m.spares != (check{}) {
		if found, _, err := h.run(m.spares, planted); err != nil || found != "" {
			return fmt.Errorf("it is no bug but a breakage: %s fails: %s%v", m.spares, found, err)
		}
	}
	for _, c := range slices.Repeat(m.hunters, rounds) {
		if !h.passed[c] {
			if found, _, err := h.run(c, h.clean); err != nil {
				return fmt.Errorf("with nothing planted: %w", err)
			} else if found != "" {
				return fmt.Errorf("%s fails with nothing planted: %s", c, found)
			}
			h.passed[c] = true
		}
		found, took, err := h.run(c, planted)
		if err != nil {
			return err
		}
		if found != "" {
			fmt.Printf("%-22s found by %-45s after %7.1f s: %s\n", m.name, c, took.Seconds(), found)
			return nil
		}
		fmt.Printf("%-22s passes   %-45s       %7.1f s\n", m.name, c, took.Seconds())
	}
	return errors.New("NOT FOUND")
}

var suite = regexp.MustCompile(`simulate\.New\("([a-z-]+)", (\d+), \d+\)`)

// draws are the flags by which a package's tests make up twice the histories of the commit tier. As
// many as the nightly tier has would take too long for each bug.
func (h *hunter) draws(pkg string) (flags []string) {
	files, _ := filepath.Glob(filepath.Join(h.root, pkg, "*_test.go"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, m := range suite.FindAllStringSubmatch(string(text), -1) {
			n, _ := strconv.Atoi(m[2])
			flags = append(flags, fmt.Sprintf("-%s.histories=%d", m[1], 2*n))
		}
	}
	return flags
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs a check as b builds it; found says what failed, and is empty if all passed.
func (h *hunter) run(c check, b *builder) (found string, took time.Duration, err error) {
	bin, err := b.build(c.pkg)
	if err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.within)
	defer cancel()
	// A test that spins at one moment of fake time must not take all memory.
	args := append([]string{"-c", "ulimit -v 12000000; exec \"$0\" \"$@\"", bin, "-test.run", c.run, "-test.failfast",
		"-test.timeout", (h.within - time.Second).String()}, h.draws(c.pkg)...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = filepath.Join(h.root, c.pkg)
	cmd.Env = append(os.Environ(), "HOLDFAST_NIGHTLY=1") // explorers to their full bounds, disturbed servers
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err = cmd.Run()
	took = time.Since(began)
	var exit *exec.ExitError
	switch {
	case err == nil:
		if strings.Contains(out.String(), "no tests to run") {
			return "", took, fmt.Errorf("%s: there is no such test", c)
		}
		return "", took, nil
	case ctx.Err() != nil, strings.Contains(out.String(), "test timed out"):
		return "it hangs", took, nil
	case !errors.As(err, &exit):
		return "", took, err
	}
	for _, m := range failed.FindAllStringSubmatch(out.String(), -1) {
		if found != "" && !strings.HasPrefix(m[1], found+"/") {
			break
		}
		found = m[1] // of the first test, the first of its subtests, and so on
	}
	if found != "" {
		return found, took, nil
	}
	first, _, _ := strings.Cut(out.String(), "\n")
	return first, took, nil
}
