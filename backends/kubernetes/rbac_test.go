//go:build unix

package kubernetes_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// role is that of rbac.yaml.
func role(t *testing.T) rbac.Role {
	t.Helper()
	text := must(os.ReadFile("rbac.yaml"))(t)
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var r rbac.Role
		require.NoError(t, yaml.Unmarshal([]byte(part), &r))
		if r.Kind == "Role" {
			require.Len(t, r.Rules, 1)
			return r
		}
	}
	t.Fatal("no Role")
	return rbac.Role{}
}

// A node that can't take over, or learns late, says so before that is needed.
func TestRightsThatAreMissedLate(t *testing.T) {
	c := cluster(t)
	for _, lacks := range []string{"delete", "watch"} {
		ns := namespace(t, c)
		may := role(t).Rules[0]
		may.Verbs = slices.DeleteFunc(slices.Clone(may.Verbs), func(v string) bool { return v == lacks })
		u := must(c.AddUser(t.Context(), ns, may))(t)
		s := open(t, c.Servers()[0].Config(), ns)
		x := session(t, s, time.Second) // is not renewed
		require.True(t, claim(t, s, x, "job").OK)
		k := keeper(t, open(t, as(c.Servers()[0].Config(), u), ns), 3*time.Second)
		l := must(k.Lease("job"))(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- lease.Run(ctx, l, func(ctx context.Context, _ lease.Term) error { <-ctx.Done(); return nil })
		}()
		require.Eventually(t, func() bool {
			err := k.Health(t.Context())
			return errors.Is(err, lease.ErrDenied) && strings.Contains(err.Error(), "cannot "+lacks)
		}, time.Minute, 50*time.Millisecond, lacks)
		cancel()
		<-done
	}
}

// What rbac.yaml allows is enough, and all of it is needed: what lacks is a denial that names it.
func TestPermissions(t *testing.T) {
	c := cluster(t)
	rule := role(t).Rules[0]
	for _, lacks := range append([]string{""}, rule.Verbs...) {
		ns := namespace(t, c)
		may := rule
		may.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == lacks })
		u, err := c.AddUser(t.Context(), ns, may)
		require.NoError(t, err)
		s := open(t, as(c.Servers()[0].Config(), u), ns)
		var denied []string
		did := func(what string, err error) bool {
			if err != nil {
				require.ErrorIs(t, err, store.ErrDenied, what)
				require.ErrorContains(t, err, "cannot "+lacks+` resource "leases" in API group "coordination.k8s.io" in the namespace "`+ns+`"`)
				denied = append(denied, what)
			}
			return err == nil
		}
		x := store.Session{ID: 1, TTL: time.Minute, Owner: store.Owner{ID: "a", Incarnation: "a-1"}}
		_, err = open(t, c.Servers()[0].Config(), ns).OpenSession(t.Context(), x)
		require.NoError(t, err)
		_, err = s.OpenSession(t.Context(), x)
		did("open", err)
		outs, err := s.Acquire(t.Context(), x, []store.Claim{{Name: "n", Nonce: 1}})
		won := did("acquire", err)
		grants := must(s.Renew(t.Context(), []store.Session{x}))(t)
		did("renew", grants[0].Err)
		did("list", listed(t.Context(), s))
		for ev, err := range s.Watch(t.Context(), store.Scope{}) {
			if !did("watch", err) || ev.Kind == store.EventSynced && lacks != "watch" {
				break
			}
		}
		if won && outs[0].OK {
			_, err = s.Release(t.Context(), []store.Held{outs[0].Record.Held()})
			did("release", err)
		}
		did("close", s.CloseSession(t.Context(), x))
		require.Equal(t, map[string][]string{
			"":       nil,
			"get":    {"open", "acquire", "renew", "close"},
			"list":   {"list", "watch"},
			"watch":  {"watch"},
			"create": {"acquire"},
			"update": {"open", "renew"},
			"delete": {"release", "close"},
		}[lacks], denied, "without %q", lacks)
	}
}
