package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
	"github.com/holdfast-go/holdfast/lease/sequencer/httpfence"
)

// billing is a service that takes invoices from the holder of the lease "billing".
func billing(keeper *lease.Keeper, write func(r *http.Request)) (http.Handler, error) {
	fences, err := sequencer.NewFences(sequencer.WithReader(keeper))
	if err != nil {
		return nil, err
	}
	guard, err := httpfence.New(fences, httpfence.Lease("billing"))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /invoices", guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		write(r) // r.Context() is done when a later holder comes, and that one waits for the return
	})))
	return mux, nil
}

// invoice is what the holder of the lease does.
func invoice(ctx context.Context, client *http.Client, url string, term lease.Term) error {
	req, err := http.NewRequestWithContext(sequencer.NewContext(ctx, term), "POST", url+"/invoices", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err // lease.ErrNotHeld: the term has ended, and nothing was sent
	}
	defer resp.Body.Close()
	return httpfence.Error(resp) // lease.ErrStale: another bills now
}

func Example() {
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a", Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	written := 0
	handler, err := billing(keeper, func(*http.Request) { written++ })
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	client := &http.Client{Transport: httpfence.Transport(nil)}

	job, err := keeper.Lease("billing")
	if err != nil {
		log.Fatal(err)
	}
	var former lease.Term
	for range 2 {
		err = lease.Run(context.Background(), job, func(ctx context.Context, term lease.Term) error {
			former = term
			return invoice(ctx, client, server.URL, term)
		})
		fmt.Println(err)
	}
	// A process that was paused since, and looks neither at its clock nor at its context.
	late := held{former.Name(), former.Token() - 1}
	req, err := http.NewRequestWithContext(sequencer.NewContext(context.Background(), late), "POST", server.URL+"/invoices", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, errors.Is(httpfence.Error(resp), lease.ErrStale))
	fmt.Println("written:", written, keeper.Close(context.Background()))
	// Output:
	// <nil>
	// <nil>
	// 412 Precondition Failed true
	// written: 2 <nil>
}

// held is an ownership that does not know that it has ended.
type held struct {
	name  string
	token lease.Token
}

func (h held) Name() string       { return h.name }
func (h held) Token() lease.Token { return h.token }
