package console

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// runNode is a process of the cluster: it has a singleton, a sharded type and load on both.
func runNode(id string) error {
	ctx := context.Background()
	store, closeStore, err := open.Open(ctx, os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		return err
	}
	defer closeStore()
	n, err := node.Start(ctx, node.Config{
		ID: id, Store: store, Group: "shop", Listen: "127.0.0.1:0", Plaintext: true, Logger: zap.NewNop(),
		HTTP: os.Getenv("HOLDFAST_HTTP"), Lease: lease.Config{TTL: 4 * time.Second},
		Console: &console.Config{Actions: true, Authorize: func(r *http.Request, a console.Access) (string, error) {
			if c, err := r.Cookie("user"); err == nil && c.Value == "reader" && a.Action != "read" {
				return "", errors.New("ask the team on call")
			}
			return "ada", nil
		}},
	})
	if err != nil {
		return err
	}
	echo := actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*actor.Started); !ok || m == nil {
			c.Respond(c.Message())
		}
	})
	cron, err := n.Singleton("cron", echo)
	if err != nil {
		return err
	}
	_, err = n.ShardedType(sharding.Type{Name: "account", Props: echo, Shards: 64})
	if err != nil {
		return err
	}
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			ask, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = singleton.Ask[*actor.PID](ask, cron, n.System().Root.Self())
			cancel()
		}
	}()
	return n.Run(ctx)
}

// cluster is three nodes on an etcd, in processes of their own.
type cluster struct {
	t     *testing.T
	store string
	urls  map[string]string
	nodes map[string]*exec.Cmd
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	needsBrowser(t)
	servers := etcdtest.Start(t)
	c := &cluster{t: t, store: "etcd://" + servers.Members()[0].Addr(), urls: map[string]string{}, nodes: map[string]*exec.Cmd{}}
	for _, id := range []string{"shop-1", "shop-2", "shop-3"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		c.urls[id] = "http://" + l.Addr().String()
		require.NoError(t, l.Close())
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "HOLDFAST_CONSOLE_NODE="+id, "HOLDFAST_STORE="+c.store, "HOLDFAST_HTTP="+strings.TrimPrefix(c.urls[id], "http://"))
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		c.nodes[id] = cmd
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	for _, url := range c.urls {
		require.Eventually(t, func() bool {
			res, err := http.Get(url + "/holdfast/api/v1/singletons")
			if err != nil {
				return false
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			return strings.Contains(string(body), `"phase":"active"`)
		}, time.Minute, 100*time.Millisecond)
	}
	return c
}

const settled = "snap?.answered.length === 3 && snap.types[0]?.hosted === 64 && snap.types[0].nodes.every(n => n.shards > 10)"

func TestAClusterIsSeenAndSteered(t *testing.T) {
	tier.NightlyOnly(t, "TestEachViewIsDrawn, TestADrainIsAskedForAndConfirmed on the fixture")
	c := startCluster(t)
	p := c.page("shop-1", "")
	p.until(settled)
	for view, text := range map[string]string{
		"overview": "3 of 3 nodes answered", "leases": "singleton/cron", "singletons": "1 of 1 run", "sharding": "64 shards",
		"nodes": "of the margin", "timeline": "Nothing ran twice",
	} {
		p.view(view)
		p.shows(text)
		assert.False(t, eval[bool](p, "/NaN|undefined|Invalid/.test(document.body.innerText)"), view)
	}

	p.view("leases")
	store, closeStore, err := open.Open(t.Context(), c.store)
	require.NoError(t, err)
	defer closeStore()
	keeper, err := lease.NewKeeper(store, lease.Config{ID: "tester", Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { // which waits for the leases below
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		_ = keeper.Close(ctx)
	}()
	var took []time.Duration
	for i := range 10 {
		l, err := keeper.Lease(fmt.Sprintf("live/%d", i))
		require.NoError(t, err)
		_, err = l.Acquire(t.Context())
		require.NoError(t, err)
		begun := time.Now()
		p.shows(fmt.Sprintf("live/%d", i))
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	t.Logf("a lease that was acquired is on the page after %v", took)

	reader := c.page("shop-2", "reader")
	reader.shows("read-only")
	code := eval[int](reader, `fetch('api/v1/actions', { method: 'POST', headers: { 'Content-Type': 'application/json', 'Holdfast-Action': '1' }, body: '{"action":"drain","node":"shop-2"}' }).then(r => r.status)`)
	assert.Equal(t, 403, code)
	reader.close()
	p.do(cookie(c.urls["shop-1"], "ada")) // a cookie is for all ports of a host

	p.view("nodes")
	eval[any](p, "$$('[data-act=drain]').find(b => b.dataset.of === 'shop-2').click(), $('#confirm').click(), null")
	p.until("!$('#dialog').open && snap.nodes.find(n => n.id === 'shop-2').state === 'draining'")
	p.until("snap.types[0].nodes.find(n => n.id === 'shop-2').shards === 0 && snap.types[0].hosted === 64")
	p.until("$$('[data-act=undrain]').some(b => b.dataset.of === 'shop-2')") // it is drawn a moment later
	eval[any](p, "$$('[data-act=undrain]').find(b => b.dataset.of === 'shop-2').click(), $('#confirm').click(), null")
	p.until(settled)
	p.quiet()

	host := eval[string](p, "snap.singletons[0].host.id")
	for id := range c.urls {
		if id != host {
			p.close()
			p = c.page(id, "")
			break
		}
	}
	p.until(settled)
	p.view("timeline")
	begun := time.Now()
	require.NoError(t, c.nodes[host].Process.Kill())
	p.until("snap.singletons[0].host && snap.singletons[0].phase === 'active' && snap.singletons[0].host.id !== " + quoted(host))
	t.Logf("another host is on the page %v after a kill, with a TTL of 4 s", time.Since(begun).Round(time.Millisecond))
	gaps := "analyse(snap.timeline.lanes.find(l => l.name === 'singleton/cron'))"
	p.until(gaps + ".gaps.some(g => !g.planned && !g.open)")
	t.Logf("the gap: %s", eval[string](p, "lengthOf("+gaps+".gaps.find(g => !g.planned))"))
	p.until("$$('.lane').find(l => l.querySelector('a')?.textContent === 'singleton/cron').querySelector('.gap')")
	assert.Zero(t, eval[int](p, gaps+".twice.length"))
	p.quiet()
}

func (c *cluster) page(id, user string) *page {
	c.t.Helper()
	var before []action
	if user != "" {
		before = append(before, cookie(c.urls[id], user))
	}
	return tab(c.t, c.urls[id], "/holdfast/", before...)
}

// Fifty pages add little to a cluster. Their requests are those of the page; a browser would open
// six connections to a host at most.
func TestFiftyPagesCostLittle(t *testing.T) {
	tier.NightlyOnly(t, "TestTooManyStreamsAreRefused")
	c := startCluster(t)
	span := 10 * time.Minute
	if d, err := time.ParseDuration(os.Getenv("HOLDFAST_PAGES_FOR")); err == nil {
		span = d
	}
	cost := func(what string, viewers int, span time.Duration) float64 {
		ctx, stop := context.WithTimeout(t.Context(), span)
		defer stop()
		before := map[string]time.Duration{}
		for id := range c.nodes {
			before[id] = cpu(t, c.nodes[id].Process.Pid)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		var bytes, messages int64
		for range viewers {
			all.Go(func() {
				r, _ := http.NewRequestWithContext(ctx, "GET", c.urls["shop-1"]+"/holdfast/api/v1/stream", nil)
				r.Header.Set("Accept-Encoding", "gzip")
				res, err := (&http.Transport{}).RoundTrip(r)
				if !assert.NoError(t, err) || !assert.Equal(t, 200, res.StatusCode) {
					return
				}
				defer res.Body.Close()
				in := bufio.NewReader(res.Body)
				for {
					part, err := in.ReadSlice('\n')
					if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
						assert.Error(t, ctx.Err(), "the stream ended before: %v", err)
						return
					}
					mu.Lock()
					bytes += int64(len(part))
					messages++
					mu.Unlock()
				}
			})
		}
		<-ctx.Done()
		all.Wait()
		served := cpu(t, c.nodes["shop-1"].Process.Pid) - before["shop-1"]
		other := cpu(t, c.nodes["shop-2"].Process.Pid) - before["shop-2"]
		percent := func(d time.Duration) float64 { return 100 * d.Seconds() / span.Seconds() }
		t.Logf("%s: %.2f %% of a core on the node that serves, %.2f %% on another; %d kB/s to all", what, percent(served), percent(other), bytes/1000/int64(span.Seconds()))
		return percent(served)
	}
	without, one := cost("no page", 0, min(span, time.Minute)), cost("one page", 1, min(span, time.Minute))
	fifty := cost("50 pages", 50, span)
	t.Logf("50 pages add %.2f %% of a core to %.2f without, one adds %.2f", fifty-without, without, one-without)
	require.Less(t, fifty-without, 20.0)
}

// cpu is what a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var user, system int64
	_, err = fmt.Sscan(cmp.Or(fields[11], "0")+" "+fields[12], &user, &system)
	require.NoError(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
