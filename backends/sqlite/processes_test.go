//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// quick is a folder whose commits wait for no disk, where there is one: what processes do
// to each other is not a matter of that.
func quick(tb storetest.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "holdfast")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// quickFile is a path in such a folder.
func quickFile(tb storetest.TB) string { return filepath.Join(quick(tb), "leases.db") }

// hold begins a guarded transaction, writes, and stays in it.
func hold() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", os.Getenv("FILE")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		panic(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	var token store.Token
	_, _ = fmt.Sscan(os.Getenv("TOKEN"), &token)
	if err := Guard(ctx, tx, ownership{"job", token}); err != nil {
		panic(err)
	}
	if _, err := tx.Exec("UPDATE account SET balance = 99"); err != nil {
		panic(err)
	}
	fmt.Println("holding")
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := tx.Commit(); err != nil {
		panic(err)
	}
	fmt.Println("committed")
}

// A process that is killed in the middle of a transaction leaves nothing of it, and holds up
// no other.
func TestAProcessThatIsKilledInATransaction(t *testing.T) {
	s := openAt(t, file(t))
	db := users(t, s.place.path, "")
	sess := open(t, s, 1, owner("a"), time.Minute)
	r := win(t, s, sess, "job")
	for range 5 {
		cmd, out := helper(t, "hold", "FILE="+s.place.path, fmt.Sprintf("TOKEN=%d", r.Token))
		require.Equal(t, "holding", said(t, out))
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		_, err := s.Renew(ctx, []store.Session{sess})
		cancel()
		require.NoError(t, err)
		var balance int
		require.NoError(t, db.QueryRow("SELECT balance FROM account").Scan(&balance))
		require.Zero(t, balance)
	}
}

// A process that is stopped while it has the write lock holds up all: reads are answered, writes
// end with their contexts and say why, and each holder loses by its own deadline at the latest. When
// it goes on, so do all.
func TestAProcessThatIsStoppedInATransaction(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, file(t))
	const ttl = 4 * time.Second // the other process begins within it
	k := must(lease.NewKeeper(s, lease.Config{ID: "k", TTL: ttl}))(t)
	defer func() { require.NoError(t, k.Close(context.Background())) }()
	l := must(k.Lease("job"))(t)
	users(t, s.place.path, "")
	ok := must(l.Acquire(ctx))(t)
	require.True(t, ok)
	lost := make(chan lease.Loss, 1)
	l.OnLost(func(loss lease.Loss) { lost <- loss })
	term, _ := l.Term()
	win(t, s, open(t, s, 6, owner("d"), time.Minute), "other")

	cmd, out := helper(t, "hold", "FILE="+s.place.path, fmt.Sprintf("TOKEN=%d", term.Token()))
	require.Equal(t, "holding", said(t, out))
	held := time.Now() // no renewal is applied from now on
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	for last := held; ; time.Sleep(time.Millisecond) {
		at := time.Now()
		if !l.CheckAlive() {
			t.Logf("it believed for %v", last.Sub(held))
			break
		}
		last = at
		require.Less(t, last.Sub(held), ttl, "it believes beyond its deadline")
	}
	loss := <-lost
	require.ErrorIs(t, loss.Reason, lease.ErrExpired)
	found, err := s.Get(ctx, "other")
	require.NoError(t, err, "reads of what stands go on")
	require.Len(t, found, 1)
	for says := ""; !strings.Contains(says, "has locked the file"); says = err.Error() {
		brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		_, err = s.OpenSession(brief, store.Session{ID: 7, Owner: owner("b"), TTL: time.Minute})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(held), 2*soon, "it does not say why: %v", err)
	}

	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, cmd.Process.Kill()) // or it would stay in its transaction
	require.NoError(t, l.Release(ctx))
	r := win(t, s, open(t, s, 8, owner("c"), time.Minute), "job")
	require.Greater(t, r.Token, term.Token())
}

// work acquires and releases names, and notes in a journal when it was alive under which token.
func work() {
	ctx := context.Background()
	journal, err := os.OpenFile(os.Getenv("JOURNAL"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	c, err := machineClock()
	if err != nil {
		panic(err)
	}
	var s *Store
	for s == nil {
		if s, err = New(ctx, os.Getenv("FILE")); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			fmt.Println(err)
			time.Sleep(50 * time.Millisecond)
		}
	}
	k, err := lease.NewKeeper(s, lease.Config{ID: os.Getenv("ID"), TTL: tortureTTL, PollMin: 50 * time.Millisecond, PollMax: 200 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	go func() { _, _ = os.Stdin.Read(make([]byte, 1)); os.Exit(0) }()
	var wg sync.WaitGroup
	for i := range tortureNames {
		l, err := k.Lease(fmt.Sprintf("name/%d", i))
		if err != nil {
			panic(err)
		}
		wg.Go(func() {
			for {
				if ok, err := l.Acquire(ctx); err != nil || !ok {
					time.Sleep(rand.N(50 * time.Millisecond))
					continue
				}
				term, held := l.Term()
				for end := time.Now().Add(rand.N(300 * time.Millisecond)); held && time.Now().Before(end); time.Sleep(time.Millisecond) {
					from := c.now()
					alive := term.CheckAlive()
					to := c.now()
					if !alive {
						break
					}
					fmt.Fprintf(journal, "%d %d %d %d\n", i, term.Token(), from, to)
				}
				_ = l.Release(ctx)
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		})
	}
	wg.Wait()
}

const (
	tortureTTL   = 700 * time.Millisecond
	tortureNames = 3
)

// Processes that take names from each other are killed and stopped at random moments, so also
// while they write. What each noted says that of two tokens of a name the earlier one was never
// alive after the later one was, and all names are held again when it is over.
func TestTorture(t *testing.T) {
	span := 6 * time.Second
	if d, err := time.ParseDuration(os.Getenv("HOLDFAST_SQLITE_TORTURE")); err == nil {
		span = d
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	path := filepath.Join(dir, "leases.db")
	type worker struct {
		stop func()
		sig  func(os.Signal)
	}
	var journals []string
	start := func() worker {
		journal := filepath.Join(dir, fmt.Sprint("journal", len(journals)))
		journals = append(journals, journal)
		cmd, out := helper(t, "work", "FILE="+path, "JOURNAL="+journal, fmt.Sprint("ID=w", len(journals)))
		go func() {
			for out.Scan() {
				t.Log(out.Text())
			}
		}()
		return worker{
			stop: func() { _ = cmd.Process.Kill(); _ = cmd.Wait() },
			sig:  func(s os.Signal) { _ = cmd.Process.Signal(s) },
		}
	}
	workers := make([]worker, 4)
	for i := range workers {
		workers[i] = start()
	}
	kills, stops := 0, 0
	for end := time.Now().Add(span); kills+stops < 4 || time.Now().Before(end); {
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		i := r.IntN(len(workers))
		if r.IntN(3) == 0 {
			kills++
			workers[i].stop()
			workers[i] = start()
			continue
		}
		stops++
		workers[i].sig(syscall.SIGSTOP)
		time.Sleep(time.Duration(r.IntN(int(2*tortureTTL/time.Millisecond))) * time.Millisecond)
		workers[i].sig(syscall.SIGCONT)
	}
	c := must(machineClock())(t)
	healed := c.now()
	read := func() (passes [tortureNames][]pass) {
		for _, j := range journals {
			f, err := os.ReadFile(j)
			if errors.Is(err, os.ErrNotExist) {
				continue // it was killed before it began
			}
			require.NoError(t, err)
			for line := range strings.Lines(string(f)) {
				var name int
				var p pass
				if n, _ := fmt.Sscan(line, &name, &p.token, &p.from, &p.to); n == 4 && strings.HasSuffix(line, "\n") {
					passes[name] = append(passes[name], p)
				}
			}
		}
		return passes
	}
	require.Eventually(t, func() bool {
		passes := read()
		for _, of := range passes {
			if !slices.ContainsFunc(of, func(p pass) bool { return p.from > healed }) {
				return false
			}
		}
		return true
	}, soon, tortureTTL/2, "a name was not held again")
	for _, w := range workers {
		w.stop()
	}
	passes := read()
	for name := range passes {
		violations, tokens := judge(passes[name])
		t.Logf("name %d: %d passes under %d tokens; %d kills, %d stops", name, len(passes[name]), tokens, kills, stops)
		if violations > 0 {
			tier.Unsafe(t, "name %d: %d passes came after one of a later token", name, violations)
		}
		require.NotZero(t, tokens)
	}
}

// pass is one moment at which a holder was alive, between two readings of the machine's clock.
type pass struct {
	token    store.Token
	from, to time.Duration
}

// judge counts the passes that surely came after one of a later token.
func judge(passes []pass) (violations, tokens int) {
	slices.SortFunc(passes, func(a, b pass) int {
		if a.token != b.token {
			return int(max(-1, min(1, int64(a.token)-int64(b.token))))
		}
		return int(a.from - b.from)
	})
	earliest := time.Duration(1<<63 - 1) // end of the earliest pass under a later token
	for i := len(passes) - 1; i >= 0; {
		token, next := passes[i].token, earliest
		for ; i >= 0 && passes[i].token == token; i-- {
			if passes[i].from > earliest {
				violations++
			}
			next = min(next, passes[i].to)
		}
		earliest = next
		tokens++
	}
	return violations, tokens
}

func TestTheJudge(t *testing.T) {
	violations, tokens := judge([]pass{{1, 1, 2}, {2, 5, 6}, {1, 3, 4}, {3, 7, 8}})
	require.Zero(t, violations)
	require.Equal(t, 3, tokens)
	violations, _ = judge([]pass{{1, 1, 2}, {2, 5, 6}, {1, 7, 8}, {3, 7, 8}})
	require.Equal(t, 1, violations)
	violations, _ = judge([]pass{{1, 10, 11}, {2, 12, 13}, {3, 5, 6}})
	require.Equal(t, 2, violations)
}
