package sharding_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
)

func TestAnyNodeTellsHowThingsStand(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := []*node{c.node("a", membership.WithCapacity(3)), c.node("b")}
		for _, n := range ns {
			n.start(8)
		}
		p := c.node("p")
		p.start(8, sharding.WithProxyOnly())
		time.Sleep(5 * time.Second)
		for i := range 10 {
			require.NoError(t, p.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(time.Second)
		first := coordinatorFirst(ns)[0].id
		for _, n := range append(ns, p) {
			in := n.region.Info()
			require.Equal(t, []any{"g", "account", n.id, 8, first}, []any{in.Group, in.Type, in.Node, in.Shards, in.Coordinator.ID})
			require.Len(t, in.Nodes, 3)
			held := map[string]int{}
			for _, x := range in.Nodes {
				held[x.ID] = x.Shards
				require.Equal(t, x.ID != "p", x.Hosts)
				require.True(t, x.Member)
			}
			require.Equal(t, map[string]int{"a": 6, "b": 2, "p": 0}, held, "by capacity")
		}
		require.Equal(t, 10, ns[0].region.Info().Entities+ns[1].region.Info().Entities)
		require.NotEmpty(t, ns[0].region.Info().Recent)
		for _, m := range ns[0].region.Info().Recent {
			require.False(t, m.At.IsZero())
		}

		all, err := p.region.Survey(contextFor(t, time.Second))
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, 10, all["a"].Entities+all["b"].Entities)
		require.Equal(t, 6, all["a"].Held)
		require.NotEmpty(t, all["a"].Recent)
		require.Len(t, all["p"].Table, 8)
		c.net.Freeze("b:1")
		all, err = p.region.Survey(contextFor(t, time.Second))
		require.ErrorContains(t, err, `no answer from node "b"`)
		require.Len(t, all, 2)
		c.net.Thaw("b:1")

		get := func(method, url string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			p.region.Handler().ServeHTTP(w, httptest.NewRequest(method, url, nil))
			return w
		}
		w := get("GET", "/")
		require.Equal(t, http.StatusOK, w.Code)
		var in sharding.Info
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &in))
		require.Len(t, in.Table, 8)
		require.Equal(t, p.region.Info().Table, in.Table)
		require.Contains(t, get("GET", "/?table=0").Body.String(), `"Table":null`)
		require.Equal(t, http.StatusBadRequest, get("GET", "/?table=x").Code)
		var told map[string]sharding.Info
		require.NoError(t, json.Unmarshal(get("GET", "/?nodes=all").Body.Bytes(), &told))
		require.Len(t, told, 3)
		busy := get("GET", "/?nodes=all")
		require.Equal(t, http.StatusServiceUnavailable, busy.Code, "who may ask can't have all nodes asked without bound")
		require.Equal(t, "1", busy.Header().Get("Retry-After"))
		time.Sleep(time.Second)
		require.Equal(t, http.StatusOK, get("GET", "/?nodes=all").Code)
		require.Equal(t, http.StatusMethodNotAllowed, get("POST", "/").Code)
		w = httptest.NewRecorder()
		ns[0].region.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &in), "moves can be read back")
		require.Contains(t, w.Body.String(), `"What":"hosted"`)
	})
}
