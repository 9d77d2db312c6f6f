//go:build linux

package torture

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
)

// This file tortures a store on SQLite that is broken on purpose. The test runs this program again,
// as the one that tortures, with programEnv set. By hand:
//
//	go test -c -o torture.test ./torture
//	HOLDFAST_LAB_TORTURE=1 ./torture.test -store early -seed 3 -nodes 3 -rate 200 -for 1s -storm 8s -faults 12

const programEnv = "HOLDFAST_LAB_TORTURE"

// earlySQLite has sessions that end 1.2 s before what their holders are told.
var earlySQLite = Store{Name: "early", Start: startCutSQLite, Open: func(ctx context.Context, path string) (Client, error) {
	c, _, err := connectSQLiteOver(ctx, path, func(s *sqlite.Store) lease.Store { return early{s} })
	return c, err
}}

// startCutSQLite is startSQLite, with nodes cut off from the file more often than anything else.
func startCutSQLite(ctx context.Context) (Servers, error) {
	s, err := startSQLite(ctx)
	if err != nil {
		return nil, err
	}
	return often{s}, nil
}

type often struct{ Servers }

func (o often) Troubles() []Trouble {
	all := o.Servers.Troubles()
	for i := range all {
		if all[i].Name == cutOff {
			all[i].Weight, all[i].Least, all[i].Most = 100, 1, 1.5
		}
	}
	return all
}

const tooEarly = 1200 * time.Millisecond

type early struct{ *sqlite.Store }

func (e early) OpenSession(ctx context.Context, want lease.Session) (lease.Grant, error) {
	want.TTL -= tooEarly
	g, err := e.Store.OpenSession(ctx, want)
	g.TTL += tooEarly
	return g, err
}

func (e early) Renew(ctx context.Context, sessions []lease.Session) ([]lease.Grant, error) {
	gs, err := e.Store.Renew(ctx, sessions)
	for i := range gs {
		gs[i].TTL += tooEarly
	}
	return gs, err
}

// What is planted in the store of a file is found out, though no network can be cut.
func TestABrokenFileIsFoundOut(t *testing.T) {
	tier.NightlyOnly(t, "TestEveryViolationIsFound judges broken journals")
	const rule = "VIOLATION I1: a pass under a token is earlier than all under higher ones"
	var all string
	for _, seed := range []string{"3", "2", "3", "2"} { // a seed fixes the faults, and not which node hosts what
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-store", earlySQLite.Name, "-seed", seed,
			"-nodes", "3", "-rate", "200", "-for", "1s", "-storm", "8s", "-faults", "12")
		cmd.Env = append(os.Environ(), programEnv+"=1")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.True(t, err == nil || errors.As(err, &exit) && exit.ExitCode() == 1, "%v: %s", err, out)
		if strings.Contains(string(out), rule) {
			return
		}
		all += string(out)
	}
	t.Fatal(all)
}
