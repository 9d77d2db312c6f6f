//go:build linux

package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
)

// holderEnv makes the test binary a process that holds a lease: "endpoint prefix
// name". It prints every look at CheckAlive, until its standard input closes.
const holderEnv = "HOLDFAST_ETCD_HOLDER"

func init() { roles[holderEnv] = holderMain }

func holderMain() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	arg := strings.Fields(os.Getenv(holderEnv))
	client, err := clientv3.New(clientv3.Config{Endpoints: arg[:1], Logger: zap.NewNop()})
	fail(err)
	store, err := etcd.New(client, etcd.WithPrefix(arg[1]))
	fail(err)
	keeper, err := lease.NewKeeper(store, lease.Config{ID: "paused", TTL: ttl})
	fail(err)
	h, err := keeper.Lease(arg[2])
	fail(err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = lease.Run(ctx, h, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return nil })
		}
	})
	wg.Go(func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() })
	for ctx.Err() == nil {
		var token lease.Token
		if t, ok := h.Term(); ok {
			token = t.Token()
		}
		before := monotonic()
		alive := h.CheckAlive()
		fmt.Println(int64(before), alive, uint64(token))
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	fail(keeper.Close(context.Background()))
	fail(client.Close())
}

// monotonic is the machine's clock, the same for all processes.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// look is a line of such a process. The token is that of the term just before,
// and 0 if there was none.
type look struct {
	before time.Duration
	alive  bool
	token  lease.Token
}

// TestPausedHolder: a process that is stopped for longer than the TTL does not
// believe for one moment after it goes on, though it had no chance to notice.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	c := server(t)
	prefix := fresh()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s job", holderEnv, c.Endpoints()[0], prefix))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})

	var mu sync.Mutex
	var looks []look
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var l look
			if _, err := fmt.Sscan(lines.Text(), &l.before, &l.alive, &l.token); err != nil {
				t.Errorf("%q: %v", lines.Text(), err)
			}
			mu.Lock()
			looks = append(looks, l)
			mu.Unlock()
		}
	}()
	// first waits for the first look after since that is as wanted.
	first := func(since time.Duration, want func(look) bool) (found look) {
		t.Helper()
		eventually(t, 2*soon, "the process looks", func() bool {
			mu.Lock()
			defer mu.Unlock()
			for i := len(looks) - 1; i >= 0 && looks[i].before > since; i-- {
				if want(looks[i]) {
					found = looks[i]
				}
			}
			return found.before != 0
		})
		return found
	}
	holds := func(l look) bool { return l.alive && l.token != 0 }
	any := func(look) bool { return true }

	other := newNode(t, c.Client(t), prefix, "other", lasting).lease(t, "job")
	for range 3 {
		held := first(monotonic(), holds)
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		stopped := monotonic()
		// Another acquires meanwhile, when the session is over.
		var term lease.Term
		eventually(t, soon, "another holds it", func() bool {
			_, _ = other.Acquire(t.Context())
			got, ok := other.Term()
			term = got
			return ok
		})
		taken := monotonic()
		require.Greater(t, term.Token(), held.token)

		resumed := monotonic()
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		look := first(resumed, any)
		require.False(t, look.alive, "believed %v after it went on", look.before-resumed)
		t.Logf("stopped for %v; looked first %v after it went on", resumed-stopped, look.before-resumed)
		mu.Lock()
		for _, l := range looks {
			require.False(t, l.alive && l.before > taken, "believed while another held it: %+v", l)
		}
		mu.Unlock()
		_, alive := term.Check()
		require.True(t, alive, "the other still holds it")
		require.NoError(t, other.Release(t.Context()))
		again := first(monotonic(), holds)
		require.Greater(t, again.token, term.Token(), "tokens went back")
	}
	require.NoError(t, in.Close())
	<-read
	require.NoError(t, cmd.Wait())
	ended = true
	last := lease.Token(0)
	for _, l := range looks {
		if l.token != 0 {
			require.GreaterOrEqual(t, l.token, last, "tokens went back")
			last = l.token
		}
	}
}
