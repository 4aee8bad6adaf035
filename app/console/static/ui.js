// The parts that all pages are made of. Text from outside is only ever given to preact as text.

import { h, Fragment } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { passing } from "./api.js";
import { useLive } from "./live.js";
import { followed, href } from "./route.js";

export const html = htm.bind(h);
export { Fragment };

// Figures and times.

const NUMBER = new Intl.NumberFormat("en");
export const number = (value) => (value == null ? "–" : NUMBER.format(value));

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function ms(value) {
  if (value == null) return "–";
  if (value < 100) return `${value.toFixed(1)} ms`;
  if (value < 10_000) return `${NUMBER.format(Math.round(value))} ms`;
  return `${(value / 1000).toFixed(1)} s`;
}

export function bytes(value) {
  if (value == null) return "–";
  if (value < 1024) return plural(value, "byte");
  return value < 1024 * 1024 ? `${(value / 1024).toFixed(1)} KB` : `${(value / 1024 / 1024).toFixed(1)} MB`;
}

export function ago(epochS, now = Date.now() / 1000) {
  if (epochS == null) return "never";
  return `${lasting(now - epochS)} ago`;
}

export function lasting(seconds) {
  const s = Math.max(0, seconds);
  if (s < 1) return "under 1 s";
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} days`;
}

export const clock = (epochS) => new Date(epochS * 1000).toLocaleTimeString("en-GB");
export const moment = (epochS) =>
  epochS == null ? "–" : new Date(epochS * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export function Time({ at, short }) {
  return html`<time dateTime=${new Date(at * 1000).toISOString()} title=${moment(at)}>${short ? clock(at) : ago(at)}</time>`;
}

// Foreign text: characters that hide or turn others are shown as what they are.
// C0 and C1 controls, bidirectional marks, zero-width and tag characters.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udfff]/g;
const LONGEST = 20_000;

export function plain(text, longest = LONGEST) {
  const whole = typeof text === "string" ? text : String(text ?? "");
  const cut = whole.length > longest ? `${whole.slice(0, longest)} … (${number(whole.length - longest)} more characters)` : whole;
  return cut.replace(HIDDEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

export const json = (value, longest) => plain(JSON.stringify(value, null, 2), longest);

// Data: *load*(signal) is called at first and when *inputs* differ; `again` calls it once more, when
// one that runs has ended. What failed while the gate was away is loaded when it is there again.

export function useLoad(load, inputs) {
  const [state, setState] = useState({ value: undefined, error: null, busy: true });
  const running = useRef(null);
  const newest = useRef(load);
  newest.current = load;
  const begin = useCallback(() => {
    const mine = (running.current = { ending: new AbortController(), again: false });
    const end = (found) => {
      if (mine.ending.signal.aborted) return;
      running.current = null;
      setState((before) => ({ ...before, ...found, busy: mine.again }));
      if (mine.again) begin();
    };
    setState((before) => ({ ...before, busy: true }));
    newest.current(mine.ending.signal).then((value) => end({ value, error: null }), (error) => end({ error }));
  }, []);
  const again = useCallback(() => {
    if (running.current) running.current.again = true;
    else begin();
  }, []);
  useEffect(() => {
    begin();
    return () => {
      running.current?.ending.abort();
      running.current = null;
    };
  }, inputs);
  useLive((event) => event === "begun" && state.error && again());
  return { ...state, again };
}

export function useEvery(everyMs, act) {
  const newest = useRef(act);
  newest.current = act;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || newest.current(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}

export function useLater(value, waitMs) {
  const [later, setLater] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setLater(value), waitMs);
    return () => clearTimeout(timer);
  }, [value, waitMs]);
  return later;
}

// Parts of pages.

export function Title({ children, name }) {
  useEffect(() => {
    document.title = `${name} · Wicketgate`;
  }, [name]);
  return html`<h1 id="title" tabindex="-1">${children}</h1>`;
}

export const Link = ({ page, query, children, ...more }) =>
  html`<a href=${href(page, query)} onClick=${followed(page, query)} ...${more}>${children}</a>`;

export function Section({ title, id, more, children, level = 2 }) {
  return html`<section aria-labelledby=${id}>
    <div class="sec">${h(`h${level}`, { id }, title)}${more}</div>
    ${children}
  </section>`;
}

export const Figures = ({ items }) =>
  html`<dl class="figs">${items.map(
    ([name, value, tone]) => html`<div class=${tone || ""} key=${name}><dt>${name}</dt><dd>${value}</dd></div>`,
  )}</dl>`;

// *kind*: reads, writes. *heat* 0 to 4 by calls.
export const Tile = ({ writes, heat = 0, failed, label }) =>
  html`<i class=${`t key${writes ? " w" : ""} h${heat}${failed ? " err" : ""}`} role=${label ? "img" : null} aria-label=${label} aria-hidden=${label ? null : "true"} />`;

const TONES = { ready: "ok", connecting: "wait", down: "bad" };
export const State = ({ state, children }) =>
  html`<span class=${`state ${TONES[state] || ""}`}><i class="dot" aria-hidden="true" />${children ?? state}</span>`;

export const Button = ({ main, danger, children, ...more }) =>
  html`<button class=${`btn${main ? " p" : ""}${danger ? " d" : ""}`} type="button" ...${more}>${children}</button>`;

// A button that asks first. Escape, like *keep*, leaves all as it was; the focus goes along, and back to the button.
export function Confirm({ label, title, text, yes, keep, act, disabled }) {
  const [asking, setAsking] = useState(false);
  const first = useRef(null), opener = useRef(null), was = useRef(false);
  useEffect(() => {
    if (asking) first.current?.focus();
    else if (was.current) opener.current?.focus();
    was.current = asking;
  }, [asking]);
  const decide = (done) => () => {
    setAsking(false);
    if (done) act();
  };
  if (!asking) return html`<button class="btn d" type="button" ref=${opener} disabled=${disabled} onClick=${() => setAsking(true)}>${label}</button>`;
  return html`<div class="ask confirm" role="group" aria-label=${title} onKeyDown=${(event) => event.key === "Escape" && setAsking(false)}>
    <h3>${title}</h3><p>${text}</p>
    <div class="btns"><${Button} danger onClick=${decide(true)}>${yes}<//><button class="btn" type="button" ref=${first} onClick=${decide(false)}>${keep}</button></div>
  </div>`;
}

export const Note = ({ children }) => html`<p class="foot">${children}</p>`;

export function Failure({ error, again }) {
  if (!error) return null;
  return html`<div class="fail" role="alert">
    <p>${plain(error.message, 500)}</p>
    ${passing(error) && html`<p>The gate is starting, stopping or away. What it shows comes by itself when it answers; what you asked it to do has to be asked again.</p>`}
    ${error.status === 403 && html`<p>The key of this tab lacks the permission for it.</p>`}
    ${again && html`<${Button} onClick=${again}>Try again<//>`}
  </div>`;
}

// What stands in the place of data: while it comes, if it does not, if there is none.
export function Loaded({ data, children, empty }) {
  if (data.value === undefined) {
    return data.error ? html`<${Failure} error=${data.error} again=${data.again} />` : html`<p class="foot" role="status">Loading …</p>`;
  }
  return html`<${Fragment}>
    ${data.error && html`<${Failure} error=${data.error} again=${data.again} />`}
    ${empty && (Array.isArray(data.value) ? !data.value.length : false) ? html`<p class="empty">${empty}</p>` : children(data.value)}
  <//>`;
}

// A table whose rows are cards where it is narrow: each cell names its column then. *columns*: names, or [name, class];
// *rows*: [key, cells, class].
export function Table({ columns, rows, kind = "cards" }) {
  const all = columns.filter(Boolean).map((each) => (Array.isArray(each) ? each : [each, null]));
  return html`<div class=${`tab ${kind}`}><table role="table">
    <thead role="rowgroup"><tr role="row">${all.map(([name, style]) => html`<th role="columnheader" scope="col" class=${style} key=${name}>${name}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map(([key, cells, style]) => html`<tr role="row" class=${style} key=${key}>
      ${cells.map((cell, at) => html`<td role="cell" class=${all[at][1]} data-label=${all[at][0]} key=${at}><div>${cell}</div></td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

// The outcome of a call in one word, and its tone.
export function outcome(call) {
  if (call.outcome === "allowed") return call.tool === "error" ? ["tool error", "bad"] : ["allowed", ""];
  return [plain(call.outcome.replaceAll("_", " "), 40), ["approval_required", "cancelled"].includes(call.outcome) ? "wait" : "bad"];
}

// What to do at a gate that has nothing for this caller. *read*: the caller may read all of the gate.
export const Nothing = ({ read }) => html`<div class="nothing">
  ${read
    ? html`<h2>No server stands behind this gate yet</h2>
      <ol>
        <li><code>wicketgate import --write wicketgate.yaml</code> takes over the servers of the MCP clients on this machine.</li>
        <li>Or name one below <code>upstreams:</code> in the configuration: <code>- {name: time, command: [uvx, mcp-server-time]}</code></li>
        <li>The gate reads the file again on SIGHUP, and by itself when it was started with <code>--watch</code>. Its tools then appear here.</li>
      </ol>`
    : html`<h2>Your key may use no tool of this gate</h2>
      <p>What a key may use follows from its permissions, such as <code>tools:*</code>, and from the access rules. Ask who runs this gate; a server that still connects brings its tools in a moment.</p>`}
</div>`;

export function Tabs({ label, tabs, tab, choose }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -tabs.length, End: tabs.length }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex(([id]) => id === tab);
    const next = Math.abs(step) === 1 ? (at + step + tabs.length) % tabs.length : step < 0 ? 0 : tabs.length - 1;
    choose(tabs[next][0]);
    event.currentTarget.children[next].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map(
      ([id, name]) =>
        html`<button role="tab" type="button" id=${`tab-${id}`} key=${id} aria-selected=${tab === id ? "true" : "false"} aria-controls="pane"
          tabindex=${tab === id ? 0 : -1} onClick=${() => choose(id)}>${name}</button>`,
    )}
  </div>`;
}

export const Pane = ({ tab, children }) =>
  html`<div id="pane" role="tabpanel" aria-labelledby=${`tab-${tab}`} tabindex="0">${children}</div>`;

export const Pre = ({ children, label }) => html`<pre tabindex="0" aria-label=${label}>${children}</pre>`;

export function Copy({ text, children = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      // Pages without TLS and outside this machine may not; the text can be selected.
    }
  };
  return html`<button class="lnk" type="button" onClick=${copy}>${done ? "Copied" : children}</button>`;
}

// One line for screen readers, said when it changes.
let say = () => {};
export const announce = (text) => say(text);
export function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => {
    say = setText;
  }, []);
  return html`<p class="vh" role="status" aria-live="polite">${text}</p>`;
}
