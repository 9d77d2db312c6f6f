//go:build linux

package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/child"
)

const asCommand = "HOLDFAST_TEST_COMMAND"

// The test binary is the command in processes that the tests start, and in the guards of these.
func init() {
	if os.Getenv(asCommand) != "" {
		main()
	}
}

// machine is a store in a file, for the processes of one test.
type machine struct {
	*testing.T
	dir, store string
}

func newMachine(t *testing.T) *machine {
	t.Parallel()
	dir := t.TempDir()
	return &machine{t, dir, "sqlite:" + dir + "/leases.db"}
}

// told is a holdfast run with what it prints.
type told struct {
	*child.Process
	m        *machine
	out, log bytes.Buffer
}

// start starts holdfast run for a lease of its own name, with the flags and the program, which sh
// runs if it is one string.
func (m *machine) start(flags string, program ...string) *told {
	m.Helper()
	args := append([]string{"run", "--store", m.store, "--lease", "job"}, strings.Fields(flags)...)
	if len(program) == 1 {
		program = []string{"sh", "-c", program[0]}
	}
	p := &told{m: m}
	cmd := exec.Command("/proc/self/exe", append(append(args, "--"), program...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "DIR="+m.dir)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &p.out, &p.log, time.Minute
	var err error
	p.Process, err = child.Start(cmd)
	require.NoError(m, err)
	m.Cleanup(func() { _ = p.Kill() })
	return p
}

// ends waits for its end, and returns its exit code.
func (p *told) ends() int {
	p.m.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		require.Fail(p.m, "it does not end")
	}
	var e *exec.ExitError
	if p.Err() == nil {
		return 0
	}
	require.ErrorAs(p.m, p.Err(), &e)
	return e.ExitCode()
}

// exits is start and ends.
func (m *machine) exits(code int, says, flags string, program ...string) *told {
	m.Helper()
	p := m.start(flags, program...)
	require.Equal(m, code, p.ends(), "%s %v: %s", flags, program, &p.log)
	require.Contains(m, p.log.String(), says)
	return p
}

// file waits for what a program wrote into a file of the test's folder.
func (m *machine) file(name string) string {
	m.Helper()
	var text []byte
	require.Eventually(m, func() bool {
		text, _ = os.ReadFile(filepath.Join(m.dir, name))
		return bytes.HasSuffix(text, []byte("\n"))
	}, time.Minute, time.Millisecond, name)
	return strings.TrimSpace(string(text))
}

func (m *machine) pid(name string) int {
	m.Helper()
	pid, err := strconv.Atoi(m.file(name))
	require.NoError(m, err)
	return pid
}

// runs reports whether there is such a process, which is no zombie.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.HasPrefix(string(text[bytes.LastIndexByte(text, ')')+1:]), " Z")
}

// dead waits until none of them runs.
func (m *machine) dead(pids ...int) {
	m.Helper()
	for _, pid := range pids {
		require.Eventually(m, func() bool { return !runs(pid) }, time.Minute, time.Millisecond)
	}
}

// guardOf is the guard of a holdfast run.
func (p *told) guardOf() int {
	p.m.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", p.Pid()))
	require.NoError(p.m, err)
	if len(text) == 0 { // another thread started it
		out, err := exec.Command("pgrep", "-P", strconv.Itoa(p.Pid())).Output()
		require.NoError(p.m, err)
		text = out
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(p.m, err)
	return pid
}

// db is the store's file, past the store.
func (m *machine) db() *sql.DB {
	m.Helper()
	db, err := sql.Open("sqlite", m.dir+"/leases.db?_pragma=busy_timeout(10000)&_txlock=immediate")
	require.NoError(m, err)
	m.Cleanup(func() { require.NoError(m, db.Close()) })
	return db
}

// family is a program with a child, a grandchild that was left behind in a session of its own, and
// no ear for SIGTERM.
const family = `trap "" TERM
setsid sh -c 'trap "" TERM; (sleep 1000 & echo $! >$DIR/grandchild); echo $$ >$DIR/setsid; exec sleep 1000' &
sh -c 'echo $$ >$DIR/child; exec sleep 1000' &
echo $$ >$DIR/program
wait; wait; wait`

func (m *machine) family() []int {
	m.Helper()
	return []int{m.pid("program"), m.pid("child"), m.pid("setsid"), m.pid("grandchild")}
}

func TestRunPassesTheStatusOn(t *testing.T) {
	m := newMachine(t)
	m.exits(0, "", "", "true")
	m.exits(7, "", "", "exit 7")
	m.exits(128+int(syscall.SIGKILL), "", "--wait", "kill -9 $$")
	for _, flags := range []string{"--ttl 10s", "--ttl 2500ms"} {
		p := m.exits(0, "", flags, "echo $HOLDFAST_LEASE $HOLDFAST_TTL; test $HOLDFAST_TOKEN -gt 0")
		require.Equal(t, "job "+map[string]string{"--ttl 10s": "10\n", "--ttl 2500ms": "2.5\n"}[flags], p.out.String())
		require.Empty(t, p.log.String(), "cron would mail it")
	}
	cmd := exec.Command("/proc/self/exe", "run", "--store", m.store, "--lease", "job", "cat", "-")
	cmd.Env, cmd.Stdin = append(os.Environ(), asCommand+"=1"), strings.NewReader("hello")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "hello", string(out), "standard input is the program's, and flags end with its name")

	in, closed, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, in.Close())
	cmd = exec.Command("/proc/self/exe", "version")
	cmd.Env, cmd.Stdout = append(os.Environ(), asCommand+"=1"), closed
	require.NoError(t, cmd.Run(), "SIGPIPE does not end the command")
	require.NoError(t, closed.Close())
}

func TestRunRefusesWrongUse(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.WriteFile(m.dir+"/plain", nil, 0o600))
	require.NoError(t, os.WriteFile(m.dir+"/empty", nil, 0o700))
	require.NoError(t, os.WriteFile(m.dir+"/text", []byte(strings.Repeat("no database ", 1000)), 0o600))
	for _, c := range []struct {
		code  int
		says  string
		flags string
		cmd   []string
	}{
		{codeUsage, "no program", "", nil},
		{codeUsage, "no lease", "--lease=", []string{"true", ""}},
		{codeUsage, "there is no store", "--store=", []string{"true", ""}},
		{codeUsage, "instead of --node", "--store= --node http://x/", []string{"true", ""}},
		{codeUsage, "leave --read-only out", "--read-only", []string{"true", ""}},
		{codeUsage, "memory", "--store memory:x", []string{"true", ""}},
		{codeUsage, "is not known", "--store nosuch:x", []string{"true", ""}},
		{codeUsage, "exclude", "--skip --wait=1s", []string{"true", ""}},
		{codeUsage, "--wait=-1s", "--wait=-1s", []string{"true", ""}},
		{codeUsage, "such as 30s", "--wait=soon", []string{"true", ""}},
		{codeUsage, "at least 1s", "--ttl 10ms", []string{"true", ""}},
		{codeUsage, "a third of --ttl, which is 1s", "--ttl 3s --grace 2s", []string{"true", ""}},
		{codeUsage, "lease name", "--lease " + strings.Repeat("x", 2000), []string{"true", ""}},
		{codeUsage, "unknown flag", "--nosuch", []string{"true", ""}},
		{codeNotFound, "not found", "", []string{"nosuch", ""}},
		{codeNotFound, "--wait=30s", "--wait 30s", []string{"true", ""}},
		{codeNoStart, "permission denied", "", []string{m.dir + "/plain", ""}},
		{codeNoStart, "exec format error", "--restart", []string{m.dir + "/empty", ""}},
		{codeError, "could not be opened", "--store sqlite:" + m.dir + "/text", []string{"true", ""}},
		{codeUnknown, "no definite answer", "--store etcd://127.0.0.1:1 --ttl 1s --skip", []string{"true", ""}},
		{codeUnknown, "no definite answer", "--store etcd://127.0.0.1:1 --ttl 1s --wait=2s", []string{"true", ""}},
	} {
		m.exits(c.code, c.says, c.flags, c.cmd...)
	}
}

func TestRunOfANameThatIsHeld(t *testing.T) {
	m := newMachine(t)
	first := m.start("--id first", "echo $$ >$DIR/first; exec sleep 1000")
	pid := m.pid("first")
	m.exits(codeHeld, `"job": "first" holds it since `, "--skip", "false")
	require.Empty(t, m.exits(codeHeld, "", "--skip --quiet", "false").log.String())
	m.exits(codeHeld, `"first" holds it`, "--wait=0s", "false")
	m.exits(codeHeld, `"first" holds it`, "--wait=300ms", "false")
	interrupted := m.start("", "false")
	waiter := m.start("--id second", "echo $HOLDFAST_TOKEN >$DIR/second")
	time.Sleep(500 * time.Millisecond) // both wait, or are about to
	require.NoError(t, interrupted.Signal(syscall.SIGTERM))
	require.Equal(t, 128+int(syscall.SIGTERM), interrupted.ends())

	// The name is free as soon as its program is dead, and not a TTL later.
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	began := time.Now()
	m.file("second")
	require.Less(t, time.Since(began), 5*time.Second, "half of the TTL")
	require.Equal(t, 128+int(syscall.SIGKILL), first.ends())
	require.Zero(t, waiter.ends())
	require.Contains(t, waiter.log.String(), `waiting for "job": "first" holds it`)
}

func TestRunPassesSignalsOn(t *testing.T) {
	m := newMachine(t)
	p := m.start("--restart", `trap 'echo usr1 >$DIR/usr1' USR1; trap 'echo bye; exit 9' TERM; echo $$ >$DIR/ready; while :; do sleep 0.01; done`)
	m.pid("ready")
	require.NoError(t, p.Signal(syscall.SIGUSR1))
	m.file("usr1")
	require.NoError(t, p.Signal(syscall.SIGTERM))
	require.Equal(t, 9, p.ends(), "it is not started again")
	require.Equal(t, "bye\n", p.out.String())
}

func TestRunRestarts(t *testing.T) {
	m := newMachine(t)
	p := m.start("--restart --ttl 1s", `echo $HOLDFAST_TOKEN >>$DIR/tokens; exit 3`)
	var tokens []string
	require.Eventually(t, func() bool {
		tokens = strings.Fields(m.file("tokens"))
		return len(tokens) == 3
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, tokens[0], tokens[1], "a pause as short as the TTL keeps the lease")
	require.NotEqual(t, tokens[1], tokens[2], "a longer one does not")
	require.NoError(t, p.Signal(syscall.SIGINT))
	require.Contains(t, []int{3, 128 + int(syscall.SIGINT)}, p.ends())
	require.Contains(t, p.log.String(), "ended with status 3; it starts again in 1s")
}

// What a program leaves behind is ended before the lease is released.
func TestRunEndsWhatIsLeft(t *testing.T) {
	m := newMachine(t)
	p := m.start("--ttl 3s", strings.Replace(family, "wait; wait; wait", "exec sleep 0.5", 1))
	pids := m.family()
	started := time.Now()
	next := m.start("", fmt.Sprintf("for p in %s; do kill -0 $p 2>/dev/null && exit 1; done; exit 0", strings.Trim(fmt.Sprint(pids), "[]")))
	require.Zero(t, next.ends(), "none of them runs")
	require.Greater(t, time.Since(started), 500*time.Millisecond, "they had their grace")
	require.Zero(t, p.ends())
}

// faults end a program and all that it started before another runs.
func TestRunNeverRunsTwice(t *testing.T) {
	for name, c := range map[string]struct {
		code  int
		says  string
		fault func(m *machine, p *told)
	}{
		"holdfast run is killed": {code: -1, fault: func(_ *machine, p *told) { require.NoError(p.m, p.Kill()) }},
		"holdfast run is stopped": {code: codeLost, says: "expired", fault: func(_ *machine, p *told) {
			require.NoError(p.m, p.Signal(syscall.SIGSTOP))
		}},
		"the guard is killed": {code: 128 + int(syscall.SIGKILL), says: "its guard failed", fault: func(m *machine, p *told) {
			require.NoError(m, syscall.Kill(p.guardOf(), syscall.SIGKILL))
		}},
		"the guard is stopped, and the store is away": {code: codeLost, says: "expired", fault: func(m *machine, p *told) {
			require.NoError(m, syscall.Kill(p.guardOf(), syscall.SIGSTOP))
			m.lock()
		}},
		"the program is killed": {code: 128 + int(syscall.SIGKILL), fault: func(m *machine, _ *told) {
			require.NoError(m, syscall.Kill(m.pid("program"), syscall.SIGKILL))
		}},
		"the program is stopped, and the store is away": {code: codeLost, says: "the program was stopped", fault: func(m *machine, _ *told) {
			require.NoError(m, syscall.Kill(m.pid("program"), syscall.SIGSTOP))
			m.lock()
		}},
		"the store is away": {code: codeLost, says: "the program was stopped", fault: func(m *machine, _ *told) { m.lock() }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			p := m.start("--ttl 2s", family)
			pids := m.family()
			alive := strings.Trim(fmt.Sprint(pids), "[]")
			next := m.start("--ttl 2s", fmt.Sprintf(`for p in %s; do test "$(ps -o stat= -p $p | cut -c1)" = Z || kill -0 $p 2>/dev/null && exit 1; done; exit 0`, alive))
			c.fault(m, p)
			require.Zero(t, next.ends(), "it runs when none of the others does: %s", &next.log)
			m.dead(pids...)
			if !p.Exited() {
				require.NoError(t, p.Signal(syscall.SIGCONT))
			}
			require.Equal(t, c.code, p.ends())
			require.Contains(t, p.log.String(), c.says)
		})
	}
}

// The guard hears of renewals: the program outlives the first deadline.
func TestRunOutlivesTheTTL(t *testing.T) {
	newMachine(t).exits(0, "", "--ttl 3s --grace 0", "sleep", "4")
}

// What ran below holdfast run before goes on with what it starts, when all else is ended.
func TestWhatIsSpared(t *testing.T) {
	m := newMachine(t)
	cmd := exec.Command("sh", "-c", "sh -c 'echo $$ >$DIR/below; exec sleep 1000' & echo $$ >$DIR/sh; wait")
	cmd.Env = append(os.Environ(), "DIR="+m.dir)
	p, err := child.Start(cmd)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Kill()) }()
	sh, below := m.pid("sh"), m.pid("below")
	defer func() { require.NoError(t, syscall.Kill(below, syscall.SIGKILL)) }()
	all := descendants(nil)
	require.True(t, all[sh] && all[below], "%v", all)
	left := descendants(map[int]bool{sh: true})
	require.False(t, left[sh] || left[below], "%v", left)
}

func TestRunAndItsGuardAreKilled(t *testing.T) {
	m := newMachine(t)
	p := m.start("", "echo $$ >$DIR/program; exec sleep 1000")
	program := m.pid("program")
	guard := p.guardOf()
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(guard, syscall.SIGKILL))
	m.dead(program)
}

// A record that is removed by hand frees the name at once. The program has its grace all the same.
func TestRunOfARecordThatIsGone(t *testing.T) {
	m := newMachine(t)
	p := m.start("--ttl 6s", `trap 'echo asked; exit 0' TERM; echo $$ >$DIR/program; while :; do sleep 0.01; done`)
	m.pid("program")
	_, err := m.db().Exec("DELETE FROM holdfast_lease")
	require.NoError(t, err)
	require.Equal(t, codeLost, p.ends())
	require.Equal(t, "asked\n", p.out.String())
	require.Contains(t, p.log.String(), "record gone")
}

// lock has another process's transaction keep the store's file until all of the family is dead.
func (m *machine) lock() {
	m.Helper()
	pids := m.family()
	tx, err := m.db().BeginTx(context.Background(), nil)
	require.NoError(m, err)
	m.dead(pids...)
	require.NoError(m, tx.Rollback())
}

// A program that reads from the terminal must be in its foreground.
func TestRunOnATerminal(t *testing.T) {
	m := newMachine(t)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer tty.Close()
	// A shell that is no job of its own reads after holdfast run has given the terminal back.
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("sh", "-c", `"$0" run --store "$STORE" --lease job -- sh -c 'read x; echo $x >$DIR/first'; read y; echo $y >$DIR/second`, self)
	cmd.Env = append(os.Environ(), asCommand+"=1", "DIR="+m.dir, "STORE="+m.store)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	_, err = master.WriteString("one\n")
	require.NoError(t, err)
	require.Equal(t, "one", m.file("first"))
	_, err = master.WriteString("two\n")
	require.NoError(t, err)
	require.Equal(t, "two", m.file("second"))
	require.NoError(t, cmd.Wait())
}
