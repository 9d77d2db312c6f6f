//go:build unix

package checks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// Step is one command of the checks.
type Step struct {
	Name     string
	Module   string   // its folder, relative to the root
	Go       []string // arguments of go, without packages
	Packages []string // as ./lease; none where the command is no go test
	Env      []string
	Limit    time.Duration
	Rounds   int  // how often it runs; 0: once
	Low      bool // at low priority
}

// realPackages run servers, processes or links of the operating system, by folder below the root;
// one that ends in / stands for all that is below it.
var realPackages = []string{
	"backends/etcd", "backends/etcd/etcdtest", "backends/kubernetes/", "backends/open", "backends/postgres/", "backends/redis/", "backends/sqlite/",
	"examples/", "internal/child", "internal/faultlink", "lab/", "node", "remoting", "sharding/etcdstore",
}

// readers read or compile source, and have nothing for the race detector to look at.
var readers = []string{"internal/apicheck", "internal/doccheck", "lab/planted", "lab/scene", "lab/simulate"}

// single are packages on fake time that have one goroutine, or test the kit: the race detector finds
// nothing there that it does not find in the packages that use them.
var single = []string{
	"internal/explore", "internal/handover", "lease/advise", "lease/internal/settle", "lease/leasetest", "store/storetest",
	"sharding/internal/coordinator", "sharding/internal/entities", "placement",
}

// slowUnderRace are tests of one goroutine, or of figures, in packages that run under -race.
const slowUnderRace = "^(TestAdaptiveAgainstFixed|TestRenewalsArePerSession|TestHeapPerLease|TestExploreFindsPlantedMistakes|TestExpiryOfManyRecords)$"

// Real reports whether the tests of a package, by its folder, run real servers or processes.
func Real(pkg string) bool {
	return !slices.Contains(readers, pkg) && slices.ContainsFunc(realPackages, func(p string) bool {
		return pkg == strings.TrimSuffix(p, "/") || strings.HasSuffix(p, "/") && strings.HasPrefix(pkg, p)
	})
}

// kits are where stores run the cases of their kits that have many goroutines under the race detector.
var kits = []Step{
	{Module: ".", Packages: []string{"./backends/etcd"}},
	{Module: "backends/postgres", Packages: []string{"./..."}},
	{Module: "backends/sqlite", Packages: []string{"./..."}},
	{Module: "backends/redis", Packages: []string{"./..."}},
}

// kit are those cases.
const kit = "^TestConformance$/^(acquire|churn|context|deletions|keeper|watch)$"

// Commit returns the steps of the commit tier in lanes that run side by side: the root's tests, those of
// the other modules with the kits of the stores, and the packages on fake time under the race detector.
// Packages of real servers run one at a time, in whatever lane they are.
func (r *Run) Commit() [][]Step {
	root := Step{Name: "go test", Module: ".", Go: []string{"test"}, Packages: []string{"./..."}, Limit: 25 * time.Minute}
	modules := r.Modules()
	for _, k := range kits {
		k.Name, k.Go, k.Limit = "the kit under -race in "+k.Module, []string{"test", "-race", "-run", kit}, 20*time.Minute
		modules = append(modules, k)
	}
	fakes := slices.DeleteFunc(r.fakePackages(), func(p string) bool { return slices.Contains(single, strings.TrimPrefix(p, "./")) })
	race := Step{Name: "go test -race on fake time", Module: ".", Go: []string{"test", "-race", "-skip", slowUnderRace},
		Packages: fakes, Limit: 45 * time.Minute, Low: true}
	return [][]Step{{root}, modules, {race}}
}

// Modules returns a step for the tests of each module but the root.
func (r *Run) Modules() (steps []Step) {
	for _, m := range r.modules() {
		steps = append(steps, Step{Name: "go test in " + m, Module: m, Go: []string{"test"}, Packages: []string{"./..."}, Limit: 20 * time.Minute})
	}
	return steps
}

// modules returns the folders of the other modules that have packages.
func (r *Run) modules() (modules []string) {
	for _, file := range strings.Fields(r.output("git", "ls-files", "go.mod", "*/go.mod")) {
		dir := filepath.Dir(file)
		if dir != "." && !strings.Contains(dir, "testdata") && r.output("go", "-C", dir, "list", "./...") != "" {
			modules = append(modules, dir)
		}
	}
	return modules
}

func (r *Run) fakePackages() []string {
	return r.rootPackages(func(pkg string) bool { return !Real(pkg) && !slices.Contains(readers, pkg) })
}

// rootPackages returns those packages of the root module that have tests, as ./lease, and are chosen by their folder.
func (r *Run) rootPackages(choose func(pkg string) bool) (packages []string) {
	for _, dir := range strings.Fields(r.output("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", "./...")) {
		if pkg := scene.Must(filepath.Rel(r.root, dir)); choose(pkg) {
			packages = append(packages, "./"+pkg)
		}
	}
	return packages
}

// Nightly returns the steps of the nightly tier.
func (r *Run) Nightly() []Step {
	reals := r.rootPackages(Real)
	night := func(name, module string, limit time.Duration, packages []string, args ...string) Step {
		return Step{Name: name, Module: module, Go: append([]string{"test"}, args...), Packages: packages, Limit: limit, Env: []string{nightly}}
	}
	program := func(name string, limit time.Duration, args ...string) Step {
		return Step{Name: name, Module: "lab", Go: append([]string{"run", ".", "run"}, args...), Limit: limit, Env: []string{nightly}}
	}
	steps := []Step{
		night("draws", ".", 100*time.Minute, r.fakePackages()),         // long draws, explorers to their full bounds
		night("servers", ".", 40*time.Minute, reals),                   // conformance on three members, followers stop, leaders die, idle requests
		night("race", ".", 40*time.Minute, []string{"./..."}, "-race"), // every package of the root
	}
	for _, m := range r.modules() {
		limit := 30 * time.Minute
		if m == "backends/kubernetes" { // it builds kube-apiserver, once
			limit = 75 * time.Minute
		}
		steps = append(steps, night("long-"+m, m, limit, []string{"./..."}), night("race-"+m, m, limit, []string{"./..."}, "-race"))
	}
	steps = append(steps,
		Step{Name: "planted", Module: "lab", Go: []string{"run", ".", "planted"}, Limit: 150 * time.Minute, Env: []string{nightly}},
		program("torture", 15*time.Minute, "torture", "-for", "10m"),
		program("torture-postgres", 12*time.Minute, "torture", "-store", "postgres", "-for", "5m"),
		program("torture-sqlite", 12*time.Minute, "torture", "-store", "sqlite", "-for", "5m"),
		program("torture-redis", 12*time.Minute, "torture", "-store", "redis", "-for", "5m"),
		program("torture-kubernetes", 20*time.Minute, "torture", "-store", "kubernetes", "-for", "10m"),
		program("load", 15*time.Minute, "load", "-for", "10m"),
	)
	// Of leases and stores; PostgreSQL's faults are in TestFaults, many at a time.
	for _, name := range []string{"torture-proxies", "scheduler", "bank", "handovers", "kills", "many", "rolling", "restarts", "shardkills", "shards", "congestion",
		"backlog", "slowlink", "singletonload", "reshard", "restore", "names", "compare", "requests", "stops", "outage", "serverless", "grains", "bloat", "pg-idle"} {
		steps = append(steps, program(name, 20*time.Minute, name))
	}
	flakes := night("flakes", ".", 60*time.Minute, reals)
	flakes.Env, flakes.Rounds = nil, 5
	return append(steps, flakes)
}

// nightly is the switch that internal/tier reads.
const nightly = "HOLDFAST_NIGHTLY=1"

// List prints the steps of both tiers.
func (r *Run) List() {
	for _, tier := range []struct {
		name  string
		steps []Step
	}{{"commit", slices.Concat(r.Commit()...)}, {"nightly", r.Nightly()}} {
		for _, s := range tier.steps {
			what := s.Packages
			if len(what) > 3 {
				what = []string{fmt.Sprint(len(what), " packages")}
			}
			fmt.Fprintf(r.out, "%-8s %-26s %6v  %s: go %s\n", tier.name, s.Name, s.Limit, s.Module, strings.Join(append(slices.Clone(s.Go), what...), " "))
		}
	}
}

// output returns what a command in the root prints.
func (r *Run) output(name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	scene.Check(err, name+" "+strings.Join(args, " "))
	return strings.TrimSpace(string(out))
}

// Night runs steps in order, for at most within together, and appends a line for each to the report.
// only names those to run; none: all. A step that passed on this commit is left out unless again is
// set. It reports whether all that ran passed, and ends by scene.Check if ctx does.
func (r *Run) Night(ctx context.Context, steps []Step, only []string, again bool, within time.Duration) bool {
	for _, name := range only {
		if !slices.ContainsFunc(steps, func(s Step) bool { return s.Name == name }) {
			scene.Check(fmt.Errorf("there is no step %q; see the command list", name))
		}
	}
	commit := r.output("git", "rev-parse", "--short=12", "HEAD")
	report := filepath.Join(r.logs, "nightly.txt")
	text, err := os.ReadFile(report)
	if !errors.Is(err, os.ErrNotExist) {
		scene.Check(err)
	}
	passed := passedOn(commit, string(text))
	night, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	good := true
	for _, s := range steps {
		if len(only) > 0 && !slices.Contains(only, s.Name) || passed[s.Name] && !again {
			continue
		}
		began := time.Now()
		var v Verdict
		if night.Err() != nil {
			v.fail("no time was left for it")
		} else {
			v = r.step(night, s)
		}
		scene.Check(context.Cause(ctx))
		verdict := "ok"
		if len(v.Failed) > 0 {
			verdict, good = "FAILED", false
		}
		line := fmt.Sprintf("%s %s %s %s %d s", began.UTC().Format(time.DateTime), commit, s.Name, verdict, int(time.Since(began).Seconds()))
		for _, f := range v.Failed {
			line += "; " + f
		}
		for _, f := range v.Flakes {
			line += "; FLAKE " + f
		}
		f := scene.Must(os.OpenFile(report, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))
		_, err := f.WriteString(line + "\n")
		scene.Check(errors.Join(err, f.Close()))
		r.printf("-- %s\n", line)
	}
	r.printf("-- report: %s\n", report)
	return good
}

// passedOn returns the steps whose last line in a report, of this commit, says ok.
func passedOn(commit, report string) map[string]bool {
	passed := map[string]bool{}
	for line := range strings.Lines(report) {
		if f := strings.Fields(line); len(f) > 4 && f[2] == commit { // date, time, commit, step, verdict
			passed[f[3]] = f[4] == "ok"
		}
	}
	return passed
}
