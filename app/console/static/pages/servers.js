// The servers behind the gate: how each is, what happened to it, its last words, and what an operator may do.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { useLive } from "../live.js";
import { Button, Failure, Figures, Confirm, Fragment, Link, Loaded, Note, Nothing, Section, State, Time, Title, announce, html, lasting, number, plain, plural, useEvery, useLoad } from "../ui.js";

const KINDS = { stdio: "stdio", http: "streamable HTTP", sse: "SSE", openapi: "OpenAPI", python: "Python", embedded: "in this program" };
const WHAT = { ready: "connected", down: "down", asleep: "asleep", reconnect: "reconnected by an operator", disabled: "disabled by an operator", enabled: "enabled by an operator" };
const ACTS = { reconnect: "reconnected", disable: "disabled", enable: "enabled" };
const REFRESH_MS = 5000;
const OTHERS_MS = 1000; // by then the other processes have followed
const SHORTEST_S = 120;
const LONGEST_S = 86_400;
const FIRST_EVENTS = 8;
const MOST_BLOCK = 20;

const troubled = (server) => server.enabled && (server.state === "down" || server.error || server.breaker !== "closed");

export default function Servers({ query, me }) {
  const data = useLoad((signal) => get("servers", { signal }), []);
  useLive((event) => ["server", "catalog", "begun", "gap"].includes(event) && data.again());
  useEvery(REFRESH_MS, data.again);
  const servers = data.value?.servers || [];
  const bad = servers.filter(troubled).length;
  // The order follows the states; what is chosen stays.
  const first = useRef();
  first.current ||= servers[0]?.name;
  const name = query.name || first.current;
  const title = !data.value ? "Servers" : !servers.length ? "No servers" : bad ? `${bad} of ${plural(servers.length, "server")} ${bad === 1 ? "needs" : "need"} attention` : `${plural(servers.length, "server")}, ${servers.length === 1 ? "ready" : "all well"}`;
  return html`<${Fragment}>
    <div class="top">
      <${Title} name="Servers">${title}<//>
      ${servers.length > 0 && html`<${Figures} items=${[
        ["Tools", number(sum(servers, (each) => each.tools))],
        ["Quarantined", number(sum(servers, (each) => each.held)), sum(servers, (each) => each.held) ? "wait" : ""],
        ["Running", number(sum(servers, (each) => each.places.taken))],
        ["Queued", number(sum(servers, (each) => each.places.queued))],
      ]} />`}
    </div>
    <${Loaded} data=${data} empty="">${(found) => found.servers.length ? html`<div class=${`two desk${query.name ? " chosen" : ""}`}>
      <${List} found=${found} name=${name} />
      <${Detail} name=${name} me=${me} seen=${data.value} changed=${data.again} key=${name} />
    </div>` : html`<${Nothing} read />`}<//>
  <//>`;
}

const sum = (list, of) => list.reduce((all, each) => all + of(each), 0);

// The time that is shown: from the oldest event on, the same for all.
function spanOf(ticks, now) {
  const first = Math.min(now, ...ticks.map(([at]) => at));
  return Math.min(LONGEST_S, Math.max(SHORTEST_S, (now - first) * 1.05));
}

function List({ found, name }) {
  const span = spanOf(found.servers.flatMap((each) => each.ticks), found.now);
  return html`<section aria-labelledby="all">
    <div class="sec"><h2 id="all">${plural(found.servers.length, "server")}</h2><span class="foot0">sessions of the last ${lasting(span)}</span></div>
    <ol class="pick">${found.servers.map((each) => html`<li key=${each.name}><${Link} page="servers" query=${{ name: each.name }} aria-current=${each.name === name ? "true" : null}>
      <span class="nm">${plain(each.name, 64)}</span>
      <span class="what"><${Condition} server=${each} /></span>
      <span class="more">${KINDS[each.kind] || each.kind}, ${plural(each.tools, "tool")}${each.places.taken ? `, ${each.places.taken} running` : ""}${each.held ? html`, <b class="wait">${each.held} quarantined</b>` : ""}</span>
      <${Ticks} ticks=${each.ticks} now=${found.now} span=${span} />
    <//></li>`)}</ol>
    ${found.more > 0 && html`<${Note}>${plural(found.more, "more server")} not listed.<//>`}
  </section>`;
}

function Condition({ server }) {
  if (!server.enabled) return html`<${State} state="disabled">disabled${server.switched ? " here" : ""}<//>`;
  if (server.state === "ready" && server.breaker !== "closed") return html`<${State} state="down">left alone: it failed too often<//>`;
  if (server.state === "ready" && server.error) return html`<${State} state="connecting">ready, not well<//>`;
  if (server.asleep) return html`<${State} state="ready">asleep: the next call starts it<//>`;
  if (server.state === "waiting") return html`<${State} state="connecting">waits for a first login<//>`;
  return html`<${State} state=${server.state} />`;
}

// Sessions over time: a line while it was connected, a thick red one while it was not, a mark at each event.
function Ticks({ ticks, now, span }) {
  const x = (at) => Math.max(0, Math.min(1000, 1000 - ((now - at) / span) * 1000));
  const lasts = (kind, place) => html`<rect x=${x(ticks[place][0])} y=${kind === "down" ? 5 : 6.5} width=${Math.max(1, (place + 1 < ticks.length ? x(ticks[place + 1][0]) : 1000) - x(ticks[place][0]))} height=${kind === "down" ? 4 : 1.5} class=${kind === "down" ? "off" : "on"} />`;
  const ended = ticks.filter(([, kind]) => kind === "down").length, began = ticks.filter(([, kind]) => kind === "ready").length;
  return html`<svg class="ticks" viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" aria-label=${ticks.length ? `${plural(began, "session")} began, ${ended} ended or did not come about` : "no sessions"}>
    <rect x="0" y="7" width="1000" height=".8" class="axis" />
    ${ticks.map(([, kind], place) => kind === "ready" || kind === "down" ? lasts(kind, place) : null)}
    ${ticks.map(([at, kind]) => html`<rect x=${Math.min(996, x(at))} y="1" width="4" height="12" class=${kind === "down" ? "off" : kind === "ready" ? "on" : "by"} />`)}
  </svg>`;
}

function Detail({ name, me, seen, changed }) {
  const data = useLoad((signal) => get(`servers/${encodeURIComponent(name)}`, { signal }), [name, seen]);
  const again = () => {
    data.again();
    changed();
  };
  return html`<section class="detail" aria-labelledby="one"><${Loaded} data=${data}>${(server) => html`<${Fragment}>
    <h2 id="one" class="name">${plain(server.name, 64)}</h2>
    <p class="foot0">${KINDS[server.kind] || server.kind}${server.target && html` <code>${plain(server.target, 220)}</code>`}</p>
    <p class="how"><${Condition} server=${server} />${server.enabled && server.state === "ready" && server.connected_s != null ? ` for ${lasting(server.connected_s)}` : ""}</p>
    ${server.switched && html`<p class="wait">An operator ${server.enabled ? "enabled" : "disabled"} it. It is as the configuration says again after the next reload or restart.</p>`}
    ${server.enabled && server.error && html`<div class="fail"><p>${plain(server.error, 600)}</p></div>`}
    ${server.enabled && server.state === "connecting" && html`<${Note}>It is being connected: its tools appear when it is ready. If that lasts, its last lines below say why.<//>`}
    <${Actions} server=${server} me=${me} done=${again} />
    <dl class="kv">
      <dt>Tools</dt><dd>${number(server.tools)}${server.stale && server.tools ? ", those of its last listing" : ""}</dd>
      ${server.held > 0 && html`<dt>Quarantined</dt><dd><${Link} page="tools" query=${{ show: "held" }}>${plural(server.held, "definition")}<//></dd>`}
      <dt>Places</dt><dd><${Meter} taken=${server.places.taken} most=${server.places.most} label="run" /><${Meter} taken=${server.places.queued} most=${server.places.most_queued} label="wait" /></dd>
      <dt>Breaker</dt><dd>${server.breaker === "closed" ? "closed" : html`<b class="bad">${server.breaker}</b>`}${server.breaker_opened ? `, opened ${plural(server.breaker_opened, "time")}` : ""}${server.held_off ? `, ${plural(server.held_off, "caller")} kept away` : ""}${server.turned_away ? `, ${plural(server.turned_away, "call")} turned away` : ""}</dd>
      <${Processes} outcomes=${server.outcomes} />
      ${server.connections > 0 && html`<dt>Sessions</dt><dd>${number(server.connections)}</dd>`}
      ${server.last_error && server.last_error !== server.error && html`<dt>Last end</dt><dd>${plain(server.last_error, 400)}</dd>`}
      <dt>Calls</dt><dd><${Link} page="calls" query=${{ server: server.name }}>its calls<//></dd>
    </dl>
    ${server.state === "down" ? [html`<${Words} server=${server} key="words" />`, html`<${Happened} server=${server} key="happened" />`] : [html`<${Happened} server=${server} key="happened" />`, html`<${Words} server=${server} key="words" />`]}
    ${[["Left out", "left", server.left_out], ["Remarks", "notes", server.notes]].map(([title, id, lines]) => lines.length > 0 && html`<${Section} title=${title} id=${id} key=${id}><ul class="lines">${lines.map((line) => html`<li>${plain(line, 400)}</li>`)}</ul><//>`)}
  <//>`}<//></section>`;
}

// What each process has done of the last act of an operator.
function Processes({ outcomes }) {
  if (!outcomes) return html`<dt>Processes</dt><dd>The store is unavailable: what the other processes did is not known.</dd>`;
  const failed = outcomes.filter((each) => !each.done);
  const done = Object.entries(ACTS).map(([act, word]) => [outcomes.filter((each) => each.done && each.act === act).length, word]).filter(([times]) => times);
  if (!outcomes.length) return null;
  return html`<dt>Processes</dt><dd>${done.map(([times, word]) => `${word} at ${times}`).join(", ")}${failed.length > 0 && html`<b class="bad">${done.length ? ", " : ""}not possible at ${failed.length}</b>: the log of ${failed.map((each) => plain(each.process, 40)).join(", ")} says why`}</dd>`;
}

const Meter = ({ taken, most, label }) => html`<span class="meter">${most != null && html`<i aria-hidden="true"><b style=${{ width: `${Math.min(100, (taken / Math.max(1, most)) * 100)}%` }} /></i>`}${number(taken)}${most != null ? ` of ${number(most)}` : ""} ${label}</span>`;

function Actions({ server, me, done }) {
  const [state, setState] = useState({ busy: "", told: "", error: null });
  if (!server.configured) return html`<${Note}>The program that runs this gate passed it in, and alone can change it.<//>`;
  if (!me.may.write) return html`<${Note}>To connect it anew, or to switch it off, takes the permission <code>ops:write</code>.<//>`;
  const act = async (action) => {
    setState({ busy: action, told: "", error: null });
    try {
      const { done: told } = await post(`servers/${encodeURIComponent(server.name)}/${action}`);
      announce(`${server.name}: ${told}`);
      setState({ busy: "", told, error: null });
    } catch (error) {
      setState({ busy: "", told: "", error });
    }
    done();
    setTimeout(done, OTHERS_MS);
  };
  const ends = `${server.tools ? `Nobody can find or call its ${plural(server.tools, "tool")}` : "It is not started"} until it is enabled, or the configuration is read again. Calls under way may be ended. It is recorded in the audit.`;
  return html`<${Fragment}>
    <div class="btns">
      ${server.enabled
        ? html`<${Fragment}><${Button} disabled=${!!state.busy} onClick=${() => act("reconnect")}>Reconnect<//><${Confirm} label="Disable …" title=${`Disable ${plain(server.name, 64)}?`} text=${ends} yes="Disable it" keep="Keep it" disabled=${!!state.busy} act=${() => act("disable")} /><//>`
        : html`<${Button} main disabled=${!!state.busy} onClick=${() => act("enable")}>Enable until the next reload<//>`}
      ${state.told && html`<span role="status">${state.told}</span>`}
    </div>
    <${Failure} error=${state.error} />
  <//>`;
}

function Happened({ server }) {
  const [all, setAll] = useState(false);
  const { events } = server;
  if (!events.length) return null;
  const span = spanOf(server.ticks, server.now);
  const shown = folded(events, (event) => `${event.kind} ${event.why}`);
  return html`<${Section} title="What happened" id="ev" more=${html`<span class="foot0">the last ${lasting(span)}</span>`}>
    <${Ticks} ticks=${server.ticks} now=${server.now} span=${span} />
    <table class="slim"><thead class="vh"><tr><th>When</th><th>What</th></tr></thead><tbody>${shown.slice(0, all ? shown.length : FIRST_EVENTS).map(({ items: [event], times }) => html`<tr key=${event.at}>
      <td class="when"><${Time} at=${event.at} /></td>
      <td class=${event.kind === "down" ? "bad" : ""}>${WHAT[event.kind] || event.kind}${event.why ? html`<span class="why">: ${plain(event.why, 400)}</span>` : ""}${times > 1 && html` <span class="times">× ${times}</span>`}</td>
    </tr>`)}</tbody></table>
    ${shown.length > FIRST_EVENTS && html`<button class="lnk" type="button" aria-expanded=${all ? "true" : "false"} onClick=${() => setAll(!all)}>${all ? "Fewer" : `All ${shown.length}`}</button>`}
  <//>`;
}

// What follows itself several times, once: [{items, times}]. A block of up to MOST_BLOCK counts like a single one.
function folded(list, textOf = (each) => each) {
  const texts = list.map(textOf), found = [];
  const again = (at, from, size) => from + size <= texts.length && texts.slice(at, at + size).every((text, place) => text === texts[from + place]);
  for (let at = 0; at < list.length; ) {
    let [size, times] = [1, 1];
    for (let length = 1; length <= MOST_BLOCK && times === 1; length++) {
      while (again(at, at + times * length, length)) times++;
      if (times > 1) size = length;
    }
    found.push({ items: list.slice(at, at + size), times });
    at += size * times;
  }
  return found;
}

function Words({ server }) {
  const { stderr } = server;
  const box = useRef(null), atEnd = useRef(true);
  useLayoutEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [stderr]);
  const look = ({ currentTarget: { scrollHeight, clientHeight, scrollTop } }) => (atEnd.current = scrollHeight - clientHeight - scrollTop < 4);
  if (!server.configured || server.kind !== "stdio") return null;
  const kept = stderr?.length || 0;
  return html`<${Section} title="Its last lines (stderr)" id="er" more=${stderr && server.stderr_lines > kept ? html`<span class="foot0">${kept} of ${number(server.stderr_lines)} lines</span>` : null}>
    ${stderr == null
      ? html`<${Note}>Another process runs it for all workers, and has its lines in its log.<//>`
      : kept ? html`<pre class="words" tabindex="0" ref=${box} onScroll=${look} aria-label=${`The last lines that ${server.name} wrote to its stderr`}>${folded(stderr).map(({ items, times }) => html`${items.map((line) => plain(line, 1000)).join("\n")}${times > 1 && html` <span class="times">× ${times}${items.length > 1 ? `, these ${items.length} lines` : ""}</span>`}${"\n"}`)}</pre>` : html`<${Note}>It has written nothing to its stderr.<//>`}
  <//>`;
}
