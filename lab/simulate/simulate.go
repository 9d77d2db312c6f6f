// Package simulate plays many simulated histories in one go, makes those that fail
// smaller, and replays them.
//
//	go run -C lab . simulate -n 100000                  # of all packages; exits 1 if one fails
//	go run -C lab . simulate -n 1000 -only sharding
//	go run -C lab . simulate -replay sharding:TestSimulation:123:3,7-9
//
// A history is a test on fake time in which random things happen to a cluster: the
// invariants are checked all the while. Its seed fixes what happens and when, not
// how goroutines interleave within one moment, so a replay is repeated until it
// fails. It consists of steps that do not depend on one another; a failing history
// is made smaller by leaving steps out as long as it fails in the same way now and
// then (delta debugging: Zeller and Hildebrandt, 2002).
package simulate

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// Options say which histories are played, and of which repository.
type Options struct {
	root         string
	n            int
	only, replay string

	first   uint64        // the seed of the first history of each kind; 0: random
	times   int           // a replay is repeated so often until it fails
	smaller time.Duration // a failing history is made smaller for so long
	overlay string        // to build with: see go help build
}

// Flags defines the flags of the command for the repository at root.
func Flags(f *flag.FlagSet, root string) *Options {
	o := &Options{root: root, times: 500, smaller: 3 * time.Minute}
	f.IntVar(&o.n, "n", 1000, "how many histories in all")
	f.StringVar(&o.only, "only", "", "those of one package only: "+strings.Join(packages(), ", "))
	f.StringVar(&o.replay, "replay", "", "one history: package:test:seed, and :steps to leave out")
	return o
}

// kind is the histories of one test.
type kind struct {
	pkg, test string
	share     float64 // of all histories: what is cheap is played more often
}

// kinds are all that are played. Shares are such that no package takes more than
// about half of the time.
var kinds = []kind{
	{"lease", "TestSimulation", 0.30},
	{"internal/transport", "TestFramesAreTakenOnce", 0.14},
	{"internal/route", "TestMailStaysWholeAndInOrder", 0.05},
	{"internal/route", "TestFastMovesLoseNothing", 0.05},
	{"internal/route", "TestCongestionLosesNothing", 0.05},
	{"internal/route", "TestFaultsLoseOnlyMailUnderWay", 0.05},
	{"internal/route", "TestSmallBoundsLoseNothingUncounted", 0.05},
	{"membership", "TestSimulation", 0.03},
	{"partition", "TestSimulation", 0.05},
	{"singleton", "TestSimulation", 0.12},
	{"sharding", "TestSimulation", 0.05},
	{"sharding", "TestCalmHistories", 0.05},
	{"sharding", "TestSimulationOfRemembered", 0.01},
}

// mostSmaller is how many failing histories are made smaller.
const mostSmaller = 3

func packages() (all []string) {
	for _, k := range kinds {
		if len(all) == 0 || all[len(all)-1] != k.pkg {
			all = append(all, k.pkg)
		}
	}
	return all
}

// flags is how the package's flags begin.
func (k kind) flags() string { return filepath.Base(k.pkg) }

func (k kind) String() string { return k.pkg + " " + k.test }

// Play plays them. An error says that one failed, or that they could not be played.
func (o Options) Play(ctx context.Context) error {
	if o.n < 1 {
		return fmt.Errorf("-n %d: must be at least 1", o.n)
	}
	chosen, sum := []kind{}, 0.0
	for _, k := range kinds {
		if o.only == "" || o.only == k.pkg {
			chosen, sum = append(chosen, k), sum+k.share
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q: no such package; there are %s", o.only, strings.Join(packages(), ", "))
	}
	p := newPlayer(o)
	defer p.close()
	if o.replay != "" {
		return p.again(ctx, scene.Must(parse(o.replay)))
	}
	began := time.Now()
	var failing []history
	played := 0
	for _, k := range chosen {
		n := max(1, int(float64(o.n)*k.share/sum+0.5))
		if k == chosen[len(chosen)-1] {
			n = max(1, o.n-played)
		}
		bad, took := p.play(ctx, k, n)
		fmt.Printf("%-60s %7d histories, %d failed, %v\n", k, n, len(bad), took.Round(100*time.Millisecond))
		failing, played = append(failing, bad...), played+n
	}
	fmt.Printf("%d histories in %v, %d failed\n", played, time.Since(began).Round(time.Second), len(failing))
	if len(failing) == 0 {
		return nil
	}
	for i, h := range failing {
		fmt.Printf("\nFAILED %s seed %d: %s\n", h.kind, h.seed, h.what)
		if i < mostSmaller {
			p.smaller(ctx, &h)
		}
		fmt.Printf("  replay: go run -C lab . simulate -replay %s\n", h)
	}
	return errors.New("some histories failed")
}

func newPlayer(o Options) *player {
	bin := scene.Must(os.MkdirTemp("", "holdfast-simulate"))
	return &player{Options: o, bin: bin, built: map[string]bool{}}
}

// player runs test binaries.
type player struct {
	Options
	bin   string
	built map[string]bool // packages
}

func (p *player) close() { _ = os.RemoveAll(p.bin) }

// history is one that is replayed.
type history struct {
	kind
	seed    uint64
	without string // steps to leave out
	what    string // how it failed
}

// String is what -replay reads.
func (h history) String() string {
	s := fmt.Sprintf("%s:%s:%d", h.pkg, h.test, h.seed)
	if h.without != "" {
		s += ":" + h.without
	}
	return s
}

// parse is the inverse of String.
func parse(s string) (h history, err error) {
	parts := strings.Split(s, ":")
	if len(parts) < 3 || len(parts) > 4 {
		return h, fmt.Errorf("%q: want package:test:seed or package:test:seed:steps", s)
	}
	for _, k := range kinds {
		if k.pkg == parts[0] && k.test == parts[1] {
			h.kind = k
		}
	}
	if h.kind == (kind{}) {
		return h, fmt.Errorf("%q: there is no history %s %s", s, parts[0], parts[1])
	}
	if h.seed, err = strconv.ParseUint(parts[2], 10, 64); err != nil || h.seed == 0 {
		return h, fmt.Errorf("%q: the seed %q is no number above 0", s, parts[2])
	}
	if len(parts) == 4 {
		h.without = parts[3]
	}
	return h, nil
}

// patience is how long one process may take.
const patience = 20 * time.Minute

// result is what a test binary said.
type result struct {
	failed bool
	output string
}

// test runs the test of k.
func (p *player) test(ctx context.Context, k kind, args ...string) result {
	bin := p.build(k.pkg)
	ctx, cancel := context.WithTimeout(ctx, patience+time.Minute)
	defer cancel()
	// What spins for ever at one moment of fake time must not take all memory with it.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 16000000; exec "$0" "$@"`, bin, "-test.run", "^" + k.test + "$",
		"-test.timeout", patience.String()}, args...)...)
	cmd.Dir = filepath.Join(p.root, k.pkg)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	scene.Check(context.Cause(ctx))
	if err != nil && !errors.As(err, &exit) {
		scene.Check(err)
	}
	if strings.Contains(out.String(), "no tests to run") {
		scene.Check(fmt.Errorf("%s: there is no such test", k))
	}
	return result{err != nil, out.String()}
}

// build makes the test binary of a package, once.
func (p *player) build(pkg string) string {
	bin := filepath.Join(p.bin, strings.ReplaceAll(pkg, "/", "-"))
	if p.built[pkg] {
		return bin
	}
	cmd := exec.Command("go", "test", "-c", "-overlay", p.overlay, "-o", bin, "./"+pkg)
	cmd.Dir = p.root
	if out, err := cmd.CombinedOutput(); err != nil {
		scene.Check(fmt.Errorf("go test -c ./%s: %w\n%s", pkg, err, out))
	}
	p.built[pkg] = true
	return bin
}

var failedSeed = regexp.MustCompile(`(?m)^\s*--- FAIL: \S+/seed_(\d+)`)

// play plays n histories of one kind, some in each process, and tells which failed.
func (p *player) play(ctx context.Context, k kind, n int) (failing []history, took time.Duration) {
	began := time.Now()
	each := 200 // histories in one process
	if k.share > 0.2 || k.pkg == "internal/route" {
		each = 2000
	}
	first := p.first
	if first == 0 {
		first = uint64(rand.Uint32()) + 1
	}
	for done := 0; done < n; done += each {
		count := min(each, n-done)
		from := first + uint64(done)
		r := p.test(ctx, k, "-"+k.flags()+".first="+strconv.FormatUint(from, 10), "-"+k.flags()+".histories="+strconv.Itoa(count))
		if !r.failed {
			continue
		}
		seeds := failedSeed.FindAllStringSubmatchIndex(r.output, -1)
		if len(seeds) == 0 {
			scene.Check(fmt.Errorf("%s, seeds from %d: no history failed, but their process did:\n%s",
				k, from, r.output))
		}
		for i, at := range seeds {
			seed, _ := strconv.ParseUint(r.output[at[2]:at[3]], 10, 64)
			end := len(r.output)
			if i+1 < len(seeds) {
				end = seeds[i+1][0]
			}
			failing = append(failing, history{kind: k, seed: seed, what: signature(r.output[at[0]:end])})
		}
	}
	return failing, time.Since(began)
}

var (
	said     = regexp.MustCompile(`(?m)(?:FAILED: |^\s+(?:\w+_test|judge)\.go:\d+: |^\s+Error:\s+|^panic: )(.*\S)\s*$`)
	prefix   = regexp.MustCompile(`^seed \d+( at [\d:.]+)?: `)
	changing = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{16,}|\d+(\.\d+)?`)
)

// signature is how a history failed, without what differs from run to run.
func signature(output string) string {
	for _, m := range said.FindAllStringSubmatch(output, -1) {
		text := strings.TrimSpace(changing.ReplaceAllString(prefix.ReplaceAllString(m[1], ""), "#"))
		if text != "" && !strings.HasPrefix(text, "seed") && !strings.HasPrefix(text, "#s ") {
			return text[:min(len(text), 40)]
		}
	}
	return "?"
}

// fails repeats a replay until it fails, at most times times.
func (p *player) fails(ctx context.Context, h history, times int) result {
	return p.test(ctx, h.kind, "-"+h.flags()+".seed="+strconv.FormatUint(h.seed, 10), "-"+h.flags()+".without="+h.without,
		"-test.count="+strconv.Itoa(times), "-test.failfast", "-test.v")
}

// again replays a history and prints what the test says when it fails.
func (p *player) again(ctx context.Context, h history) error {
	r := p.fails(ctx, h, p.times)
	if !r.failed {
		fmt.Printf("%s did not fail, %d times\n", h, p.times)
		return nil
	}
	fmt.Fprintln(os.Stdout, lastRun(r.output))
	return errors.New("it failed: " + signature(lastRun(r.output)))
}

var runLine = regexp.MustCompile(`(?m)^=== RUN   [^/\n]+$`)

// lastRun is the part of a repeated test's output that is about its last run.
func lastRun(output string) string {
	all := runLine.FindAllStringIndex(output, -1)
	if len(all) == 0 {
		return output
	}
	return output[all[len(all)-1][0]:]
}

var stepsLine = regexp.MustCompile(`(?m)simulate: (\d+) steps`)

// smaller leaves steps out of a failing history while it still fails in the same
// way, in halves, quarters and so on.
func (p *player) smaller(ctx context.Context, h *history) {
	ctx, cancel := context.WithTimeout(ctx, p.Options.smaller)
	defer cancel()
	var r result
	err := scene.Try(func() { r = p.fails(ctx, *h, p.times) })
	if ctx.Err() != nil {
		fmt.Println("  not made smaller: no time left")
		return
	}
	scene.Check(err)
	if !r.failed {
		fmt.Printf("  not made smaller: it did not fail again, %d times\n", p.times)
		return
	}
	h.what = signature(lastRun(r.output))
	total := 0
	for _, m := range stepsLine.FindAllStringSubmatch(r.output, -1) {
		n, _ := strconv.Atoi(m[1])
		total = max(total, n)
	}
	// As often again as it took, and some: what fails once in a hundred runs must
	// not be taken for what does not fail.
	times := min(p.times, 5*len(runLine.FindAllString(r.output, -1))+5)
	began := time.Now()
	left := make([]int, total)
	for i := range left {
		left[i] = i + 1
	}
	tried := 0
	left = reduce(left, func(kept []int) bool {
		if ctx.Err() != nil {
			return false
		}
		tried++
		smaller := *h
		smaller.without = simulate.Format(others(total, kept))
		failed := false
		_ = scene.Try(func() { // the end of ctx
			r := p.fails(ctx, smaller, times)
			failed = r.failed && signature(lastRun(r.output)) == h.what
		})
		return failed
	})
	h.without = simulate.Format(others(total, left))
	fmt.Printf("  made smaller: %d of %d steps are enough (%d tries, %v)\n", len(left), total, tried, time.Since(began).Round(time.Second))
}

// reduce leaves out of steps what it can, in ever smaller pieces, so that fails
// still holds.
func reduce(steps []int, fails func(kept []int) bool) []int {
	for size := (len(steps) + 1) / 2; size >= 1 && len(steps) > 0; {
		shrunk := false
		for from := 0; from < len(steps); {
			to := min(from+size, len(steps))
			kept := slices.Concat(steps[:from], steps[to:])
			if fails(kept) {
				steps, shrunk = kept, true
			} else {
				from = to
			}
		}
		switch {
		case size > 1:
			size = (size + 1) / 2
		case !shrunk:
			return steps
		}
	}
	return steps
}

// others are the numbers from 1 to total that are not in kept.
func others(total int, kept []int) (rest []int) {
	for n := 1; n <= total; n++ {
		if !slices.Contains(kept, n) {
			rest = append(rest, n)
		}
	}
	return rest
}
