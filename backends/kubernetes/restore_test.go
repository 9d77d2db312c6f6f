//go:build unix

package kubernetes_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// An etcd that is restored from a snapshot has the API hand out versions again that were handed out before,
// and forget the names that were acquired since.
func TestARestoredSnapshot(t *testing.T) {
	nightly(t)
	bump := []string{"--bump-revision=1000000000", "--mark-compacted"}
	t.Run("plain", func(t *testing.T) {
		r := restore(t, false)
		require.Less(t, r.second(t).Token(), r.after.Token(), "it can't know what was given out")
		r.accept(t)
	})
	t.Run("plain, the API server runs on", func(t *testing.T) {
		r := restore(t, true)
		// It lists what it has in memory, under the versions that were, and what it writes is below: no
		// process gets a lease, also one that starts now.
		later := keeper(t, open(t, r.server.Config(), r.ns), restoredTTL)
		for k, name := range map[*lease.Keeper]string{r.k: "other", later: "another"} {
			h := must(k.Lease(name))(t)
			eventually(t, "it is noticed", func() bool {
				won, err := h.Acquire(t.Context())
				require.False(t, won)
				return errors.Is(err, store.ErrSetback)
			})
		}
		require.NoError(t, r.server.Restart(t.Context()))
		r.accept(t)
	})
	for _, runsOn := range []bool{false, true} {
		t.Run(fmt.Sprint("bumped, the API server runs on: ", runsOn), func(t *testing.T) {
			r := restore(t, runsOn, bump...)
			require.Greater(t, r.second(t).Token(), r.after.Token())
			<-r.after.Context().Done()
			require.NotErrorIs(t, listed(t.Context(), r.s), store.ErrSetback)
			require.NoError(t, r.h.Release(t.Context()))
			won := must(r.h.Acquire(t.Context()))(t)
			require.False(t, won, "it is the second's")
		})
	}
}

const restoredTTL = 30 * time.Second

// restored is an API whose etcd was restored, and a process that goes on.
type restored struct {
	server *kubetest.Server
	ns     string
	s      *kubernetes.Store
	k      *lease.Keeper
	h      *lease.Handle // acquired after the snapshot
	after  lease.Term    // of it
}

// restore makes one, while the API server runs on or is restarted. flags are for etcdutl.
func restore(t *testing.T, runsOn bool, flags ...string) (r restored) {
	t.Helper()
	dir := t.TempDir()
	data, snapshot := filepath.Join(dir, "data"), filepath.Join(dir, "snapshot")
	c := kubetest.Start(t, func(o *kubetest.Options) { o.Etcd.Args = []string{"--data-dir=" + data} })
	r.server, r.ns = c.Servers()[0], namespace(t, c)
	r.s = open(t, r.server.Config(), r.ns)
	r.k = keeper(t, r.s, restoredTTL)
	held(t, r.k, "before")
	save(t, c, snapshot)
	for range 100 { // writes that the snapshot lacks
		require.NoError(t, r.server.Do(t.Context(), http.MethodPatch, "/api/v1/namespaces/"+r.ns,
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{"n": fmt.Sprint(ids.Add(1))}}}, nil))
	}
	r.h = held(t, r.k, "after")
	r.after, _ = r.h.Term()

	member := c.Etcd().Members()[0]
	if !runsOn {
		require.NoError(t, r.server.Kill())
	}
	require.NoError(t, member.Kill())
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, kubetest.Etcdutl(t.Context(), append([]string{"snapshot", "restore", snapshot, "--data-dir=" + data}, flags...)...))
	require.NoError(t, member.Restart(t.Context()))
	if !runsOn {
		require.NoError(t, r.server.Restart(t.Context()))
	}
	return r
}

// second is the term of a process that starts now, under the name that the snapshot does not know.
func (r restored) second(t *testing.T) (term lease.Term) {
	t.Helper()
	h, err := keeper(t, open(t, r.server.Config(), r.ns), restoredTTL).Lease("after")
	require.NoError(t, err)
	eventually(t, "a process that starts now has it", func() bool {
		term, err = h.AcquireTerm(t.Context())
		return err == nil
	})
	return term
}

// accept has the process notice, end its terms and go on with what stands.
func (r restored) accept(t *testing.T) {
	t.Helper()
	<-r.after.Context().Done()
	eventually(t, "it is noticed", func() bool {
		_, err := r.s.Get(t.Context(), "after")
		return errors.Is(err, store.ErrSetback)
	})
	require.NoError(t, r.k.AcceptHistory(t.Context()))
	h := must(r.k.Lease("later"))(t)
	eventually(t, "leases are to be had", func() bool {
		won, err := h.Acquire(t.Context())
		return err == nil && won
	})
}

// save writes a snapshot of etcd, as etcdctl does.
func save(t *testing.T, c *kubetest.Cluster, path string) {
	t.Helper()
	from := must(c.Etcd().Client(t).Snapshot(t.Context()))(t)
	text, err := io.ReadAll(from)
	require.NoError(t, errors.Join(err, from.Close(), os.WriteFile(path, text, 0o600)))
}
