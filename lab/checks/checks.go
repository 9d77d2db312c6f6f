//go:build unix

// Package checks runs the tests of all modules in steps, and judges them: a package of real servers
// or processes that fails is run again once, unless its failure is one that no load explains. What keeps
// the checks themselves from running ends them by scene.Check.
package checks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// Run is one run of the checks.
type Run struct {
	root  string
	dir   string // of the lane: its name and its lock
	logs  string // of failures, and the nightly report
	flags string // GOFLAGS that the user has
	out   io.Writer

	printing sync.Mutex
}

// Verdict is what became of a step or more: a line for each failure, and for each package of real
// servers that failed once and then passed.
type Verdict struct{ Failed, Flakes []string }

func (v *Verdict) fail(format string, args ...any) {
	v.Failed = append(v.Failed, fmt.Sprintf(format, args...))
}

func (v *Verdict) add(other Verdict) {
	v.Failed = append(v.Failed, other.Failed...)
	v.Flakes = append(v.Flakes, other.Flakes...)
}

// New returns a run of the checks of the repository at root. Close removes its files, but no logs.
func New(root string, out io.Writer) *Run {
	r := &Run{root: root, out: out, logs: filepath.Join(root, ".ci", "logs"), dir: scene.Must(os.MkdirTemp("", "holdfast-checks"))}
	r.flags = r.output("go", "env", "GOFLAGS")
	scene.Check(errors.Join(os.MkdirAll(r.logs, 0o755), os.Symlink(scene.Must(os.Executable()), filepath.Join(r.dir, LaneName)),
		os.WriteFile(filepath.Join(r.dir, "lock"), nil, 0o600)))
	return r
}

// Close removes the lane.
func (r *Run) Close() { _ = os.RemoveAll(r.dir) }

// Lanes runs lists of steps side by side, each list in order, and prints the outcome. It reports
// whether all passed. The end of ctx ends what runs, and fails the rest.
func (r *Run) Lanes(ctx context.Context, lanes ...[]Step) bool {
	began := time.Now()
	verdicts := make([]Verdict, len(lanes))
	var running sync.WaitGroup
	for i, steps := range lanes {
		running.Go(func() {
			for _, s := range steps {
				verdicts[i].add(r.step(ctx, s))
			}
		})
	}
	running.Wait()
	var all Verdict
	for _, v := range verdicts {
		all.add(v)
	}
	r.printf("\n-- tests took %d s: %d failures, %d flakes\n", int(time.Since(began).Seconds()), len(all.Failed), len(all.Flakes))
	for _, line := range all.Failed {
		r.printf("FAILED %s\n", line)
	}
	for _, line := range all.Flakes {
		r.printf("FLAKE %s\n", line)
	}
	return len(all.Failed) == 0
}

// step runs a step and prints its output, package by package, and how long it took.
func (r *Run) step(ctx context.Context, s Step) (v Verdict) {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	r.printf("\n== %s\n", s.Name)
	began := time.Now()
	for range max(s.Rounds, 1) {
		v.add(r.round(ctx, s))
	}
	verdict := "ok"
	if len(v.Failed) > 0 {
		verdict = "FAILED"
	}
	r.printf("-- %s: %s (%d s)\n", verdict, s.Name, int(time.Since(began).Seconds()))
	return v
}

// round runs a step once, and packages of real servers that fail once more.
func (r *Run) round(ctx context.Context, s Step) (v Verdict) {
	packages, err := r.command(ctx, s)
	again := s
	again.Name, again.Packages = s.Name+", once more", nil
	first := map[string]outcome{}
	failed := false
	for _, p := range packages {
		if p.ok {
			continue
		}
		failed = true
		if file := r.keep(s, p); !p.retryable() {
			v.fail("%s: %s: %s; log %s", s.Name, p.name, p.reason(), file)
		} else {
			again.Packages = append(again.Packages, p.path(s.Module))
			first[p.name] = p
		}
	}
	if err != nil && (!failed || ctx.Err() != nil) {
		v.fail("%s: %v", s.Name, errors.Join(err, ctx.Err()))
		return v
	}
	if len(again.Packages) == 0 {
		return v
	}
	r.printf("\n== %s: %s\n", again.Name, strings.Join(again.Packages, " "))
	packages, err = r.command(ctx, again)
	for _, p := range packages {
		was := first[p.name]
		delete(first, p.name)
		if p.ok {
			v.Flakes = append(v.Flakes, fmt.Sprintf("%s: %s: %s; log %s", s.Name, p.name, was.reason(), r.log(s, p.name)))
		} else {
			v.fail("%s: %s, twice: %s; log %s", s.Name, p.name, p.reason(), r.keep(again, p))
		}
	}
	for name := range first {
		v.fail("%s: %s did not run again: %v", s.Name, name, err)
	}
	return v
}

func (r *Run) printf(format string, args ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Fprintf(r.out, format, args...)
}

// log is the file that keeps the output of a package that failed.
func (r *Run) log(s Step, pkg string) string {
	return filepath.Join(r.logs, strings.NewReplacer("/", "_", " ", "-").Replace(s.Name+"-"+pkg)+".log")
}

// keep writes the output of a package that failed to its file, and returns the file.
func (r *Run) keep(s Step, p outcome) string {
	file := r.log(s, p.name)
	if err := os.WriteFile(file, []byte(p.output), 0o644); err != nil {
		return err.Error()
	}
	return file
}

// testFlags are those of every go test. -trimpath lets a second clone compile nothing. Vet has run
// before.
const testFlags = "-trimpath -vet=off -count=1"

// command runs the command of a step, prints what it prints, and returns what became of its packages.
func (r *Run) command(ctx context.Context, s Step) ([]outcome, error) {
	args := append(slices.Clone(s.Go), s.Packages...)
	name := "go"
	if s.Low {
		name, args = "nice", append([]string{"-n", strconv.Itoa(low), "go"}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(r.root, s.Module)
	cmd.Env = append(os.Environ(), s.Env...)
	if s.Go[0] == "test" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+r.flags+" "+testFlags+" -p=3 -timeout="+s.Limit.String()+" -exec="+filepath.Join(r.dir, LaneName),
			laneRoot+"="+r.root, laneLock+"="+filepath.Join(r.dir, "lock"), laneFlags+"="+r.flags+" -trimpath")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end it with all that it started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var waiting sync.WaitGroup
	var ended error
	waiting.Go(func() {
		ended = cmd.Wait()
		_ = in.Close()
	})
	var all []outcome
	read(out, func(p outcome) {
		r.printf("%s", p.output)
		if p.name != "" {
			all = append(all, p)
		}
	})
	waiting.Wait()
	return all, ended
}

// outcome is what became of a package.
type outcome struct {
	name   string // its import path; empty for output that belongs to none
	ok     bool
	output string
}

var result = regexp.MustCompile(`^(ok|FAIL)\s+(github\.com/\S+)(\s|$)`)

// read splits the output of go test into packages: go test prints that of a package at once, and its
// result in the last line.
func read(out io.Reader, tell func(outcome)) {
	var text strings.Builder
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		text.WriteString(line)
		m := result.FindStringSubmatch(line)
		if m != nil {
			tell(outcome{m[2], m[1] == "ok", text.String()})
			text.Reset()
		}
		if err != nil {
			tell(outcome{output: text.String()})
			return
		}
	}
}

// hard are failures that no load explains.
var hard = []struct {
	says string
	what *regexp.Regexp
}{
	{"SAFETY", regexp.MustCompile(`SAFETY: .*`)},
	{"a data race", regexp.MustCompile(`WARNING: DATA RACE`)},
	{"a panic", regexp.MustCompile(`(?m)^panic: .*|^fatal error: .*`)},
	{"it does not compile", regexp.MustCompile(`\[(build|setup) failed\]`)},
}

const module = "github.com/holdfast-go/holdfast"

// folder is the package's, relative to the root.
func (p outcome) folder() string { return strings.TrimPrefix(strings.TrimPrefix(p.name, module), "/") }

// path is the argument by which the go command finds the package from a module.
func (p outcome) path(in string) string {
	return "./" + scene.Must(filepath.Rel(in, p.folder()))
}

// retryable reports whether the package may be run once more.
func (p outcome) retryable() bool {
	for _, h := range hard {
		if h.what.MatchString(p.output) {
			return false
		}
	}
	return Real(p.folder())
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// reason says why a package failed: the hard failure that it shows, or the tests.
func (p outcome) reason() string {
	for _, h := range hard {
		if m := h.what.FindString(p.output); m != "" {
			return h.says + ": " + m
		}
	}
	var tests []string
	for _, m := range failedTest.FindAllStringSubmatch(p.output, -1) {
		tests = append(tests, m[1])
	}
	if len(tests) == 0 {
		return "no test failed by name"
	}
	return strings.Join(tests, ", ")
}

// LaneName is the name under which `go test -exec` runs this program in front of each test binary.
const LaneName = "lane"

// low is the nice value of what runs beside real servers. It leaves them most of the processors; at
// 19 it would hardly run beside other work on the machine.
const low = 3

// The environment of Lane.
const (
	laneRoot  = "HOLDFAST_LANE_ROOT"  // the repository
	laneLock  = "HOLDFAST_LANE_LOCK"  // a file
	laneFlags = "HOLDFAST_LANE_FLAGS" // GOFLAGS for the test binary
)

// Lane becomes the test binary that os.Args names, in its lane: packages that run real servers or
// processes run one at a time at normal priority, and the others beside them at low priority.
//
// The lock is a POSIX record lock. It stays with the process over exec, the servers that the test
// starts do not inherit it, and it ends with the process.
func Lane() {
	runtime.LockOSThread() // Linux has a priority for each thread, and exec keeps that of the caller
	if !Real(scene.Must(filepath.Rel(os.Getenv(laneRoot), scene.Must(os.Getwd())))) {
		scene.Check(syscall.Setpriority(syscall.PRIO_PROCESS, 0, low), "low priority")
	} else {
		fd, err := syscall.Open(os.Getenv(laneLock), syscall.O_RDWR, 0) // stays open in the test binary
		scene.Check(err, "the lane's lock")
		lock := &syscall.Flock_t{Type: syscall.F_WRLCK}
		scene.Check(syscall.FcntlFlock(uintptr(fd), syscall.F_SETLKW, lock), "the lane's lock")
	}
	scene.Check(os.Setenv("GOFLAGS", os.Getenv(laneFlags)))
	scene.Check(syscall.Exec(os.Args[1], os.Args[1:], os.Environ()))
}
