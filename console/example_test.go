package console_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/lease"
)

// All of the team may read; those on call may drain nodes and move singletons. A proxy logs them in,
// and puts who they are into headers.
func ExampleConfig() {
	cfg := console.Config{
		Authorize: func(r *http.Request, a console.Access) (string, error) {
			user, role := r.Header.Get("X-User"), r.Header.Get("X-Role")
			switch {
			case user == "":
				return "", errors.New("log in first")
			case a.Action != "read" && role != "oncall":
				return "", errors.New("ask the team on call")
			case a.Action == "release":
				return "", errors.New("leases are released by their programs")
			}
			return user, nil
		},
	}
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close(context.Background())
	page, err := console.New(keeper, nil, cfg) // of a node: its actor system, and Actions: true
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/admin/holdfast/", http.StripPrefix("/admin/holdfast", page))

	for _, user := range []string{"", "ada"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/admin/holdfast/api/v1/leases", nil)
		r.Header.Set("X-User", user)
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 403 {"error":{"code":"forbidden","text":"read: log in first"}}
	// 200 {"leases":[]}
}
