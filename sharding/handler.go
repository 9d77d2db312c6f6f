package sharding

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Handler serves Info as JSON: to GET and HEAD, at any path. "?table=0" leaves out
// the table, which has an entry for each shard; "?nodes=all" serves Survey, what
// every node tells, bounded by the request's context and 5 s; a node that does not
// answer is missing. This node asks the others for one request at a time, and at most
// once a second: more are answered 503, with Retry-After.
//
// It is not for the public: it tells ids, addresses and tokens of all nodes, and
// lets anyone ask. Serve it where only operators are let in.
func (r *Region) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		if !r.made() {
			http.Error(w, errUnmade.Error(), http.StatusServiceUnavailable)
			return
		}
		if req.URL.Query().Get("nodes") == "all" {
			done, ok := r.surveyed.begin(r.elapsed())
			if !ok {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "the other nodes were asked just now", http.StatusServiceUnavailable)
				return
			}
			defer done()
			ctx, cancel := context.WithTimeout(req.Context(), 5*time.Second)
			defer cancel()
			all, _ := r.Survey(ctx)
			serve(w, all)
			return
		}
		table := true
		if q := req.URL.Query(); q.Has("table") {
			var err error
			if table, err = strconv.ParseBool(q.Get("table")); err != nil {
				http.Error(w, "table: must be 0 or 1", http.StatusBadRequest)
				return
			}
		}
		serve(w, r.info(table))
	})
}

func serve(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body)
}
