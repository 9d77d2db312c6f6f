'use strict';
// The Holdfast console: one page without dependencies. It draws one object, the snapshot that
// <api>stream sends first, and applies the patches that follow. All markup is made by html``, which
// escapes what it is given. Styles are set through the CSSOM (data-css): the page's policy has
// "style-src 'self'".

// ---- text ---------------------------------------------------------------------------------------
class Safe { constructor(s) { this.s = s; } }
// Characters that hide, or turn the text round, are shown as what they are.
const visible = s => String(s).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
  c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
const escaped = s => visible(s).replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
const show = v => v == null || v === false ? '' : Array.isArray(v) ? v.map(show).join('') : v instanceof Safe ? v.s : escaped(v);
const html = (parts, ...vals) => new Safe(parts.reduce((a, p, i) => a + show(vals[i - 1]) + p));
const $ = (sel, root = document) => root.querySelector(sel);
const $$ = (sel, root = document) => [...root.querySelectorAll(sel)];
const enc = s => encodeURIComponent(String(s).toWellFormed?.() ?? s);
const ms = t => t ? Date.parse(t) : NaN;
const plural = (n, one, many = one + 's') => `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
const unknown = html`<span class="muted">not known</span>`;
const known = (v, f = x => x) => v == null ? unknown : f(v);
function dur(x) {
  if (!isFinite(x)) return '–';
  x = Math.max(0, x);
  if (x < 10) return `${+x.toFixed(1)} ms`;
  if (x < 1000) return `${Math.round(x)} ms`;
  if (x < 9950) return `${(x / 1000).toFixed(1)} s`;
  if (x < 60e3) return `${Math.round(x / 1000)} s`;
  const m = Math.floor(x / 60e3), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (h < 1) return `${m} min ${Math.floor(x / 1000) % 60} s`;
  return d < 2 ? `${h} h ${m % 60} min` : `${d} d ${h % 24} h`;
}
// To the millisecond, as gaps are told.
const exact = x => x < 1000 || x >= 36e5 ? dur(x) : x < 60e3 ? `${(x / 1000).toFixed(3)} s` : `${Math.floor(x / 60e3)} min ${((x % 60e3) / 1000).toFixed(3)} s`;
const clock = (t, frac = 0) => isFinite(t) ? new Date(t).toISOString().slice(11, frac ? 20 + frac : 19) : '–';
const tok = t => t == null ? html`<span class="muted">–</span>` : html`<span class="mono num">${t}</span>`;

// ---- data ---------------------------------------------------------------------------------------
const api = $('meta[name=holdfast-api]').content;
let snap = null, at = 0, mono = 0, lost = 0, failure = '', source = null, older = [];
const got = {}; // when each member was told, by the server's clock
const nodeBy = new Map(), leaseBy = new Map(), sessionBy = new Map(), colours = new Map();
const now = () => at + performance.now() - mono;
const can = action => snap.capabilities.actions.includes(action);
const alone = () => !snap.node; // the store's records are all there is
function timed(t) { at = ms(t); mono = performance.now(); }
function take(part, whole) {
  const s = whole ? part : { ...snap, ...part };
  if (part.at) timed(part.at);
  for (const k of Object.keys(part)) got[k] = at;
  for (const k of ['answered', 'missing', 'problems', 'nodes', 'leases', 'singletons', 'types', 'events']) s[k] ||= [];
  s.capabilities = { actions: [], ...s.capabilities };
  s.capabilities.actions ||= [];
  s.timeline = { ...s.timeline, lanes: s.timeline?.lanes || [] };
  for (const t of s.types) { t.nodes ||= []; t.table ||= []; t.kind ||= 'shard'; }
  snap = s;
  if (part.nodes) {
    nodeBy.clear(); sessionBy.clear();
    for (const n of s.nodes) { nodeBy.set(n.id, n); for (const x of n.sessions || []) sessionBy.set(x.id, x); }
    for (const n of s.nodes) cn(n.id);
  }
  if (part.leases) { leaseBy.clear(); for (const l of s.leases) leaseBy.set(l.name, l); }
}
// The stream is open while the page is seen.
function follow() {
  if (document.hidden || source) return;
  const s = source = new EventSource(api + 'stream');
  const on = (event, f) => s.addEventListener(event, e => { lost = 0; failure = ''; f(JSON.parse(e.data)); });
  on('snapshot', d => { take(d, true); redraw(); });
  on('patch', d => { if (snap) { take(d); redraw(); } });
  on('ping', tick);
  s.onerror = () => {
    lost ||= now() || Date.now();
    if (s.readyState === EventSource.CLOSED) { source = null; setTimeout(follow, 5000); why(); }
    tick();
  };
}
async function why() {
  try { const r = await fetch(api + 'nodes'); failure = r.ok ? '' : (await r.json()).error.text; } catch { failure = 'the server does not answer'; }
  if (!snap) $('#main').innerHTML = show(html`<h1>No data</h1><p class="muted">${failure || 'The server has too many viewers'}. The page asks again.</p>`);
  tick();
}
document.addEventListener('visibilitychange', () => { if (document.hidden) { source?.close(); source = null; } else follow(); });

// What the holder told of its session is newer than the record.
function leftOf(l) {
  const s = sessionBy.get(l.session);
  if (s) return Math.max(0, s.trusted_ms + snap.cluster.margin_ms - (now() - got.nodes));
  const left = l.left_ms == null ? NaN : l.left_ms - (now() - got.leases);
  return left > 0 ? left : NaN;
}
const late = l => !!sessionBy.get(l.session)?.failed;
const memos = new Map();
function memo(name, keys, f) {
  const m = memos.get(name);
  if (m && m.keys.length === keys.length && m.keys.every((k, i) => k === keys[i])) return m.value;
  const value = f();
  memos.set(name, { keys, value });
  return value;
}

// ---- parts --------------------------------------------------------------------------------------
// A node keeps its colour while the page is open, and after a reload in most cases.
function cn(id) {
  if (!colours.has(id)) {
    const digits = /\d+$/.exec(id), used = new Set(snap.nodes.map(n => colours.get(n.id)));
    let c = digits ? (+digits[0].slice(-3) + 7) % 8 : [...id].reduce((h, x) => (h * 31 + x.codePointAt(0)) % 997, 7) % 8;
    for (let i = 0; i < 8 && used.has(c); i++) c = (c + 1) % 8;
    colours.set(id, c);
  }
  return `c${colours.get(id)}`;
}
const short = id => (id.match(/\d+$/) || [[...id][0]?.toUpperCase() || '?'])[0].slice(-2);
const none = html`<span class="pill bad">no node</span>`;
const node = id => id ? html`<a class="node ${cn(id)}" href="#/nodes?id=${enc(id)}"><i aria-hidden="true">${short(id)}</i>${id}</a>` : none;
const since = (t, cls = '') => t ? html`<span class="num nowrap ${cls}" data-since="${ms(t)}" title="${t}">${dur(now() - ms(t))}</span>` : unknown;
const left = l => l.owner
  ? html`<span class="left"><span class="bar" data-left="${enc(l.name)}"><b></b></span><span class="num small nowrap" data-lefttext="${enc(l.name)}"></span></span>`
  : html`<span class="muted">free ${l.free_since ? since(l.free_since) : ''}</span>`;
const nameLink = n => n.startsWith('singleton/') ? `#/singletons?name=${enc(n.slice(10))}` : n.startsWith('node/') ? `#/nodes?id=${enc(n.slice(5))}`
  : /^(shard|partition)\//.test(n) ? '#/sharding' : n === 'store' ? '#/nodes' : `#/leases?name=${enc(n)}`;
const plain = subject => subject.replace(/^(singleton|node|shard|partition)\//, '');
const sev = { bad: 0, warn: 1, info: 2 };
const problems = code => snap.problems.filter(p => p.code === code);
const total = code => problems(code).reduce((a, p) => a + (p.count || 1), 0);
const troubled = s => s.phase === 'hostless' || snap.problems.some(p => p.severity === 'bad' && p.subject === 'singleton/' + s.name);
const runs = s => s.phase === 'active' || s.phase === 'held';
const button = (action, text, data) => can(action) ? html`<button class="btn small" type="button" data-act="${action}" data-of="${enc(data)}">${text}</button>` : '';
const drainButton = n => n.state === 'draining' ? button('undrain', 'Undrain', n.id) : n.state === 'up' ? button('drain', 'Drain', n.id) : '';
const fromRecords = () => alone() && html`<p class="note info">Read from the store’s records alone: phases, gaps, journals and messages that wait need a node’s page.</p>`;

// ---- views --------------------------------------------------------------------------------------
const VIEWS = [
  ['overview', 'Overview', 'M4 12l8-8 8 8M6 10v10h12V10'],
  ['leases', 'Leases', 'M5 6h14M5 12h14M5 18h9'],
  ['singletons', 'Singletons', 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 10a2 2 0 1 0 0 4 2 2 0 0 0 0-4z'],
  ['sharding', 'Sharding', 'M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z'],
  ['nodes', 'Nodes', 'M4 5h16v5H4zM4 14h16v5H4zM7 7.5h.01M7 16.5h.01'],
  ['timeline', 'Timeline', 'M3 6h9M8 12h9M13 18h8'],
];
const views = {};

views.overview = () => {
  const ps = [...snap.problems].sort((a, b) => sev[a.severity] - sev[b.severity]);
  const bad = ps.filter(p => p.severity === 'bad').length, warn = ps.filter(p => p.severity === 'warn').length;
  const held = snap.leases.filter(l => l.state === 'held').length, run = snap.singletons.filter(runs).length;
  const shards = snap.types.reduce((a, t) => a + t.shards, 0), hosted = snap.types.reduce((a, t) => a + t.hosted, 0);
  const up = snap.nodes.filter(n => n.state !== 'gone').length, groups = snap.cluster.groups || [];
  const tile = (n, label, kind, href) => html`<a class="tile ${n ? kind : ''}" href="${href}"><b>${n}</b><span>${label}</span></a>`;
  const ok = (n, of, label, href) => html`<a class="tile" href="${href}"><b>${n}<small> / ${of}</small></b><span>${label}</span></a>`;
  const lanes = snap.timeline.lanes.filter(l => ['leader', 'singleton', 'shards'].includes(l.kind));
  return html`
  <div class="verdict"><span class="sign ${bad ? 'bad' : warn ? 'warn' : ''}" aria-hidden="true">${bad || warn ? '!' : '✓'}</span>
    <div><h1>${bad ? plural(bad, 'problem') : warn ? 'Everything runs' : 'Everything is held'}${warn ? `, ${plural(warn, 'warning')}` : ''}</h1>
    <p class="muted">${groups.length ? html`${groups.length === 1 ? 'Group' : 'Groups'} <b>${groups.join(', ')}</b> on ` : ''}${snap.cluster.store} · ${alone() ? 'seen from the store alone' : `seen from ${snap.node} · ${snap.answered.length} of ${up} nodes answered`}${snap.missing.length ? html` · <span class="bad">no answer from ${snap.missing.map(m => m.node).join(', ')}</span>` : ''}</p></div></div>
  ${snap.cluster.store_failure ? html`<p class="note">The records may be out of date: ${snap.cluster.store_failure}</p>` : ''}${fromRecords()}
  <div class="stack">
  <div class="tiles" aria-label="Counts">
    ${tile(total('hostless'), 'hostless', 'bad', '#/singletons')}${tile(total('not_stopping'), 'not stopping', 'bad', '#/singletons')}
    ${tile(total('lost'), 'lost in the last hour', 'warn', '#/timeline')}${tile(total('store_slow'), 'nodes with slow store', 'warn', '#/nodes')}
    ${ok(run, snap.singletons.length, alone() ? 'singletons held' : 'singletons active', '#/singletons')}${ok(hosted, shards, snap.types.some(parted) ? 'shards and partitions hosted' : 'shards hosted', '#/sharding')}
    ${ok(held, snap.leases.length, 'leases held', '#/leases')}${ok(up, snap.nodes.length, 'nodes up', '#/nodes')}
  </div>
  <section class="card"><h2>What is wrong</h2>${ps.length ? html`<ul class="problems">${ps.map(p => html`<li><span class="dot ${p.severity}" role="img" aria-label="${p.severity}"></span>
      <a href="${nameLink(p.subject)}"><b><span class="mono">${plain(p.subject)}</span> ${p.text}</b>${p.count > 1 && !p.text.includes(p.count) ? html` <span class="muted">× ${p.count}</span>` : ''}</a>
      <span>${p.since ? since(p.since, 'muted') : ''}</span>${p.detail ? html`<span class="detail">${p.detail}</span>` : ''}</li>`)}</ul>` : html`<p class="good">Nothing.</p>`}</section>
  <section><h2>Who holds what</h2><div class="strip">${snap.nodes.slice(0, 24).map(strip)}</div>${snap.nodes.length > 24 ? html`<p><a href="#/nodes">All ${snap.nodes.length} nodes</a></p>` : ''}</section>
  ${lanes.length ? html`<section class="card"><div class="row between"><h2>Last hour</h2><a href="#/timeline">Timeline</a></div>${lanesOf(lanes.slice(0, 12), ms(snap.timeline.from), at, 'mini')}</section>` : ''}
  </div>`;
};
function strip(n) {
  const sing = snap.singletons.filter(s => s.host?.id === n.id), apps = snap.leases.filter(l => l.kind === 'application' && l.owner?.id === n.id).length;
  const worst = [...n.sessions || []].sort((a, b) => a.trusted_ms - b.trusted_ms)[0];
  const coord = snap.types.filter(t => t.coordinator?.id === n.id).map(t => t.type);
  const most = t => Math.max(1, ...t.nodes.map(x => x.shards));
  return html`<div class="card ${cn(n.id)}"><div class="row between"><h3>${node(n.id)}</h3>${stateOf(n)}</div>
    <dl>${snap.types.map(t => { const h = t.nodes.find(x => x.id === n.id); return h ? html`<div class="hold"><span title="${t.type}">${t.type}</span><span class="bar" title="${h.shards} of ${t.shards} shards"><b data-css="width:${h.shards / most(t) * 100}%"></b></span><span class="num right">${h.shards}</span></div>` : ''; })}
    ${worst ? html`<div class="hold"><span title="Until when the session that was renewed longest ago is trusted">trusted</span><span class="bar ${worst.failed ? 'low' : ''}" data-trust="${worst.id}"><b></b></span><span class="num right ${worst.failed ? 'bad' : ''}" data-trusttext="${worst.id}"></span></div>` : ''}</dl>
    <div class="chips top8">${n.leader ? html`<span class="chip"><b>leader</b></span>` : ''}${coord.map(t => html`<span class="chip">coordinates ${t}</span>`)}${sing.map(s => html`<a class="chip ${troubled(s) ? 'bad' : ''}" href="#/singletons?name=${enc(s.name)}">${s.name}${troubled(s) ? ` (${s.phase})` : ''}</a>`)}<a class="chip dashed" href="#/leases?kind=application&q=${enc('holder:' + n.id)}">${plural(apps, 'application lease')}</a></div></div>`;
}
const stateOf = n => n.state !== 'up' ? html`<span class="pill ${n.state === 'gone' ? 'bad' : 'warn'}">${n.state}</span>`
  : n.source !== 'asked' ? html`<span class="pill ${alone() ? '' : 'bad'}">${alone() ? 'from records' : 'no answer'}</span>`
  : n.health?.ok === false ? html`<span class="pill bad">unwell</span>` : n.store?.slow ? html`<span class="pill warn">store slow</span>` : html`<span class="pill good">well</span>`;

// The rows outside the window are two spacers, so that thousands are drawn like fifty.
const rowHeight = () => innerWidth > 720 ? 37 : 66;
function windowed(rows) {
  const H = rowHeight(), body = $('#rows'), top = body ? body.getBoundingClientRect().top : 0;
  const first = Math.max(0, Math.min(rows.length - 1, Math.floor(-top / H) - 5)), last = Math.min(rows.length, first + Math.ceil(innerHeight / H) + 10);
  return { first, last, above: first * H, below: (rows.length - last) * H };
}
views.leases = p => {
  const kinds = memo('kinds', [snap.leases], () => { const m = new Map(); for (const l of snap.leases) m.set(l.kind, (m.get(l.kind) || 0) + 1); return [...m]; });
  const q = (p.get('q') || '').toLowerCase().trim(), kind = p.get('kind') || '', sort = p.get('sort') || 'name', by = sort.replace('-', ''), desc = sort[0] === '-';
  const words = q.split(/\s+/).filter(Boolean);
  const key = { name: l => l.name, kind: l => l.kind, holder: l => l.owner?.id || '', token: l => +(l.token || 0), age: l => -ms(l.since) || 0, left: l => leftOf(l) || 0 }[by] || (l => l.name);
  const text = l => JSON.stringify([l.name, l.kind, l.state, l.owner, l.token, l.session, l.metadata]).toLowerCase();
  const match = (l, w) => {
    const i = w.indexOf(':'), f = w.slice(0, i), v = w.slice(i + 1);
    if (f === 'holder') return l.owner?.id.toLowerCase().includes(v);
    if (f === 'kind') return l.kind.startsWith(v);
    if (f === 'session') return l.session?.startsWith(v);
    if (f === 'is') return v === 'late' ? late(l) : v === 'waited' ? l.waiting?.length : l.state === v;
    return i > 0 && l.metadata?.[f]?.toLowerCase().includes(v) || text(l).includes(w);
  };
  const live = by === 'left' ? Math.floor(now() / 1000) : snap.nodes;
  const rows = memo('rows', [snap.leases, q.includes('is:late') || by === 'left' ? live : 0, q, kind, sort], () => {
    const found = snap.leases.filter(l => (!kind || l.kind === kind) && words.every(w => match(l, w)));
    const keyed = found.map(l => [l.state === 'free' ? 0 : 1, key(l), l]), sign = desc ? -1 : 1;
    keyed.sort((a, b) => a[0] - b[0] || (a[1] < b[1] ? -sign : a[1] > b[1] ? sign : 0));
    return keyed.map(k => k[2]);
  });
  const th = (k, label, cls = '') => html`<th class="${cls}" aria-sort="${by === k ? (desc ? 'descending' : 'ascending') : 'none'}"><button type="button" data-set="sort=${sort === k ? '-' + k : k}">${label}${by === k ? (desc ? ' ↓' : ' ↑') : ''}</button></th>`;
  const shards = snap.types.map(t => html`<p class="small muted shardline"><a class="mono" href="#/sharding">${idOf(t)}/…</a> ${t.hosted} of ${t.shards} held, by ${plural(t.nodes.filter(n => n.shards).length, 'node')}</p>`);
  const w = windowed(rows);
  const row = (l, i) => html`<tr class="${p.get('name') === l.name ? 'sel' : ''}" data-key="${l.name}" aria-rowindex="${i + 2}"><td class="wide"><a class="rowlink" title="${l.name}" href="#/leases?${with_(p, 'name', l.name)}">${l.name}</a></td><td>${l.state === 'free' ? html`<span class="pill bad">free</span>` : l.kind}</td>
    <td>${l.owner ? node(l.owner.id) : html`<span class="muted">no node</span>`}</td><td class="opt">${tok(l.token)}</td><td class="opt">${l.since ? since(l.since) : l.granted ? since(l.granted) : '–'}</td><td>${left(l)}</td><td class="mono small opt opt2">${l.session ? html`<span title="${l.session}" class="${late(l) ? 'bad' : 'muted'}">${l.session.slice(0, 6)}</span>` : ''}</td>
    <td class="opt opt2">${meta(l)}</td></tr>`;
  return html`<div class="row between"><h1>Leases</h1><span class="muted num">${rows.length.toLocaleString('en')} of ${snap.leases.length.toLocaleString('en')}, and ${snap.types.reduce((a, t) => a + t.shards, 0).toLocaleString('en')} shards${snap.types.some(parted) ? ' and partitions' : ''}</span></div>${fromRecords()}
  <div class="tools"><input type="search" id="q" value="${p.get('q') || ''}" placeholder="Search: name, holder:shop-3, is:free, is:late …" aria-label="Search leases" autocomplete="off" spellcheck="false">
    <div class="row kinds"><button class="btn" type="button" data-set="kind=" aria-pressed="${!kind}">all</button>${kinds.map(([k, n]) => html`<button class="btn" type="button" data-set="kind=${k}" aria-pressed="${kind === k}">${k} <span class="muted num">${n}</span></button>`)}</div></div>
  <div class="card scroll tcards"><table class="fixed" aria-rowcount="${rows.length + 1}"><thead><tr>${th('name', 'Name', 'w-name')}${th('kind', 'Kind', 'w-kind')}${th('holder', 'Holder', 'w-holder')}${th('token', 'Token', 'w-token')}${th('age', 'Held for', 'w-kind')}${th('left', 'Time left', 'w-left')}<th class="opt2 w-token">Session</th><th class="opt2 w-meta">Metadata</th></tr></thead>
  <tbody id="rows"><tr class="space" aria-hidden="true"><td data-css="height:${w.above}px"></td></tr>${rows.slice(w.first, w.last).map((l, i) => row(l, w.first + i))}<tr class="space" aria-hidden="true"><td data-css="height:${w.below}px"></td></tr>
    ${rows.length ? '' : html`<tr><td colspan="8" class="muted">No lease matches. <button class="btn" type="button" data-set="q=">Show all</button></td></tr>`}</tbody></table></div>${!q && (!kind || kind === 'shard' || kind === 'partition') ? shards : ''}`;
};
const meta = l => { const all = Object.entries(l.metadata || {}).map(([k, v]) => `${k}=${v}`).join(' '); return html`<div class="meta" title="${all}">${all}</div>`; };
function leaseDetail(name) {
  const l = leaseBy.get(name);
  if (!l) return html`<h2>${name}</h2><p class="muted">No node holds it, and it was not seen in the last hour.</p>`;
  const related = snap.events.filter(e => e.name === name).slice(-8).reverse(), word = /^[\w./:@%+,-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
  return html`<h2>${l.name}</h2>
  <dl class="kv"><dt>State</dt><dd>${l.state === 'free' ? html`<span class="pill bad">free</span> ${l.free_since ? html`for ${since(l.free_since)}` : ''}` : late(l) ? html`<span class="pill warn">held, session not renewed</span>` : html`<span class="pill good">held</span>`} ${l.kind === 'application' && l.owner ? button('release', 'Release…', l.name) : ''}</dd>
    ${l.owner ? html`<dt>Holder</dt><dd>${node(l.owner.id)}</dd><dt>Incarnation</dt><dd class="mono">${known(l.owner.incarnation)}</dd><dt>Address</dt><dd class="mono">${known(l.owner.address)}</dd><dt>Token</dt><dd>${tok(l.token)}</dd><dt>Held since</dt><dd class="num">${l.since ? html`${clock(ms(l.since))} (${since(l.since)})` : l.granted ? html`${clock(ms(l.granted))} by the store (${since(l.granted)})` : unknown}</dd><dt>Time left</dt><dd>${left(l)}</dd><dt>TTL</dt><dd>${dur(l.ttl_ms)}, margin ${dur(snap.cluster.margin_ms)}</dd><dt>Session</dt><dd class="mono">${known(l.session)}</dd>`
      : html`<dt>Last token</dt><dd>${known(l.last_token, tok)}</dd>`}
    <dt>Waiting</dt><dd>${l.waiting?.length ? l.waiting.map(n => html`${node(n)} `) : alone() ? unknown : 'no node'}</dd>
    ${Object.entries(l.metadata || {}).map(([k, v]) => html`<dt class="mono">${k}</dt><dd class="mono">${v}</dd>`)}</dl>
  <section><h3>Who held it</h3>${l.history || l.state === 'free' ? html`<ol class="hist">${l.state === 'free' ? html`<li class="none"><span class="bad">no node</span> ${l.free_since ? `since ${clock(ms(l.free_since))}` : ''}</li>` : ''}${(l.history || []).map(h => html`<li class="${cn(h.holder)}"><div class="row between">${node(h.holder)}${tok(h.token)}</div><div class="small muted num">${ms(h.from) < ms(snap.timeline.from) ? 'before ' + clock(ms(snap.timeline.from)) : clock(ms(h.from), 3)} – ${h.to ? clock(ms(h.to), 3) : 'now'}${h.ended ? html` · ${h.ended}` : ''}</div>${h.reason ? html`<div class="small">${h.reason}</div>` : ''}</li>`)}</ol>` : html`<p>${unknown}</p>`}</section>
  ${related.length ? html`<section><h3>Last events</h3><table class="hands">${related.map(e => html`<tr><td class="num muted">${clock(ms(e.at))}</td><td>${node(e.node)}</td><td>${e.kind}${e.took_ms != null ? html` <span class="muted">${dur(e.took_ms)}</span>` : ''}</td></tr>`)}</table></section>` : ''}
  <section><h3>On the command line</h3><pre>holdfast describe ${word}
holdfast watch ${word}</pre></section>`;
}

views.singletons = p => {
  const rank = s => s.phase === 'hostless' ? 0 : troubled(s) ? 1 : runs(s) ? 3 : 2, pick = p.get('name');
  const list = [...snap.singletons].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  const pill = s => s.phase === 'hostless' ? html`<span class="pill bad">no host${s.hostless_since ? html` for ${since(s.hostless_since)}` : ''}</span>`
    : s.stopping_since ? html`<span class="pill ${troubled(s) ? 'bad' : 'warn'}">${troubled(s) ? 'not stopping' : 'stopping'} for ${since(s.stopping_since)}</span>` : html`<span class="pill ${s.phase === 'active' ? 'good' : s.phase === 'held' ? '' : 'warn'}">${s.phase}</span>`;
  const change = h => html`<tr><td class="num muted">${clock(ms(h.at))}</td><td class="nowrap">${h.from === h.to || !h.from ? node(h.to) : html`${node(h.from)} → ${node(h.to)}`}</td><td class="num right nowrap ${h.kind === 'planned' ? '' : 'bad'}" title="nothing ran meanwhile">${known(h.gap_ms, exact)}</td></tr><tr><td></td><td colspan="2" class="muted">${h.kind}${h.reason ? ': ' + h.reason : ''}</td></tr>`;
  return html`<div class="row between bottom14"><h1>Singletons</h1><span class="muted">${list.filter(runs).length} of ${list.length} ${alone() ? 'are held' : 'run'}</span></div>${fromRecords()}
  ${list.length ? '' : html`<p class="muted">There are none.</p>`}<div class="cards">${list.map(s => {
    const waiting = Object.entries(s.waiting || {}), sum = waiting.reduce((a, [, n]) => a + n, 0), wrong = troubled(s), hands = s.handovers;
    return html`<article class="card ${wrong ? 'bad' : ''}" data-key="${s.name}" ${pick === s.name ? html`data-pick` : ''}><div class="row between"><h3 class="mono">${s.name}</h3><span class="row">${pill(s)}${s.host ? button('move', 'Move…', s.name) : ''}</span></div>
    <dl class="kv"><dt>Host</dt><dd>${s.host ? node(s.host.id) : html`<span class="bad">no node</span>${s.last_host ? html` <span class="muted">last ${s.last_host}</span>` : ''}`}</dd>
      <dt>Phase</dt><dd>${s.phase === 'held' ? html`held <span class="muted">by the record; whether it runs is not known</span>` : s.phase}</dd><dt>Token</dt><dd>${s.token ? tok(s.token) : html`<span class="muted">none</span>`}</dd><dt>Runs since</dt><dd class="num">${s.since ? html`${ms(s.since) < ms(snap.timeline.from) ? '' : clock(ms(s.since), 3) + ' · '}${since(s.since)}` : s.phase === 'held' ? unknown : html`<span class="bad">does not run</span>`}</dd>
      <dt>Candidates</dt><dd>${s.candidates ? html`<span class="chips">${s.candidates.map(c => html`<span class="chip ${c.eligible ? cn(c.id) : 'dashed'}" title="${c.why_not || c.phase}">${c.id}${c.eligible ? (c.phase === 'standby' || c.phase === 'active' ? '' : ` ${c.phase}`) : ' –'}</span>`)}</span>${s.candidates.some(c => c.why_not) ? html`<details><summary>${s.candidates.filter(c => !c.eligible).length} may not host</summary>${s.candidates.filter(c => c.why_not).map(c => html`<div class="small"><b>${c.id}</b> ${c.why_not}</div>`)}</details>` : ''}` : unknown}</dd>
      <dt>Waiting</dt><dd>${sum ? html`<b class="${wrong ? 'bad' : ''}">${plural(sum, 'message')}</b> <span class="muted">${waiting.map(([n, c]) => `${n} ${c}`).join(', ')}</span>` : alone() ? unknown : 'no message'}</dd></dl>
    ${s.reason ? html`<div class="note">${s.reason}</div>` : ''}
    ${hands ? html`<details ${hands.length && !wrong ? html`open` : ''}><summary>Last changes of host: ${hands.length}</summary><table class="hands">${hands.slice(0, 4).map(change)}</table></details>` : ''}
    <p class="small num top8">${Object.entries(s.counters || {}).map(([k, v]) => html`<span class="nowrap ${v && !['lives', 'activations', 'handovers'].includes(k) ? 'warn' : 'muted'}">${k} ${v}</span> · `)}<a href="#/leases?name=${enc(s.lease)}">lease</a></p></article>`;
  })}</div>`;
};

// ---- shards -------------------------------------------------------------------------------------
const MANY = 512; // from here on, the map is a canvas
const idOf = t => `${t.kind}/${t.group}/${t.type}`, parted = t => t.kind === 'partition', ill = x => x.failures || x.stopping_since;
const label = x => `${x.key ?? 'shard ' + x.shard}: ${x.owner || 'no node'}${x.to ? ' → ' + x.to : ''}${x.phase ? ', ' + x.phase : ''}${x.entities == null ? '' : ', ' + plural(x.entities, 'entity', 'entities')}${x.waiting ? `, ${x.waiting} waiting` : ''}${x.failures ? `, fails ${x.failures} times in a row` : ''}`;
let versions = 0; // of what was drawn of shards: what is the same is not drawn again
const heat = (t, mode) => memo(`heat ${idOf(t)}`, [t, mode], () => {
  const val = x => (mode === 'entities' ? x.entities : x.waiting) || 0, sorted = t.table.map(val).sort((a, b) => a - b), top = Math.max(1, sorted[Math.floor(sorted.length * .99)] || 0);
  return { of: x => Math.min(1, val(x) / top), most: sorted.at(-1) || 0 };
});
views.sharding = p => {
  const mode = p.get('by') || 'node', only = p.get('only') || '', pick = p.get('shard') || '';
  const drain = n => { const x = nodeBy.get(n.id); return x ? drainButton({ ...x, state: n.draining ? 'draining' : x.state }) : ''; };
  return html`<div class="row between"><h1>Sharding</h1><div class="seg" role="group" aria-label="Colour by">${['node', 'entities', 'waiting'].map(m => html`<button class="btn" type="button" data-set="by=${m}" aria-pressed="${mode === m}">by ${m}</button>`)}</div></div>${fromRecords()}
  ${snap.types.length ? '' : html`<p class="muted">Nothing is sharded, and there are no partitions.</p>`}<div class="stack top14">${snap.types.map(t => {
    const id = idOf(t), h = heat(t, mode), mine = pick.startsWith(id + '/'), x = mine ? t.table[+pick.slice(id.length + 1)] : null, most = Math.max(1, ...t.nodes.map(n => n.shards));
    const cell = x => {
      const mv = x.owner && x.to, cls = mode === 'node' ? (!x.owner ? 'none' : `${cn(x.owner)} ${mv ? 'move' : ''}`) : x.owner ? `heat ${h.of(x) > .55 ? 'hot' : ''}` : 'none';
      return html`<button class="cell ${cls} ${ill(x) ? 'ill' : ''} ${only && x.owner !== only && x.to !== only ? 'fade' : ''}" type="button" data-shard="${enc(`${id}/${x.shard}`)}" aria-pressed="${x.shard === +(mine && pick.slice(id.length + 1)) && mine}" tabindex="${(mine ? pick === `${id}/${x.shard}` : x.shard === 0) ? 0 : -1}" aria-label="${label(x)}" title="${label(x)}" data-css="${mv ? `--to:var(--n${cn(x.to).slice(1)});` : ''}--h:${h.of(x).toFixed(2)}">${t.shards <= 64 ? x.shard : ''}</button>`;
    };
    const cells = t.shards <= MANY && memo(`cells ${id}`, [t, mode, only, mine && pick], () => ({ version: ++versions, all: html`${t.table.map(cell)}` }));
    const mean = t.entities == null ? null : Math.round(t.entities / t.shards);
    return html`<section class="card" data-key="${id}"><div class="row between"><h2 class="flat"><span class="mono">${t.type}</span> <span class="muted thin">${t.shards.toLocaleString('en')} ${parted(t) ? 'partitions' : html`shards · ${t.entities == null ? 'entities not known' : plural(t.entities, 'entity', 'entities')}`}</span></h2>
      <span class="row">${t.unassigned ? html`<span class="pill bad">${t.unassigned} without a host</span>` : ''}${t.moving ? html`<span class="pill warn">${t.moving} moving</span>` : alone() ? '' : html`<span class="pill good">at rest</span>`}${parted(t) ? '' : html`<span class="small muted">coordinator</span> ${node(t.coordinator?.id)} <span class="small muted">token ${tok(t.token)}</span>`}</span></div>
    <div class="legend"><button class="btn" type="button" data-set="only=" aria-pressed="${!only}">all</button>${t.nodes.slice(0, 32).map(n => html`<button class="btn" type="button" data-set="only=${only === n.id ? '' : n.id}" aria-pressed="${only === n.id}"><span class="node ${cn(n.id)}"><i>${short(n.id)}</i>${n.id}</span></button>`)}<span class="small muted"><span class="swatch move"></span>moving <span class="swatch none"></span>no node</span></div>
    <div class="shardgrid"><div>${t.shards > MANY ? html`<canvas class="canvas" tabindex="0" role="application" aria-label="Map of ${t.shards} ${t.kind}s of ${t.type}: arrow keys choose one" data-canvas="${enc(id)}"></canvas>`
      : html`<div class="map ${t.shards > 64 ? 'many' : ''}" role="group" aria-label="Shards of ${t.type}" data-same="${cells.version}">${$(`[data-same="${cells.version}"]`) ? '' : cells.all}</div>`}
      <div class="picked small" aria-live="polite">${x ? html`<b class="mono">${id}/${x.key ?? x.shard}</b> · ${node(x.owner)}${x.to ? html` → ${node(x.to)}` : ''} · ${x.phase || 'phase not known'} · token ${tok(x.token)}${x.since ? html` · for ${since(x.since)}` : ''}<br>${x.stopping_since ? html`<span class="bad">Own should have returned ${since(x.stopping_since)} ago</span> ` : ''}${x.failures ? html`<span class="bad">failed ${plural(x.failures, 'time')} in a row: ${x.error}</span>` : ''}${parted(t) ? '' : x.entities == null ? 'entities not known' : html`${plural(x.entities, 'entity', 'entities')}${mean == null ? '' : ` (mean ${mean})`}`}${x.waiting ? html` · <b>${plural(x.waiting, 'message')} wait</b>` : ''}` : html`<span class="muted">Choose one, with the mouse or the arrow keys.${mode === 'node' ? '' : ` The most ${mode} of one: ${h.most}.`}</span>`}</div></div>
    <div class="stack"><div><h3 class="bottom8">Balance</h3><div class="balance">${t.nodes.map(n => html`${node(n.id)}<span class="bar ${cn(n.id)}" title="${n.shards} shards"><b data-css="width:${n.shards / most * 100}%"></b></span><span class="num small nowrap">${n.shards}${n.leaving ? html` <span class="warn">leaves</span>` : n.draining ? html` <span class="warn">drains</span>` : n.hosts ? '' : html` <span class="muted">hosts none</span>`} ${drain(n)}</span>`)}</div></div>
    <div><h3>Moves under way</h3>${t.moves?.length ? html`<ul class="moves">${t.moves.map(m => { const steps = ['inviting', 'draining', 'transferring', 'adopting'], k = steps.indexOf(m.phase); return html`<li><div class="row between small"><span><b class="mono">${t.table[m.shard]?.key ?? m.shard}</b> ${m.from ? node(m.from) : ''} → ${node(m.to)}</span><span class="num nowrap">${m.phase} ${m.started ? since(m.started) : ''}</span></div>${k < 0 ? '' : html`<div class="steps" role="img" aria-label="step ${k + 1} of 4">${steps.map((s, i) => html`<i class="${i < k ? 'done' : i === k ? 'cur' : ''}" title="${s}"></i>`)}</div>`}</li>`; })}</ul>` : html`<p class="muted">${alone() ? 'Not known.' : 'None.'}</p>`}</div></div></div>
    ${t.recent?.length ? html`<details><summary>Last moves: ${t.recent.length} since ${clock(ms(t.recent.at(-1).at))}, longest ${dur(Math.max(0, ...t.recent.map(m => m.took_ms || 0)))}</summary><table class="hands">${t.recent.slice(0, 8).map(m => html`<tr><td class="num muted">${clock(ms(m.at))}</td><td class="mono">${m.count ? `× ${m.count}` : m.name.split('/').at(-1)}</td><td>${node(m.node)}${m.peer ? html` → ${node(m.peer)}` : ''}</td><td class="num">${known(m.took_ms, dur)}</td><td class="muted">${m.reason}</td></tr>`)}</table></details>` : ''}</section>`;
  })}</div>`;
};
const typeBy = id => snap.types.find(t => idOf(t) === id);
const columns = c => Math.max(16, Math.floor(c.clientWidth / 13));
function paintMap(c) {
  const [, p] = route(), id = decodeURIComponent(c.dataset.canvas), t = typeBy(id), mode = p.get('by') || 'node', only = p.get('only') || '', h = heat(t, mode);
  const cols = columns(c), size = c.clientWidth / cols, rows = Math.ceil(t.shards / cols), ratio = devicePixelRatio || 1;
  c.style.height = `${Math.ceil(rows * size)}px`;
  if (c.width !== Math.round(c.clientWidth * ratio)) c.width = Math.round(c.clientWidth * ratio);
  if (c.height !== Math.round(rows * size * ratio)) c.height = Math.round(rows * size * ratio);
  const g = c.getContext('2d'), colour = palette();
  g.setTransform(ratio, 0, 0, ratio, 0, 0); g.clearRect(0, 0, c.clientWidth, rows * size);
  for (const x of t.table) {
    const X = x.shard % cols * size, Y = Math.floor(x.shard / cols) * size, s = size - 1.5;
    g.globalAlpha = only && x.owner !== only && x.to !== only ? .16 : mode === 'node' || !x.owner ? 1 : .1 + .9 * h.of(x);
    g.fillStyle = !x.owner ? colour.gap : mode === 'node' ? colour[cn(x.owner)] : colour.c0;
    g.fillRect(X, Y, s, s);
    if (!x.owner) { g.fillStyle = colour.card; g.fillRect(X + s * .3, Y + s * .3, s * .4, s * .4); }
    if (ill(x)) { g.fillStyle = colour.bad; g.fillRect(X, Y + s * .6, s, s * .4); }
    if (x.owner && x.to && mode === 'node') { g.fillStyle = colour[cn(x.to)]; g.beginPath(); g.moveTo(X + s, Y); g.lineTo(X + s, Y + s); g.lineTo(X, Y + s); g.fill(); }
  }
  const pick = p.get('shard') || '', k = pick.startsWith(id + '/') ? +pick.slice(id.length + 1) : -1;
  if (k >= 0) { g.globalAlpha = 1; g.strokeStyle = colour.text; g.lineWidth = 2; g.strokeRect(k % cols * size - 1, Math.floor(k / cols) * size - 1, size + .5, size + .5); }
}
// The colours as they are computed: a canvas knows no custom properties.
const palette = () => memo('palette', [dark()], () => {
  const probe = document.createElement('i'), out = {};
  document.body.append(probe);
  const read = (name, value) => { probe.style.color = value; out[name] = getComputedStyle(probe).color; };
  for (let i = 0; i < 8; i++) read(`c${i}`, `var(--n${i})`);
  read('gap', 'var(--gap)'); read('card', 'var(--card)'); read('text', 'var(--text)'); read('bad', 'var(--bad)');
  probe.remove();
  return out;
});
const pickShard = (id, k) => set({ shard: `${id}/${k}` }, true);

views.nodes = p => {
  const versions = [...new Set(snap.nodes.map(n => n.version).filter(Boolean))], pick = p.get('id');
  const card = n => {
    const slow = n.store?.slow, letters = Object.entries(n.dead_letters || {}), sum = letters.reduce((a, [, v]) => a + v, 0), away = Object.entries(n.unreached || {});
    const error = snap.missing.find(m => m.node === n.id)?.error;
    return html`<article class="card capped ${cn(n.id)}" data-key="${n.id}" ${pick === n.id ? html`data-pick` : ''}>
    <div class="row between"><h3>${node(n.id)}</h3><span class="row">${n.leader ? html`<span class="pill">leader</span>` : ''}${stateOf(n)}${drainButton(n)}</span></div>
    ${error ? html`<div class="note">No answer: ${error}. What follows is from records.</div>` : ''}${(n.health?.errors || []).map(e => html`<div class="note ${slow ? 'warn' : ''}">${e}</div>`)}${away.map(([a, why]) => html`<div class="note warn">No link to ${a}: ${why}</div>`)}
    <dl class="kv"><dt>Version</dt><dd>${known(n.version)} <span class="muted">${n.go || ''}</span></dd><dt>Address</dt><dd class="mono">${known(n.address)}</dd><dt>Incarnation</dt><dd class="mono">${known(n.incarnation)}</dd><dt>Group</dt><dd>${n.group}${n.roles?.length ? html` <span class="muted">roles ${n.roles.join(', ')}</span>` : ''}</dd>
    ${n.labels ? html`<dt>Labels</dt><dd>${Object.entries(n.labels).map(([k, v]) => html`<span class="chip">${k}=${v}</span> `)}</dd>` : ''}<dt>Up</dt><dd>${n.started ? since(n.started) : n.joined ? html`joined ${since(n.joined)} ago` : unknown}</dd>
    <dt>Sessions</dt><dd>${known(n.sessions, ss => ss.length ? ss.map(s => html`<div class="hold three"><span class="bar ${s.failed ? 'low' : ''}" title="session ${s.id}" data-trust="${s.id}"><b></b></span><span class="num ${s.failed ? 'bad' : ''}" data-trusttext="${s.id}"></span><span class="num muted nowrap">${plural(s.leases, 'lease')}</span></div>${s.error ? html`<div class="small bad">${s.failed} failed: ${s.error}</div>` : ''}`) : 'none')}</dd>
    <dt>Store</dt><dd class="num">${known(n.store, s => html`<span class="${slow ? 'bad' : ''}">p50 ${dur(s.p50_ms)}, p99 ${dur(s.p99_ms)}</span> <span class="muted">of ${dur(s.attempt_timeout_ms)}${s.errors ? html`, <span class="bad">${plural(s.errors, 'error')}</span>` : ''}</span>`)}</dd>
    <dt>Clock</dt><dd class="num">${known(n.clock, c => html`${c.offset_ms >= 0 ? '+' : '−'}${+Math.abs(c.offset_ms).toFixed(2)} ms ± ${+c.error_ms.toFixed(2)} <span class="muted">against ${snap.node}; ${+((Math.abs(c.offset_ms) + c.error_ms) / snap.cluster.margin_ms * 100).toFixed(1)} % of the margin of ${dur(snap.cluster.margin_ms)}</span>`)}</dd>
    <dt>Dead letters</dt><dd class="num">${known(n.dead_letters, () => html`${sum} <span class="muted">${letters.map(([k, v]) => `${k} ${v}`).join(', ')}</span>`)}</dd>
    <dt>Counters</dt><dd class="num small">${known(n.counters, c => Object.entries(c).map(([k, v], i) => html`${i ? ' · ' : ''}<span class="nowrap ${v ? '' : 'muted'}">${k} ${v}</span>`))}</dd></dl></article>`;
  };
  return html`<div class="row between bottom14"><h1>Nodes</h1><span class="row">${versions.length > 1 ? html`<span class="pill warn">${versions.length} versions: ${versions.join(', ')}</span>` : versions.map(v => html`<span class="pill">${v}</span>`)}</span></div>${fromRecords()}
  <div class="cards">${snap.nodes.map(card)}</div>`;
};

// ---- timeline -----------------------------------------------------------------------------------
// Work is the thick bar, the lease's record the thin line under it. Red is time in which nothing
// ran. Two bars of one name that overlap would be the one thing that must not be. What is told by
// two nodes compares within the error of their clocks only.
const planned = ['handed over', 'released', 'yielded'];
function analyse(l) {
  const gaps = [], twice = [], error = snap.cluster.clock_error_ms ?? 0, work = (l.spans || []).filter(s => s.run_from).sort((a, b) => ms(a.run_from) - ms(b.run_from));
  let prev = null, end = 0;
  const gap = (to, next) => gaps.push({ from: end, to, open: !next, planned: planned.includes(prev.ended), idle: !next && l.kind === 'application' && planned.includes(prev.ended),
    error: next && next.holder !== prev.holder ? snap.cluster.clock_error_ms : 0, why: [prev.ended, prev.reason].filter(Boolean).join(': ') });
  for (const s of work) {
    const a = ms(s.run_from), b = s.run_to ? ms(s.run_to) : Infinity;
    if (prev && a > end) gap(a, s);
    else if (prev && s.token !== prev.token && Math.min(end, b) - a > (s.holder === prev.holder ? 0 : Math.max(error, (s.error_ms ?? 0) + (prev.error_ms ?? 0)))) twice.push([a, Math.min(end, b, at)]);
    if (!prev || b >= end) { prev = s; end = b; }
  }
  if (prev?.run_to) gap(at, null);
  const down = gaps.filter(g => !g.idle);
  return { gaps, twice, known: work.length > 0, sum: down.reduce((a, g) => a + g.to - g.from, 0), longest: Math.max(0, ...down.map(g => g.to - g.from)), count: down.length };
}
const lengthOf = g => exact(g.to - g.from) + (g.error ? ` ± ${dur(g.error)}` : '');
function axis(a, b, width) {
  const want = (b - a) / Math.max(3, width / 110), step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5].find(s => s >= want) || Math.ceil(want / 36e5) * 36e5, out = [];
  for (let t = Math.ceil(a / step) * step; t <= b; t += step) out.push(t);
  return { ticks: out, text: t => step < 1000 ? clock(t, 3) : step < 6e4 ? clock(t) : clock(t).slice(0, 5) };
}
// The lengths of unplanned gaps stand over them; the longest first, where there is room.
function flags(gaps, pos, width) {
  const placed = [];
  for (const g of [...gaps].sort((x, y) => y.to - y.from - x.to + x.from)) if (placed.every(f => Math.abs(pos(f) - pos(g)) / 100 * width > 64)) placed.push(g);
  return placed.filter(g => !g.open).map(g => { const x = pos(g); return html`<span class="flag ${x < 4 ? 'first' : x > 95 ? 'last' : ''}" data-css="left:${x > 95 ? 100 : x}%">${exact(g.to - g.from)}</span>`; });
}
const GROUPS = { leader: 'Who leads and coordinates', coordinator: 'Who leads and coordinates', singleton: 'Singletons', application: 'Application leases', shards: 'Shards and partitions without a host', member: 'Nodes' };
function lanesOf(lanes, a, b, cls = '') {
  const width = Math.max(200, ($('#main').clientWidth || 900) - (innerWidth > 720 ? 390 : 50)), pct = t => (t - a) / (b - a) * 100, px = d => d / (b - a) * width;
  const { ticks, text } = axis(a, b, width), lines = ticks.map(t => html`<span class="grid-x" data-css="left:${pct(t)}%"></span>`), mini = cls === 'mini', start = ms(snap.timeline.from);
  const box = (x, y) => `left:${Math.max(0, pct(x))}%;width:${Math.max(0, Math.min(100, pct(y)) - Math.max(0, pct(x)))}%`, seen = (x, y) => y >= a && x <= b;
  const bar = (name, cls, x, y, tip, body) => html`<button type="button" class="${cls}" data-css="${box(x, y)}" data-zoom="${x},${y}" data-tip="${tip}" aria-label="${name}: ${tip.replaceAll('\n', ', ')}">${body}</button>`;
  const from = t => t < start ? 'before ' + clock(start) : clock(t, 3);
  const shards = l => {
    const un = l.unhosted || [], what = l.name.split('/')[0] + 's', u = un.map((x, i) => [ms(x.at), un[i + 1] ? ms(un[i + 1].at) : at, x.count]), top = Math.max(0, ...u.map(x => x[2])), cur = un.at(-1)?.count;
    return [html`<span class="base"></span>${u.filter(x => x[2] && seen(x[0], x[1])).map(x => html`<button class="area" type="button" data-css="${box(x[0], x[1])};height:${5 + x[2] / top * 19}px" data-zoom="${x[0]},${x[1]}" data-tip="${x[2]} of ${l.shards} ${what} without a host\n${clock(x[0], 3)} – ${clock(x[1], 3)} (${exact(x[1] - x[0])})" aria-label="${l.name}: ${x[2]} ${what} without a host for ${exact(x[1] - x[0])}"></button>`)}`,
      cur ? html`<b class="bad">${cur} now</b>` : html`<span class="muted">${top ? `most ${top}` : 'none'}</span>`];
  };
  const terms = l => {
    const z = analyse(l), member = l.kind === 'member', spans = l.spans || [], stuck = spans.find(s => s.stop && !s.run_to);
    const term = s => {
      const lf = ms(s.from), lt = s.to ? ms(s.to) : at, rf = s.run_from ? ms(s.run_from) : lf, rt = s.run_from ? (s.run_to ? ms(s.run_to) : at) : lt, what = s.run_from ? '' : 'held; whether it ran is not known\n';
      const w = px(Math.min(rt, b) - Math.max(rf, a)), tip = `${l.name}\n${s.holder}${s.token ? `, token ${s.token}` : ''}\n${what}${from(rf)} – ${s.run_to || s.to && !s.run_from ? clock(rt, 3) : 'now'}${s.ended ? `\n${s.ended}${s.reason ? ': ' + s.reason : ''}` : ''}`;
      const txt = member ? (w > 46 ? s.holder : '') : w > 120 ? `${s.holder} · ${s.token || ''}` : w > 56 ? s.token : w > 18 ? short(s.holder) : '';
      const run = (x, y, extra, t) => seen(x, y) ? bar(l.name, `run ${cn(s.holder)} ${extra}`, x, y, tip, html`<span>${t}</span>`) : '';
      const kind = s.run_from ? '' : 'held';
      return html`${seen(lf, lt) ? html`<span class="lease ${cn(s.holder)}" data-css="${box(lf, lt)}"></span>` : ''}${s.stop ? [run(rf, ms(s.stop), kind, txt), run(ms(s.stop), rt, 'stuck', '')] : run(rf, rt, kind, txt)}`;
    };
    const gap = g => { const w = px(g.to - g.from); return bar(l.name, `gap ${member || g.idle ? 'away' : g.planned && w < 3 ? 'small' : ''}`, g.from, g.to, `${member ? 'Away' : 'Nothing ran'} for ${lengthOf(g)}${g.planned ? ', planned' : ''}\n${clock(g.from, 3)} – ${g.open ? 'now' : clock(g.to, 3)}\n${g.why}`, w > 64 && !g.idle && (mini || g.planned || member) ? exact(g.to - g.from) : ''); };
    const open = z.gaps.find(g => g.open), free = z.gaps.filter(g => !g.planned && seen(g.from, g.to));
    const sum = z.twice.length ? html`<b class="bad">ran twice</b>` : open?.idle ? html`<span class="muted">free</span>` : open ? html`<b class="bad">down ${dur(open.to - open.from)}</b>` : stuck ? html`<b class="warn">stopping ${dur(at - ms(stuck.stop)).replace(/ \d+ s$/, '')}</b>`
      : z.sum ? html`<span title="${plural(z.count, 'gap')}, ${exact(z.sum)} in all">${z.count > 1 ? html`<span class="muted">${z.count} ×</span> max ` : ''}${exact(z.longest)}</span>` : html`<span class="muted">${z.known ? 'no gap' : 'not known'}</span>`;
    return [html`${spans.map(term)}${z.gaps.filter(g => seen(g.from, g.to)).map(gap)}${mini || member ? '' : flags(free, g => (pct(Math.max(g.from, a)) + pct(Math.min(g.to, b))) / 2, width)}${z.twice.map(t => html`<span class="twice" data-css="${box(t[0], t[1])}"></span>`)}`, sum];
  };
  let last = '';
  const row = l => {
    const [body, sum] = l.kind === 'shards' ? shards(l) : terms(l), group = GROUPS[l.kind] || 'Others', head = !mini && group !== last ? html`<div class="group">${group}</div>` : '';
    last = group;
    return html`${head}<div class="lane"><a href="${nameLink(l.name)}" title="${l.name}">${mini ? l.name.replace(/^singleton\//, '') : l.name}</a><div class="track">${lines}${body}</div><span class="sum">${sum}</span></div>`;
  };
  const scale = html`<div class="lane axis"><span>UTC</span><div class="track">${ticks.map(t => html`<span class="${pct(t) < 4 ? 'first' : pct(t) > 96 ? 'last' : ''}" data-css="left:${pct(t)}%">${text(t)}</span>`)}</div><span class="sum">${mini ? '' : 'nothing ran'}</span></div>`;
  return html`<div class="lanes ${cls}">${mini ? '' : scale}${lanes.map(row)}${scale}</div>`;
}
const FEW = 30; // lanes of a kind, unless all are asked for
views.timeline = p => {
  const A = ms(snap.timeline.from), B = at, a = +p.get('a') || A, b = +p.get('b') || B, q = (p.get('q') || '').toLowerCase(), zoomed = p.has('a') || p.has('b');
  const order = ['leader', 'coordinator', 'singleton', 'application', 'shards', 'member'], rank = l => (order.indexOf(l.kind) + 1) || 4.5;
  const work = snap.timeline.lanes.filter(l => l.spans && l.kind !== 'member').map(l => [l, analyse(l)]), seenWork = work.filter(([, z]) => z.known), twice = seenWork.reduce((n, [, z]) => n + z.twice.length, 0);
  const terms = seenWork.reduce((n, [l]) => n + new Set(l.spans.map(s => s.token)).size, 0), changed = new Map(work.map(([l, z]) => [l.name, z.count + z.twice.length]));
  const sorted = [...snap.timeline.lanes].sort((x, y) => rank(x) - rank(y) || (changed.get(y.name) || 0) - (changed.get(x.name) || 0) || (x.name < y.name ? -1 : 1)), counts = {};
  const lanes = sorted.filter(l => !q || l.name.toLowerCase().includes(q)).filter(l => (counts[l.kind] = (counts[l.kind] || 0) + 1) <= FEW || p.has('all')), hidden = Object.values(counts).reduce((n, c) => n + Math.max(0, c - FEW), 0);
  const gaps = seenWork.flatMap(([l, z]) => z.gaps.map(g => ({ ...g, name: plain(l.name) }))), un = gaps.filter(g => !g.planned), pl = gaps.filter(g => g.planned && !g.open), down = gaps.filter(g => g.open && !g.idle), closed = un.filter(g => !g.open);
  const longest = gs => exact(Math.max(0, ...gs.map(g => g.to - g.from))), error = snap.cluster.clock_error_ms;
  const events = [...older, ...snap.events].filter(e => ms(e.at) >= a && ms(e.at) <= b && (!q || JSON.stringify(e).toLowerCase().includes(q))).reverse(), most = +p.get('n') || 40;
  const verdict = !seenWork.length ? 'Who held what' : twice ? `${plural(twice, 'overlap')}: something ran twice` : snap.timeline.complete ? 'Nothing ran twice' : 'Nothing is known to have run twice';
  return html`<div class="verdict"><span class="sign ${twice ? 'bad' : seenWork.length ? '' : 'warn'}" aria-hidden="true">${twice ? '!' : seenWork.length ? '✓' : '?'}</span><div><h1>${verdict}${down.length ? html`<span class="bad">; ${down.length > 3 ? `${down.length} names do` : `${down.map(g => g.name).join(', ')} ${down.length === 1 ? 'does' : 'do'}`} not run</span>` : ''}</h1>
    <p class="muted">${seenWork.length ? html`${plural(terms, 'term')} of ${plural(seenWork.length, 'name')} since ${clock(A)}, as the nodes tell; ${error == null ? 'how far their clocks differ is not known' : `their clocks agree within ${dur(error)}`}.
    Nothing ran: ${down.slice(0, 3).map(g => html`<b class="bad">${g.name} for ${dur(g.to - g.from)} until now</b>, `)}${plural(closed.length, 'unplanned gap')}${closed.length ? ` of at most ${longest(closed)}` : ''}, ${pl.length} planned${pl.length ? ` of at most ${longest(pl)}` : ''}.` : 'Whether work ran, and for how long nothing ran, nodes know, not records.'}
    ${seenWork.length && !snap.timeline.complete ? html`<b>Not complete:</b> a node that knew more is gone, or its journal does not reach back as far.` : ''}</p></div></div>${fromRecords()}
  <div class="card"><div class="row between"><div class="row"><div class="seg" role="group" aria-label="Zoom"><button class="btn" type="button" data-win="in" title="+">Zoom in</button><button class="btn" type="button" data-win="out" title="−" ${zoomed ? '' : html`disabled`}>Zoom out</button><button class="btn" type="button" data-win="fit" title="0">All</button></div><div class="seg"><button class="btn" type="button" data-win="left" aria-label="Earlier">←</button><button class="btn" type="button" data-win="right" aria-label="Later">→</button></div></div>
    <span class="small muted num">${clock(a, zoomed ? 3 : 0)} – ${clock(b, zoomed ? 3 : 0)} · ${dur(b - a)} · choose a bar or a gap to zoom to it</span></div>${lanesOf(lanes, a, b)}${hidden && !p.has('all') ? html`<p class="top8"><button class="btn" type="button" data-set="all=1">Show ${plural(hidden, 'more name')}</button></p>` : ''}
    <p class="small muted top8"><span class="swatch work"></span>work ran (number: node, token) · thin line: the lease’s record · <span class="swatch gone"></span>nothing ran · <span class="swatch stuck"></span>told to stop, still runs</p></div>
  <div class="tools"><h2 class="flat">Events</h2><input type="search" id="q" value="${p.get('q') || ''}" placeholder="Search names and events" aria-label="Search names and events" autocomplete="off" spellcheck="false"><span class="muted num">${events.length} of ${older.length + snap.events.length}</span></div>
  <div class="card scroll tcards ev"><table><thead><tr><th>Time</th><th>Node</th><th>Event</th><th>Name</th><th>Token</th><th>Details</th></tr></thead><tbody>${events.slice(0, most).map(eventRow)}</tbody></table></div>
  <p class="row top8">${events.length > most ? html`<button class="btn" type="button" data-set="n=${most * 5}">Show more of ${events.length}</button>` : ''}${snap.events.length >= 500 ? html`<button class="btn" type="button" data-older="1">Load older events</button>` : ''}</p>`;
};
const wrongs = ['lost', 'gave up', 'not stopping', 'expired', 'hostless'], oddities = ['renewal failed', 'cold start', 'order not kept', 'entity crashed', 'child ended', 'yielded', 'overrun'];
const eventRow = e => html`<tr data-key="${e.id}"><td class="num nowrap" title="${e.at}">${clock(ms(e.at), 3)}</td><td>${e.node ? node(e.node) : html`<span class="muted">store</span>`}</td><td class="nowrap ${wrongs.includes(e.kind) ? 'bad' : oddities.includes(e.kind) ? 'warn' : ''}">${e.kind}${e.count ? ` × ${e.count}` : ''}</td>
  <td class="mono wide">${e.name?.replace(/^(session\/.{6}).*/, '$1…')}</td><td class="opt">${tok(e.token)}</td><td class="muted wide">${[e.peer && `peer ${e.peer}`, e.took_ms != null && dur(e.took_ms), e.reason, e.source && `seen in the ${e.source}`].filter(Boolean).join(' · ')}</td></tr>`;
async function loadOlder() {
  const r = await fetch(api + 'events');
  if (!r.ok) return toast((await r.json()).error.text, true);
  const first = ms(snap.events[0]?.at);
  older = ((await r.json()).events || []).filter(e => ms(e.at) < first);
  toast(`${plural(older.length, 'older event')}`); redraw();
}

// ---- the page -----------------------------------------------------------------------------------
const with_ = (p, k, v) => { const x = new URLSearchParams(p); v ? x.set(k, v) : x.delete(k); return x.toString(); };
function route() { const [path, qs] = location.hash.slice(2).split('?'); return [Object.hasOwn(views, path) ? path : 'overview', new URLSearchParams(qs || '')]; }
function set(changes, replace) {
  const [v, p] = route();
  for (const [k, x] of Object.entries(changes)) x === '' || x == null ? p.delete(k) : p.set(k, x);
  const h = `#/${v}${[...p].length ? '?' + p : ''}`;
  if (replace) { history.replaceState(null, '', h); draw(); } else location.hash = h;
}
// morph makes an element like another and keeps what need not change: the focus, what is selected
// or open, and what the mouse is over.
function morph(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || a.dataset?.key !== b.dataset?.key) return a.replaceWith(styled(b));
  if (a.dataset?.same && a.dataset.same === b.dataset.same) return;
  if (a.nodeType !== 1) { if (a.data !== b.data) a.data = b.data; return; }
  const kept = { style: 1, ...a.nodeName === 'DETAILS' && { open: 1 }, ...a.nodeName === 'CANVAS' && { width: 1, height: 1 } };
  for (const { name } of [...a.attributes]) if (!b.hasAttribute(name) && !kept[name]) a.removeAttribute(name);
  for (const { name, value } of b.attributes) if (!kept[name] && a.getAttribute(name) !== value) { a.setAttribute(name, value); if (name === 'data-css') a.style.cssText = value; if (name === 'value' && a !== document.activeElement) a.value = value; }
  children(a, b);
}
const keyOf = x => x?.dataset?.key;
function children(a, b) {
  const to = [...b.childNodes], keys = new Set(to.map(keyOf)), old = new Map();
  for (const x of [...a.childNodes]) { const k = keyOf(x); if (k != null) keys.has(k) ? old.set(k, x) : x.remove(); }
  let from = a.firstChild;
  for (const x of to) {
    const k = keyOf(x), have = k != null ? old.get(k) : keyOf(from) == null ? from : null;
    if (!have) { a.insertBefore(styled(x), from); continue; }
    if (have === from) from = from.nextSibling; else a.insertBefore(have, from);
    morph(have, x);
  }
  while (from) { const next = from.nextSibling; from.remove(); from = next; }
}
function styled(el) {
  if (el.nodeType === 1) for (const x of [el, ...$$('[data-css]', el)]) if (x.dataset.css) x.style.cssText = x.dataset.css;
  return el;
}
function render(el, safe) { const t = document.createElement('template'); t.innerHTML = show(safe); children(el, t.content); }
let lastView = '', opener = '', waiting = 0;
const redraw = () => { waiting ||= requestAnimationFrame(draw); };
function draw() {
  cancelAnimationFrame(waiting); waiting = 0;
  if (!snap) return;
  const [v, p] = route(), changed = v !== lastView, first = !lastView;
  const wrong = { overview: snap.problems.filter(x => x.severity === 'bad').length, singletons: snap.singletons.filter(troubled).length };
  render($('#nav'), VIEWS.map(([id, label, d]) => html`<a href="#/${id}" ${v === id ? html`aria-current="page"` : ''}><svg viewBox="0 0 24 24" aria-hidden="true"><path d="${d}"/></svg>${label}${wrong[id] ? html`<span class="count" title="${wrong[id]} wrong">${wrong[id]}</span>` : ''}</a>`));
  const acts = snap.capabilities.actions.length > 0;
  $('#mode').textContent = acts ? 'actions on' : 'read-only';
  $('#mode').className = 'mode' + (acts ? ' act' : '');
  $('#mode').title = snap.capabilities.user ? visible(snap.capabilities.user) : '';
  document.title = `${wrong.overview ? `(${wrong.overview}) ` : ''}${VIEWS.find(x => x[0] === v)[1]} · Holdfast`;
  if (changed) { $('#main').replaceChildren(); hideTip(); }
  render($('#main'), views[v](p));
  if (v === 'leases' && changed) render($('#main'), views[v](p)); // the window is known now
  for (const c of $$('[data-canvas]')) paintMap(c);
  const drawer = $('#drawer'), name = v === 'leases' && p.get('name');
  document.body.classList.toggle('open', !!name);
  if (name) {
    const was = drawer.hidden;
    render(drawer, html`<button class="icon close" type="button" data-set="name=" aria-label="Close">✕</button>${leaseDetail(name)}`);
    drawer.hidden = false;
    if (was) { opener = name; drawer.focus({ preventScroll: true }); }
  } else if (!drawer.hidden) {
    drawer.hidden = true;
    $$('.rowlink').find(a => a.textContent === visible(opener))?.focus();
  }
  if (changed && !first) { scrollTo(0, 0); if (!name) $('#main').focus({ preventScroll: true }); }
  if (changed) $('[data-pick]')?.scrollIntoView({ block: 'center' });
  lastView = v;
  tick();
}
function tick() {
  const live = $('#live'), text = lost ? `not connected since ${clock(lost)}` : snap ? 'live' : 'connecting';
  if (live.textContent !== text) live.textContent = text;
  live.title = failure;
  live.classList.toggle('off', text !== 'live');
  document.body.classList.toggle('lost', !!lost);
  if (!snap) return;
  const t = now();
  const say = (el, text) => { if (el.textContent !== text) el.textContent = text; };
  for (const el of $$('[data-since]')) say(el, dur(t - +el.dataset.since));
  const fill = (el, part, low) => { el.firstChild.style.width = `${Math.min(100, Math.max(0, part || 0) * 100)}%`; el.classList.toggle('low', low); };
  for (const el of $$('[data-left]')) { const l = leaseBy.get(decodeURIComponent(el.dataset.left)); if (l) fill(el, leftOf(l) / l.ttl_ms, leftOf(l) < l.ttl_ms * .4); }
  for (const el of $$('[data-lefttext]')) { const l = leaseBy.get(decodeURIComponent(el.dataset.lefttext)), x = l ? leftOf(l) : NaN; say(el, isFinite(x) ? dur(x) : 'not known'); }
  const trusted = s => Math.max(0, s.trusted_ms - (t - got.nodes));
  for (const el of $$('[data-trust]')) { const s = sessionBy.get(el.dataset.trust); if (s) fill(el, trusted(s) / s.ttl_ms, !!s.failed); }
  for (const el of $$('[data-trusttext]')) { const s = sessionBy.get(el.dataset.trusttext); if (s) say(el, dur(trusted(s))); }
}
addEventListener('hashchange', draw);
addEventListener('resize', redraw);
let firstRow = -1;
addEventListener('scroll', () => {
  const body = route()[0] === 'leases' && $('#rows');
  if (!body) return;
  const first = Math.floor(-body.getBoundingClientRect().top / rowHeight() / 4);
  if (first !== firstRow) { firstRow = first; redraw(); }
}, { passive: true });
setInterval(() => { if (!document.hidden) tick(); }, 500);
function moveWindow(how) {
  const [, p] = route(), A = ms(snap.timeline.from), B = at; let a = +p.get('a') || A, b = +p.get('b') || B; const w = b - a, m = (a + b) / 2;
  if (how === 'fit') return set({ a: '', b: '' });
  if (how === 'in') [a, b] = [m - w / 4, m + w / 4];
  if (how === 'out') [a, b] = [m - w, m + w];
  if (how === 'left') [a, b] = [a - w / 3, b - w / 3];
  if (how === 'right') [a, b] = [a + w / 3, b + w / 3];
  if (a < A) [a, b] = [A, Math.min(B, b + A - a)];
  if (b > B) [a, b] = [Math.max(A, a + B - b), B];
  if (b - a < 2) return;
  set(b - a >= B - A ? { a: '', b: '' } : { a: Math.round(a), b: Math.round(b) });
}
function zoomTo(x, y) {
  const A = ms(snap.timeline.from), B = at, pad = Math.max(2, (Math.min(y, B) - Math.max(x, A)) * .35), a = Math.max(A, Math.round(Math.max(x, A) - pad)), b = Math.min(B, Math.round(Math.min(y, B) + pad));
  hideTip();
  route()[0] === 'timeline' ? set({ a, b }) : location.hash = `#/timeline?a=${a}&b=${b}`;
}

// ---- actions ------------------------------------------------------------------------------------
function open_(safe) { const d = $('#dialog'); d.replaceChildren(); render(d, safe); d.showModal(); }
function ask(action, of) {
  const s = snap.singletons.find(s => s.name === of), l = leaseBy.get(of), name = html`<span class="mono">${of}</span>`;
  const shards = snap.types.map(t => [t.type, t.nodes.find(x => x.id === of)?.shards || 0]).filter(x => x[1]).map(([t, n]) => `${n} of ${t}`).join(', ');
  const targets = (s?.candidates || snap.nodes.filter(n => n.state === 'up').map(n => ({ id: n.id, eligible: true }))).filter(c => c.id !== s?.host?.id);
  const [title, text, verb, request, command] = {
    drain: () => [html`Drain ${name}?`, html`Its shards and partitions${shards ? ` (${shards})` : ''} move to other nodes, and its singletons where another node may host them. Messages follow in order. It goes on routing. “Undrain” reverts it.`, 'Drain', () => ({ action, node: of }), `drain ${of}`],
    undrain: () => [html`Let ${name} host again?`, html`Shards move back to it as balance asks for.`, 'Undrain', () => ({ action, node: of }), `undrain ${of}`],
    move: () => [html`Move ${name}?`, html`Its host${s?.host ? ` ${s.host.id}` : ''} stops it and hands it over: a planned change, with a gap of milliseconds.
      <label class="field">To <select id="to"><option value="">any node that may host it</option>${targets.map(c => html`<option value="${enc(c.id)}" ${c.eligible ? '' : html`disabled`}>${c.id}${c.why_not ? ` – ${c.why_not}` : ''}</option>`)}</select></label>`, 'Move',
      () => ({ action, name: of, to: decodeURIComponent($('#to').value) || undefined, token: s?.token }), `transfer ${of}`],
    release: () => [html`Ask for the release of ${name}?`, html`Its holder${l?.owner ? ` ${l.owner.id}` : ''} is asked to end its work and to release it. The lease is not taken from work that runs.`, 'Release', () => ({ action, name: of, token: l?.token }), `release ${of}`],
  }[action]();
  open_(html`<h2 id="asked">${title}</h2><p>${text}</p><p class="muted small top8">The same as <code>holdfast ${command}</code>.${snap.capabilities.user ? ` It is logged as asked for by ${snap.capabilities.user}.` : ''}</p>
    <p id="refused" class="note" role="alert" hidden></p><div class="row buttons"><button class="btn" type="button" data-close autofocus>Cancel</button><button class="btn danger" type="button" id="confirm">${verb}</button></div>`);
  $('#confirm').onclick = async () => {
    const b = $('#confirm'), no = $('#refused');
    b.disabled = true; no.hidden = true;
    try {
      const r = await fetch(api + 'actions', { method: 'POST', headers: { 'Content-Type': 'application/json', 'Holdfast-Action': '1' }, body: JSON.stringify(request()) });
      const answer = await r.json();
      if (!r.ok) throw new Error(answer.error.text);
      $('#dialog').close(); toast(answer.text);
    } catch (e) { no.textContent = visible(e.message); no.hidden = false; b.disabled = false; b.focus(); }
  };
}
let toasting;
function toast(text, bad) {
  const t = $('#toast');
  t.textContent = visible(text); t.className = bad ? 'shown bad' : 'shown';
  clearTimeout(toasting); toasting = setTimeout(() => { t.className = ''; }, 6000);
}

// ---- mouse and keys -----------------------------------------------------------------------------
document.addEventListener('click', e => {
  const canvas = e.target.closest('[data-canvas]');
  if (canvas) {
    const id = decodeURIComponent(canvas.dataset.canvas), size = canvas.clientWidth / columns(canvas), k = Math.floor(e.offsetY / size) * columns(canvas) + Math.floor(e.offsetX / size);
    if (k < typeBy(id).shards) pickShard(id, k);
    return;
  }
  const b = e.target.closest('[data-set],[data-shard],[data-zoom],[data-win],[data-act],[data-older],[data-close]'), d = b?.dataset;
  if (!b) return;
  if (d.set != null) { const i = d.set.indexOf('='); set({ [d.set.slice(0, i)]: d.set.slice(i + 1) }); }
  else if (d.shard) set({ shard: decodeURIComponent(d.shard) }, true);
  else if (d.zoom) zoomTo(...d.zoom.split(',').map(Number));
  else if (d.win) moveWindow(d.win);
  else if (d.act) ask(d.act, decodeURIComponent(d.of));
  else if (d.older) loadOlder();
  else $('#dialog').close();
});
document.addEventListener('input', e => { if (e.target.id === 'q') set({ q: e.target.value }, true); });
document.addEventListener('keydown', e => {
  const cell = e.target.closest?.('[data-shard]'), canvas = e.target.closest?.('[data-canvas]'), arrow = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 'down', ArrowUp: 'up' }[e.key];
  if (cell && arrow) {
    const cells = $$('.cell', cell.parentNode), cols = getComputedStyle(cell.parentNode).gridTemplateColumns.split(' ').length, to = cells[cells.indexOf(cell) + ({ down: cols, up: -cols }[arrow] || arrow)];
    e.preventDefault();
    if (to) { set({ shard: decodeURIComponent(to.dataset.shard) }, true); to.focus(); }
    return;
  }
  if (canvas && arrow) {
    const id = decodeURIComponent(canvas.dataset.canvas), pick = route()[1].get('shard') || '', k = pick.startsWith(id + '/') ? +pick.slice(id.length + 1) + ({ down: columns(canvas), up: -columns(canvas) }[arrow] || arrow) : 0;
    e.preventDefault();
    if (k >= 0 && k < typeBy(id).shards) pickShard(id, k);
    return;
  }
  if (e.key === 'Escape') { hideTip(); if (!$('#drawer').hidden && !$('#dialog').open) set({ name: '' }); return; }
  if (e.target.matches('input, select, textarea') || e.ctrlKey || e.metaKey || e.altKey || $('#dialog').open) return;
  if (e.key >= '1' && e.key <= '6') location.hash = `#/${VIEWS[e.key - 1][0]}`;
  else if (e.key === '/') { e.preventDefault(); if ($('#q')) $('#q').focus(); else { location.hash = '#/leases'; draw(); $('#q')?.focus(); } }
  else if (e.key === '?') $('#keys').click();
  else if (e.key === 't') $('#theme').click();
  else if (snap && route()[0] === 'timeline') { const how = { '+': 'in', '=': 'in', '-': 'out', 0: 'fit', ArrowLeft: 'left', ArrowRight: 'right' }[e.key]; if (how) { e.preventDefault(); moveWindow(how); } }
});
let tip = null;
function hideTip() { tip?.remove(); tip = null; }
function showTip(el) {
  hideTip();
  tip = Object.assign(document.createElement('div'), { className: 'tip', textContent: el.dataset.tip });
  document.body.append(tip);
  const r = el.getBoundingClientRect(), w = tip.offsetWidth, x = Math.min(innerWidth - w - 8, Math.max(8, Math.max(r.left, 0) + Math.min(r.width, 300) / 2 - w / 2)), below = r.bottom + tip.offsetHeight + 14 < innerHeight;
  tip.style.left = x + 'px';
  tip.style.top = (below ? r.bottom + 8 : r.top - tip.offsetHeight - 8) + 'px';
}
for (const [on, off] of [['mouseover', 'mouseout'], ['focusin', 'focusout']]) {
  document.addEventListener(on, e => { const el = e.target.closest('[data-tip]'); if (el) showTip(el); });
  document.addEventListener(off, hideTip);
}
const dark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
try { const t = localStorage.getItem('holdfast-theme'); if (t) document.documentElement.dataset.theme = t; } catch { /* no storage: as the system has it */ }
$('#theme').onclick = () => {
  const t = dark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = t;
  try { localStorage.setItem('holdfast-theme', t); } catch { /* not kept */ }
  redraw();
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
$('#keys').onclick = () => open_(html`<h2 id="asked">Keys</h2><dl class="kv keys"><dt><kbd>1</kbd> – <kbd>6</kbd></dt><dd>views</dd><dt><kbd>/</kbd></dt><dd>search</dd><dt><kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd></dt><dd>shards; earlier and later in the timeline</dd><dt><kbd>+</kbd> <kbd>−</kbd> <kbd>0</kbd></dt><dd>zoom the timeline</dd><dt><kbd>t</kbd></dt><dd>light or dark</dd><dt><kbd>Esc</kbd></dt><dd>close</dd></dl><div class="row buttons"><button class="btn" type="button" data-close autofocus>Close</button></div>`);
follow();
