//go:build unix

package checks

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/scene"
)

// The test binary is the lane of the steps that the tests run.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == LaneName {
		Lane()
	}
	os.Exit(m.Run())
}

// repository makes a module with a test in each folder, and returns a run of it and its output.
func repository(t *testing.T, tests map[string]string) (*Run, *bytes.Buffer) {
	root := t.TempDir()
	write(t, root, "go.mod", "module "+module+"\n\ngo 1.26\n")
	for folder, body := range tests {
		write(t, root, folder+"/x_test.go", "package x\n\nimport (\n\t\"os\"\n\t\"syscall\"\n\t\"testing\"\n)\n\nvar _, _ = os.Args, syscall.Getpid\n\nfunc TestIt(t *testing.T) {\n"+body+"\n}\n")
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "x"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
	}
	var out bytes.Buffer
	r := New(root, &out)
	t.Cleanup(r.Close)
	return r, &out
}

func write(t *testing.T, root, file, text string) {
	t.Helper()
	file = filepath.Join(root, file)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

var all = Step{Name: "go test", Module: ".", Go: []string{"test"}, Packages: []string{"./..."}, Limit: time.Minute}

// failsOnce fails when it runs first.
const failsOnce = `	if _, err := os.Stat("ran"); err != nil {
		os.WriteFile("ran", nil, 0o644)
		%s
	}`

// Each kind of failure, of a package with real servers and of one on fake time. Only a test of real
// servers that fails for no hard reason runs again.
func TestWhatRunsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		folder, body string
		failed       string // part of the line; empty: none
		flake        string
	}{
		"passes":               {"lease", "", "", ""},
		"a flake":              {"remoting", fmt.Sprintf(failsOnce, `t.Fatal("slow")`), "", "TestIt"},
		"fails twice":          {"backends/etcd", `t.Fatal("slow")`, "twice: TestIt", ""},
		"fake time, once":      {"lease", fmt.Sprintf(failsOnce, `t.Fatal("slow")`), "TestIt", ""},
		"safety":               {"remoting", fmt.Sprintf(failsOnce, `t.Fatal("SAFETY: two holders of x")`), "SAFETY: two holders of x", ""},
		"a race":               {"remoting", fmt.Sprintf(failsOnce, `t.Fatal("WARNING: DATA RACE")`), "a data race", ""},
		"a panic":              {"remoting", fmt.Sprintf(failsOnce, `panic("ours")`), "panic: ours", ""},
		"compiles not":         {"remoting", "undefined()", "it does not compile", ""},
		"the process is ended": {"node", fmt.Sprintf(failsOnce, `syscall.Kill(os.Getpid(), syscall.SIGKILL)`), "", "no test failed by name"},
	} {
		t.Run(name, func(t *testing.T) {
			r, out := repository(t, map[string]string{c.folder: c.body, "health": ""})
			v := r.step(t.Context(), all)
			for what, want := range map[string]string{strings.Join(v.Failed, "\n"): c.failed, strings.Join(v.Flakes, "\n"): c.flake} {
				require.Equal(t, want == "", what == "", "%q\n%s", what, out)
				require.Contains(t, what, want, out)
			}
			logs, _ := filepath.Glob(filepath.Join(r.logs, "*.log"))
			require.Equal(t, c.failed+c.flake != "", len(logs) > 0, "kept %v", logs)
			require.Contains(t, out.String(), "ok  \t"+module+"/health", "the other package runs")
		})
	}
}

// All failures are reported, not the first alone, and a step that does not end is one.
func TestAllFailuresAreReported(t *testing.T) {
	r, out := repository(t, map[string]string{"lease": `t.Fatal("a")`, "health": `t.Fatal("b")`})
	hangs := Step{Name: "hangs", Module: ".", Go: []string{"run", "./hangs"}, Limit: 2 * time.Second}
	write(t, r.root, "hangs/main.go", "package main\n\nfunc main() { select {} }\n")
	write(t, r.root, "hangs/more.go", "package main\n\nimport \"time\"\n\nfunc init() { go func() { time.Sleep(time.Hour) }() }\n")
	require.False(t, r.Lanes(t.Context(), []Step{all}, []Step{hangs}), out)
	for _, want := range []string{"FAILED go test: " + module + "/lease: TestIt", "FAILED go test: " + module + "/health: TestIt", "FAILED hangs: ", "deadline exceeded"} {
		require.Contains(t, out.String(), want)
	}
}

// Packages with real servers run one at a time at normal priority, the others at low priority, and no
// test sees the flags of its lane.
func TestLanes(t *testing.T) {
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	require.NoError(t, err)
	alone := `	f := "` + filepath.Join(t.TempDir(), "alone") + `"
	if err := os.Mkdir(f, 0o755); err != nil {
		t.Fatal("another one runs")
	}
	for range 1 << 28 {
	}
	os.Remove(f)
	if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); p != ` + fmt.Sprint(own) + ` || err != nil {
		t.Fatal("priority", p, err)
	}
	if flags := os.Getenv("GOFLAGS"); flags == "" || len(flags) > 40 {
		t.Fatal(flags)
	}`
	weak := `	if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); p != 20-` + fmt.Sprint(low) + ` || err != nil {
		t.Fatal("priority", p, err)
	}`
	r, out := repository(t, map[string]string{"remoting": alone, "node": alone, "backends/etcd": alone, "lease": weak})
	require.Empty(t, r.round(t.Context(), all), out)
}

// The nightly tier runs steps by name, goes on where it stopped, and appends a line for each.
func TestNight(t *testing.T) {
	r, out := repository(t, map[string]string{"lease": fmt.Sprintf(failsOnce, `t.Fatal("once")`), "health": ""})
	step := func(name string) Step {
		return Step{Name: name, Module: ".", Go: []string{"test"}, Packages: []string{"./" + name}, Limit: time.Minute}
	}
	steps := []Step{step("health"), step("lease")}
	night := func(want bool, lines int, only []string, again bool, within time.Duration) {
		t.Helper()
		require.Equal(t, want, r.Night(t.Context(), steps, only, again, within), out)
		report, err := os.ReadFile(filepath.Join(r.logs, "nightly.txt"))
		require.NoError(t, err)
		require.Equal(t, lines, strings.Count(string(report), "\n"), "%s", report)
	}
	night(true, 1, []string{"health"}, false, time.Hour)
	night(false, 2, nil, false, time.Hour) // lease fails; health passed before
	night(true, 3, nil, false, time.Hour)  // lease alone runs
	night(true, 3, nil, false, time.Hour)
	night(true, 5, nil, true, time.Hour)
	night(false, 7, nil, true, time.Nanosecond) // no time is left for any
	none := []string{"nothing"}                 // no such step
	require.Error(t, scene.Try(func() { r.Night(t.Context(), steps, none, false, time.Hour) }))
	ended, end := context.WithCancel(t.Context())
	end() // as by Ctrl-C
	require.Error(t, scene.Try(func() { r.Night(ended, steps, nil, true, time.Hour) }))
	require.False(t, r.Lanes(ended, steps))
}

// A step of several rounds counts the flakes of all of them.
func TestRoundsCountFlakes(t *testing.T) {
	r, out := repository(t, map[string]string{"remoting": `	if _, err := os.Stat("ran"); err == nil {
		os.Remove("ran")
		return
	}
	os.WriteFile("ran", nil, 0o644)
	t.Fatal("every other time")`})
	rounds := all
	rounds.Rounds = 3
	v := r.step(t.Context(), rounds)
	require.Empty(t, v.Failed, out)
	require.Len(t, v.Flakes, 3, out)
}

// Every package that is listed as real exists.
func TestRealPackagesExist(t *testing.T) {
	for _, p := range slices.Concat(realPackages, readers, single) {
		files, err := filepath.Glob(filepath.Join("../..", p, "*"))
		require.NoError(t, err)
		require.NotEmpty(t, files, p)
	}
}
