//go:build linux

package leases

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/child"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// runTTL is what contenders of scenario guard have.
const runTTL = 3 * time.Second

// beat is what the program that they run notes.
type beat struct {
	pid   int
	token uint64
	at    time.Duration
}

// contest is commands that contend to run a program, of which one at a time should.
type contest struct {
	*scene.Run
	journal string
	command func(i int) []string // contender i
	cut     func(i int) func()   // keeps it from the store until the function that it returns is called; -1: all
	wait    sync.WaitGroup

	mu    sync.Mutex
	procs [3]*child.Process
	codes map[int]int // exit codes; -1: killed

	read int // of the journal
	all  []beat
}

// begin starts them, and each again when it has ended.
func (c *contest) begin(ctx context.Context) (end func()) {
	c.codes, c.journal = map[int]int{}, fmt.Sprintf("%s/journal-%d", c.Dir, rand.Uint64())
	c.all, c.read = nil, 0
	scene.Check(os.WriteFile(c.journal, nil, 0o600))
	log := scene.Must(os.Create(c.journal + ".log"))
	ctx, cancel := context.WithCancel(ctx)
	for i := range c.procs {
		c.wait.Go(func() {
			for ctx.Err() == nil {
				args := append(c.command(i), c.Dir+"/beat", c.journal)
				cmd := osexec.Command(args[0], args[1:]...)
				cmd.Stderr = log
				p, err := child.Start(cmd)
				if err != nil {
					c.Violation("%v", err)
					return
				}
				c.mu.Lock()
				c.procs[i] = p
				c.mu.Unlock()
				select {
				case <-p.Done():
				case <-ctx.Done():
					_ = p.Signal(syscall.SIGTERM) // an error: it has ended
					_ = lab.Until(context.Background(), 10*time.Second, "end", p.Exited)
					_ = p.Kill()
					return
				}
				code := 0
				if e, ok := p.Err().(*osexec.ExitError); ok {
					code = e.ExitCode()
				}
				c.mu.Lock()
				c.codes[code]++
				c.mu.Unlock()
				_ = lab.Pause(ctx, 300*time.Millisecond) // so that its start delays no successor
			}
		})
	}
	return func() {
		cancel()
		c.wait.Wait()
		c.endOld(0)
		_ = log.Close()
	}
}

// news reads what the programs noted since.
func (c *contest) news() {
	text := scene.Must(os.ReadFile(c.journal))[c.read:]
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return
		}
		var b beat
		scene.Must(fmt.Sscan(string(line), &b.pid, &b.token, &b.at))
		c.all = append(c.all, b)
		c.read += len(line) + 1
		text = rest
	}
}

// running is the last note, which is at most so old; since is when that program began.
func (c *contest) running(ctx context.Context, not int) (last beat, since time.Duration) {
	await(ctx, 0, time.Minute, "a program runs", func() bool {
		c.news()
		if len(c.all) == 0 {
			return false
		}
		last = c.all[len(c.all)-1]
		return last.pid != not && lab.Now()-last.at < 50*time.Millisecond
	})
	first := slices.IndexFunc(c.all, func(b beat) bool { return b.pid == last.pid })
	return last, c.all[first].at
}

// contender is the one whose program it is.
func (c *contest) contender(pid int) (int, *child.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := pid; at > 1; at = parent(at) {
		for i, p := range c.procs {
			if p != nil && p.Pid() == at {
				return i, p
			}
		}
	}
	scene.Check(fmt.Errorf("process %d is no contender's", pid))
	return 0, nil
}

func parent(pid int) (ppid int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // none: 0
	if _, after, ok := strings.Cut(string(text), ") "); ok {
		_, _ = fmt.Sscan(after[2:], &ppid)
	}
	return ppid
}

// The faults.
const (
	killProgram = "kill -9 of the program"
	stopProgram = "SIGSTOP of the program"
	killIt      = "kill -9 of what holds the lock"
	stopIt      = "SIGSTOP of what holds the lock"
	killGuard   = "kill -9 of the guard"
	cutIt       = "its way to the store is cut"
	cutAll      = "the store is away"
)

// inflict returns the time from the fault until another program ran.
func (c *contest) inflict(ctx context.Context, fault string) time.Duration {
	scene.Check(lab.Pause(ctx, time.Second)) // the one before is back, and waits
	last, _ := c.running(ctx, 0)
	i, it := c.contender(last.pid)
	send := func(pid int, s syscall.Signal) { scene.Check(syscall.Kill(pid, s), fault) }
	began, over, not := lab.Now(), func() {}, last.pid
	switch fault {
	case killProgram:
		send(last.pid, syscall.SIGKILL)
	case killGuard:
		send(parent(last.pid), syscall.SIGKILL)
	case killIt:
		send(it.Pid(), syscall.SIGKILL)
	case stopIt:
		send(it.Pid(), syscall.SIGSTOP)
		over = func() { _ = it.Signal(syscall.SIGCONT) }
	case stopProgram:
		send(last.pid, syscall.SIGSTOP)
		over = func() { _ = syscall.Kill(last.pid, syscall.SIGCONT) } // it goes on, as its lease stands
		not = 0
	case cutIt:
		over = c.cut(i)
	case cutAll:
		over = c.cut(-1)
	}
	if fault != killProgram {
		scene.Check(lab.Pause(ctx, runTTL*3/2))
	}
	over()
	next, since := c.running(ctx, not)
	if fault != killProgram {
		scene.Check(lab.Pause(ctx, 300*time.Millisecond)) // what one that went on would note
	}
	c.endOld(next.pid)
	return since - began
}

// endOld ends programs that were left behind.
func (c *contest) endOld(but int) {
	c.news()
	for _, b := range c.all {
		if b.pid != but && lab.Now()-b.at < 100*time.Millisecond {
			_ = syscall.Kill(b.pid, syscall.SIGKILL) // an error: it has ended
		}
	}
}

// overlaps are programs that noted something after another's first note, and for how long at the most.
func (c *contest) overlaps() (n, tokens int, longest time.Duration) {
	began, last := map[int]time.Duration{}, map[int]time.Duration{}
	highest := uint64(0)
	for _, b := range c.all {
		if _, ok := began[b.pid]; !ok {
			began[b.pid] = b.at
		}
		last[b.pid] = max(last[b.pid], b.at)
		if b.token < highest {
			tokens++
		}
		highest = max(highest, b.token)
	}
	for a, end := range last {
		for b, start := range began {
			if a != b && start > began[a] && end > start {
				n, longest = n+1, max(longest, end-start)
				break
			}
		}
	}
	return n, tokens, longest
}

// play inflicts each fault, in an order that is drawn, and kills the program many times.
func (c *contest) play(ctx context.Context, name string, kills int, faults ...string) {
	end := c.begin(ctx)
	defer end()
	all, took := faults, map[string][]time.Duration{}
	if c.Short {
		kills /= 5
	} else {
		all = slices.Repeat(all, 5)
	}
	random := rand.New(rand.NewPCG(c.Seed, 1))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, fault := range append(all, slices.Repeat([]string{killProgram}, kills)...) {
		took[fault] = append(took[fault], c.inflict(ctx, fault))
	}
	n, tokens, longest := c.overlaps()
	for _, fault := range slices.Compact(slices.Sorted(slices.Values(append(faults, killProgram)))) {
		if fault != stopProgram {
			c.Spread(name+", "+fault, took[fault])
		}
	}
	programs := map[int]bool{}
	for _, b := range c.all {
		programs[b.pid] = true
	}
	c.Figure(name, "%d programs, %d ran beside another (for %v at most), %d notes under an old token; exit codes %v",
		len(programs), n, scene.Short(longest), tokens, c.codes)
	if strings.HasPrefix(name, holdfast) {
		c.None(name+": programs beside another", n)
		c.Within(name+": 99 of 100 fail-overs", scene.Percentile(took[killProgram], 99), 100*time.Millisecond)
	}
}

// guardScenario has three contenders run a program by holdfast run over each store, and by what people
// use for that otherwise.
func guardScenario(ctx context.Context, run *scene.Run) {
	root := strings.TrimSpace(string(scene.Must(osexec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/holdfast-go/holdfast").Output())))
	for name, of := range map[string][2]string{"beat": {"lab", "./leases/testdata/beat.go"}, "holdfast": {"cmd/holdfast", "."}} {
		out, err := osexec.Command("go", "build", "-C", root+"/"+of[0], "-o", run.Dir+"/"+name, of[1]).CombinedOutput()
		scene.Check(err, string(out))
	}
	stores := []string{onEtcd, onPostgres, onSQLite, onRedis}
	if run.Store != "" {
		stores = []string{run.Store}
	}
	over := func(on string) {
		c := &contest{Run: run}
		b := newBed(ctx, run, on, runTTL)
		defer b.close()
		urls := c.ways(b, on)
		c.command = func(i int) []string {
			return []string{run.Dir + "/holdfast", "run", "--quiet", "--ttl", runTTL.String(), "--lease", "job", "--store", urls[i], "--"}
		}
		c.play(ctx, holdfast+" on "+on, 100, killProgram, stopProgram, killIt, stopIt, killGuard, cutIt, cutAll)
		if on == onEtcd {
			c.command = func(i int) []string {
				endpoint := strings.TrimPrefix(urls[i], "etcd://")
				return []string{"etcdctl", "--endpoints", endpoint, "lock", "--ttl", fmt.Sprint(runTTL.Seconds()), "job"}
			}
			c.play(ctx, "etcdctl lock", 100, killProgram, stopProgram, killIt, stopIt, cutIt)
		}
	}
	for _, on := range stores {
		over(on)
	}
	c := &contest{Run: run, command: func(int) []string { return []string{"flock", run.Dir + "/lock"} }}
	c.play(ctx, "flock", 100, killProgram, stopProgram)
}

// ways are the contenders' own to the store.
func (c *contest) ways(b *bed, on string) (urls []string) {
	var links []*node
	for i := range c.procs {
		n := &node{id: fmt.Sprint("contender-", i)}
		switch on {
		case onRedis:
			r := scene.Must(b.redis.NewRoute())
			n.links = append(n.links, r.Link)
			urls = append(urls, "redis://"+r.Addr())
		case onSQLite:
			urls = append(urls, "sqlite:"+c.Dir+"/leases.db")
		case onPostgres:
			urls = append(urls, b.url(n)+"&holdfast_listen=true")
		default:
			urls = append(urls, b.url(n))
		}
		links = append(links, n)
	}
	c.cut = func(i int) func() {
		if on == onSQLite { // of all
			db := scene.Must(sql.Open("sqlite", c.Dir+"/leases.db?_pragma=busy_timeout(10000)&_txlock=immediate"))
			tx := scene.Must(db.BeginTx(context.Background(), nil))
			return func() { scene.Check(errors.Join(tx.Rollback(), db.Close())) }
		}
		some := links
		if i >= 0 {
			some = links[i : i+1]
		}
		for _, n := range some {
			n.cut()
		}
		return func() {
			for _, n := range some {
				n.heal()
			}
		}
	}
	return urls
}
