package console

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
)

var shots = flag.String("shots", "", "the folder that gets pictures of the page")

// views are the page's, and what each shows of the fixture.
var views = map[string][]string{
	"overview":   {"2 problems, 3 warnings", "fx-rates has no host", "Who holds what", "down 1 min"},
	"leases":     {"40 of 40, and 320 shards", "outbox/orders", "free"},
	"singletons": {"4 of 6 run", "not stopping for", "212 messages", "8.680 s"},
	"sharding":   {"64 shards", "1 without a host", "Moves under way", "transferring"},
	"nodes":      {"2 versions: v0.9.2, v0.9.1", "p99 2.9 s", "of the margin", "No link to 10.0.3.19:8090"},
	"timeline":   {"Nothing ran twice", "clocks agree within 5 ms", "fx-rates for 1 min", "8.680 s", "Events"},
}

func TestShots(t *testing.T) {
	if *shots == "" {
		t.Skip("without -shots DIR")
	}
	url := fixture(t)
	for file, view := range map[string]string{"console": "overview", "console-timeline": "timeline"} {
		p := tab(t, url, "/holdfast/#/"+view, cookie(url, "reader"), chromedp.EmulateViewport(1280, 1320))
		p.shows("live")
		png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		assert.Less(t, len(png), 250<<10)
		require.NoError(t, os.WriteFile(*shots+"/"+file+".png", png, 0o644))
		p.close()
	}
}

func TestEachViewIsDrawn(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast") // is redirected, and its relative URLs hold
	for _, dim := range []bool{false, true} {
		p.do(dark(dim))
		for view, texts := range views {
			p.view(view)
			for _, text := range texts {
				p.shows(text)
			}
			p.until(fmt.Sprintf("getComputedStyle(document.body).backgroundColor === %s",
				quoted(map[bool]string{true: "rgb(15, 19, 24)", false: "rgb(245, 246, 248)"}[dim])))
		}
	}
	p.quiet()
}

func TestNarrowScreensDoNotScrollSideways(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/", chromedp.EmulateViewport(390, 844))
	post(t, url+"/many?leases=0&shards=4096", nil)
	for view := range views {
		p.view(view)
		p.shows(map[string]string{"sharding": "4,096 shards"}[view])
		assert.LessOrEqual(t, eval[int](p, "document.documentElement.scrollWidth"), 390, view)
	}
	p.view("leases?name=outbox/orders")
	p.shows("Who held it")
	assert.LessOrEqual(t, eval[int](p, "document.documentElement.scrollWidth"), 390)
	p.quiet()
}

// Every string that comes from outside is markup and more.
func TestNamesAndReasonsAreNotMarkup(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/")
	p.shows("live")
	for _, evil := range []string{
		`<img src=x onerror="window.hit=1">`, `"><script>window.hit=1</script>`, `' onfocus='window.hit=1' autofocus x='`,
		`javascript:window.hit=1`, `</td></table><svg onload=window.hit=1>`, "a\u202egnp.exe\u0000", "${window.hit=1}", "%E0%A4%A", "a;background:url(//evil)",
	} {
		e := map[string]any{"id": evil, "address": evil, "incarnation": evil}
		span := map[string]any{"holder": evil, "token": "7", "from": "2026-03-12T14:00:00Z", "run_from": "2026-03-12T14:00:00Z", "run_to": "2026-03-12T14:10:00Z", "to": "2026-03-12T14:10:00Z", "ended": evil, "reason": evil}
		post(t, url+"/patch", map[string]any{
			"node": evil, "missing": []any{map[string]any{"node": evil, "error": evil}}, "answered": []string{evil},
			"cluster":    map[string]any{"groups": []string{evil}, "store": evil, "ttl_ms": 10000, "margin_ms": 1000, "store_failure": evil},
			"problems":   []any{map[string]any{"code": evil, "severity": evil, "subject": evil, "text": evil, "detail": evil, "since": "2026-03-12T14:00:00Z"}},
			"nodes":      []any{map[string]any{"id": evil, "address": evil, "group": evil, "state": evil, "source": "asked", "version": evil, "go": evil, "roles": []string{evil}, "labels": map[string]string{evil: evil}, "unreached": map[string]string{evil: evil}, "dead_letters": map[string]int{evil: 1}, "counters": map[string]int{evil: 1}, "sessions": []any{map[string]any{"id": evil, "error": evil, "failed": 1}}, "health": map[string]any{"errors": []string{evil}}}},
			"leases":     []any{map[string]any{"name": evil, "kind": evil, "state": "held", "owner": e, "token": "7", "session": evil, "metadata": map[string]string{evil: evil}, "waiting": []string{evil}, "history": []any{span}}},
			"singletons": []any{map[string]any{"name": evil, "lease": evil, "phase": evil, "host": e, "token": "7", "reason": evil, "candidates": []any{map[string]any{"id": evil, "phase": evil, "why_not": evil}}, "waiting": map[string]int{evil: 1}, "handovers": []any{map[string]any{"at": "2026-03-12T14:00:00Z", "from": evil, "to": evil, "kind": evil, "reason": evil}}}},
			"types":      []any{map[string]any{"group": evil, "type": evil, "shards": 1, "coordinator": e, "nodes": []any{e}, "table": []any{map[string]any{"shard": 0, "owner": evil, "to": evil, "phase": evil, "token": "7"}}, "moves": []any{map[string]any{"shard": 0, "from": evil, "to": evil, "phase": evil}}, "recent": []any{map[string]any{"id": evil, "at": "2026-03-12T14:00:00Z", "node": evil, "kind": evil, "name": evil, "reason": evil}}}, map[string]any{"kind": "partition", "group": evil, "type": evil, "shards": 1, "nodes": []any{e}, "table": []any{map[string]any{"shard": 0, "key": evil, "owner": evil, "to": evil, "phase": evil, "failures": 2, "error": evil, "stopping_since": "2026-03-12T14:00:00Z"}}, "moves": []any{map[string]any{"shard": 0, "from": evil, "to": evil, "phase": evil}}}},
			"timeline":   map[string]any{"from": "2026-03-12T13:30:00Z", "to": "2026-03-12T14:30:00Z", "lanes": []any{map[string]any{"name": evil, "kind": "singleton", "spans": []any{span}}}},
			"events":     []any{map[string]any{"id": evil, "at": "2026-03-12T14:00:00Z", "node": evil, "kind": evil, "name": evil, "token": "7", "peer": evil, "reason": evil, "source": evil}},
		})
		p.until("snap.node === " + quoted(evil))
		for view := range views {
			p.view(view)
			p.until("!waiting")
			require.True(t, eval[bool](p, `$$('script').length === 1 && $$('img,iframe,main svg[onload],[onerror],[onfocus],[style*="evil"],a[href^="javascript"]').length === 0`), "%s in %s", evil, view)
			eval[any](p, "$$('main [data-tip]').forEach(x => showTip(x)), hideTip(), null")
		}
		p.view("singletons")
		eval[any](p, "$('[data-act=move]').click(), null")
		p.until("$('#dialog').open && $$('#dialog img, #dialog script').length === 0")
		eval[any](p, "$('#dialog').close(), null")
		p.view("leases")
		eval[any](p, "$('.rowlink').click(), null")
		p.until("!$('#drawer').hidden && $$('#drawer img, #drawer script').length === 0")
		eval[any](p, "set({ name: '' }), null")
		assert.False(t, eval[bool](p, "'hit' in window"), evil)
	}
	assert.False(t, eval[bool](p, `document.body.innerText.includes('\u202e')`))
	p.quiet()
}

// Partitions are drawn as shards are, without what they lack: who owns each, what fails, what does not stop.
func TestPartitionsAreShown(t *testing.T) {
	url := fixture(t)
	post(t, url+"/patch", map[string]any{
		"problems": []any{map[string]any{"code": "failing", "severity": "warn", "subject": "partition/shop/tenants", "text": "1 partition fails"}},
		"types": []any{map[string]any{"kind": "shard", "group": "shop", "type": "tenants", "shards": 1, "hosted": 1, "table": []any{map[string]any{"shard": 0, "owner": "shop-1"}}},
			map[string]any{"kind": "partition", "group": "shop", "type": "tenants", "shards": 3, "hosted": 2, "unassigned": 1, "moving": 1,
				"nodes": []any{map[string]any{"id": "shop-1", "shards": 2, "hosts": true}},
				"table": []any{map[string]any{"shard": 0, "key": "acme", "owner": "shop-1", "phase": "stopping", "to": "shop-2", "stopping_since": "2026-03-12T14:29:00Z"},
					map[string]any{"shard": 1, "key": "globex", "owner": "shop-1", "phase": "active", "failures": 7, "error": "shop-1: no disk"}, map[string]any{"shard": 2, "key": "initech"}},
				"moves": []any{map[string]any{"shard": 0, "from": "shop-1", "to": "shop-2", "phase": "stopping"}}}},
	})
	p := tab(t, url, "/holdfast/#/sharding?shard="+neturl.QueryEscape("partition/shop/tenants/1"))
	p.shows("3 partitions")
	p.shows("partition/shop/tenants/globex")
	p.shows("failed 7 times in a row: shop-1: no disk")
	assert.Equal(t, 2, eval[int](p, "$$('.cell.ill').length"))
	assert.Equal(t, 1, eval[int](p, "$$('section.card').filter(x => x.innerText.includes('coordinator')).length"), "partitions have none")
	assert.Equal(t, "acme", eval[string](p, "$('.moves b').textContent"))
	eval[any](p, "pickShard('partition/shop/tenants', 0), null")
	p.shows("Own should have returned")
	p.view("overview")
	p.shows("shards and partitions hosted")
	assert.Equal(t, "#/sharding", eval[string](p, "$('.problems a').getAttribute('href')"))
	p.view("leases")
	p.shows("partition/shop/tenants/…")
	p.quiet()
}

func TestChangesAreLive(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/#/singletons")
	p.shows("live")
	var worst time.Duration
	for i := range 10 {
		begun := time.Now()
		host := fmt.Sprintf("host-%d", i)
		post(t, url+"/patch", map[string]any{"singletons": []any{map[string]any{"name": "live", "phase": "active", "host": map[string]any{"id": host}, "lease": "singleton/live"}}})
		p.shows(host)
		worst = max(worst, time.Since(begun))
	}
	t.Logf("a change is on the page within %v, the worst of 10", worst.Round(time.Millisecond))
	assert.Less(t, worst, time.Second)
	p.quiet()
}

func TestADrainIsAskedForAndConfirmed(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/#/nodes")
	p.shows("actions on")
	press := func(of string) {
		eval[any](p, "$$('[data-act=drain]').find(b => b.dataset.of === "+quoted(of)+").click(), null")
		p.shows("Drain " + of + "?")
	}
	press("shop-2")
	assert.Equal(t, "Cancel", eval[string](p, "document.activeElement.textContent"))
	p.press(kb.Escape)
	p.until("!$('#dialog').open")
	assert.Empty(t, acted(t, url))
	press("shop-1")
	eval[any](p, "$('#confirm').click(), null")
	p.shows("drain: ask the team on call")
	eval[any](p, "$('#dialog').close(), null")
	assert.Empty(t, acted(t, url), "what was refused was carried out")
	press("shop-2")
	eval[any](p, "$('#confirm').click(), null")
	p.shows("ada asked for: drain shop-2")
	p.until("!$('#dialog').open")
	assert.Equal(t, []string{"drain shop-2"}, acted(t, url))
	post(t, url+"/patch", map[string]any{"nodes": []any{map[string]any{"id": "shop-2", "group": "shop", "state": "draining", "source": "asked"}}})
	p.shows("Undrain")
	p.quiet("403")
}

func TestMoveAndReleaseNameWhatTheyConcern(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/#/singletons")
	p.shows("actions on")
	eval[any](p, "$$('[data-act=move]').find(b => b.dataset.of === 'scheduler').click(), $('#to').value = 'shop-5', $('#confirm').click(), null")
	p.shows("ada asked for: move scheduler")
	p.view("leases?name=outbox/orders")
	eval[any](p, "$('[data-act=release]').click(), $('#confirm').click(), null")
	p.shows("ada asked for: release outbox/orders")
	assert.Equal(t, []string{"move scheduler to shop-5 204366", "release outbox/orders 208757"}, acted(t, url))
}

func TestReadersGetNoButtons(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/#/nodes", cookie(url, "reader"))
	p.shows("read-only")
	for view := range views {
		p.view(view)
		assert.Zero(t, eval[int](p, "$$('[data-act]').length"), view)
	}
	code := eval[int](p, `fetch('api/v1/actions', { method: 'POST', headers: { 'Content-Type': 'application/json', 'Holdfast-Action': '1' }, body: '{"action":"drain","node":"shop-4"}' }).then(r => r.status)`)
	assert.Equal(t, 403, code)
	assert.Empty(t, acted(t, url))
}

// acted returns the actions that the fixture's server carried out.
func acted(t *testing.T, url string) (out []string) {
	t.Helper()
	res, err := http.Get(url + "/acted")
	require.NoError(t, err)
	defer res.Body.Close()
	var all []struct{ Action, Node, Name, To, Token string }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&all))
	for _, a := range all {
		to := ""
		if a.To != "" {
			to = "to"
		}
		out = append(out, strings.Join(strings.Fields(strings.Join([]string{a.Action, a.Node, a.Name, to, a.To, a.Token}, " ")), " "))
	}
	return out
}

func TestTheKeyboardIsEnough(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/")
	p.shows("live")
	p.press(kb.Tab)
	assert.Equal(t, "Skip to the content", eval[string](p, "document.activeElement.textContent"))
	for i, view := range []string{"overview", "leases", "singletons", "sharding", "nodes", "timeline"} {
		p.press(fmt.Sprint(i + 1))
		p.until("lastView === " + quoted(view))
	}
	p.press("+")
	p.until("route()[1].has('a')")
	p.press("0")
	p.until("!route()[1].has('a')")
	p.tabTo("el.dataset.tip?.includes('8.680 s')")
	p.shows("shop-5 was killed")
	p.press(kb.Enter)
	p.until("route()[1].has('a')")

	p.press("4")
	p.until("lastView === 'sharding'")
	p.tabTo("el.dataset.shard")
	p.press(kb.ArrowRight, kb.ArrowDown)
	p.until("$('.picked b')?.textContent === 'shard/shop/account/17' && document.activeElement.dataset.shard.endsWith('17')")

	p.press("/")
	p.until("lastView === 'leases' && document.activeElement.id === 'q'")
	p.do(chromedp.SendKeys(chromedp.ID("q"), "holder:shop-3 outbox"))
	p.shows("0 of 40")
	eval[any](p, "$('#q').value = '', null")
	p.do(chromedp.SendKeys(chromedp.ID("q"), "backup"))
	p.shows("1 of 40")
	p.tabTo("el.className === 'rowlink'")
	p.press(kb.Enter)
	p.until("document.activeElement.id === 'drawer'")
	p.press(kb.Escape)
	p.until("$('#drawer').hidden && document.activeElement.className === 'rowlink'")

	p.press("5")
	p.until("lastView === 'nodes'")
	p.tabTo("el.dataset.act === 'drain' && el.dataset.of === 'shop-3'")
	p.press(kb.Enter)
	p.shows("Drain shop-3?")
	p.press(kb.Tab)
	p.press(kb.Enter)
	p.shows("ada asked for: drain shop-3")
	assert.Equal(t, "shop-3", eval[string](p, "document.activeElement.dataset.of"), "the focus is lost")
	p.press("?")
	p.shows("views")
	p.press(kb.Escape, "t")
	p.until("document.documentElement.dataset.theme === 'dark'")
	p.quiet()
}

// The focus and what is selected outlast what the stream brings.
func TestAPatchKeepsTheFocusAndColours(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/#/leases")
	p.shows("outbox/orders")
	eval[any](p, "$$('.rowlink').find(a => a.textContent === 'outbox/orders').focus(), null")
	was := eval[string](p, "cn('shop-1') + cn('shop-3')")
	post(t, url+"/patch", map[string]any{
		"problems": []any{}, "nodes": []any{map[string]any{"id": "aaa", "group": "shop", "state": "up", "source": "records"}, map[string]any{"id": "shop-3", "group": "shop", "state": "up", "source": "records"}},
	})
	p.until("snap.nodes.length === 2 && !waiting")
	assert.Equal(t, "outbox/orders", eval[string](p, "document.activeElement.textContent"))
	assert.Equal(t, was, eval[string](p, "cn('shop-1') + cn('shop-3')"))
	p.quiet()
}

func TestRecordsAloneSayWhatIsNotKnown(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/")
	p.shows("live")
	post(t, url+"/patch", map[string]any{
		"node": "", "answered": []any{}, "events": []any{}, "problems": []any{},
		"nodes":      []any{map[string]any{"id": "a", "group": "g", "state": "up", "source": "records"}},
		"singletons": []any{map[string]any{"name": "s", "lease": "singleton/s", "phase": "held", "host": map[string]any{"id": "a"}, "token": "7"}},
		"leases":     []any{map[string]any{"name": "singleton/s", "kind": "singleton", "state": "held", "owner": map[string]any{"id": "a"}, "ttl_ms": 10000}},
		"types":      []any{map[string]any{"group": "g", "type": "t", "shards": 1, "hosted": 1, "nodes": []any{map[string]any{"id": "a", "shards": 1}}, "table": []any{map[string]any{"shard": 0, "owner": "a"}}}},
		"timeline":   map[string]any{"from": "2026-03-12T13:30:00Z", "to": "2026-03-12T14:30:00Z", "lanes": []any{map[string]any{"name": "singleton/s", "kind": "singleton", "spans": []any{map[string]any{"holder": "a", "from": "2026-03-12T14:00:00Z"}}}}},
	})
	p.shows("seen from the store alone")
	for view, text := range map[string]string{
		"overview": "need a node’s page", "nodes": "not known", "singletons": "whether it runs is not known",
		"leases": "not known", "sharding": "entities not known", "timeline": "Who held what",
	} {
		p.view(view)
		p.shows(text)
		assert.False(t, eval[bool](p, "/NaN|undefined|\\bnull\\b|Invalid/.test(document.body.innerText)"), view)
	}
	assert.False(t, eval[bool](p, "document.body.innerText.includes('Nothing ran twice')"))
	p.quiet()
}

func TestTheTimelineTellsOfTwoAtOnce(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/#/timeline")
	p.shows("Nothing ran twice")
	span := func(holder, token, from, to string) any {
		at := func(s string) string { return "2026-03-12T14:" + s + "Z" }
		return map[string]any{"holder": holder, "token": token, "from": at(from), "run_from": at(from), "run_to": at(to), "to": at(to), "ended": "released"}
	}
	lane := func(overlap string) any {
		return map[string]any{"from": "2026-03-12T13:30:00Z", "to": "2026-03-12T14:30:00Z", "complete": true, "lanes": []any{map[string]any{
			"name": "singleton/x", "kind": "singleton", "spans": []any{span("a", "1", "00:00", "10:00."+overlap), span("b", "2", "10:00", "20:00"), span("a", "3", "20:00.125", "25:00")},
		}}}
	}
	post(t, url+"/patch", map[string]any{"timeline": lane("004")}) // within the clocks' error of 5 ms
	p.until("$('[data-tip*=\"125 ms ± 5 ms\"]')")
	p.shows("Nothing ran twice")
	post(t, url+"/patch", map[string]any{"timeline": lane("006")})
	p.shows("1 overlap: something ran twice")
	p.shows("ran twice")
	p.quiet()
}

func TestALostConnectionIsSaid(t *testing.T) {
	url := fixture(t)
	p := tab(t, url, "/holdfast/")
	p.shows("live")
	eval[any](p, "source.close(), source.onerror(), null")
	p.shows("not connected since 14:3")
	p.shows("live") // again
}

// Ten thousand leases and 4096 shards stay fluid. The figures are logged.
func TestManyLeasesAndShardsStayFluid(t *testing.T) {
	tier.NightlyOnly(t, "TestEachViewIsDrawn")
	url := fixture(t)
	p := tab(t, url, "/holdfast/#/leases")
	p.shows("live")
	begun := time.Now()
	post(t, url+"/many?leases=10000&shards=4096", nil)
	p.shows("10,000 of 10,000")
	t.Logf("10 000 leases are on the page after %v", time.Since(begun).Round(time.Millisecond))
	assert.Less(t, eval[int](p, "$$('#rows tr').length"), 120)
	frames := func(what, step string) {
		t.Helper()
		got := eval[struct{ Median, P95, Worst, Work float64 }](p, `new Promise(done => {
			const times = [], work = []; let last = performance.now(), i = 0;
			const next = now => {
				if (i) times.push(now - last); last = now;
				if (i++ === 120) { times.sort((a, b) => a - b); work.sort((a, b) => a - b); return done({ Median: times[60], P95: times[114], Worst: times[119], Work: work[114] }); }
				const a = performance.now(); (`+step+`)(i); work.push(performance.now() - a);
				requestAnimationFrame(next);
			};
			requestAnimationFrame(next);
		})`)
		t.Logf("%s: frames of %.1f ms (median), %.1f (p95), %.1f (worst); %.1f ms of work (p95)", what, got.Median, got.P95, got.Worst, got.Work)
		assert.Less(t, got.Median, 500.0, what) // a page that hangs; the figures are for people
	}
	frames("scrolling 10 000 leases", "i => scrollTo(0, i * 400)")
	p.shows("tenant/01")
	frames("searching 10 000 leases", "i => { if (i % 12 === 0) set({ q: 'tenant/' + i }, true) }")
	frames("patches to 10 000 leases", "i => { if (i % 12 === 0) { take({ at: snap.at, leases: snap.leases.map(l => ({ ...l })) }); redraw(); } }")
	p.view("sharding")
	p.shows("4,096 shards")
	p.until("$('canvas').height > 100")
	frames("choosing among 4096 shards", "i => pickShard('shard/shop/parcel', i * 30)")
	p.shows("shard/shop/parcel/3600")
	p.do(chromedp.Focus(chromedp.CSS("canvas")))
	p.press(kb.ArrowRight)
	p.shows("shard/shop/parcel/3601")
	frames("moves in 4096 shards", "i => { const t = snap.types[2]; take({ at: snap.at, types: [...snap.types.slice(0, 2), { ...t, table: t.table.map(x => ({ ...x, owner: 'shop-' + (1 + (x.shard + i) % 5) })) }] }); redraw(); }")
	p.view("timeline")
	frames("the timeline", "i => redraw()")
	p.quiet()
}
