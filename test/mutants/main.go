// Mutants plants known bugs one at a time (package internal/mutant) and sees which
// check finds each. It exits 1 if one is found by none, or if a check fails with
// nothing planted.
//
//	go run ./test/mutants [-only name] [-within 2m]
//
// The checks are simulations, and the tests of scenarios, in builds with the tag
// holdfast_mutants. A check that hangs has found the bug, too, and is said to hang.
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
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/mutant"
)

// check is some tests of one package.
type check struct{ pkg, run string }

func (c check) String() string { return c.pkg + " " + c.run }

var (
	leaseSim       = check{"lease", "^TestSimulation$"}
	leaseScenarios = check{"lease", "^TestScenario"}
	conformance    = check{"backends/memory", "^TestConformanceOnFakeTime$"}
	routeSim       = check{"internal/route", "^Test.*(Moves|Histories|LoseNothing|Window|Relays)"}
	gateTests      = check{"internal/gate", "."}
	singletonSim   = check{"singleton", "^TestSimulation$"}
	singletonCalm  = check{"singleton", "^TestPlannedMoves"}
	machine        = check{"singleton", "^TestMachineExhaustively$"}
	shardSim       = check{"sharding", "^TestSimulation"}
	shardCalm      = check{"sharding", "^TestCalm"}
	shardScenarios = check{"sharding", "^TestScenario|Passivat"}
)

// hunters are the checks that are tried on a mutant, the simulations first.
var hunters = map[string][]check{
	mutant.DeadlineFromReply: {leaseSim, singletonSim, leaseScenarios},
	mutant.FlagOnly:          {leaseSim, singletonSim, leaseScenarios},
	mutant.LateWinKept:       {leaseSim, leaseScenarios},
	mutant.SettledByReadBack: {leaseSim, leaseScenarios},
	mutant.NoReconciliation:  {leaseSim, leaseScenarios},
	mutant.OldEventBelieved:  {leaseSim, leaseScenarios},
	mutant.ReleaseBeforeStop: {singletonSim, machine},
	mutant.GateIgnoresLoss:   {singletonSim, shardSim, gateTests},
	mutant.BacklogDropped:    {shardCalm, singletonCalm, shardScenarios},
	mutant.MarkerIgnored:     {routeSim, shardCalm},
	mutant.RelayForgotten:    {routeSim, shardCalm},
	mutant.BlindTransfer:     {conformance, shardSim},
	mutant.TokensRestart:     {conformance, leaseSim},
	mutant.StaleCoordinator:  {shardSim, shardScenarios},
	mutant.StartWithoutLease: {shardSim, shardScenarios},
	mutant.PassivationLoses:  {shardCalm, shardScenarios},
	mutant.MembershipIgnored: {shardSim, shardScenarios},
	mutant.UnboundedBuffer:   {routeSim, shardScenarios},
}

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
	if only != "" && !slices.Contains(mutant.All, only) {
		return fmt.Errorf("-only: no mutant is called %q; there are %s", only, strings.Join(mutant.All, ", "))
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	h := &hunter{root: strings.TrimSpace(string(root)), within: within, passed: map[check]bool{}}
	if h.bin, err = os.MkdirTemp("", "holdfast-mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(h.bin)
	var bad []string
	for _, name := range mutant.All {
		if only != "" && name != only {
			continue
		}
		if err := h.try(name); err != nil {
			fmt.Println(err)
			bad = append(bad, name)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("not found, or not told from none: %s", strings.Join(bad, ", "))
	}
	fmt.Println("every mutant was found")
	return nil
}

type hunter struct {
	root, bin string
	within    time.Duration
	passed    map[check]bool // with nothing planted
}

// try runs the checks until one finds the mutant.
func (h *hunter) try(name string) error {
	for _, c := range hunters[name] {
		if !h.passed[c] {
			if found, _, err := h.run(c, ""); err != nil || found != "" {
				return fmt.Errorf("%-22s %s fails with nothing planted: %s %v", name, c, found, err)
			}
			h.passed[c] = true
		}
		found, took, err := h.run(c, name)
		if err != nil {
			return err
		}
		if found != "" {
			fmt.Printf("%-22s found by %-45s after %7.1f s: %s\n", name, c, took.Seconds(), found)
			return nil
		}
		fmt.Printf("%-22s passes   %-45s       %7.1f s\n", name, c, took.Seconds())
	}
	return fmt.Errorf("%-22s NOT FOUND", name)
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs a check; found says what failed, if anything did.
func (h *hunter) run(c check, name string) (found string, took time.Duration, err error) {
	bin, err := h.build(c.pkg)
	if err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.within)
	defer cancel()
	// What spins for ever at one moment of fake time must not take all memory with it.
	cmd := exec.CommandContext(ctx, "sh", "-c", "ulimit -v 12000000; exec \"$0\" \"$@\"", bin, "-test.run", c.run, "-test.failfast",
		"-test.timeout", (h.within - time.Second).String())
	cmd.Dir = filepath.Join(h.root, c.pkg)
	cmd.Env = append(os.Environ(), "HOLDFAST_MUTANT="+name)
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

// build makes the test binary of a package, once.
func (h *hunter) build(pkg string) (string, error) {
	bin := filepath.Join(h.bin, strings.ReplaceAll(pkg, "/", "-"))
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	cmd := exec.Command("go", "test", "-c", "-tags", "holdfast_mutants", "-o", bin, "./"+pkg)
	cmd.Dir = h.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c ./%s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}
