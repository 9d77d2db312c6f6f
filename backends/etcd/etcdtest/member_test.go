//go:build unix

package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/faultlink"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestOneMemberGrantsTTLsFromTwoSeconds(t *testing.T) {
	c := Start(t)
	require.Equal(t, []string{c.Members()[0].Addr()}, c.Endpoints())
	client := c.Client(t)
	for asked, granted := range map[int64]int64{1: 2, 2: 2, 3: 3} {
		l := must(client.Grant(t.Context(), asked))(t)
		require.Equal(t, granted, l.TTL, "asked for %d", asked)
	}
}

func TestKillAndRestartKeepDataAndAddress(t *testing.T) {
	t.Parallel()
	c := Start(t)
	m := c.Members()[0]
	put(t, c, "k", "v")
	addr, pid, id := m.Addr(), m.Pid(), m.ID()
	require.NotZero(t, id)

	require.NoError(t, m.Kill())
	require.NoError(t, m.Kill())
	require.Zero(t, m.Pid())
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	require.ErrorContains(t, m.Stop(t.Context()), "m1 is down")
	require.ErrorContains(t, m.Cont(), "m1 is down")
	client := c.Client(t)
	_, err := client.Get(within(t, silence), "k")
	require.Error(t, err)

	require.NoError(t, m.Restart(t.Context()))
	require.Equal(t, addr, m.Addr())
	require.Equal(t, id, m.ID())
	require.NotEqual(t, pid, m.Pid())
	got := must(c.Client(t).Get(t.Context(), "k"))(t)
	require.Equal(t, int64(1), got.Count)

	before := m.Pid()
	require.NoError(t, m.Restart(t.Context())) // one that runs
	require.NotEqual(t, before, m.Pid())
	require.ErrorIs(t, syscall.Kill(before, 0), syscall.ESRCH)
}

func TestStopHaltsAndContGoesOn(t *testing.T) {
	c := Start(t)
	m := c.Members()[0]
	client := c.Client(t)
	put(t, c, "k", "v")
	_, err := client.Get(t.Context(), "k")
	require.NoError(t, err)

	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, m.Stop(t.Context()))
	is := must(child.Halted(m.Pid()))(t)
	require.True(t, is)
	_, err = m.Metrics(within(t, silence))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	answer := make(chan error, 1)
	go func() {
		_, err := client.Get(within(t, patience), "k")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("a stopped member answered: %v", err)
	case <-time.After(silence):
	}
	require.NoError(t, m.Cont())
	require.NoError(t, <-answer)
	is = must(child.Halted(m.Pid()))(t)
	require.False(t, is)

	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, m.Kill()) // a stopped one can be killed
}

func TestMemberThatEndsByItselfIsReported(t *testing.T) {
	c := must(Run(t.Context(), Options{}))(t)
	m := c.Members()[0]
	require.NoError(t, syscall.Kill(m.Pid(), syscall.SIGKILL)) // behind its back
	<-m.proc.Done()
	require.ErrorContains(t, m.Stop(t.Context()), "ended by itself")
	err := c.Close()
	require.ErrorContains(t, err, "m1 ended by itself: signal: killed")
	require.ErrorContains(t, err, "Running http and grpc server on single port") // a warning of its log
	require.NoError(t, c.Close())
	require.ErrorIs(t, m.Restart(t.Context()), errClosed)
	_, err = c.NewRoute()
	require.ErrorIs(t, err, errClosed)
	require.NoDirExists(t, c.group.Temp)
}

func TestStartThatFailsShowsTheLog(t *testing.T) {
	_, err := Run(t.Context(), Options{Args: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "no-such-flag")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Run(ctx, Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFaultsOnOneRouteSpareTheOthers(t *testing.T) {
	c := Start(t)
	m := c.Members()[0]
	own := must(c.NewRoute())(t)
	require.NotEqual(t, c.Endpoints(), own.Endpoints())
	mine, theirs := own.Client(t), c.Client(t)
	write := func(client *clientv3.Client, key string, d time.Duration) error {
		_, err := client.Put(within(t, d), key, "v")
		return err
	}
	require.NoError(t, write(mine, "a", patience))

	own.Cut()
	require.Error(t, write(mine, "b", silence))
	require.NoError(t, write(theirs, "c", patience))
	own.Heal()
	require.NoError(t, write(mine, "d", patience))

	for want, fault := range map[faultlink.Faults]func(){ // faultlink's tests have what they do
		{Replies: true}:  own.CutReplies,
		{Refused: true}:  own.Refuse,
		{Delay: silence}: func() { own.Delay(silence) },
	} {
		fault()
		require.Equal(t, want, own.Link(m).Faults())
		require.Zero(t, c.Link(m).Faults())
		own.Heal()
		require.Zero(t, own.Link(m).Faults())
	}

	c.Link(m).Refuse() // on the first route
	require.Error(t, write(theirs, "i", silence))
	require.NoError(t, write(own.Client(t), "j", patience)) // the old one was reset
	require.Nil(t, own.Link(&Member{}))
}

func TestMetricsCountRequests(t *testing.T) {
	c := Start(t)
	m := c.Members()[0]
	count := func() float64 {
		got := must(m.Metrics(t.Context()))(t)
		return got.Sum("grpc_server_handled_total", `grpc_method="Put"`, `grpc_code="OK"`)
	}
	require.Zero(t, count())
	for i := range 3 {
		put(t, c, fmt.Sprint(i), "v")
	}
	require.Equal(t, 3.0, count())
	got := must(m.Metrics(t.Context()))(t)
	require.Equal(t, 1.0, got["etcd_server_has_leader"])
}

func TestWhatAFailureShowsOfALog(t *testing.T) {
	line := func(level string, n int) string {
		return fmt.Sprintf("2026-01-02T03:04:05.678Z\t%s\traft/raft.go:1\tline %d", level, n)
	}
	var log []string
	for i := range 30 {
		log = append(log, line("warn", i), line("info", i), line("debug", i))
	}
	got := strings.Split(notable(strings.Join(log, "\n")+"\n"), "\n")
	require.Len(t, got, 15)
	require.Equal(t, line("warn", 15), got[0])
	require.Equal(t, line("warn", 29), got[14])

	require.Empty(t, notable(""))
	require.Equal(t, "flag provided but not defined: -x", notable("flag provided but not defined: -x\n\n"))
	long := notable(strings.Repeat("ü", 500))
	require.Equal(t, strings.Repeat("ü", 100)+" …", long)
}
