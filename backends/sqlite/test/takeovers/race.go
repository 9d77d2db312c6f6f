//go:build linux

package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/backends/sqlite"
)

type options struct {
	takeovers, processes, names int
	dir                         string
	seed                        uint64
	within                      time.Duration
	guarded                     bool
}

// tables are the data, and the one history of writes and takeovers. There is one write lock, so the
// order of seq is that of the commits.
const tables = `
	CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL) STRICT;
	CREATE TABLE history (seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, kind TEXT NOT NULL,
		token INTEGER NOT NULL, before INTEGER, after INTEGER) STRICT;
	CREATE TRIGGER takeover AFTER INSERT ON holdfast_lease BEGIN
		INSERT INTO history (name, kind, token) VALUES (NEW.name, 'take', NEW.token);
	END;`

// race runs one half, until there were enough takeovers.
func race(ctx context.Context, o options) (f figures, err error) {
	dir, err := os.MkdirTemp(o.dir, "holdfast-takeovers-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "leases.db")
	store, err := sqlite.New(ctx, path) // makes the tables of leases
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return f, err
	}
	for i := range o.names {
		if _, err := db.ExecContext(ctx, "INSERT INTO account VALUES (?, 0)", leaseName(i)); err != nil {
			return f, err
		}
	}
	began := time.Now()
	c := &crew{settings: settings{Path: path, Names: o.names, Guarded: o.guarded, Seed: o.seed}}
	err = c.trouble(ctx, o, db)
	c.wait()
	if err != nil {
		return f, err
	}
	f, err = judge(ctx, db, c.heard)
	f.took, f.kills, f.stops = time.Since(began), c.kills, c.stops
	return f, err
}

func leaseName(i int) string { return fmt.Sprintf("job/%d", i) }

// crew is the processes of one half.
type crew struct {
	settings
	all          []*member
	kills, stops int
	readers      sync.WaitGroup

	mu    sync.Mutex
	heard []heard
}

// member is one process. It ends when its input does.
type member struct {
	cmd   *exec.Cmd
	input io.Closer
}

// trouble starts the processes, and kills and stops them until there were enough takeovers.
func (c *crew) trouble(ctx context.Context, o options, db *sql.DB) error {
	rng := rand.New(rand.NewPCG(o.seed, 1))
	for range o.processes {
		m, err := c.start()
		if err != nil {
			return err
		}
		c.all = append(c.all, m)
	}
	for end := time.Now().Add(o.within); ; {
		if err := pause(ctx, time.Duration(rng.Int64N(int64(400*time.Millisecond)))); err != nil {
			return err
		}
		var taken int
		err := db.QueryRowContext(ctx, `SELECT count(*) - count(DISTINCT name) FROM history WHERE kind = 'take'`).Scan(&taken)
		switch {
		case err != nil:
			return err
		case taken >= o.takeovers:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%d takeovers within %v, wanted %d", taken, o.within, o.takeovers)
		}
		i := rng.IntN(len(c.all))
		if rng.IntN(3) == 0 {
			c.kills++
			if err := errors.Join(c.all[i].cmd.Process.Kill(), c.all[i].end()); err != nil {
				return err
			}
			if c.all[i], err = c.start(); err != nil {
				return err
			}
			continue
		}
		c.stops++
		if err := c.all[i].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err = pause(ctx, time.Duration(rng.Int64N(int64(200*time.Millisecond))))
		if err := errors.Join(err, c.all[i].cmd.Process.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// start starts a process, and has what it says heard.
func (c *crew) start() (*member, error) {
	c.Seed++
	arg, err := json.Marshal(c.settings)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+string(arg))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.readers.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var h heard
			if json.Unmarshal(lines.Bytes(), &h) != nil {
				continue // the last line of one that was killed
			}
			c.mu.Lock()
			c.heard = append(c.heard, h)
			c.mu.Unlock()
		}
	})
	return &member{cmd, input}, nil
}

// end waits for the process of a member, whose death is no error.
func (m *member) end() error {
	_ = m.input.Close()
	err := m.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return nil
	}
	return err
}

// wait ends all processes.
func (c *crew) wait() {
	for _, m := range c.all {
		_ = m.cmd.Process.Kill()
		_ = m.end()
	}
	c.readers.Wait()
}
