//go:build linux

package soak

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// sighting is a token that somebody held a name with.
type sighting struct {
	at    time.Duration
	token uint64
}

// goneBack counts the tokens that are lower than one seen before.
func goneBack(journal []sighting) (n int) {
	s := slices.SortedFunc(slices.Values(journal), func(a, b sighting) int { return cmp.Compare(a.at, b.at) })
	highest := uint64(0)
	for _, x := range s {
		if x.token < highest {
			n++
		}
		highest = max(highest, x.token)
	}
	return n
}

// firstAfter finds the first look that was surely begun after at.
func firstAfter(looks []look, at time.Duration) (look, bool) {
	for _, l := range looks {
		if l.before >= at && !l.torn() {
			return l, true
		}
	}
	return look{}, false
}

// stopped is a process that holds a name, and all it said.
type stopped struct {
	cmd  *exec.Cmd
	in   io.Closer
	mu   sync.Mutex
	said []look
	done chan error
}

func spawnHolder(endpoint, name string, ttl time.Duration) (*stopped, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &stopped{cmd: exec.Command(self), done: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", holderEnv, endpoint, name, ttl))
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	s.in = in
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		var bad error
		for lines := bufio.NewScanner(out); lines.Scan(); {
			l, err := parseLook(lines.Text())
			if err != nil {
				bad = fmt.Errorf("holder said %q: %w", lines.Text(), err)
			}
			s.mu.Lock()
			s.said = append(s.said, l)
			s.mu.Unlock()
		}
		s.done <- bad
	}()
	return s, nil
}

// looks are those said until now.
func (s *stopped) looks() []look {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

// await polls what the process said.
func (s *stopped) await(ctx context.Context, what string, is func([]look) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("a minute without: %s", what))
	defer cancel()
	for !is(s.looks()) {
		if err := lab.Pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// end kills the process, stopped or not.
func (s *stopped) end() error {
	err := s.cmd.Process.Kill()
	return errors.Join(err, <-s.done, waited(s.cmd.Wait())) // Wait closes the pipes
}

// waited: a process that was killed has an error to say so.
func waited(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil
	}
	return err
}

// verdict is what one stop showed.
type verdict struct {
	believed bool // the first look after it went on
	rival    bool // another held the name while it was stopped
	overlap  bool // it believed at some moment while the other held
	noticed  time.Duration
}

func stops(ctx context.Context, args []string, r *report) error {
	var rounds, holders int
	var ttl time.Duration
	if err := flags("stops", args, func(f *flag.FlagSet) {
		f.IntVar(&rounds, "rounds", 100, "stops in all")
		f.IntVar(&holders, "holders", 10, "processes that hold, each its own name")
		f.DurationVar(&ttl, "ttl", 2*time.Second, "TTL; a stop lasts three")
	}); err != nil {
		return err
	}
	if rounds < 1 || holders < 1 || ttl < time.Second {
		return errors.New("stops: -rounds and -holders must be at least 1, -ttl at least 1s")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	client, err := b.direct()
	if err != nil {
		return err
	}
	rival, err := b.keeper(client, "rival", ttl)
	if err != nil {
		return err
	}
	began := time.Now()
	verdicts := make([][]verdict, holders)
	back, errs := make([]int, holders), make([]error, holders)
	var all sync.WaitGroup
	for i := range holders {
		all.Go(func() {
			share := rounds / holders
			if i < rounds%holders {
				share++
			}
			verdicts[i], back[i], errs[i] = stopOne(ctx, b, rival, fmt.Sprintf("stops/%d", i), ttl, share)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var believed, unheld, overlaps, tokens int
	var noticed []time.Duration
	for i, vs := range verdicts {
		tokens += back[i]
		for _, v := range vs {
			noticed = append(noticed, v.noticed)
			believed += count(v.believed)
			unheld += count(!v.rival)
			overlaps += count(v.overlap)
		}
	}
	r.printf("%d stops of %v, TTL %v, %d processes, in %v", len(noticed), 3*ttl, ttl, holders, time.Since(began).Round(time.Second))
	r.spread("from SIGCONT to the first look", noticed)
	r.atMost("stops that were not made", float64(rounds-len(noticed)), 0, "")
	r.atMost("first looks that believed", float64(believed), 0, "")
	r.atMost("stops in which nobody else held it", float64(unheld), 0, "")
	r.atMost("stops in which both believed at a time", float64(overlaps), 0, "")
	r.atMost("tokens that went back", float64(tokens), 0, "")
	return nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// stopOne stops one holder again and again while the rival waits for its name.
func stopOne(ctx context.Context, b *bed, rival *lease.Keeper, name string, ttl time.Duration, rounds int) (vs []verdict, back int, err error) {
	s, err := spawnHolder(b.member().Direct(), name, ttl)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	other, err := rival.Lease(name)
	if err != nil {
		return nil, 0, err
	}
	var journal []sighting
	for range rounds {
		if err := s.await(ctx, name+" is held", func(ls []look) bool {
			n := len(ls)
			return n > 0 && ls[n-1].alive && ls[n-1].token != 0
		}); err != nil {
			return nil, 0, err
		}
		if err := lab.Pause(ctx, time.Duration(mrand.Int64N(int64(ttl/2)))); err != nil { // anywhere between renewals
			return nil, 0, err
		}
		if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return nil, 0, err
		}
		began := lab.Now()
		waiting, cancel := context.WithTimeout(ctx, 3*ttl)
		_, held := hold(waiting, other)
		cancel()
		taken := lab.Now()
		term, rivalHeld := other.Term()
		if held == nil && rivalHeld {
			journal = append(journal, sighting{taken, uint64(term.Token())})
		}
		if err := lab.Pause(ctx, began+3*ttl-lab.Now()); err != nil {
			return nil, 0, err
		}
		resumed := lab.Now()
		if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return nil, 0, err
		}
		var first look
		if err := s.await(ctx, name+" looks", func(ls []look) (ok bool) {
			first, ok = firstAfter(ls, resumed)
			return ok
		}); err != nil {
			return nil, 0, err
		}
		if err := lab.Pause(ctx, 50*time.Millisecond); err != nil { // some more looks while the rival holds
			return nil, 0, err
		}
		v := verdict{believed: first.alive, rival: held == nil && rivalHeld, noticed: first.after - resumed}
		until, still := time.Duration(0), false
		if v.rival {
			until, still = lab.Now(), term.CheckAlive()
			v.rival = still // to the end: else it would prove nothing
		}
		for _, l := range s.looks() {
			if l.alive && !l.torn() && l.before > taken && l.after < until {
				v.overlap = true
			}
		}
		vs = append(vs, v)
		if err := other.Release(ctx); err != nil {
			return nil, 0, err
		}
	}
	for _, l := range s.looks() {
		if l.alive && l.token != 0 && !l.torn() {
			journal = append(journal, sighting{l.after, uint64(l.token)})
		}
	}
	return vs, goneBack(journal), nil
}
