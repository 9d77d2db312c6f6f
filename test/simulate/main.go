// Simulate plays many simulated histories in one go, makes those that fail
// smaller, and replays them.
//
//	go run ./test/simulate -n 100000                  # of all packages; exits 1 if one fails
//	go run ./test/simulate -n 1000 -only sharding
//	go run ./test/simulate -replay sharding:TestSimulation:123:3,7-9
//
// A history is a test on fake time in which random things happen to a cluster: the
// invariants are checked all the while. Its seed fixes what happens and when, not
// how goroutines interleave within one moment, so a replay is repeated until it
// fails. It consists of steps that do not depend on one another; a failing history
// is made smaller by leaving steps out as long as it fails in the same way now and
// then (delta debugging: Zeller and Hildebrandt, 2002).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.n, "n", 1000, "how many histories in all")
	flag.StringVar(&o.only, "only", "", "those of one package only: "+strings.Join(packages(), ", "))
	flag.Uint64Var(&o.first, "first", 0, "seed of the first history of each kind; 0: random")
	flag.StringVar(&o.replay, "replay", "", "one history: package:test:seed, and :steps to leave out")
	flag.IntVar(&o.times, "times", 500, "how often a replay is repeated until it fails")
	flag.DurationVar(&o.smaller, "smaller", 3*time.Minute, "how long a failing history is made smaller; 0: not at all")
	flag.StringVar(&o.overlay, "overlay", "", "overlay to build with: see go help build")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	n             int
	only, replay  string
	first         uint64
	times         int
	smaller       time.Duration
	overlay       string
	mostSmaller   int // failing histories to be made smaller; 0: 3
	historiesEach int // in one process; 0: 200
}

// kind is the histories of one test.
type kind struct {
	pkg, test string
	share     float64 // of all histories: what is cheap is played more often
}

// kinds are all that are played. Shares are such that no package takes more than
// about half of the time.
var kinds = []kind{
	{"lease", "TestSimulation", 0.35},
	{"internal/transport", "TestFramesAreTakenOnce", 0.14},
	{"internal/route", "TestMailStaysWholeAndInOrder", 0.05},
	{"internal/route", "TestFastMovesLoseNothing", 0.05},
	{"internal/route", "TestCongestionLosesNothing", 0.05},
	{"internal/route", "TestFaultsLoseOnlyWhatWasUnderWay", 0.05},
	{"internal/route", "TestSmallBoundsLoseNothingUncounted", 0.05},
	{"membership", "TestSimulation", 0.03},
	{"singleton", "TestSimulation", 0.12},
	{"sharding", "TestSimulation", 0.05},
	{"sharding", "TestCalmHistories", 0.05},
	{"sharding", "TestSimulationOfRemembered", 0.01},
}

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

func run(ctx context.Context, o options) error {
	if o.n < 1 || o.times < 1 {
		return fmt.Errorf("-n %d, -times %d: must be at least 1", o.n, o.times)
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
	p, err := newPlayer(o)
	if err != nil {
		return err
	}
	defer p.close()
	if o.replay != "" {
		h, err := parse(o.replay)
		if err != nil {
			return fmt.Errorf("-replay: %w", err)
		}
		return p.again(ctx, h)
	}
	began := time.Now()
	var failing []history
	played := 0
	for _, k := range chosen {
		n := max(1, int(float64(o.n)*k.share/sum+0.5))
		if k == chosen[len(chosen)-1] {
			n = max(1, o.n-played)
		}
		bad, took, err := p.play(ctx, k, n)
		if err != nil {
			return err
		}
		fmt.Printf("%-60s %7d histories, %d failed, %v\n", k, n, len(bad), took.Round(100*time.Millisecond))
		failing, played = append(failing, bad...), played+n
	}
	fmt.Printf("%d histories in %v, %d failed\n", played, time.Since(began).Round(time.Second), len(failing))
	if len(failing) == 0 {
		return nil
	}
	most := o.mostSmaller
	if most == 0 {
		most = 3
	}
	for i, h := range failing {
		fmt.Printf("\nFAILED %s seed %d: %s\n", h.kind, h.seed, h.what)
		if i < most && o.smaller > 0 {
			if err := p.smaller(ctx, &h); err != nil {
				return err
			}
		}
		fmt.Printf("  replay: go run ./test/simulate -replay %s\n", h)
	}
	return errors.New("some histories failed")
}

// newPlayer finds the module.
func newPlayer(o options) (*player, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/holdfast-go/holdfast").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	bin, err := os.MkdirTemp("", "holdfast-simulate")
	if err != nil {
		return nil, err
	}
	return &player{options: o, root: strings.TrimSpace(string(root)), bin: bin, built: map[string]string{}}, nil
}
