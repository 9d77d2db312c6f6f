// Command reactor shows durable work on PostgreSQL: three named reactors, each in one of three
// processes by a lease in the same database, do runs of work, of which each step is journaled in a
// transaction that the lease guards. One process is killed while it waits for an effect outside.
// Its successor goes through the journal, finds that the bank has paid, and does not pay again.
//
//	go run . -dsn postgres://user:password@localhost/db        # makes new tables; about 15 s
//	go run . -dsn … -as p4 -settings reactor.yaml              # one process more
//
// The exit status is 1 if money moved twice or not at all, or something is left undone.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
)

var names = []string{"payments", "refunds", "fees"}

// each is how many runs there are for each reactor, slow how long the bank takes to answer.
const (
	each = 10
	slow = 300 * time.Millisecond
)

func main() {
	dsn := flag.String("dsn", "", "URL of a database; empty for what PGHOST and so on say")
	settings := flag.String("settings", "quick.yaml", "file of settings")
	as := flag.String("as", "", "run one process of this name, and no demonstration")
	child := flag.Bool("child", false, "end with the end of standard input")
	flag.Parse()
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *child {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	run := func() error { return process(ctx, *dsn, *settings, *as) }
	if *as == "" {
		run = func() error { return demonstrate(ctx, *dsn, *settings) }
	}
	if err := run(); err != nil {
		log.Fatalf("verdict: BROKEN: %v", err)
	}
}

// process runs the reactors, each while its lease is held, until ctx is done.
func process(ctx context.Context, dsn, settings, name string) (err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool)
	if err != nil {
		return err
	}
	s, err := node.LoadSettings(settings)
	if err != nil {
		return err
	}
	n, err := node.Start(ctx, node.Config{ID: name, Store: store, Settings: s})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop(context.Background())) }()
	var all sync.WaitGroup
	defer all.Wait()
	for _, reactorName := range names {
		l, err := n.Lease("reactor/" + reactorName)
		if err != nil {
			return err
		}
		r := &reactor{reactorName, name, &Journal{pool, store}, bank{pool: pool, slow: slow}}
		all.Go(func() {
			// A reactor that fails is given up, so that another process may try, and tried again
			// here after 1 to 10 s.
			err := lease.RunForever(ctx, l, r.react, lease.WithBackoff(2*time.Second, 10*time.Second))
			if ctx.Err() == nil {
				log.Printf("%s: %s ended: %v", name, reactorName, err)
			}
		})
	}
	return nil
}

// demonstrate makes work, has three processes do it, kills one, and judges.
func demonstrate(ctx context.Context, dsn, settings string) error {
	ctx, cancel := context.WithTimeout(ctx, 35*time.Second)
	defer cancel()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := prepare(ctx, pool); err != nil {
		return err
	}
	processes := map[string]*exec.Cmd{}
	var readers sync.WaitGroup
	defer func() {
		for _, p := range processes {
			_ = p.Process.Signal(os.Interrupt)
		}
		readers.Wait()
		for _, p := range processes {
			_ = p.Wait()
		}
	}()
	for _, name := range []string{"p1", "p2", "p3"} {
		p, out, err := start(dsn, settings, name)
		if err != nil {
			return err
		}
		processes[name] = p
		readers.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				fmt.Println(lines.Text())
			}
		})
	}
	victim, key, err := inTheMiddle(ctx, pool)
	if err != nil {
		return err
	}
	log.Printf("%s is killed: the bank has paid %s, and it has not been told", victim, key)
	if err := processes[victim].Process.Kill(); err != nil {
		return err
	}
	if err := finished(ctx, pool); err != nil {
		return err
	}
	return judge(ctx, pool, key)
}

// start runs this program as one process. It ends when this one does.
func start(dsn, settings, name string) (*exec.Cmd, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	p := exec.Command(self, "-dsn", dsn, "-settings", settings, "-as", name, "-child")
	if _, err := p.StdinPipe(); err != nil { // closed when this process ends
		return nil, nil, err
	}
	out, err := p.StderrPipe()
	if err != nil {
		return nil, nil, err
	}
	return p, out, p.Start()
}
