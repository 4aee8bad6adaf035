// What is held back until a person accepts it, with its difference from what was accepted.

import { useState } from "preact/hooks";
import { get, post } from "../api.js";
import { useLive } from "../live.js";
import { followed, href } from "../route.js";
import { Button, Failure, Fragment, Loaded, Note, Pre, announce, html, json, number, plain, plural, useLoad } from "../ui.js";

const WORDS = { changed: "changed", new: "new", suspicious: "suspicious" };
const IMPACTS = { breaking: "This can break callers.", compatible: "Callers that work will go on working.", words: "Only words differ, which is what misleads models." };

const id = (row) => `${row.source}:${row.name}`;

export function HeldList({ query }) {
  const data = useLoad((signal) => get("held", { signal }), []);
  useLive((event) => event === "catalog" && data.again());
  return html`<${Loaded} data=${data}>${({ held, more }) => html`<${Fragment}>
    <div class="sec"><h2>${held.length ? `${plural(held.length + more, "definition")} to look at` : "Nothing is held back"}</h2><a class="foot0" href=${href("tools")} onClick=${followed("tools", {})}>All tools</a></div>
    ${!held.length && html`<p class="empty">No definition waits to be accepted.</p>`}
    <ol class="res plainlist">${held.map((row) => {
      const to = { ...query, tool: id(row) };
      return html`<li key=${id(row)}><a href=${href("tools", to)} onClick=${followed("tools", to)} aria-current=${query.tool === id(row) ? "true" : null}>
        <i class=${`dot ${row.held ? "wait" : ""}`} aria-hidden="true" />
        <span class="nm">${plain(row.name, 80)}<small>${plain(row.source, 60)}</small><span class=${`tag ${row.held ? "wait" : ""}`}>${row.held ? WORDS[row.reason] : "suspicious, in use"}</span></span>
        <span class="ds">${plain(row.explanation, 240)}</span>
      </a></li>`;
    })}</ol>
    ${more > 0 && html`<${Note}>${number(more)} more are not listed. See all of them with <code>wicketgate lock --diff</code><//>`}
  <//>`}<//>`;
}

export function Held({ wanted }) {
  const data = useLoad((signal) => get(`held?tool=${encodeURIComponent(wanted)}`, { signal }), [wanted]);
  return html`<${Loaded} data=${data}>${({ held: [row] }) => (row ? html`<${One} row=${row} again=${data.again} />` : html`<p class="empty" role="status">It is not held back any more. <a href=${href("tools", { q: wanted.split(":")[1] })} onClick=${followed("tools", { q: wanted.split(":")[1] })}>Find it</a></p>`)}<//>`;
}

function One({ row, again }) {
  return html`<article class="card" aria-labelledby="toolname">
    <h2 class="name" id="toolname">${plain(row.name, 200)}</h2>
    <p class="id">${plain(row.source, 200)}</p>
    <p class="tags heldtags"><span class=${`tag ${row.held ? "wait" : ""}`}>${row.held ? "held back: nobody can call it" : "in use"}</span>${row.impact && html`<span>${IMPACTS[row.impact]}</span>`}</p>
    <p class="lede">${plain(row.about, 2000)}</p>
    ${row.reason === "new" && html`<p>No person has accepted it yet.</p>`}
    ${row.reasons.length > 0 && html`<${Fragment}><h3>Why callers can break</h3><ul class="dots">${row.reasons.map((each) => html`<li key=${each}>${plain(each, 300)}</li>`)}</ul><//>`}
    <${Signs} signs=${row.signs} />
    <${Diff} lines=${row.diff} />
    <${Accept} source=${row.source} name=${row.name} digest=${row.digest} may=${row.may_accept} accepted=${again} />
    ${row.definition && html`<details><summary>Its definition now</summary><${Pre} label="Definition">${json(row.definition)}<//></details>`}
  </article>`;
}

export const Signs = ({ signs }) =>
  signs.length > 0 && html`<${Fragment}><h3 class="bad">It seems to speak to the model</h3><ul class="dots">${signs.map((each) => html`<li key=${each}>${plain(each, 300)}</li>`)}</ul><//>`;

export const Diff = ({ lines }) =>
  lines.length > 0 && html`<${Fragment}>
    <h3>What differs from what was accepted</h3>
    <div class="diff" role="group" aria-label="Difference" tabindex="0">${lines.map((line, at) => {
      const sign = line[0];
      return html`<p key=${at} class=${sign === "+" ? "add" : sign === "-" ? "del" : ""}><span class="vh">${sign === "+" ? "now: " : sign === "-" ? "was: " : ""}</span>${plain(line, 400)}</p>`;
    })}</div>
  <//>`;

export function Accept({ source, name, digest, may, accepted }) {
  const [state, setState] = useState({ busy: false, error: null, done: false });
  if (!may) return html`<${Note}>To accept it: <code>wicketgate lock --accept ${plain(`${source}:${name}`, 200)}</code><//>`;
  const accept = async () => {
    setState({ busy: true, error: null, done: false });
    try {
      await post("accept", { upstream: source, tool: name, digest });
      announce("Accepted.");
      setState({ busy: false, error: null, done: true });
      accepted();
    } catch (error) {
      setState({ busy: false, error, done: false });
    }
  };
  return html`<${Fragment}>
    <${Failure} error=${state.error} again=${state.error?.status === 409 ? accepted : null} />
    <div class="btns"><${Button} main disabled=${state.busy || state.done} onClick=${accept}>${state.done ? "Accepted" : "Accept this definition"}<//>
      <span class="foot0">Writes the lock file. Read all of the difference first.</span></div>
  <//>`;
}
