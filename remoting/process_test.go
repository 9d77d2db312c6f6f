package remoting_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/authority"
	"github.com/holdfast-go/holdfast/remoting"
)

// deadline bounds every wait for a real process.
const deadline = 60 * time.Second

// proc is a child process as its parent sees it.
type proc struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	addr  string
}

// start runs a node and waits for its address.
func start(t testing.TB, env ...string) *proc {
	t.Helper()
	p := launch(t, env...)
	p.addr = p.expect("address ")
	return p
}

func launch(t testing.TB, env ...string) *proc {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), append(env, "HOLDFAST_NODE=1", "GORACE=atexit_sleep_ms=0")...)
	stdin := must(cmd.StdinPipe())(t)
	stdout := must(cmd.StdoutPipe())(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	p := &proc{t: t, cmd: cmd, stdin: stdin, lines: make(chan string, 10000)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		kill := time.AfterFunc(deadline, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		<-read
		err := cmd.Wait()
		if out := stderr.String(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") {
			t.Errorf("node %s: %v\n%s", p.addr, err, out)
		}
	})
	return p
}

func (p *proc) do(format string, args ...any) {
	p.t.Helper()
	_, err := fmt.Fprintf(p.stdin, format+"\n", args...)
	require.NoError(p.t, err, "the process is gone")
}

// expect waits for a line that begins with prefix and returns the rest. Other
// lines before it must be dead letters.
func (p *proc) expect(prefix string) string {
	p.t.Helper()
	timeout := time.After(deadline)
	for {
		select {
		case line, ok := <-p.lines:
			require.True(p.t, ok, "the process ended, waiting for %q", prefix)
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
			require.True(p.t, strings.HasPrefix(line, "dead "), "got %q, want %q", line, prefix)
		case <-timeout:
			require.FailNow(p.t, "nothing came", "want %q", prefix)
		}
	}
}

func (p *proc) stats() (s remoting.Stats) {
	p.t.Helper()
	p.do("stats")
	require.NoError(p.t, json.Unmarshal([]byte(p.expect("stats ")), &s))
	return s
}

// works checks that from reaches to and back.
func works(from, to *proc) {
	from.t.Helper()
	from.do("ask %s hello", to.addr)
	require.Equal(from.t, "re:hello", from.expect("answer "))
}

func TestTwoProcessesExchange(t *testing.T) {
	a, b := start(t), start(t)
	works(a, b)
	works(b, a)
	require.Zero(t, a.stats())
	require.Zero(t, b.stats())
}

func TestABurstOfLargeMessagesArrivesInOrder(t *testing.T) {
	a, b := start(t), start(t)
	a.do("burst %s 5000 8192", b.addr)
	require.Equal(t, "5000", b.expect("burst "))
	a.do("burst %s 20 %d", b.addr, remoting.DefaultMaxMessageSize-64)
	require.Equal(t, "20", b.expect("burst "), "the largest messages, more than a batch of them")
	works(b, a)
}

func TestWhatCannotBeSentIsADeadLetterAndTheLinkGoesOn(t *testing.T) {
	a, b := start(t), start(t)
	a.do("big %s %d", b.addr, remoting.DefaultMaxMessageSize-5) // tag and length
	require.Equal(t, fmt.Sprint(remoting.DefaultMaxMessageSize-5), b.expect("bytes "))
	a.do("big %s %d", b.addr, remoting.DefaultMaxMessageSize-4)
	require.Equal(t, "echo *wrapperspb.BytesValue", a.expect("dead "))
	a.do("go %s", b.addr)
	require.Equal(t, "echo struct { X int }", a.expect("dead "))
	works(a, b)
	require.Equal(t, remoting.Stats{TooLarge: 1, Unsendable: 1}, a.stats())
}

// What is not UTF-8 can't be written for remote's links: a header, a sender, a target, or who
// watches. It takes along nothing of what is sent before it and behind it.
func TestWhatIsNoTextIsADeadLetterAndTheLinkGoesOn(t *testing.T) {
	a, b := start(t), start(t)
	works(a, b)
	a.do("burst %s 5000 10", b.addr)
	a.do("untext %s", b.addr)
	for range 4 {
		a.expect("dead echo *wrapperspb.StringValue")
	}
	a.expect("dead \xff *wrapperspb.StringValue")
	require.Equal(t, "echo NotFound", a.expect("terminated "), "one of no name watches")
	a.do("watch %s \xff", b.addr)
	require.Equal(t, "\xff NotFound", a.expect("terminated "))
	require.Equal(t, "5000", b.expect("burst "))
	works(a, b)
	require.Equal(t, remoting.Stats{Unsendable: 9}, a.stats(), "with what the dead letters answer two senders")
}

func TestAnAliasOfTheAddressIsRefusedAndDoesNotLoop(t *testing.T) {
	a, b := start(t), start(t)
	alias := strings.Replace(b.addr, "127.0.0.1", "localhost", 1)
	a.do("ask %s hello", alias)
	require.Contains(t, a.expect("answer "), "dead letter")
	require.Equal(t, "echo *wrapperspb.StringValue", b.expect("dead "))
	a.do("watch %s echo", alias)
	require.Equal(t, "echo *actor.Watch", b.expect("dead "))
	require.Equal(t, "echo Stopped", a.expect("terminated "), "as for an actor that does not exist")
	works(a, b)
	require.Equal(t, remoting.Stats{Misaddressed: 2}, b.stats())
}

func TestShutdownTellsWatchersAndMayBeCalledTwice(t *testing.T) {
	for _, how := range []string{"graceful", "now"} {
		t.Run(how, func(t *testing.T) {
			a, c := start(t), start(t)
			var b *proc
			// It takes 5 s where peers do not hang up when asked, and also on a machine that is busy:
			// not each time.
			for tries, took := 3, 5.0; took >= 5; tries-- {
				require.NotZero(t, tries, "peers that live hang up when asked")
				b = start(t)
				works(a, b)
				works(b, a)
				a.do("watch %s echo", b.addr)
				a.do("watch %s nobody", b.addr)
				require.Equal(t, "nobody Stopped", a.expect("terminated "), "so the watch before it arrived, too")
				b.do("shutdown %s", how)
				took = must(strconv.ParseFloat(b.expect("down "), 64))(t)
				require.Equal(t, "echo AddressTerminated", a.expect("terminated "))
			}
			b.do("ask %s anyone", a.addr)
			require.Contains(t, b.expect("answer "), "dead letter", "nothing goes out any more")
			b.do("watch %s echo", a.addr)
			require.Equal(t, "echo NotFound", b.expect("terminated "))
			require.Equal(t, uint64(2), b.stats().Closed)
			works(a, c)
		})
	}
}

func TestAKilledProcessTerminatesItsWatches(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	a.do("watch %s echo", b.addr)
	works(a, b)
	require.NoError(t, b.cmd.Process.Kill())
	require.Equal(t, "echo AddressTerminated", a.expect("terminated "))
	_, port, err := net.SplitHostPort(b.addr)
	require.NoError(t, err)
	again := start(t, "HOLDFAST_PORT="+port)
	require.Equal(t, b.addr, again.addr)
	works(again, a)
	works(a, again)
}

func TestStartFailsWithAnErrorWhenThePortIsInUse(t *testing.T) {
	a := start(t)
	_, port, err := net.SplitHostPort(a.addr)
	require.NoError(t, err)
	b := launch(t, "HOLDFAST_PORT="+port)
	require.Contains(t, b.expect("error "), "address already in use")
	c := launch(t, "HOLDFAST_PORT="+port, "HOLDFAST_RETRY=1")
	require.Contains(t, c.expect("error "), "address already in use")
	require.Contains(t, c.expect("again "), "address already in use", "the same configuration may be tried again")
	c.addr = c.expect("address ")
	works(c, a)
	works(a, c)
	c.do("go %s", a.addr)
	require.Equal(t, "echo struct { X int }", c.expect("dead "))
	require.Equal(t, remoting.Stats{Unsendable: 1}, c.stats(), "nothing is left of the first try")
	a.do("restart")
	require.Contains(t, a.expect("restart "), "has the address "+a.addr+" already")
}

func TestIPv6(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Log("the machine has no IPv6 loopback; the address is checked in TestConfigure")
		return
	} else {
		require.NoError(t, l.Close())
	}
	a, b := start(t, "HOLDFAST_HOST=::1"), start(t, "HOLDFAST_HOST=::1")
	require.True(t, strings.HasPrefix(a.addr, "[::1]:"))
	works(a, b)
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ca := authority.New(t)
	own := "HOLDFAST_TLS=" + ca.Issue(t, "127.0.0.1")
	a, b := start(t, own), start(t, own)
	works(a, b)
	works(b, a)

	plain := start(t)
	plain.do("ask %s hello", a.addr)
	require.Contains(t, plain.expect("answer "), "dead letter", "plaintext is refused")
	stranger := start(t, "HOLDFAST_TLS="+authority.New(t).Issue(t, "127.0.0.1"))
	stranger.do("ask %s hello", a.addr)
	require.Contains(t, stranger.expect("answer "), "dead letter", "so is another authority's certificate")
	a.do("ask %s hello", plain.addr)
	require.Contains(t, a.expect("answer "), "dead letter", "and a server that has none")
	works(a, b)
}

// A certificate that does not fit is named on both sides: where it is refused, and where it is from.
// Here by a program that logs by log/slog.
func TestACertificateThatDoesNotFitIsNamedOnBothSides(t *testing.T) {
	t.Parallel()
	a := start(t, "HOLDFAST_LOG=1", "HOLDFAST_TLS="+authority.New(t).Issue(t, "127.0.0.1"))
	b := start(t, "HOLDFAST_LOG=1", "HOLDFAST_TLS="+authority.New(t).Issue(t, "127.0.0.1"))
	b.do("burst %s 1 8", a.addr)
	there, here := a.expect("log "), b.expect("log ")
	for _, part := range []string{"a connection was not accepted", "from=127.0.0.1:", "bad certificate", "CN=node", "by", "CN=authority", "do="} {
		require.Contains(t, there, part)
	}
	for _, part := range []string{"no link", "address=" + a.addr, "unknown authority", "CN=node", "CN=authority", "serial number 2"} {
		require.Contains(t, here, part)
	}
	c, plain := start(t, "HOLDFAST_LOG=1", "HOLDFAST_TLS="+authority.New(t).Issue(t, "127.0.0.1")), start(t)
	conn, err := net.Dial("tcp", c.addr) // a probe, which is no line
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	plain.do("burst %s 1 8", c.addr)
	require.Contains(t, c.expect("log "), "first record does not look like a TLS handshake")
}

// A peer speaks as the node its certificate is for, whatever it calls itself; the check can be set.
func TestACertificateIsItsNodes(t *testing.T) {
	t.Parallel()
	own := "HOLDFAST_TLS=" + authority.New(t).Issue(t, "127.0.0.1")
	a, other := start(t, own), start(t, own, "HOLDFAST_HOST=127.0.0.2")
	notLetIn(other, a) // by its certificate it is not at 127.0.0.2

	free, too := start(t, own, "HOLDFAST_CHECK=anybody"), start(t, own, "HOLDFAST_CHECK=anybody", "HOLDFAST_HOST=127.0.0.2")
	works(free, too)
	works(too, free)

	for _, check := range []string{"nobody", "panic"} {
		b := start(t, own, "HOLDFAST_CHECK="+check)
		b.do("ask %s hello", a.addr)
		require.Contains(t, b.expect("answer "), "dead letter", "it does not speak to who may not be there")
		notLetIn(a, b)
	}
	c := start(t, own)
	works(a, c)
	works(c, a)
	a.do("watch %s nobody", c.addr)
	require.Equal(t, "nobody Stopped", a.expect("terminated "), "watching works")
}

// notLetIn checks that what from says does not come in at to.
func notLetIn(from, to *proc) {
	from.t.Helper()
	from.do("burst %s 1 8", to.addr) // would be told by a line
	for end := time.Now().Add(deadline); to.stats().Forged == 0; time.Sleep(10 * time.Millisecond) {
		require.True(from.t, time.Now().Before(end), "nobody was refused")
	}
}

// Nobody stops an actor of another node.
func TestNobodyStopsAnActorOfAnotherNode(t *testing.T) {
	a, b := start(t), start(t)
	works(b, a)
	p := connect(t, a.addr)
	for _, m := range []struct{ id, typeName string }{{"echo", "actor.Stop"}, {"holdfast/mail", "actor.Stop"}, {"holdfast/mail", "actor.PoisonPill"}} {
		x := mail(a.addr, m.typeName, nil)
		x.Targets[0].Id = m.id
		p.batch(x)
		require.Equal(t, fmt.Sprintf("%s *%s", m.id, m.typeName), a.expect("dead "))
	}
	works(b, a)
	require.Equal(t, remoting.Stats{Forged: 3}, a.stats())
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}
