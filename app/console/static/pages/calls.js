// The audit: every call with who, what, when and how it went; filters, older ones page by page, and one call in whole.

import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api.js";
import { useLive } from "../live.js";
import { go } from "../route.js";
import { Button, Copy, Failure, Fragment, Link, Loaded, Note, Section, Table, Time, Title, clock, html, moment, ms, number, outcome, plain, plural, useLater, useLoad } from "../ui.js";

const OUTCOMES = [["", "any"], ["error", "tool error"], ["failed", "failed"], ["denied", "denied"], ["invalid", "invalid"], ["approval_required", "approval required"], ["cancelled", "cancelled"], ["allowed", "allowed"]];
const OPERATIONS = ["execute", "view", "read", "prompt", "complete", "question", "sampling", "roots", "login", "connection", "approval", "reload", "server", "accept", "key", "run"];
const TIMES = [["from", "From"], ["to", "Until"]];
const TEXTS = [["q", "Any word"], ["tool", "Tool"], ["server", "Server"]];
const OLDER = { memory: "Older ones", sql: "Older ones, from the audit database" };
const TYPED_MS = 300;
const MOST = 2000;

// What it was about: a tool, a server, or the gate itself.
const subject = (call) => call.name || (call.server ? call.server : call.operation);
// *order*: the calls of one request, as they came.
const searchOf = ({ order, from, to, ...filters }) => {
  const moments = Object.entries({ from, to }).filter(([, text]) => text).map(([name, text]) => [name, Date.parse(text) / 1000]).filter(([, at]) => Number.isFinite(at));
  return new URLSearchParams([...Object.entries(filters).filter(([, value]) => value), ...moments]).toString();
};
const days = (at) => new Date(at * 1000).toDateString() === new Date().toDateString();

const given = (filters) => Object.fromEntries(Object.entries(filters).filter(([, value]) => value).sort());

export default function Calls({ query, me }) {
  const { id, ...filters } = query;
  const [typed, setTyped] = useState(filters);
  const settled = useLater(JSON.stringify(typed), TYPED_MS);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) first.current = false;
    else go("calls", { ...JSON.parse(settled), id }, { replace: true });
  }, [settled]);
  // A link may have changed what is looked for.
  const linked = JSON.stringify(given(filters));
  useEffect(() => {
    if (linked !== JSON.stringify(given(JSON.parse(settled)))) setTyped(filters);
  }, [linked]);
  const change = (name) => (event) => setTyped({ ...typed, [name]: event.currentTarget.value });
  const cleared = () => setTyped({});
  const search = searchOf(filters);
  return html`<${Fragment}>
    <${Title} name="Calls">${me.may.read ? "Calls" : "Your calls"}<//>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      ${TEXTS.map(([name, label]) => html`<div class="f" key=${name}><label for=${`by-${name}`}>${label}</label><input id=${`by-${name}`} type="search" maxlength="200" value=${typed[name] || ""} onInput=${change(name)} /></div>`)}
      ${me.may.read && html`<div class="f"><label for="by-actor">Actor</label><input id="by-actor" type="search" maxlength="200" value=${typed.actor || ""} onInput=${change("actor")} /></div>`}
      <div class="f"><label for="by-outcome">Outcome</label><select id="by-outcome" onChange=${change("outcome")}>${OUTCOMES.map(([value, label]) => html`<option value=${value} selected=${(typed.outcome || "") === value} key=${value}>${label}</option>`)}</select></div>
      <div class="f"><label for="by-operation">Operation</label><select id="by-operation" onChange=${change("operation")}><option value="">any</option>${OPERATIONS.map((value) => html`<option value=${value} selected=${typed.operation === value} key=${value}>${value}</option>`)}</select></div>
      ${TIMES.map(([name, label]) => html`<div class="f" key=${name}><label for=${`by-${name}`}>${label}</label><input id=${`by-${name}`} type="datetime-local" value=${typed[name] || ""} onInput=${change(name)} /></div>`)}
      ${Object.values(typed).some(Boolean) && html`<button class="lnk" type="button" onClick=${cleared}>Clear</button>`}
    </form>
    <div class=${id ? "two calls" : "calls"}>
      <${List} search=${search} filters=${filters} id=${id} me=${me} key=${search} />
      ${id && html`<${Whole} id=${id} filters=${filters} me=${me} key=${id} />`}
    </div>
  <//>`;
}

function List({ search, filters, id, me }) {
  const [newer, setNewer] = useState(0);
  const [older, setOlder] = useState({ calls: [], at: null, busy: false, error: null });
  const data = useLoad((signal) => get(`calls?${search}`, { signal }), [search]);
  useLive((event) => {
    if (event === "call") setNewer((count) => count + 1);
    if (event === "gap") setNewer((count) => count + 1);
  });
  const again = () => {
    setNewer(0);
    setOlder({ calls: [], at: null, busy: false, error: null });
    data.again();
  };
  return html`<section aria-labelledby="list"><${Loaded} data=${data}>${(found) => {
    const calls = [...found.calls, ...older.calls];
    if (filters.order) calls.reverse();
    const page = older.at || found;
    const more = async () => {
      setOlder({ ...older, busy: true, error: null });
      try {
        const next = await get(`calls?${search}&cursor=${encodeURIComponent(page.next_cursor)}`);
        setOlder({ calls: [...older.calls, ...next.calls].slice(-MOST), at: next, busy: false, error: null });
      } catch (error) {
        setOlder({ ...older, busy: false, error });
      }
    };
    return html`<${Fragment}>
      <div class="sec"><h2 id="list">${!calls.length ? "None" : filters.order ? `${plural(calls.length, "call")} of this request, in order` : `The last ${number(calls.length)}`}</h2>
        ${calls.length > 0 && html`<${Export} search=${search} />`}
        ${newer > 0 && html`<button class="lnk" type="button" onClick=${again}>${plural(newer, "call")} ended since: show</button>`}</div>
      ${!calls.length && html`<p class="empty">${search ? "No record fits these filters." : "Nothing has been called yet. Each call stands here as it ends."}</p>`}
      ${calls.length > 0 && html`<${Table} kind="log" columns=${[["When", "when"], ["What", "what"], me.may.read && ["Who", "actor"], ["Outcome", "how"], ["Time", "r"]]} rows=${calls.map((call) => {
        const [word, tone] = outcome(call);
        const what = plain(subject(call), 80);
        return [call.call_id + call.operation + call.phase, [
          html`<time dateTime=${new Date(call.at * 1000).toISOString()} title=${moment(call.at)}>${days(call.at) ? clock(call.at) : moment(call.at)}</time>`,
          html`<span class="nm">${call.call_id ? html`<${Link} page="calls" query=${{ ...filters, id: call.call_id }} aria-current=${call.call_id === id ? "true" : null}>${what}<//>` : what}</span><small>${call.name && call.operation !== "execute" && html`<b>${plain(call.operation, 30)}</b> `}${plain(call.name ? call.server : call.detail, 120)}</small>`,
          ...(me.may.read ? [plain(call.actor || "–", 60)] : []),
          html`<span class=${tone}>${word}</span>${call.code && call.code.toLowerCase() !== call.outcome && html`<small>${plain(call.code, 60)}</small>`}${call.cached && html`<small>from the cache</small>`}`,
          call.duration_ms ? ms(call.duration_ms) : "–",
        ], call.call_id === id ? "on" : ""];
      })} />`}
      <${Failure} error=${older.error} again=${more} />
      ${page.next_cursor && calls.length < MOST && html`<div class="btns"><${Button} disabled=${older.busy} onClick=${more}>${OLDER[page.older] || "Older ones"}<//></div>`}
      ${page.older === "unread" && html`<${Note}>The audit database cannot be read now, so older records are not shown.<//>`}
      ${!page.next_cursor && page.older === "none" && calls.length > 0 && html`<${Note}>These are all that are kept.<//>`}
    <//>`;
  }}<//></section>`;
}

const COLUMNS = ["at", "operation", "actor", "key_id", "tool_id", "server", "outcome", "tool", "code", "duration_ms", "upstream_ms", "correlation_id", "call_id", "gate", "detail"];
const MOST_EXPORTED = 20_000;
// A spreadsheet would take these beginnings for a formula.
const cell = (value) => `"${String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;

function Export({ search }) {
  const [state, setState] = useState({ busy: false, error: null });
  const save = async () => {
    setState({ busy: true, error: null });
    try {
      const rows = [COLUMNS.join(",")];
      for (let cursor = ""; cursor != null && rows.length < MOST_EXPORTED; ) {
        const page = await get(`calls?${search}&limit=200${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
        rows.push(...page.calls.map((call) => COLUMNS.map((name) => cell(name === "at" ? new Date(call.at * 1000).toISOString() : call[name])).join(",")));
        cursor = page.next_cursor;
      }
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([rows.join("\r\n")], { type: "text/csv" }));
      link.download = "calls.csv";
      link.click();
      URL.revokeObjectURL(link.href);
      setState({ busy: false, error: null });
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`<${Fragment}><button class="lnk" type="button" disabled=${state.busy} onClick=${save}>Export as CSV</button><${Failure} error=${state.error} /><//>`;
}

function Whole({ id, filters, me }) {
  const data = useLoad((signal) => get(`calls/${encodeURIComponent(id)}`, { signal }), [id]);
  return html`<section class="detail" aria-label="One call"><div class="close"><${Link} page="calls" query=${filters}>Close<//></div><${Loaded} data=${data}>${({ records, times, unread }) => {
    const call = records.findLast((each) => each.phase === "end" && each.duration_ms) || records[records.length - 1];
    const facts = [
      ["Outcome", html`<span class=${outcome(call)[1]}>${outcome(call)[0]}</span>${call.code && html` <code>${plain(call.code, 60)}</code>`}${call.cached ? ", from the cache" : ""}`],
      ["Why", call.outcome === "denied" && me.may.read && call.name ? html`<${Link} page="tools" query=${{ id: call.tool_id, tab: "who", key: call.key_id }}>the rules of this tool for this key<//>` : call.tool === "error" && "The server's own words went to the caller, and are not kept."],
      ["Told", call.detail && plain(call.detail, 500)],
      ["Legs", call.operation === "execute" && html`reached <b>${call.transport}</b>, answered <b>${call.protocol}</b>, result <b>${call.tool}</b>`],
      ["Server", call.server && html`<${Link} page="servers" query=${{ name: call.server }}>${plain(call.server, 80)}<//>`],
      ["Caller", html`${plain(call.actor || "–", 130)}${call.key_id && html` with key <code>${plain(call.key_id, 60)}</code>`}${call.source && html` from <code>${plain(call.source, 80)}</code>`}${call.gate && html` through the gate <code>${plain(call.gate, 40)}</code>`}`],
      ["Came in", html`${moment(call.at)}, <${Time} at=${call.at} />`],
      ["Arguments", call.arguments && html`only their digest is kept: <code>${plain(call.arguments, 80)}</code>`],
      ["Approval", call.approval && html`<code>${plain(call.approval, 80)}</code>`],
      ["Call", html`<code>${plain(call.call_id, 80)}</code> <${Copy} text=${call.call_id} />`],
      ["Request", html`<code>${plain(call.correlation_id, 130)}</code> <${Link} page="calls" query=${{ q: call.correlation_id, order: "run" }}>all of this request, in order<//>`],
    ];
    return html`<${Fragment}>
      <h2 class="name">${plain(subject(call), 120)}</h2>
      ${call.tool_id && html`<p class="foot0">${call.name === call.tool_id ? html`<code>${plain(call.tool_id, 300)}</code>` : html`<${Link} page="tools" query=${{ id: call.tool_id }}><code>${plain(call.tool_id, 300)}</code><//>`}</p>`}
      ${times.whole_ms > 0 && html`<${Spent} times=${times} />`}
      <dl class="kv">${facts.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
      ${call.stages.length > 0 && html`<${Section} title="Plugins that it passed" id="st"><${Table} columns=${["Plugin", "When", "What it did", ["Time", "r"]]} rows=${call.stages.map((stage, at) => [at, [html`<span class="nm">${plain(stage.plugin, 80)}</span>`, plain(stage.phase, 40), html`${plain(stage.outcome, 40)}${stage.note && html`<small>${plain(stage.note, 300)}</small>`}`, ms(stage.ms)]])} /><//>`}
      ${records.length > 1 && html`<${Section} title="Its records" id="rc"><table class="slim"><tbody>${records.map((each) => html`<tr><td class="when">${clock(each.at)}</td><td>${plain(each.operation, 30)}, ${each.phase === "intent" ? "about to leave" : outcome(each)[0]}</td></tr>`)}</tbody></table><//>`}
      ${unread && html`<${Note}>The audit database cannot be read now; some records may be missing.<//>`}
    <//>`;
  }}<//></section>`;
}

const PARTS = [["server_ms", "at the server"], ["plugins_ms", "in plugins"], ["gate_ms", "in the gate"]];

function Spent({ times }) {
  const share = (name) => `${(times[name] / times.whole_ms) * 100}%`;
  return html`<div class="spent"><p class="whole">${ms(times.whole_ms)}</p>
    <div class="bar" aria-hidden="true">${PARTS.map(([name]) => html`<i class=${name} style=${{ width: share(name) }} key=${name} />`)}</div>
    <ul>${PARTS.map(([name, label]) => html`<li key=${name}><i class=${name} aria-hidden="true" />${ms(times[name])} ${label}</li>`)}</ul></div>`;
}
