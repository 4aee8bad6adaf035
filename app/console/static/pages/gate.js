// The gate in one picture: three tools on the left, the wall with its opening, and a row for each card that tool_browse
// could give, with a tile for each tool. Ribbons are as wide as the calls that went through.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get } from "../api.js";
import { useLive } from "../live.js";
import { followed, go, href } from "../route.js";
import { Failure, Figures, Fragment, Nothing, Section, Tile, Title, announce, html, ms, number, outcome, plain, plural, useLoad } from "../ui.js";
import { Waiting } from "./waiting.js";

const MOST_BUTTONS = 40; // tiles of a row that are buttons; above it a canvas draws them
const MOST_RIBBONS = 50;
const MOST_WHOLE = 6; // servers whose cards have a row each; of more, each without trouble is one row
const LOWEST_CENTRE = 300; // so that the model's side is seen without scrolling
const MOST_LIVE = matchMedia("(min-width: 1700px) and (min-height: 1000px)").matches ? 20 : 13;
const FLIGHT_MS = 900;
const KINDS = { stdio: "stdio", http: "streamable HTTP", sse: "SSE", openapi: "OpenAPI", python: "Python", embedded: "in this program" };

const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const heat = (calls) => (calls < 1 ? 0 : calls < 3 ? 1 : calls < 10 ? 2 : calls < 30 ? 3 : 4);
const sum = (values) => values.reduce((all, each) => all + each, 0);

// What was called: counts by tool, kept up to date by the live stream. All news of a frame is one change.
function useTraffic() {
  const [traffic, setTraffic] = useState(null);
  const waiting = useRef([]);
  const frame = useRef(0);
  const load = () => get("traffic").then((found) => setTraffic(withOthers(found)), () => {});
  useEffect(() => {
    load();
    return () => cancelAnimationFrame(frame.current);
  }, []);
  const flush = () => {
    frame.current = 0;
    const news = waiting.current;
    waiting.current = [];
    setTraffic((now) => now && added(now, news));
  };
  useLive((event, data) => {
    if (event === "begun" || event === "gap") load();
    if (event !== "tokens" && event !== "call") return;
    waiting.current.push([event, data]);
    frame.current ||= requestAnimationFrame(flush);
  });
  return traffic;
}

// Calls that no model made with tool_execute: over /operations, a face with all tools, the console.
function withOthers(traffic) {
  const { calls, refused } = traffic.totals;
  return { ...traffic, meta: { ...traffic.meta, other: Math.max(0, calls + refused - traffic.meta.tool_execute) } };
}

function added(traffic, news) {
  const totals = { ...traffic.totals }, tools = { ...traffic.tools };
  let meta = traffic.meta;
  for (const [event, data] of news) {
    if (event === "tokens") {
      totals.given_tokens = data.given;
      totals.naive_tokens = data.naive;
      meta = data.meta;
    } else if (data.operation === "execute" && wasRefused(data)) {
      totals.refused += 1;
    } else if (data.operation === "execute") {
      const failed = data.outcome === "failed" || data.tool === "error" ? 1 : 0;
      const [calls, bad, p50] = tools[data.tool_id] || [0, 0, null];
      totals.calls += 1;
      totals.failed += failed;
      tools[data.tool_id] = [calls + 1, bad + failed, p50 ?? data.duration_ms];
    }
  }
  return withOthers({ ...traffic, totals, meta, tools });
}

const wasRefused = (call) => ["denied", "invalid", "approval_required"].includes(call.outcome) || (call.outcome === "cancelled" && !call.left);

// The rows with what was called in each: {row, tools, calls, failed, p50}. What has not changed is the same object again.
function useCounted(map, placeOf, traffic) {
  const last = useRef(null);
  return useMemo(() => {
    const of = traffic?.tools || {};
    const before = last.current?.map === map ? last.current : { of: {}, rows: uncalled(map) };
    const known = Object.keys({ ...before.of, ...of }).filter((id) => of[id] !== before.of[id] && placeOf.has(id));
    const news = new Set(known);
    const rows = [...before.rows];
    for (const place of new Set(known.map((id) => placeOf.get(id)))) rows[place] = recounted(rows[place], news, of);
    last.current = { map, of, rows };
    return rows;
  }, [map, traffic]);
}

function uncalled(map) {
  const { id, name, writes, tokens, about } = map.columns;
  const odd = new Set(map.suspicious);
  return map.rows.map((row) => {
    const tools = [];
    for (let at = row.first; at < row.first + row.count; at++) {
      tools.push({ at, id: id[at], name: name[at], writes: !!writes[at], tokens: tokens[at], odd: odd.has(id[at]), about: about[at], calls: 0, failed: 0, p50: null });
    }
    return { row, tools, calls: 0, failed: 0, p50: null };
  });
}

function recounted({ row, tools: before }, news, of) {
  const tools = before.map((tool) => {
    if (!news.has(tool.id)) return tool;
    const [calls, failed, p50] = of[tool.id] || [0, 0, null];
    return { ...tool, calls, failed, p50 };
  });
  return summed(row, tools);
}

function summed(row, tools) {
  const timed = tools.filter((tool) => tool.p50 != null).sort((a, b) => a.p50 - b.p50);
  const half = sum(timed.map((tool) => tool.calls)) / 2;
  let seen = 0;
  const middle = timed.find((tool) => (seen += tool.calls) >= half);
  return { row, tools, calls: sum(tools.map((tool) => tool.calls)), failed: sum(tools.map((tool) => tool.failed)), p50: middle?.p50 ?? null };
}

const isTroubled = (upstream) => upstream.state !== "ready" || !!upstream.error;

// The groups of rows to draw, those of servers in trouble first: {groups, rows, at}, with the place of each row of the
// map in *at*. Of many servers, each without trouble is one row.
function grouped(map, counted) {
  const own = map.upstreams.map(() => []);
  counted.forEach((each, place) => own[each.row.upstream].push(place));
  const top = map.path === "/" || !map.path;
  // A server without a row is still a server: one that is down has none.
  const order = [...map.upstreams.keys()].filter((place) => own[place].length || top);
  const many = top && order.length > MOST_WHOLE;
  if (many) order.sort((a, b) => isTroubled(map.upstreams[b]) - isTroubled(map.upstreams[a]));
  const rows = [], at = [];
  const add = (each, places) => {
    places.forEach((place) => (at[place] = rows.length));
    return { ...each, place: rows.push(each) - 1 };
  };
  const groups = order.map((place) => {
    const upstream = map.upstreams[place], places = own[place];
    if (!many || isTroubled(upstream) || !places.length) return { upstream, list: places.map((one) => add(counted[one], [one])) };
    const row = { path: `/${upstream.name}`, label: upstream.name, upstream: place, tokens: sum(places.map((one) => counted[one].row.tokens)) };
    return { upstream, folded: true, list: [add(summed(row, places.flatMap((one) => counted[one].tools)), places)] };
  });
  return { groups, rows, at };
}

// The places of the rows by the ids of their tools.
function placed(map) {
  const places = new Map();
  map.rows.forEach((row, place) => map.columns.id.slice(row.first, row.first + row.count).forEach((id) => places.set(id, place)));
  return places;
}

export default function Gate({ query, me }) {
  const path = query.path || "/";
  const map = useLoad((signal) => get(`map?path=${encodeURIComponent(path)}`, { signal }), [path]);
  const traffic = useTraffic();
  const [paused, setPaused] = useState(false);
  useLive((event) => (event === "catalog" || event === "server" || event === "begun") && map.again());
  const found = map.value;
  const totals = traffic?.totals;
  // The totals come first; the map of ten thousand tools takes longer.
  const behind = found?.model.behind ?? totals?.behind;
  const empty = found && path === "/" && !behind && !found.upstreams.length;
  return html`<${Fragment}>
    <div class="top">
      <${Title} name="Gate">${behind == null ? "The gate" : `${plural(behind, "tool")} behind the gate, 3 in the prompt`}<//>
      ${totals && html`<${Figures} items=${[
        ["Calls run", number(totals.calls)],
        ["Median", ms(totals.median_ms)],
        ["Failed", number(totals.failed), totals.failed ? "bad" : ""],
        ["Refused", number(totals.refused)],
        ["Waiting", number(totals.waiting), totals.waiting ? "wait" : ""],
      ]} />`}
    </div>
    ${found && html`<p class="sees">The model sees ${plural(found.model.tools, "tool")}, ${number(found.model.tokens)} tokens.</p>`}
    ${totals && html`<${Saved} totals=${totals} />`}
    <${Failure} error=${map.error} again=${map.again} />
    <div class="cols">
      <section aria-labelledby="map">
        <div class="sec">
          <h2 id="map" class="crumbs"><${Crumbs} path=${path} /></h2>
          ${!empty && html`<${Legend} odd=${found?.suspicious.length} />`}
        </div>
        ${empty ? html`<${Nothing} read=${me.may.read} />` : found ? html`<${Picture} map=${found} traffic=${traffic} path=${path} paused=${paused} />` : !map.error && html`<p class="foot" role="status">Loading …</p>`}
      </section>
      <div class="aside">
        <${Waiting} most=${1} />
        <${Troubles} map=${found} />
        <${Live} paused=${paused} setPaused=${setPaused} />
      </div>
    </div>
  <//>`;
}

function Saved({ totals }) {
  const { given_tokens: given, naive_tokens: naive } = totals;
  if (!naive) return html`<p class="foot">No model has asked yet. What models are given, against every definition in the prompt, is shown here.</p>`;
  const share = Math.min(100, (given / naive) * 100);
  return html`<div class="saved">
    <div class="bar" role="img" aria-label=${`about ${number(given)} of ${number(naive)} tokens, ${share.toFixed(1)} percent`}><i style=${{ width: `${share}%` }} /></div>
    <p><span>Models were given about <b>${number(given)} tokens</b>, ${share.toFixed(1)}% of what it would have taken</span>
      <span>about ${number(naive)} with every definition in the prompt</span></p>
  </div>`;
}

function Crumbs({ path }) {
  const parts = path.split("/").filter(Boolean);
  if (!parts.length) return html`<span class="vh">The map: </span>/ <span class="all">all namespaces</span>`;
  const to = (count) => "/" + parts.slice(0, count).join("/");
  return html`<span class="vh">The map: </span><a href=${href("gate")} onClick=${followed("gate")} aria-label="all namespaces">/</a>${parts.map((part, place) =>
    place < parts.length - 1
      ? html`<a href=${href("gate", { path: to(place + 1) })} onClick=${followed("gate", { path: to(place + 1) })}>${part}</a>/`
      : part,
  )}`;
}

const Legend = ({ odd }) => html`<div class="legend">
  <span><${Tile} />reads</span><span><${Tile} writes />changes things</span>
  <span><${Tile} /><${Tile} heat=${1} /><${Tile} heat=${2} /><${Tile} heat=${3} /><${Tile} heat=${4} />calls</span>
  <span><${Tile} heat=${2} failed />failed</span>
  ${odd > 0 && html`<span><i class="t key held" aria-hidden="true" />suspicious</span>`}
</div>`;

// What needs somebody: servers that are down, definitions that are quarantined.
function Troubles({ map }) {
  if (!map) return null;
  const down = map.upstreams.filter((each) => each.state === "down" || each.error);
  const held = map.held || 0;
  if (!down.length && !held) return null;
  return html`<${Section} title="Needs attention" id="tr">
    <div class="foot">
      ${down.map(
        (each) => html`<p class="trouble" key=${each.name}><b><a href=${href("servers", { name: each.name })} onClick=${followed("servers", { name: each.name })}>${plain(each.name, 80)}</a> is ${each.state === "ready" ? "not well" : each.state}</b>${plain(each.error, 300)}</p>`,
      )}
      ${held > 0 && html`<p class="trouble held"><b><a href=${href("tools", { show: "held" })} onClick=${followed("tools", { show: "held" })}>${plural(held, "tool")} quarantined</a></b>${held === 1 ? "Its definition changed, is new or is suspicious. Nobody can call it until it is accepted." : "Their definitions changed, are new or are suspicious. Nobody can call them until they are accepted."}</p>`}
    </div>
  <//>`;
}

// The picture.

function Picture({ map, traffic, path, paused }) {
  const placeOf = useMemo(() => placed(map), [map]);
  const counted = useCounted(map, placeOf, traffic);
  const { groups, rows, at } = useMemo(() => grouped(map, counted), [map, counted]);
  const box = useRef(null), list = useRef(null);
  const [geometry, setGeometry] = useState(null);
  const [over, setOver] = useState(-1);
  const [tip, setTip] = useState(null);
  const flights = useFlights(placeOf, at, paused);
  useLayoutEffect(() => {
    const measure = () => {
      const top = box.current.getBoundingClientRect().top;
      // Rows stand below their servers, so their order is not that of the map.
      const middles = [];
      for (const row of list.current.querySelectorAll(".row")) {
        const at = row.getBoundingClientRect();
        middles[row.dataset.place] = at.top - top + at.height / 2;
      }
      setGeometry({ height: list.current.offsetHeight, end: list.current.offsetLeft - 8, middles });
    };
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(list.current);
    return () => watch.disconnect();
  }, [map]);
  const point = (event, tool) => {
    const around = box.current.getBoundingClientRect();
    const at = event.currentTarget.getBoundingClientRect();
    const x = event.clientX && event.type === "mousemove" ? event.clientX : at.left;
    const y = event.clientY && event.type === "mousemove" ? event.clientY + 8 : at.bottom;
    setTip({ tool, x: Math.max(0, Math.min(x - around.left, around.width - 290)), y: y - around.top + 8 });
  };
  const open = (tool) => go("tools", { id: tool.id });
  const keys = (event) => move(event, list.current, () => setTip(null));
  let first = true;
  const most = Math.max(...rows.map((one) => one.calls), 1);
  return html`<div class="pic" ref=${box} onMouseLeave=${() => setTip(null)} onKeyDown=${keys}>
    ${geometry && html`<${Flow} geometry=${geometry} rows=${rows} meta=${traffic?.meta || {}} model=${map.model} over=${over} flights=${flights} />`}
    <div class="rows" ref=${list} role="group" aria-label="Cards and their tools. Arrow keys move between tools.">
      <div class="hd" aria-hidden="true"><span /><span /><span>calls</span><span>failed</span><span>ms</span><span>tokens</span></div>
      ${groups.map(({ upstream, folded, list: own }) => html`<${Fragment} key=${upstream.name}>
        ${!folded && html`<${Upstream} upstream=${upstream} path=${path} />`}
        ${own.map(({ place, ...each }) => {
          const leads = first && !each.row.leaf && each.tools.length <= MOST_BUTTONS;
          if (leads) first = false;
          return html`<${Row} ...${each} place=${place} key=${each.row.path} leads=${leads} most=${most}
            enter=${() => setOver(place)} leave=${() => setOver(-1)} point=${point} unpoint=${() => setTip(null)} open=${open} hot=${flights.hot} />`;
        })}
      <//>`)}
    </div>
    ${tip && html`<div class="tip" role="presentation" style=${{ left: `${tip.x}px`, top: `${tip.y}px` }}>
      <code>${plain(tip.tool.name, 80)}</code><br />${plain(tip.tool.about, 120)}
      <small>${plural(tip.tool.calls, "call")}${tip.tool.failed ? `, ${tip.tool.failed} failed` : ""}${tip.tool.p50 != null ? `, ${ms(tip.tool.p50)}` : ""} · definition about ${number(tip.tool.tokens)} tokens</small>
    </div>`}
  </div>`;
}

function Upstream({ upstream }) {
  const state = upstream.state === "ready" ? "ready" : upstream.state === "down" ? "down" : "connecting";
  const to = { path: `/${upstream.name}` };
  return html`<div class="ns">
    <i class=${`dot ${state}`} aria-hidden="true" />
    ${upstream.tools ? html`<a href=${href("gate", to)} onClick=${followed("gate", to)}>${plain(upstream.name, 80)}</a>` : html`<b>${plain(upstream.name, 80)}</b>`}
    <span>${KINDS[upstream.kind] || upstream.kind}, ${upstream.state === "waiting" ? "waiting" : state}${state === "ready" && upstream.error ? ", not well" : ""}, ${plural(upstream.tools, "tool")}</span>
    ${upstream.error && html`<span class="err">${plain(upstream.error, 200)}</span>`}
  </div>`;
}

const tileLabel = (tool) =>
  `${plain(tool.name, 100)}, ${tool.writes ? "changes things" : "reads"}, ${plural(tool.calls, "call")}${tool.failed ? `, ${tool.failed} failed` : ""}${tool.odd ? ", suspicious" : ""}. ${plain(tool.about, 120)}`;

function Row({ place, row, tools, calls, failed, p50, leads, most, enter, leave, point, unpoint, open, hot }) {
  const leaf = row.leaf && tools.length === 1;
  const to = leaf ? ["tools", { id: tools[0].id }] : ["gate", { path: row.path }];
  const many = tools.length > MOST_BUTTONS;
  const on = !many && tools.some((tool) => tool.id === hot) ? hot : null;
  const tiles = useMemo(
    () =>
      many
        ? html`<${Canvas} tools=${tools} open=${open} point=${point} unpoint=${unpoint} />`
        : tools.map(
            (tool, place) => html`<button type="button" key=${tool.id} tabindex=${leads && !place ? 0 : -1} aria-label=${tileLabel(tool)}
              class=${`t h${heat(tool.calls)}${tool.writes ? " w" : ""}${tool.failed ? " err" : ""}${tool.odd ? " held" : ""}${on === tool.id ? " on" : ""}`}
              onMouseEnter=${(event) => point(event, tool)} onFocus=${(event) => point(event, tool)} onBlur=${unpoint} onClick=${() => open(tool)} />`,
          ),
    [tools, on, leads],
  );
  return html`<div class=${`row${leaf ? " tool" : ""}`} data-place=${place} onMouseEnter=${enter} onMouseLeave=${leave} onFocusIn=${enter} onFocusOut=${leave}>
    <a class="lab" href=${href(...to)} onClick=${followed(...to)} title=${plain(row.label, 120)}>${plain(row.label, 80)}</a>
    ${leaf
      ? html`<div class="one"><${Tile} writes=${tools[0].writes} heat=${heat(calls)} failed=${failed} label=${tools[0].writes ? "changes things" : "reads"} /><span>${plain(tools[0].about, 120)}</span></div>`
      : html`<div class="tiles">${tiles}</div>`}
    <span class=${calls ? "" : "z"}>${number(calls)}<span class="u"> ${calls === 1 ? "call" : "calls"}</span></span>
    <span class=${failed ? "e" : "z"}>${failed || "–"}<span class="u"> failed</span></span>
    <span class=${calls ? "" : "z"}>${p50 == null ? "–" : p50.toFixed(1)}<span class="u"> ms</span></span>
    <span class="z">${number(row.tokens)}<span class="u"> tokens</span></span>
    <span class="mob" aria-hidden="true"><i style=${{ width: `${Math.max(1, (calls / most) * 100)}%` }} /></span>
  </div>`;
}

// One tab stop for all tiles: arrows, Home and End move, rows are passed up and down by position.
function move(event, list, unpoint) {
  const tiles = [...list.querySelectorAll("button.t")];
  const at = tiles.indexOf(document.activeElement);
  if (event.key === "Escape") return unpoint();
  if (at < 0) return;
  const beside = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tiles.length - 1 }[event.key];
  let next = tiles[beside];
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const own = tiles[at].getBoundingClientRect();
    const down = event.key === "ArrowDown" ? 1 : -1;
    let best = Infinity;
    for (const tile of tiles) {
      const there = tile.getBoundingClientRect();
      const away = (there.top - own.top) * down;
      const distance = away * 1000 + Math.abs(there.left - own.left);
      if (away > 4 && distance < best) [best, next] = [distance, tile];
    }
  }
  if (!next) return;
  event.preventDefault();
  tiles.forEach((tile) => (tile.tabIndex = -1));
  next.tabIndex = 0;
  next.focus();
}

// Many tiles, drawn. They are reached by walking into the row, or by search.
function Canvas({ tools, open, point, unpoint }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const size = tools.length > 400 ? 7 : 12, step = size + (tools.length > 400 ? 2 : 4);
  const across = Math.max(1, Math.floor((width + step - size) / step));
  const down = Math.ceil(tools.length / across);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(canvas.current.parentNode);
    setWidth(Math.floor(canvas.current.parentNode.clientWidth));
    return () => watch.disconnect();
  }, []);
  const painted = useRef(null);
  useEffect(() => {
    if (!width) return;
    const height = down * step - (step - size);
    const draw = () => (painted.current = paint(canvas.current, { tools, across, width, height, size, step, scale: devicePixelRatio || 1, colours: colours() }, painted.current));
    draw();
    const theme = new MutationObserver(draw);
    dark.addEventListener("change", draw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      dark.removeEventListener("change", draw);
      theme.disconnect();
    };
  }, [tools, across, width, down, size]);
  const under = (event) => {
    const at = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - at.left) / step), line = Math.floor((event.clientY - at.top) / step);
    return column < across ? tools[line * across + column] : undefined;
  };
  const height = Math.max(1, down * step - (step - size));
  return html`<canvas ref=${canvas} aria-hidden="true" style=${{ height: `${height}px` }} onClick=${(event) => under(event) && open(under(event))}
    onMouseMove=${(event) => (under(event) ? point(event, under(event)) : unpoint())} onMouseLeave=${unpoint} />`;
}

// The colours of tiles, read when they may have changed: the browser lays out the page before it tells one.
let palette = null;
function colours() {
  const look = `${document.documentElement.dataset.theme} ${dark.matches}`;
  if (palette?.look === look) return palette;
  const probe = document.createElement("i");
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const fills = ["--paper", "--heat1", "--heat2", "--heat3", "--heat4"].map(read);
  palette = { look, fills, edge: read("--line3"), bad: read("--bad"), wait: read("--wait"), stamps: new Map() };
  probe.remove();
  return palette;
}

// A tile of each kind is drawn once; *pixels* is its size on the screen.
function stamp({ fills, edge, bad, wait, stamps }, tool, pixels, scale) {
  const kind = (pixels * 2 + tool.writes) * 16 + (tool.odd ? 8 : 0) + (tool.failed ? 5 : heat(tool.calls));
  const known = stamps.get(kind);
  if (known) return known;
  const canvas = new OffscreenCanvas(pixels, pixels);
  const on = canvas.getContext("2d");
  const line = Math.max(1, Math.round(scale));
  on.lineWidth = line;
  on.beginPath();
  if (tool.writes) on.rect(line / 2, line / 2, pixels - line, pixels - line);
  else on.arc(pixels / 2, pixels / 2, (pixels - line) / 2, 0, Math.PI * 2);
  on.fillStyle = tool.failed ? bad : fills[heat(tool.calls)];
  on.strokeStyle = tool.odd ? wait : tool.failed ? bad : edge;
  on.fill();
  on.stroke();
  const drawn = canvas.transferToImageBitmap();
  stamps.set(kind, drawn);
  return drawn;
}

// Returns *plan*. Where only tools differ from the plan *before*, only they are drawn.
function paint(canvas, plan, before) {
  const { tools, across, width, height, size, step, scale, colours } = plan;
  const same = ["across", "width", "height", "size", "scale", "colours"].every((name) => before?.[name] === plan[name]);
  if (!same) {
    canvas.width = width * scale;
    canvas.height = height * scale;
  }
  const on = canvas.getContext("2d");
  const pixels = Math.round(size * scale);
  tools.forEach((tool, place) => {
    if (same && before.tools[place] === tool) return;
    const x = Math.round((place % across) * step * scale), y = Math.round(Math.floor(place / across) * step * scale);
    if (same) on.clearRect(x, y, pixels, pixels);
    on.drawImage(stamp(colours, tool, pixels, scale), x, y);
  });
  return plan;
}

// Ribbons.

const X = { bar: 75, meta: 78, wall: 123, door: 116 };
const SHORT = new Intl.NumberFormat("en", { notation: "compact" });
const META = [["tool_browse", "browse"], ["tool_execute", "execute"], ["tool_view", "view"]];
const OTHER = ["other", "others"];

function band(x0, y0, th0, x1, y1, th1) {
  const half = (x0 + x1) / 2;
  return `M${x0} ${y0}C${half} ${y0} ${half} ${y1} ${x1} ${y1}V${y1 + th1}C${half} ${y1 + th1} ${half} ${y0 + th0} ${x0} ${y0 + th0}Z`;
}

// The widths and places of all bands, from the counts and the middles of the rows.
function laidOut(geometry, rows, meta) {
  const shown = new Set([...rows.keys()].filter((place) => rows[place].calls).sort((a, b) => rows[b].calls - rows[a].calls).slice(0, MOST_RIBBONS));
  const all = sum([...shown].map((place) => rows[place].calls));
  const most = Math.max(...[...shown].map((place) => rows[place].calls), 1);
  const scale = all ? Math.min(140 / all, 30 / most) : 0;
  const widths = rows.map((row, place) => (shown.has(place) ? Math.max(0.75, row.calls * scale) : 0));
  const open = Math.max(36, sum(widths));
  const { middles, height } = geometry;
  const order = [...rows.keys()].sort((a, b) => (middles[a] ?? 0) - (middles[b] ?? 0));
  const centre = Math.max(open / 2 + 90, Math.min(LOWEST_CENTRE, height - open / 2 - 30, ((middles[order[0]] ?? 0) + (middles[order.at(-1)] ?? height)) / 2));
  const top = centre - open / 2;
  // From the opening they leave in the order of their rows, so that none crosses another.
  let y = centre - sum(widths) / 2;
  const ribbons = [];
  for (const place of order) {
    const { calls, failed } = rows[place];
    ribbons[place] = { place, th: widths[place], from: y, to: (middles[place] ?? centre) - widths[place] / 2, bad: calls ? failed / calls : 0 };
    y += widths[place];
  }
  const named = meta.other ? [...META, OTHER] : META;
  const counts = named.map(([name]) => meta[name] || 0);
  const total = sum(counts);
  let inner = top;
  const spots = [top - 6, centre, top + open + 6];
  const tools = named.map(([name, label], place) => {
    const th = total ? (counts[place] / total) * open : 0;
    const each = { name, label, calls: counts[place], th, from: 0, to: inner };
    inner += th;
    return each;
  });
  // They stand apart, so that their words do not touch.
  const gap = 46;
  const heights = tools.map((tool) => Math.max(tool.th, 2));
  let at = centre - (sum(heights) + (named.length - 1) * gap) / 2;
  tools.forEach((tool, place) => {
    tool.from = at;
    at += heights[place] + gap;
  });
  return { ribbons, tools, top, open, spots };
}

function Flow({ geometry, rows, meta, model, over, flights }) {
  const plan = useMemo(() => laidOut(geometry, rows, meta), [geometry, rows, meta]);
  const { ribbons, tools, top, open } = plan;
  const { height, end } = geometry;
  return html`<svg class="flow" width=${Math.max(0, end)} height=${height} aria-hidden="true">
    ${tools.map((tool) => tool.th > 0 && html`<path key=${tool.name} d=${band(X.meta, tool.from, Math.max(tool.th, 2), X.door, tool.to, tool.th)} fill="var(--ribbon)" />`)}
    ${ribbons.map(({ place, th, from, to, bad }) => {
      if (!th) return null;
      const edge = bad ? Math.max(1, th * bad) : 0;
      return html`<g key=${place} data-place=${place}>
        <path d=${band(X.wall, from, th, end, to, th)} fill=${place === over ? "var(--heat3)" : "var(--ribbon)"} />
        ${edge > 0 && html`<path d=${band(X.wall, from + th - edge, edge, end, to + th - edge, edge)} fill="var(--ribbon-bad)" />`}
      </g>`;
    })}
    <g fill="var(--ink)">
      <rect x=${X.door} y="8" width="7" height=${Math.max(0, top - 16)} /><rect x=${X.door} y=${top + open + 8} width="7" height=${Math.max(0, height - top - open - 8)} />
      <rect x=${X.door - 5} y=${top - 9} width="17" height="4" /><rect x=${X.door - 5} y=${top + open + 5} width="17" height="4" />
      ${tools.map((tool) => html`<rect key=${tool.name} x=${X.bar} y=${tool.from - 2} width="3" height=${Math.max(tool.th, 2) + 4} />`)}
    </g>
    <text class="big" x="0" y=${tools[0].from - 44}>The model sees</text>
    <text x="0" y=${tools[0].from - 26}>${plural(model.tools, "tool")}, ${number(model.tokens)} tokens</text>
    ${tools.map((tool) => {
      const middle = tool.from + Math.max(tool.th, 2) / 2;
      return html`<g key=${tool.name}><text class="mt" x="0" y=${middle - 1}>${tool.label}</text><text x="0" y=${middle + 14}>${SHORT.format(tool.calls)} ${tool.calls === 1 ? "call" : "calls"}</text></g>`;
    })}
    ${flights.list.map((flight) => {
      const ribbon = ribbons[flight.place];
      if (!ribbon) return null;
      const from = ribbon.from + ribbon.th / 2, to = ribbon.to + ribbon.th / 2, half = (X.wall + end) / 2;
      return html`<circle key=${flight.key} r="4" fill=${flight.failed ? "var(--bad)" : "var(--accent)"} stroke="var(--paper)" stroke-width="1.5">
        <animateMotion dur="0.9s" begin="indefinite" fill="freeze" path=${`M${X.wall} ${from}C${half} ${from} ${half} ${to} ${end} ${to}`} ref=${begun} />
      </circle>`;
    })}
  </svg>`;
}

function begun(motion) {
  if (motion && !motion.isBegun) {
    motion.isBegun = true;
    motion.beginElement();
  }
}

// A dot runs along the ribbon of each new call, and its tile is ringed.
function useFlights(placeOf, rowAt, paused) {
  const [list, setList] = useState([]);
  const [hot, setHot] = useState(null);
  const key = useRef(0);
  useLive((event, data) => {
    if (paused || event !== "call" || data.operation !== "execute" || !placeOf.has(data.tool_id)) return;
    setHot(data.tool_id);
    setTimeout(() => setHot((now) => (now === data.tool_id ? null : now)), FLIGHT_MS);
    if (still.matches || document.hidden) return;
    const flight = { key: key.current++, place: rowAt[placeOf.get(data.tool_id)], failed: data.outcome === "failed" };
    setList((now) => [...now.slice(-11), flight]);
    setTimeout(() => setList((now) => now.filter((each) => each !== flight)), FLIGHT_MS + 100);
  });
  return { list, hot };
}

// The newest calls.
function Live({ paused, setPaused }) {
  const recent = useLoad((signal) => get(`calls?operation=execute&limit=${MOST_LIVE}`, { signal }), []);
  const [news, setNews] = useState([]);
  useLive((event, data) => {
    if (event === "call" && data.operation === "execute" && !paused) setNews((now) => [{ ...data, isNew: true }, ...now].slice(0, MOST_LIVE));
  });
  const seen = new Set(news.map((call) => call.id));
  const older = (recent.value?.calls || []).filter((call) => call.operation === "execute" && !seen.has(call.call_id));
  const shown = [...news, ...older].slice(0, MOST_LIVE);
  const toggle = () => {
    setPaused(!paused);
    announce(paused ? "Live calls go on." : "Live calls are paused.");
  };
  return html`<section class="lv" aria-labelledby="lv">
    <div class="sec"><h2 id="lv">Live calls</h2><button class="lnk" type="button" aria-pressed=${paused ? "true" : "false"} onClick=${toggle}>${paused ? "Go on" : "Pause"}</button></div>
    ${shown.length ? null : html`<p class="foot">${recent.error ? plain(recent.error.message, 200) : "None yet. Each call appears here as it ends."}</p>`}
    <ol class="live">${shown.map((call) => {
      const id = call.call_id || call.id;
      const [word, tone] = outcome(call);
      return html`<li key=${id} class=${call.isNew ? "new" : ""}>
        <a href=${href("calls", { id })} onClick=${followed("calls", { id })}>${plain(call.name || nameOf(call.tool_id), 80)}</a>
        <span class=${tone ? `no ${tone}` : "ms"}>${tone ? word : ms(call.duration_ms)}</span>
      </li>`;
    })}</ol>
  </section>`;
}

const nameOf = (id) => (id || "").replace(/^[^:]*:/, "").replace(/#.*$/, "");
