// Mutants plants known bugs, one at a time, and tells which check finds each. It exits
// 1 if no check finds a bug, or if a check fails with nothing planted.
//
//	go run ./test/mutants [-only name] [-within 2m]
//
// A bug is a list of edits to the library's source. The product has no code for it: an
// overlay (go help build) puts edited copies in the place of the files while a check is
// built. The text that an edit replaces must occur exactly once in its file.
//
// The checks are simulations and scenario tests. A check that hangs has found the bug
// too.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "one mutant")
	within := flag.Duration("within", 2*time.Minute, "time for each check")
	flag.Parse()
	if err := hunt(*only, *within); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func hunt(only string, within time.Duration) error {
	var chosen []mutant
	var names []string
	for _, m := range mutants {
		names = append(names, m.name)
		if only == "" || m.name == only {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only: no mutant is called %q; there are %s", only, strings.Join(names, ", "))
	}
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
	for _, m := range chosen {
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

// try runs the checks until one finds the mutant.
func (h *hunter) try(m mutant) error {
	planted, err := plant(h.root, m.edits)
	if err != nil {
		return err
	}
	defer planted.remove()
	for _, c := range m.hunters {
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
	cmd := exec.CommandContext(ctx, "sh", "-c", "ulimit -v 12000000; exec \"$0\" \"$@\"", bin, "-test.run", c.run, "-test.failfast",
		"-test.timeout", (h.within - time.Second).String())
	cmd.Dir = filepath.Join(h.root, c.pkg)
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
	if m := failed.FindStringSubmatch(out.String()); m != nil {
		return m[1], took, nil
	}
	first, _, _ := strings.Cut(out.String(), "\n")
	return first, took, nil
}
