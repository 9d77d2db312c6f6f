package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/console"
)

func (a *app) uiCommand() *cobra.Command {
	var listen string
	c := a.command("ui", "Serve the page of a store alone, read-only, for this machine's browser", "holdfast ui --store sqlite:leases.db",
		"", func(ctx context.Context, _ []string) error {
			return a.alone(ctx, func(c *console.Console) error {
				l, err := net.Listen("tcp", listen)
				if err != nil {
					return usage("--listen: %w", err)
				}
				return a.serve(ctx, l, c)
			})
		})
	c.Long = c.Short + `.
It serves until it is interrupted, and prints its URL. A node serves its own page, which shows more.`
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to serve at: all who reach it may read")
	return c
}

// serve serves the page at l until ctx is done.
func (a *app) serve(ctx context.Context, l net.Listener, page http.Handler) error {
	s := &http.Server{
		ReadHeaderTimeout: answerTime,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A name of another site that was made to lead here must not read.
			host := (&url.URL{Host: r.Host}).Hostname()
			if host != "localhost" && net.ParseIP(host) == nil {
				http.Error(w, "holdfast ui is reached by its IP address or as localhost", http.StatusMisdirectedRequest)
				return
			}
			page.ServeHTTP(w, r)
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if _, err := fmt.Fprintf(a.out, "http://%s/\n", l.Addr()); err != nil {
		return err
	}
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
