//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/tier"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(holderEnv); arg != "" {
		os.Exit(holderMain(arg))
	}
	goleak.VerifyTestMain(m)
}

// With Guard no write is of a former holder and none is lost; without, such writes are seen.
func TestTakeovers(t *testing.T) {
	broken, err := run(t.Context(), options{takeovers: tier.Draws(60, 600), processes: 3, names: 5,
		dir: t.TempDir(), seed: 1, within: 5 * time.Minute})
	require.NoError(t, err)
	for _, b := range broken {
		if !strings.Contains(b, "this shows nothing") {
			tier.Unsafe(t, "%s", b)
		}
	}
	require.Empty(t, broken)
}

func TestTooFewTakeoversAreAnError(t *testing.T) {
	_, err := race(t.Context(), options{takeovers: 1 << 30, processes: 2, names: 1, dir: t.TempDir(), seed: 1,
		within: 300 * time.Millisecond, guarded: true})
	require.ErrorContains(t, err, "wanted")
}

func take(token int64) step { return step{"job", true, token, 0, 0} }

func write(token, before int64) step { return step{"job", false, token, before, before + 1} }

func TestTheJudge(t *testing.T) {
	good := []step{take(1), write(1, 0), write(1, 1), take(2), write(2, 2), take(3), {"other", true, 1, 0, 0}, {"other", false, 1, 0, 1}}
	said := []heard{
		{Name: "job", Token: 1, From: 10, To: 20, Result: confirmed, After: 2}, {Name: "job", Token: 1, From: 30, To: 40, Result: refused},
		{Name: "job", Token: 2, From: 35, To: 45, Take: true}, {Name: "job", Token: 3, From: 50, To: 60, Take: true},
		{Name: "job", Token: 2, From: 46, To: 49, Result: "busy"}, {Name: "job", Token: 9, From: 1, To: 99, Take: true},
	}
	f := judgeSteps(good, said)
	require.Equal(t, figures{takeovers: 2, during: 1, writes: 4, refused: 1, longest: 10, others: map[string]int{"busy": 1}}, f)
	without := figures{stale: 1}
	require.Empty(t, check(f, without))
	require.NotEmpty(t, check(f, figures{}), "without Guard nothing was stale")
	require.NotEmpty(t, check(figures{}, without), "nothing happened")

	for name, c := range map[string]struct {
		steps []step
		said  []heard
		want  func(figures) int
	}{
		"stale, before its successor has written": {append(good, write(2, 3)), said, func(f figures) int { return f.stale }},
		"stale, at once": {[]step{take(1), take(2), write(1, 0)}, nil, func(f figures) int { return f.stale }},
		"lost":           {append(good, write(3, 1)), said, func(f figures) int { return f.lost }},
		"missing":        {good[:2], said, func(f figures) int { return f.missing }},
		"backwards":      {append(good, take(2)), said, func(f figures) int { return f.backwards }},
		"twice":          {append(good, take(3)), said, func(f figures) int { return f.backwards }},
	} {
		bad := judgeSteps(c.steps, append(c.said, said[1], said[2]))
		require.NotZero(t, c.want(bad), name)
		bad.writes, bad.refused, bad.during = 1, 1, 1
		require.NotEmpty(t, check(bad, without), name)
	}
}
