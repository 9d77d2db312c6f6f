package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestServeFixture is a program: the server for tests of the page in a browser. It serves testdata/snapshot.json at /holdfast/ for tests of the page in a browser,
// until the process is killed, and prints its address. The browser's user is in the cookie "user":
// reader may read; all others may act, but not drain shop-1.
//
//	POST /patch                members of a Snapshot that replace its own
//	POST /many?leases=&shards= makes it that large
//	GET  /acted                the requests of actions
func TestServeFixture(t *testing.T) {
	addr := os.Getenv("HOLDFAST_SERVE_FIXTURE")
	if addr == "" {
		t.Skip("a program of lab/console")
	}
	f := newFake(t)
	h := newHandler(context.Background(), f, Config{Actions: true, Authorize: func(r *http.Request, a Access) (string, error) {
		user := "ada"
		if c, err := r.Cookie("user"); err == nil {
			user = c.Value
		}
		if a.Action != "read" && (user == "reader" || a.Target == "shop-1") {
			return "", errors.New("ask the team on call")
		}
		return user, nil
	}})
	mux := http.NewServeMux()
	mux.Handle("/holdfast/", http.StripPrefix("/holdfast", h))
	mux.HandleFunc("POST /patch", func(w http.ResponseWriter, r *http.Request) {
		f.set(func(s *Snapshot) {
			// Streams read the parts of the old one: the next shares none of them.
			members, patch := map[string]json.RawMessage{}, map[string]json.RawMessage{}
			old, _ := json.Marshal(s)
			err := errors.Join(json.Unmarshal(old, &members), json.NewDecoder(r.Body).Decode(&patch))
			maps.Copy(members, patch)
			all, _ := json.Marshal(members)
			var next Snapshot
			if err = errors.Join(err, json.Unmarshal(all, &next)); err != nil {
				http.Error(w, err.Error(), 400)
			}
			*s = next
		})
	})
	mux.HandleFunc("POST /many", func(w http.ResponseWriter, r *http.Request) {
		var leases, shards int
		fmt.Sscan(r.FormValue("leases"), &leases)
		fmt.Sscan(r.FormValue("shards"), &shards)
		f.set(func(s *Snapshot) { enlarge(s, leases, shards) })
	})
	mux.HandleFunc("GET /acted", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f.acts)
	})
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	fmt.Println("http://" + l.Addr().String())
	require.NoError(t, http.Serve(l, mux))
}

// enlarge adds leases and shards to those that s has.
func enlarge(s *Snapshot, leases, shards int) {
	all := append([]Lease{}, s.Leases...)
	for i := len(all); i < leases; i++ {
		n := s.Nodes[i%len(s.Nodes)]
		all = append(all, Lease{
			Name: fmt.Sprintf("tenant/%05d/worker", i), Kind: "application", State: "held", Owner: &n.Owner,
			Token: uint64(300_000 + i), Session: n.Sessions[1].ID, TTL: 10_000, Left: 9000,
			Since: s.At.Add(-time.Duration(i) * time.Second), Metadata: map[string]string{"tenant": fmt.Sprint(i)},
		})
	}
	s.Leases, s.Types = all, append([]Type{}, s.Types...)
	t := s.Types[0]
	t.Type, t.Shards, t.Hosted, t.Table = "parcel", shards, shards, nil
	for i := range shards {
		t.Table = append(t.Table, Shard{Shard: i, Owner: s.Nodes[i%5].ID, Token: 1, Phase: "active", Since: s.At})
	}
	if shards > 0 {
		s.Types = append(s.Types, t)
	}
}
