// A run of a tool with the permissions of this key: a form and JSON beside it, a check without a call, and all that came.

import { useRef, useState } from "preact/hooks";
import { post } from "../api.js";
import { followed, href } from "../route.js";
import { Button, Copy, Failure, Fragment, Note, Pre, announce, bytes, html, json, ms, number, plain } from "../ui.js";
import { Json, SchemaForm } from "./form.js";

// What was filled in, by tool, as long as the page is open.
const kept = new Map();
const keep = (id, value) => {
  kept.delete(id);
  kept.set(id, value);
  if (kept.size > 50) kept.delete(kept.keys().next().value);
};

export function Run({ tool, ran }) {
  const [value, setValue] = useState(() => kept.get(tool.id) ?? {});
  const [wrong, setWrong] = useState(false);
  const [state, setState] = useState({ busy: "", answer: null, error: null });
  const number_ = useRef(0);
  const change = (next) => {
    keep(tool.id, next);
    setValue(next);
  };
  const send = async (dry) => {
    const mine = ++number_.current;
    setState({ busy: dry ? "check" : "run", answer: null, error: null });
    try {
      const answer = await post("execute", { id: tool.id, args: value ?? {}, dry_run: dry });
      if (mine !== number_.current) return;
      setState({ busy: "", answer, error: null });
      if (answer.called) ran();
      announce(answer.is_error ? "It failed." : dry ? "The arguments are valid." : "It has run.");
    } catch (error) {
      if (mine === number_.current) setState({ busy: "", answer: null, error });
    }
  };
  const example = tool.examples?.[0];
  const errors = faults(state.answer?.envelope);
  return html`<${Fragment}>
    <form class="run" onSubmit=${(event) => (event.preventDefault(), wrong || send(false))}>
      <div class="fields"><${SchemaForm} schema=${tool.input_schema} value=${value} change=${change} errors=${errors} /></div>
      <div class="f jsonside">
        <label for="argsjson"><span>As JSON</span>${example && typeof example === "object" && html`<button class="lnk" type="button" onClick=${() => change(example)}>Fill in its example</button>`}</label>
        <${Json} id="argsjson" value=${value} change=${(next) => change(next ?? {})} wrong=${setWrong} />
      </div>
      <div class="btns">
        <${Button} main type="submit" disabled=${!!state.busy || wrong}>${state.busy === "run" ? "Running …" : "Run"}<//>
        <${Button} disabled=${!!state.busy || wrong} onClick=${() => send(true)}>${state.busy === "check" ? "Checking …" : "Check only"}<//>
        <span class="foot0">${tool.writes ? "This tool changes things. It runs with your permissions, and is recorded." : "It runs with your permissions, and is recorded."}</span>
      </div>
    </form>
    <div role="status">${state.busy && html`<p class="foot">Waiting for the answer …</p>`}</div>
    <${Failure} error=${state.error} />
    ${state.answer && html`<${Answer} answer=${state.answer} />`}
  <//>`;
}

// What the gate says of single arguments, by their paths.
function faults(envelope) {
  const found = envelope?.details?.errors;
  return new Map(Array.isArray(found) ? found.map((each) => [each.path, each.message]) : []);
}

function Answer({ answer }) {
  const { envelope } = answer;
  const failed = envelope.error;
  return html`<section class="out" aria-label="Answer">
    <p class="st"><b class=${answer.is_error ? "bad" : "ok"}>${failed ? plain(failed, 60) : envelope.dry_run ? "valid" : plain(envelope.status, 20)}</b>
      <span>${ms(answer.duration_ms)}</span><span>${number(answer.tokens)} tokens for a model</span>
      ${answer.called ? html`<span>the server was called</span>` : html`<span>no server was called</span>`}
      <span class="mono">${plain(answer.correlation_id, 60)}</span></p>
    ${failed === "APPROVAL_REQUIRED" && html`<p class="wait">This call needs an approval first. It was not run. <a href=${href("approvals")} onClick=${followed("approvals")}>Approvals</a></p>`}
    ${failed ? html`${failed !== "APPROVAL_REQUIRED" && html`<p>${plain(envelope.message, 2000)}</p>`}${envelope.details && html`<details><summary>Details</summary><${Pre} label="Details">${json(envelope.details, 4000)}<//></details>`}` : html`<p class="sum">${plain(envelope.summary, 600)}</p>`}
    ${envelope.facts?.length > 0 && html`<ul class="dots facts">${envelope.facts.map((fact, at) => html`<li key=${at}>${plain(fact, 2000)}</li>`)}</ul>`}
    ${envelope.artifacts?.length > 0 && html`<h3>Kept as artifacts</h3>${envelope.artifacts.map((each) => html`<${Artifact} key=${each.handle} artifact=${each} />`)}`}
    ${[["As the model reads it", answer.text], ["The request to the server", answer.request], ["The response of the server", answer.response]].map(
      ([name, value]) =>
        value != null && html`<details key=${name}><summary>${name}</summary><${Pre} label=${name}>${typeof value === "string" ? plain(value) : json(value)}<//><${Copy} text=${typeof value === "string" ? value : JSON.stringify(value, null, 2)} /></details>`,
    )}
    ${answer.called && answer.response == null && html`<${Note}>The response of the server is larger than is shown here. Its parts are the artifacts.<//>`}
  </section>`;
}

// An artifact, read in parts as a model would with tool_view.
const SELECTORS = [["head", "beginning"], ["lines", "lines"], ["rows", "rows"], ["grep", "lines with a text"], ["json_keys", "JSON keys"], ["json_path", "JSON path"]];

function Artifact({ artifact }) {
  const [type, setType] = useState("head");
  const [text, setText] = useState("");
  const [state, setState] = useState({ busy: false, shown: null, error: null });
  const view = async (selector) => {
    setState({ busy: true, shown: null, error: null });
    try {
      setState({ busy: false, shown: await post("view", { handle: artifact.handle, selector }), error: null });
    } catch (error) {
      setState({ busy: false, shown: null, error });
    }
  };
  const range = () => {
    const [start, end] = text.split(/[-–:,\s]+/).map((part) => parseInt(part, 10));
    return { start: Number.isFinite(start) ? start : 0, end: Number.isFinite(end) ? end : (Number.isFinite(start) ? start : 0) + 50 };
  };
  const selector = () =>
    ({ head: { type }, lines: { type, ...range() }, rows: { type, ...range() }, grep: { type, pattern: text }, json_keys: { type, keys: text.split(",").map((key) => key.trim()).filter(Boolean) }, json_path: { type, path: text } })[type];
  const asks = { lines: "from-to, from 0", rows: "from-to, from 0", grep: "text", json_keys: "keys, with commas", json_path: "such as $.items[0].name" }[type];
  const part = state.shown?.view;
  return html`<div class="art">
    <p><b>${plain(artifact.label, 120) || "artifact"}</b> <small>${plain(artifact.media_type, 80)}, ${bytes(artifact.size_bytes)}</small> <code>${plain(artifact.handle, 200)}</code></p>
    <form class="sel" onSubmit=${(event) => (event.preventDefault(), view(selector()))}>
      <select aria-label="Part to view" value=${type} onChange=${(event) => (setType(event.target.value), setText(""))}>${SELECTORS.map(([value, name]) => html`<option value=${value} key=${value}>${name}</option>`)}</select>
      ${asks && html`<input aria-label=${asks} placeholder=${asks} value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" spellcheck=${false} />`}
      <button class="btn" type="submit" disabled=${state.busy}>View</button>
      ${part?.next && html`<button class="btn" type="button" disabled=${state.busy} onClick=${() => view(part.next)}>Go on</button>`}
    </form>
    <${Failure} error=${state.error} />
    ${part && (state.shown.is_error ? html`<p class="bad" role="status">${plain(part.message, 500)}</p>` : html`<${Fragment}><${Pre} label="Part of the artifact">${plain(part.content)}<//><p class="foot" role="status">of ${number(part.total)} in all</p><//>`)}
  </div>`;
}
