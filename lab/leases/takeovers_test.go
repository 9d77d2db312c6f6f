//go:build linux

package leases

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

func TestTooFewTakeoversAreAnError(t *testing.T) {
	err := scene.Try(func() {
		takeovers{Path: filepath.Join(t.TempDir(), "leases.db"), Names: 1, Guarded: true, Seed: 1}.race(t.Context(), 1<<30, 2, 300*time.Millisecond, &scene.Run{Out: io.Discard})
	})
	require.ErrorContains(t, err, "wanted")
}

// checked returns what is wrong with what was seen with Guard, and without.
func checked(with, without takeoverFigures) string {
	run := &scene.Run{Out: io.Discard}
	if err := with.check(without, run); err != nil {
		return err.Error()
	}
	return strings.Join(run.Violations(), "\n")
}

func take(token lease.Token) step { return step{owned{"job", token}, true, 0, 0} }

func write(token lease.Token, before int64) step {
	return step{owned{"job", token}, false, before, before + 1}
}

func TestTheJudgeOfTakeovers(t *testing.T) {
	good := []step{take(1), write(1, 0), write(1, 1), take(2), write(2, 2), take(3), {owned{"other", 1}, true, 0, 0}, {owned{"other", 1}, false, 0, 1}}
	said := []heard{
		{owned: owned{"job", 1}, From: 10, To: 20, Result: confirmed, After: 2}, {owned: owned{"job", 1}, From: 30, To: 40, Result: refused},
		{owned: owned{"job", 2}, From: 35, To: 45, Take: true}, {owned: owned{"job", 3}, From: 50, To: 60, Take: true},
		{owned: owned{"job", 2}, From: 46, To: 49}, {owned: owned{"job", 9}, From: 1, To: 99, Take: true},
	}
	f := judgeTakeovers(good, said)
	require.Equal(t, takeoverFigures{taken: 2, during: 1, writes: 4, refused: 1, failed: 1}, f)
	without := takeoverFigures{stale: 1}
	require.Empty(t, checked(f, without))
	require.NotEmpty(t, checked(f, takeoverFigures{}), "without Guard nothing was stale")
	require.NotEmpty(t, checked(takeoverFigures{}, without), "nothing happened")

	for name, c := range map[string]struct {
		steps []step
		said  []heard
		want  func(takeoverFigures) int
	}{
		"stale, before its successor has written": {append(good, write(2, 3)), said, func(f takeoverFigures) int { return f.stale }},
		"stale, at once": {[]step{take(1), take(2), write(1, 0)}, nil, func(f takeoverFigures) int { return f.stale }},
		"lost":           {append(good, write(3, 1)), said, func(f takeoverFigures) int { return f.lost }},
		"missing":        {good[:2], said, func(f takeoverFigures) int { return f.missing }},
		"backwards":      {append(good, take(2)), said, func(f takeoverFigures) int { return f.backwards }},
		"twice":          {append(good, take(3)), said, func(f takeoverFigures) int { return f.backwards }},
	} {
		bad := judgeTakeovers(c.steps, append(c.said, said[1], said[2]))
		require.NotZero(t, c.want(bad), name)
		bad.writes, bad.refused, bad.during = 1, 1, 1
		require.Contains(t, checked(bad, without), "SAFETY", name)
	}
}
