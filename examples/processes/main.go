//go:build unix

// Command processes shows three nodes as processes on one file of SQLite, without any server. A
// singleton counts in that file: its host is killed, the next one is stopped for longer than its
// lease lasts, and the rest leave as they should.
//
//	cd examples/processes && go run .                       # the three; 11 s
//	cd examples/processes && go run . -file x.db -node a    # one; start several, and kill some
//
// The exit status is 0 if the verdict is good, and 1 if it is not.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/sqlite"
	_ "github.com/holdfast-go/holdfast/backends/sqlite/register" // sqlite: for package open
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/singleton"
)

const ttl = 2 * time.Second

// tick has the counter count once.
type tick struct{}

// counter is the singleton: it counts in a table, in transactions that fail unless it hosts.
func counter(id string, db *sql.DB) *actor.Props {
	return actor.PropsFromFunc(func(ctx actor.Context) {
		held, _ := singleton.Of(ctx) // the ownership it works under
		switch ctx.Message().(type) {
		case *actor.Started:
			fmt.Printf("%s hosts the counter, under token %d\n", id, held.Token())
		case tick:
			if err := count(held.Context(), db, held, id); err != nil {
				fmt.Printf("%s did not count: %v\n", id, err)
			}
		default:
			return
		}
		root, self := ctx.ActorSystem().Root, ctx.Self()
		time.AfterFunc(50*time.Millisecond, func() { root.Send(self, tick{}) })
	})
}

// count notes one more, in the same transaction in which the lease is checked.
func count(ctx context.Context, db *sql.DB, held lease.Ownership, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // of no effect after the commit
	if err := sqlite.Guard(ctx, tx, held); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO counted (node, token, at) VALUES (?, ?, ?)",
		id, int64(held.Token()), time.Now().UnixMilli()); err != nil {
		return err
	}
	return tx.Commit()
}

func openTable(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(1000)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS counted (n INTEGER PRIMARY KEY, node TEXT, token INTEGER, at INTEGER)")
	return db, err
}

// one runs one node until a signal.
func one(ctx context.Context, id, file string) error {
	store, closeStore, err := open.Open(ctx, "sqlite:"+file)
	if err != nil {
		return err
	}
	defer closeStore()
	db, err := openTable(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	n, err := node.Start(ctx, node.Config{
		ID: id, Store: store, Lease: lease.Config{TTL: ttl},
		Listen: "127.0.0.1:0", Plaintext: true, // one machine
	})
	if err != nil {
		return err
	}
	if _, err := n.Singleton("counter", counter(id, db)); err != nil {
		return errors.Join(err, n.Stop(ctx))
	}
	return n.Run(ctx)
}

// process is a node.
type process struct {
	*exec.Cmd
	told chan struct{} // closed when it has said all
}

// start runs this program again, as a node; what it says goes to the timeline.
func start(id, file string) (process, error) {
	p := process{exec.Command(os.Args[0], "-node", id, "-file", file), make(chan struct{})}
	out, err := p.StdoutPipe()
	if err != nil {
		return p, err
	}
	go func() {
		defer close(p.told)
		for s := bufio.NewScanner(out); s.Scan(); {
			say("%s", s.Text())
		}
	}()
	return p, p.Start()
}

// end tells a process to leave, and waits for that.
func (p process) end() error {
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.told
	return p.Wait()
}

// all runs three nodes, and judges what they did by what stands in the table.
func all(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "processes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "leases.db")
	db, err := openTable(ctx, file)
	if err != nil {
		return err
	}
	defer db.Close()
	nodes := map[string]process{}
	defer func() {
		for _, p := range nodes {
			p.Process.Kill()
		}
	}()
	for _, id := range []string{"a", "b", "c"} {
		if nodes[id], err = start(id, file); err != nil {
			return err
		}
	}
	killed, err := host(ctx, db, "")
	if err != nil {
		return err
	}
	time.Sleep(ttl)
	say("%s is killed: it releases nothing", killed)
	if err := nodes[killed].Process.Kill(); err != nil {
		return err
	}
	<-nodes[killed].told
	nodes[killed].Wait()
	delete(nodes, killed)
	stopped, err := host(ctx, db, killed)
	if err != nil {
		return err
	}
	time.Sleep(ttl)
	if err := pause(ctx, db, nodes[stopped].Process); err != nil {
		return err
	}
	say("%s is stopped: it does not know what becomes of its lease", stopped)
	if _, err := host(ctx, db, stopped); err != nil {
		return err
	}
	say("%s goes on", stopped)
	if err := nodes[stopped].Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	time.Sleep(ttl)
	for id, p := range nodes {
		say("%s is told to leave", id)
		if err := p.end(); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		delete(nodes, id)
	}
	return judge(ctx, db, killed, stopped)
}

// host waits until another node than former counts, and returns its name.
func host(ctx context.Context, db *sql.DB, former string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		err = db.QueryRowContext(ctx, "SELECT node FROM counted ORDER BY n DESC LIMIT 1").Scan(&id)
		if err == nil && id != former {
			return id, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "", fmt.Errorf("verdict: BROKEN: no node but %q counted within a minute: %w", former, errors.Join(ctx.Err(), err))
}

// pause stops a process while it has no transaction open: SQLite locks the file for as long as a
// writer's transaction lasts, so one that is stopped within one keeps all others from writing.
func pause(ctx context.Context, db *sql.DB, p *os.Process) error {
	for tries := 1; ; tries++ {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		var status syscall.WaitStatus // its threads go on for a moment
		if _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); err != nil {
			return err
		}
		_, err := db.ExecContext(ctx, "DELETE FROM counted WHERE false") // takes the lock
		if err == nil || tries == 20 {
			return err
		}
		say("%v: the process is stopped within a transaction; once more", err)
		if err := p.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		time.Sleep(ttl / 4) // it renews its lease
	}
}

// judge says what is not as it must be: a count of a former host, or a stopped host that counted
// on. It also says for how long no node counted, which depends on the machine's load.
func judge(ctx context.Context, db *sql.DB, killed, stopped string) error {
	rows, err := db.QueryContext(ctx, "SELECT node, token, at FROM counted ORDER BY n")
	if err != nil {
		return err
	}
	defer rows.Close()
	var hosts []string
	var top, before int64
	counted, former, longest := 0, 0, time.Duration(0)
	for rows.Next() {
		var id string
		var token, at int64
		if err := rows.Scan(&id, &token, &at); err != nil {
			return err
		}
		if token < top {
			former++
		}
		if token > top {
			hosts, top = append(hosts, id), token
		}
		if counted++; counted > 1 {
			longest = max(longest, time.Duration(at-before)*time.Millisecond)
		}
		before = at
	}
	if err := rows.Err(); err != nil {
		return err
	}
	found := fmt.Sprintf("%d counts, %d of a former host; hosts %v; at most %v without one", counted, former, hosts, longest)
	if former > 0 || len(hosts) < 3 || hosts[0] != killed || hosts[1] != stopped || hosts[2] == stopped {
		return errors.New("verdict: BROKEN: " + found)
	}
	say("verdict: GOOD: %s", found)
	return nil
}

var (
	began  = time.Now()
	saying sync.Mutex
)

func say(format string, args ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf("%5.2f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}

func main() {
	id := flag.String("node", "", "the node's name, to run one; default: three processes")
	file := flag.String("file", "leases.db", "the file of leases, with -node")
	flag.Parse()
	run := func() error { return all(context.Background()) }
	if *id != "" {
		run = func() error { return one(context.Background(), *id, *file) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
