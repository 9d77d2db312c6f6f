//go:build linux

package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// elector is client-go's LeaderElector, over one Lease for each name.
const elector = "client-go's elector"

// namespace is where all Leases of a comparison stand.
const namespace = "leases"

// What client-go logs is not for a report.
func init() { klog.SetLogger(logr.Discard()) }

func (b *bed) onKubernetes(ctx context.Context) {
	// Else the server has a Lease of its own, whose renewals its count of requests would contain.
	const none = "--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false"
	c := scene.Must(kubetest.Run(ctx, kubetest.Options{Args: []string{none}}))
	b.main, b.shut = c.Servers()[0], c.Close
	scene.Check(c.AddNamespace(ctx, namespace))
}

// kubeURL leads to a server: the token, the address, and the file of its certificate.
func kubeURL(c *rest.Config) string {
	u := scene.Must(url.Parse(c.Host))
	u.User, u.Path = url.User(c.BearerToken), c.CAFile
	return u.String()
}

// kube is the configuration of a client that has no bound of requests of its own.
func (h holding) kube() *rest.Config {
	u := scene.Must(url.Parse(h.URL))
	return &rest.Config{Host: u.Scheme + "://" + u.Host, BearerToken: u.User.Username(), QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: u.Path}}
}

// crashing is an elector's lock whose process may have crashed: it writes no more.
type crashing struct {
	resourcelock.Interface
	crashed atomic.Bool
}

func (c *crashing) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if c.crashed.Load() {
		return errors.New("the process has crashed")
	}
	return c.Interface.Update(ctx, r)
}

// elector runs a LeaderElector from await until release, which renews by itself. Its durations are
// client-go's defaults if the TTL is 15 s, and in that proportion if it is not.
func (h holding) elector(id string) candidate {
	lock := &crashing{Interface: &resourcelock.LeaseLock{
		LeaseMeta: meta.ObjectMeta{Namespace: namespace, Name: h.Name}, Client: scene.Must(coordination.NewForConfig(h.kube())),
		LockConfig: resourcelock.ResourceLockConfig{Identity: id},
	}}
	var e *leaderelection.LeaderElector
	leading, stop := context.Background(), func() {}
	c := candidate{believes: func() bool { return leading.Err() == nil }, close: func() { lock.crashed.Store(true); stop() }}
	c.await = func(ctx context.Context) {
		led, ended := make(chan context.Context, 1), make(chan struct{})
		e = scene.Must(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true, LeaseDuration: h.TTL, RenewDeadline: h.TTL * 10 / 15, RetryPeriod: h.TTL * 2 / 15,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) { led <- ctx }, OnStoppedLeading: func() {}},
		}))
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop = func() { cancel(); <-ended }
		go func() { defer close(ended); e.Run(running) }()
		select {
		case leading = <-led:
		case <-ctx.Done():
			stop()
			scene.Check(context.Cause(ctx))
		}
	}
	c.try = func(ctx context.Context) bool { c.await(ctx); return true }
	c.release = func(context.Context) { held(e.IsLeader()); stop() }
	return c
}

// holderEnv makes this program a process of stopped: its holding as JSON.
const holderEnv = "HOLDFAST_LAB_HOLDER"

// worked is one piece of work: the process looked whether it holds the name, and did it. Over: it looked,
// and works no more.
type worked struct {
	At   time.Duration
	Over bool
}

// holder is such a process. It works for as long as it believes that it holds the name.
func holder(settings string) {
	var h holding
	scene.Check(json.Unmarshal([]byte(settings), &h))
	c := (&bed{}).candidate(context.Background(), h, fmt.Sprint("process-", os.Getpid()))
	c.await(context.Background())
	for out := json.NewEncoder(os.Stdout); ; time.Sleep(50 * time.Millisecond) {
		w := worked{At: lab.Now()}
		w.Over = !c.believes()
		if scene.Check(out.Encode(w)); w.Over {
			return
		}
	}
}

// stopped has a holder of each way stopped (SIGSTOP) until a second process works under its name, then
// go on, and counts what it does until it knows.
func stopped(ctx context.Context, b *bed, of holding) {
	works := func(p *lab.Process[worked], over bool) {
		scene.Must(p.Await(ctx, 3*of.TTL, fmt.Sprintf("works no more: %v", over), func(w worked) bool { return w.Over == over }))
	}
	for _, of.Way = range waysOn(of.Store) {
		of.Name = "stopped"
		start := func() *lab.Process[worked] {
			p := lab.Start[worked](nil, "", of.Way, holderEnv, of)
			b.atEnd(func() { _ = p.Kill() })
			works(p, false)
			return p
		}
		former := start()
		time.AfterFunc(of.TTL/3, func() { _ = former.Signal(syscall.SIGSTOP) })
		start()
		from := lab.Now()
		scene.Check(former.Signal(syscall.SIGCONT))
		works(former, true)
		n, last := 0, from
		for _, w := range former.Said() {
			if !w.Over && w.At > from {
				n, last = n+1, w.At
			}
		}
		what := "work beside the next holder, after SIGCONT, " + of.Way
		b.Figure(what, "%d pieces in %v", n, scene.Short(last-from))
		if of.Way == holdfast && n > 0 {
			b.Unsafe("%s: %d", what, n)
		}
	}
}
