//go:build unix

package checks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

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
		scene.Check(appendTo(report, line+"\n"))
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

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
