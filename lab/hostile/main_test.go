package hostile_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test binary is its own cluster: with HOLDFAST_HOSTILE set it runs a node
// instead of the tests.
func TestMain(m *testing.M) {
	switch os.Getenv("HOLDFAST_HOSTILE") {
	case "node":
		os.Exit(runNode())
	case "asker":
		os.Exit(runAsker(os.Getenv("HOLDFAST_NODE_ADDRESS"), os.Getenv("HOLDFAST_NODE_TARGETS")))
	}
	os.Exit(m.Run())
}

// patience bounds every wait for a process.
const patience = 60 * time.Second

// proc is a child process as its parent sees it.
type proc struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string
	stderr *output
}

// output keeps the end of what a process writes.
type output struct {
	mu sync.Mutex
	b  []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, b...)
	if len(o.b) > 1<<16 {
		o.b = o.b[len(o.b)-1<<16:]
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.b)
}

// launch runs a process that ends when its stdin does.
func launch(t *testing.T, env ...string) *proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), append(env, "GORACE=atexit_sleep_ms=0")...)
	p := &proc{t: t, cmd: cmd, lines: make(chan string, 1000), stderr: &output{}}
	cmd.Stderr = p.stderr
	var err error
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(p.lines)
		s := bufio.NewScanner(stdout)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close()
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		for range p.lines {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v ended: %v", env, err)
		}
		if out := p.stderr.String(); out != "" {
			t.Errorf("%v wrote to stderr: %s", env, out)
		}
	})
	return p
}

// ask sends a command and reads the answer, a line of JSON, into v.
func (p *proc) ask(command string, v any) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.stdin, command)
	require.NoError(p.t, err, "the process is gone: %s", p.stderr)
	p.read(v)
}

func (p *proc) read(v any) {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		require.True(p.t, ok, "the process is gone: %s", p.stderr)
		require.NoError(p.t, json.Unmarshal([]byte(line), v), "%q", line)
	case <-time.After(patience):
		require.FailNow(p.t, "the process says nothing", "%s", p.stderr)
	}
}

// say answers a command.
func say(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

// commands calls f with each line of stdin.
func commands(f func(string)) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f(strings.TrimSpace(in.Text()))
	}
}
