//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/lease"
)

const aboutRun = `Run a program while this process holds a lease, so that it runs in one place at a time.

It waits for the lease, runs CMD and releases the lease when CMD and all that CMD started have
ended; then it exits as CMD did. If the lease is lost, or the store is silent for too long, CMD gets
SIGTERM, and SIGKILL before another may have the lease. A CMD that crashes frees the lease at once.

CMD has in its environment HOLDFAST_LEASE (the name), HOLDFAST_TOKEN (it grows with each holder:
send it with what you write) and HOLDFAST_TTL (seconds). Signals are passed on to it.

Exit codes, beside those of CMD (128 + N if signal N ended it):
  1 an error        3 another holds the lease (--skip, or --wait=TIME was over)
  2 wrong use       4 the lease was lost while CMD ran: CMD was stopped
  126, 127 CMD can't be started, was not found    5 not known: the store did not confirm`

const runExamples = `  # crontab on three machines: one of them makes the report, the others skip it
  0 3 * * * holdfast run --store etcd://db1:2379 --lease cron/report --skip --quiet -- /usr/local/bin/report

  # systemd's ExecStart=, or a shell: one worker, which another machine takes over; no server needed on one machine
  holdfast run --store sqlite:///var/lib/holdfast/leases.db --lease worker --restart -- worker --verbose`

// job is one holdfast run.
type job struct {
	*app
	name, id, wait       string
	skip, restart, quiet bool
	ttl, grace           time.Duration

	path     string // of the program
	args     []string
	patience time.Duration // how long it waits; 0: without end
	ready    *guard        // started, with no program yet; nil: none
	pause    time.Duration // before the program starts again

	mu      sync.Mutex
	signals chan<- syscall.Signal // to the program that runs; nil: none does
	asked   syscall.Signal        // by which this process was asked to end; 0: it was not
}

const (
	leastTTL     = time.Second
	longestGrace = 10 * time.Second // by default
	renewals     = 0.25             // of the TTL
	leastPause   = time.Second
	longestPause = 30 * time.Second
	endless      = "forever"
)

// margin is how long before the end of the TTL the program gets SIGKILL.
func (j *job) margin() time.Duration { return max(j.ttl/10, 100*time.Millisecond) }

// runCommand is holdfast run.
func (a *app) runCommand() *cobra.Command {
	j := &job{app: a, pause: leastPause}
	guarding := false
	cmd := &cobra.Command{
		Use: "run --lease NAME [flags] -- CMD [ARG...]", Short: "Run a program while holding a lease", Long: aboutRun, Example: runExamples,
		DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&j.name, "lease", "", "name of the lease, as in cron/report")
	f.StringVar(&j.wait, "wait", endless, "wait for the lease, with --wait=30s for so long at most")
	f.Lookup("wait").NoOptDefVal = endless
	f.BoolVar(&j.skip, "skip", false, "do not wait: exit with 3 if another holds the lease")
	f.BoolVar(&j.restart, "restart", false, "start CMD again when it has ended, and after a loss")
	f.DurationVar(&j.ttl, "ttl", 10*time.Second, "how long the lease outlives a machine that dies")
	f.DurationVar(&j.grace, "grace", 0, "time from SIGTERM to SIGKILL (default: a third of --ttl, at most 10s)")
	f.StringVar(&j.id, "id", "", "who holds it, for people (default: host name and process)")
	f.BoolVar(&j.quiet, "quiet", false, "say nothing but errors; that another holds the lease is none")
	f.BoolVar(&guarding, "guard", false, "")
	_ = f.MarkHidden("guard") // what this program starts itself with, see guard.go
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &coded{codeUsage, err} })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if guarding {
			return guardProgram()
		}
		if err := j.check(args, f.Changed("wait"), f.Changed("grace")); err != nil {
			return err
		}
		return j.run()
	}
	return cmd
}

// check completes the settings. It is before anything else that what can't work is refused.
func (j *job) check(args []string, waits, graced bool) (err error) {
	wrong := func(format string, args ...any) error {
		return &coded{codeUsage, fmt.Errorf("run: "+format+"; see holdfast run --help", args...)}
	}
	if !graced {
		j.grace = min(j.ttl/3, longestGrace)
	}
	switch {
	case j.name == "":
		return wrong("no lease is named: --lease cron/report")
	case len(args) == 0:
		return wrong("there is no program to run: put it last, after --")
	case j.readOnly:
		return wrong("it acquires a lease: leave --read-only out")
	case j.store == "" && j.node != "":
		return wrong("it needs a store, and a node's page is none: --store instead of --node")
	case j.store == "":
		return wrong("there is no store: --store sqlite:///var/lib/holdfast/leases.db, or HOLDFAST_STORE")
	case strings.HasPrefix(j.store, "memory:"):
		return wrong("--store %s: no other process sees a store in memory", j.store)
	case j.skip && waits:
		return wrong("--skip and --wait exclude each other")
	case j.ttl < leastTTL:
		return wrong("--ttl: %v, must be at least %v", j.ttl, leastTTL)
	case j.grace < 0 || j.grace > j.ttl/3:
		return wrong("--grace: %v, must be at least 0 and at most a third of --ttl, which is %v", j.grace, (j.ttl / 3).Truncate(time.Millisecond))
	case j.wait != endless:
		if j.patience, err = time.ParseDuration(j.wait); err != nil || j.patience < 0 {
			return wrong("--wait=%s: must be a time, such as 30s", j.wait)
		}
		j.skip = j.patience == 0
	}
	if j.id == "" {
		host, _ := os.Hostname() // it is for people
		j.id = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	j.args = args
	if j.path, err = exec.LookPath(args[0]); err == nil {
		return nil
	}
	if _, bad := time.ParseDuration(args[0]); bad == nil {
		err = fmt.Errorf("%w (a time goes with its flag: --wait=%s)", err, args[0])
	}
	if errors.Is(err, fs.ErrPermission) {
		return &coded{codeNoStart, err}
	}
	return &coded{codeNotFound, err}
}

// What shells return for programs that they can't start.
const (
	codeNoStart  = 126
	codeNotFound = 127
)

// say tells the user how it goes on.
func (j *job) say(format string, args ...any) {
	if !j.quiet {
		fmt.Fprintf(j.log, "holdfast: "+format+"\n", args...)
	}
}

// logger has the Keeper say on the log what goes wrong.
func (j *job) logger() *zap.Logger {
	to := j.log
	if j.quiet {
		to = io.Discard
	}
	form := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{NameKey: "n", MessageKey: "m", LineEnding: "\n", ConsoleSeparator: " "})
	return zap.New(zapcore.NewCore(form, zapcore.AddSync(to), zap.WarnLevel)).Named("holdfast:")
}

func (j *job) run() error {
	ctx, cancel := context.WithCancel(context.Background()) // not main's: a signal is for the program
	defer cancel()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn()...)
	var passing sync.WaitGroup
	passing.Go(func() {
		for s := range signals {
			j.pass(s.(syscall.Signal), cancel)
		}
	})
	defer func() {
		signal.Stop(signals)
		close(signals)
		passing.Wait()
	}()
	cfg := lease.Config{ID: j.id, TTL: j.ttl, Margin: j.margin(), RenewFraction: renewals, Logger: j.logger()}
	o, err := j.connect(ctx, cfg)
	var l *lease.Handle
	if err == nil {
		defer o.Close()
		l, err = o.keeper.Lease(j.name)
	}
	switch {
	case errors.Is(err, lease.ErrInvalid):
		return &coded{codeUsage, fmt.Errorf("run: %w", err)}
	case ctx.Err() != nil:
		return j.exit(outcome{}, nil)
	case err != nil:
		return fmt.Errorf("run: the store could not be opened: %w", err)
	}
	defer func() {
		j.ready.end(nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Release(ctx) // of what a signal interrupted; else nothing
	}()
	for {
		o, err := j.hold(ctx, l)
		if !o.again {
			return j.exit(o, err)
		}
		j.skip, j.patience = false, 0 // that was for the first time
		select {
		case <-ctx.Done(): // the next round says so
		case <-time.After(o.pause):
		}
	}
}

// pass passes a signal on. Those that ask a program to end do so with this process.
func (j *job) pass(s syscall.Signal, cancel func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case j.signals <- s:
	default: // there is no program; or it is stopped, and has sixteen of them to come
	}
	if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT || s == syscall.SIGHUP && j.signals == nil {
		j.asked = s
		cancel()
	}
}

// outcome is what became of one term.
type outcome struct {
	ran   bool
	lost  error // why the program was stopped; nil: it was not
	again bool
	pause time.Duration
	report
}

// hold waits for the lease and runs the program under it. The error is that of the lease.
func (j *job) hold(ctx context.Context, l *lease.Handle) (o outcome, err error) {
	work := func(_ context.Context, t lease.Term) error {
		o = j.under(ctx, t)
		return nil
	}
	if j.skip {
		err = lease.TryRun(ctx, l, work)
	} else {
		waiting := ctx
		if j.patience > 0 {
			var cancel func()
			waiting, cancel = context.WithTimeout(ctx, j.patience)
			defer cancel()
		}
		_, first := l.AcquireTerm(waiting)
		if held, is := errors.AsType[*lease.HeldError](first); is {
			j.say("waiting for %s", holder(j.name, held.Record))
			if j.ready == nil {
				j.ready, _ = newGuard() // so that the program starts at once; under tries again
			}
		}
		err = lease.Run(waiting, l, work)
		if first != nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lease.ErrUnknown) {
			err = first // which says who holds it, or that the store did not answer
		}
	}
	if !o.ran && ctx.Err() == nil && errors.Is(err, lease.ErrExpired) {
		o.again = true // lost before the program could begin
	}
	return o, err
}

func holder(name string, r lease.Record) string {
	text := fmt.Sprintf("%q: %q holds it", name, r.Owner.ID)
	if !r.Granted.IsZero() {
		text += fmt.Sprintf(" since %s, for %v", r.Granted.UTC().Format(time.RFC3339), max(time.Since(r.Granted), 0).Round(time.Second))
	}
	return text
}

// under runs the program, and with --restart again and again, for as long as the term lasts. While the
// pause between is shorter than the TTL the lease is kept.
func (j *job) under(ctx context.Context, t lease.Term) (o outcome) {
	for {
		began := time.Now()
		var started bool
		started, o.report = j.start(t)
		o.ran = o.ran || started
		switch {
		case o.Stopped || o.Err != "" && !t.CheckAlive():
			o.lost = context.Cause(t.Context())
			if o.lost == nil {
				o.lost = errors.New("the store did not answer in time")
			}
			if o.again = j.restart && ctx.Err() == nil; o.again {
				j.say("%v", j.stopped(o.lost))
			}
			return o
		case !j.restart || !started || ctx.Err() != nil || o.Status == codeNoStart && o.Err != "" || o.Status == 128+int(syscall.SIGHUP):
			return o
		}
		if time.Since(began) > longestPause {
			j.pause = leastPause
		}
		j.say("the program ended with status %d; it starts again in %v", o.Status, j.pause)
		o.pause, j.pause = j.pause, min(2*j.pause, longestPause)
		if o.again = o.pause > j.ttl; o.again {
			return o
		}
		select {
		case <-ctx.Done():
			return o
		case <-t.Context().Done():
			o.again, o.pause = true, 0
			return o
		case <-time.After(o.pause):
		}
	}
}

func (j *job) stopped(why error) error {
	return fmt.Errorf("lease %q: the program was stopped: %w", j.name, why)
}

// start runs the program once, to its end and that of all that it started.
func (j *job) start(t lease.Term) (started bool, r report) {
	if !t.CheckAlive() {
		return false, report{Stopped: true}
	}
	g, err := j.ready, error(nil)
	j.ready = nil
	if g == nil {
		g, err = newGuard()
	}
	if err != nil {
		return false, report{Status: codeError, Err: "the guard can't be started: " + err.Error()}
	}
	j.mu.Lock()
	if j.asked != 0 {
		j.mu.Unlock()
		g.end(nil)
		return false, report{}
	}
	p := program{Path: j.path, Args: j.args, Grace: j.grace, Foreground: inForeground(), Env: []string{
		"HOLDFAST_LEASE=" + j.name,
		fmt.Sprintf("HOLDFAST_TOKEN=%d", t.Token()),
		"HOLDFAST_TTL=" + strconv.FormatFloat(j.ttl.Seconds(), 'f', -1, 64),
	}}
	err = g.start(p, t, j.margin())
	j.signals = g.signals
	j.mu.Unlock()
	if err != nil {
		r = g.end(err)
	} else {
		r = g.follow(t)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.signals = nil
	if p.Foreground {
		toForeground()
	}
	return true, r
}

// exit says how this process ends: with the program's status, if it ran and there is nothing else to say.
func (j *job) exit(o outcome, err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	code, held := codeError, (*lease.HeldError)(nil)
	switch {
	case o.lost != nil:
		code, err = codeLost, j.stopped(o.lost)
	case o.Err != "":
		code, err = o.Status, errors.New(o.Err)
	case o.ran && errors.Is(err, lease.ErrUnknown):
		err = fmt.Errorf("the store did not confirm the release of lease %q, which ends within %v: %w", j.name, j.ttl, err)
		code = cmp.Or(o.Status, codeUnknown)
	case o.ran:
		code, err = o.Status, nil
	case j.asked != 0:
		code, err = 128+int(j.asked), nil
	case errors.As(err, &held):
		code, err = codeHeld, errors.New(holder(j.name, held.Record))
	case errors.Is(err, lease.ErrUnknown):
		code = codeUnknown
	case errors.Is(err, lease.ErrHeld), errors.Is(err, context.DeadlineExceeded):
		code, err = codeHeld, fmt.Errorf("%q: another held it", j.name)
	}
	if code == codeOK {
		return nil
	}
	if code == codeHeld && j.quiet {
		err = nil
	}
	return &coded{code, err}
}

// passedOn are the signals for the program, but for those that are ignored, as by nohup.
func passedOn() []os.Signal {
	all := []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	}
	return slices.DeleteFunc(all, signal.Ignored)
}
