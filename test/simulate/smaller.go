package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/simulate"
)

// This file replays histories.

// fails repeats a replay until it fails, at most times times.
func (p *player) fails(ctx context.Context, h history, times int) (result, error) {
	return p.test(ctx, h.kind, "-"+h.flags()+".seed="+strconv.FormatUint(h.seed, 10), "-"+h.flags()+".without="+h.without,
		"-test.count="+strconv.Itoa(times), "-test.failfast", "-test.v")
}

// again replays a history and prints what the test says when it fails.
func (p *player) again(ctx context.Context, h history) error {
	r, err := p.fails(ctx, h, p.times)
	if err != nil {
		return err
	}
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
func (p *player) smaller(ctx context.Context, h *history) error {
	ctx, cancel := context.WithTimeout(ctx, p.options.smaller)
	defer cancel()
	r, err := p.fails(ctx, *h, p.times)
	switch {
	case ctx.Err() != nil:
		fmt.Println("  not made smaller: no time left")
		return nil
	case err != nil:
		return err
	case !r.failed:
		fmt.Printf("  not made smaller: it did not fail again, %d times\n", p.times)
		return nil
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
		r, err := p.fails(ctx, smaller, times)
		return err == nil && r.failed && signature(lastRun(r.output)) == h.what
	})
	h.without = simulate.Format(others(total, left))
	fmt.Printf("  made smaller: %d of %d steps are enough (%d tries, %v)\n", len(left), total, tried, time.Since(began).Round(time.Second))
	return nil
}

// reduce leaves out of steps what it can, in ever smaller pieces, so that fails
// still holds.
func reduce(steps []int, fails func(kept []int) bool) []int {
	for size := (len(steps) + 1) / 2; size >= 1 && len(steps) > 0; {
		shrunk := false
		for from := 0; from < len(steps); {
			to := min(from+size, len(steps))
			kept := append(append([]int(nil), steps[:from]...), steps[to:]...)
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
	in := make(map[int]bool, len(kept))
	for _, n := range kept {
		in[n] = true
	}
	for n := 1; n <= total; n++ {
		if !in[n] {
			rest = append(rest, n)
		}
	}
	return rest
}
