package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

var (
	browser context.Context // nil: there is no chromium
	built   string          // a folder for what is built once
)

type action = chromedp.Action[chromedp.Void]

func TestMain(m *testing.M) {
	if id := os.Getenv("HOLDFAST_CONSOLE_NODE"); id != "" {
		fmt.Fprintln(os.Stderr, id, "ends:", runNode(id))
		os.Exit(1)
	}
	path := os.Getenv("HOLDFAST_CHROMIUM")
	if path == "" {
		path, _ = exec.LookPath("chromium")
	}
	stop := func() {}
	if path != "" {
		ctx, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.NoSandbox)...)
		var quit context.CancelFunc
		browser, quit = chromedp.NewContext(ctx)
		stop = func() {
			quit()
			end()
		}
		if err := chromedp.Do(browser); err != nil {
			fmt.Fprintln(os.Stderr, "chromium does not start:", err)
			os.Exit(1)
		}
	}
	built, _ = os.MkdirTemp("", "holdfast-console")
	code := m.Run()
	_ = os.RemoveAll(built)
	stop()
	os.Exit(code)
}

// page is a tab on a console.
type page struct {
	t   *testing.T
	ctx context.Context
	url string // of the server

	close func() // a browser has six connections to a host, and each page takes one

	mu   sync.Mutex
	said []string // errors that the browser reports
}

// fixture starts the console's handler on its fixture, in a process of its own: the constructor of
// the handler is not public, and the tests of package console have it.
func fixture(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../console")
	require.NoError(t, err)
	bin := filepath.Join(built, "console.test")
	if _, err = os.Stat(bin); err != nil {
		build := exec.Command("go", "test", "-c", "-o", bin, ".")
		build.Dir = dir
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	cmd := exec.Command(bin, "-test.run=^TestServeFixture$", "-test.timeout=0")
	cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, append(os.Environ(), "HOLDFAST_SERVE_FIXTURE=127.0.0.1:0")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(pipe).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

func needsBrowser(t *testing.T) {
	t.Helper()
	servertest.Skip(t, "console", "chromium", "HOLDFAST_SKIP_CHROMIUM", func() error {
		if browser == nil {
			return errors.New("there is no chromium")
		}
		return nil
	})
}

// tab opens one on path, which is below the server's url.
func tab(t *testing.T, url, path string, before ...action) *page {
	t.Helper()
	needsBrowser(t)
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext()) // with no cookies of others
	p := &page{t: t, ctx: ctx, url: url}
	messages := chromedp.Console(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == "error" || m.IsException() { // what breaks the policy too
				p.mu.Lock()
				p.said = append(p.said, m.String())
				p.mu.Unlock()
			}
		}
	})
	p.close = sync.OnceFunc(func() {
		cancel()
		reading.Wait()
	})
	t.Cleanup(p.close)
	p.do(append([]action{chromedp.EmulateViewport(1280, 900)}, before...)...)
	p.do(chromedp.Navigate(url + path))
	return p
}

func (p *page) do(actions ...action) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, actions...))
}

// quiet fails if the browser reported an error that none of allowed is part of.
func (p *page) quiet(allowed ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.said {
		ok := false
		for _, a := range allowed {
			ok = ok || strings.Contains(s, a)
		}
		require.True(p.t, ok, "the browser says: %s", s)
	}
}

// eval returns the value of a JavaScript expression, awaited.
func eval[T any](p *page, js string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, js)
	return out
}

// until waits for a JavaScript expression to be true, and returns how long that took.
func (p *page) until(js string) time.Duration {
	p.t.Helper()
	begun := time.Now()
	for !eval[bool](p, "!!("+js+")") {
		if time.Since(begun) > 15*time.Second {
			require.Fail(p.t, "not within 15 s", "%s\nthe page shows: %.1500s\nthe browser says: %v", js, eval[string](p, "document.body.innerText"), p.said)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

func (p *page) shows(text string) time.Duration {
	p.t.Helper()
	return p.until(fmt.Sprintf("document.body.innerText.includes(%s)", quoted(text)))
}

func (p *page) view(hash string) {
	p.t.Helper()
	eval[string](p, "location.hash = "+quoted("#/"+hash))
	p.until("location.hash === " + quoted("#/"+hash) + " && lastView === " + quoted(strings.Split(hash, "?")[0]))
}

func (p *page) press(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		p.do(chromedp.KeyEvent(k))
	}
}

// tabTo presses Tab until the focus is on what js says of document.activeElement, el.
func (p *page) tabTo(js string) {
	p.t.Helper()
	var seen []string
	for range 120 {
		p.press(kb.Tab)
		seen = append(seen, eval[string](p, "document.activeElement.outerHTML.slice(0, 60)"))
		if eval[bool](p, "(el => !!("+js+"))(document.activeElement)") {
			return
		}
	}
	require.Fail(p.t, "Tab does not get there", "%s, but to %q", js, seen)
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func cookie(url, user string) action {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, network.SetCookie, network.SetCookieParams{Name: "user", Value: user, URL: url})
		return err
	})
}

func dark(on bool) action {
	value := map[bool]string{true: "dark", false: "light"}[on]
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}},
		})
		return err
	})
}

// post sends a value to the fixture's server.
func post(t *testing.T, url string, v any) {
	t.Helper()
	body, err := json.Marshal(v)
	require.NoError(t, err)
	res, err := http.Post(url, "application/json", strings.NewReader(string(body)))
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, 200, res.StatusCode)
}
