// What is quarantined until a person accepts it, with its difference from what was accepted; and what is suspicious.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { useLive } from "../live.js";
import { followed, href } from "../route.js";
import { Button, Failure, Fragment, Loaded, Note, Pre, announce, html, json, number, plain, plural, useLoad } from "../ui.js";

const WORDS = { changed: "changed", new: "new", suspicious: "suspicious" };
const IMPACTS = { breaking: "This can break callers.", compatible: "Callers that work will go on working. Changed words can mislead models." };

const counted = (held, more) => {
  const kept = held.filter((row) => row.held).length, odd = held.length - kept;
  if (!held.length) return "Nothing is quarantined";
  return [kept && `${plural(kept, "definition")} quarantined`, odd && `${number(odd)} suspicious in use`, more && `${number(more)} more`].filter(Boolean).join(", ");
};
const id = (row) => `${row.source}:${row.name}`;

export function HeldList({ query }) {
  const data = useLoad((signal) => get("held", { signal }), []);
  useLive((event) => event === "catalog" && data.again());
  return html`<${Loaded} data=${data}>${({ held, more }) => html`<${Fragment}>
    <div class="sec"><h2>${counted(held, more)}</h2><a class="foot0" href=${href("tools")} onClick=${followed("tools", {})}>All tools</a></div>
    ${!held.length && html`<p class="empty">All definitions are as they were accepted, or nothing is pinned.</p>`}
    <ol class="res plainlist">${held.map((row) => {
      const to = { ...query, tool: id(row) };
      return html`<li key=${id(row)}><a href=${href("tools", to)} onClick=${followed("tools", to)} aria-current=${query.tool === id(row) ? "true" : null}>
        <i class=${`dot ${row.held ? "wait" : ""}`} aria-hidden="true" />
        <span class="nm">${plain(row.name, 80)}<small>${plain(row.source, 60)}</small><span class=${`tag ${row.held ? "wait" : ""}`}>${row.held ? `quarantined: ${WORDS[row.reason]}` : "suspicious, in use"}</span></span>
        <span class="ds">${plain(row.explanation, 240)}</span>
      </a></li>`;
    })}</ol>
    ${more > 0 && html`<${Note}>${number(more)} more are not listed. See all of them with <code>wicketgate lock --diff</code><//>`}
  <//>`}<//>`;
}

export function Held({ wanted }) {
  const data = useLoad((signal) => get(`held?tool=${encodeURIComponent(wanted)}`, { signal }), [wanted]);
  return html`<${Loaded} data=${data}>${({ held: [row] }) => (row ? html`<${One} row=${row} again=${data.again} />` : html`<p class="empty" role="status">It is not quarantined, and not suspicious, any more. <a href=${href("tools", { q: wanted.split(":")[1] })} onClick=${followed("tools", { q: wanted.split(":")[1] })}>Find it</a></p>`)}<//>`;
}

function One({ row, again }) {
  return html`<article class="card" aria-labelledby="toolname">
    <h2 class="name" id="toolname">${plain(row.name, 200)}</h2>
    <p class="id">${plain(row.source, 200)}</p>
    <p class="tags heldtags"><span class=${`tag ${row.held ? "wait" : ""}`}>${row.held ? "quarantined: nobody can call it" : "suspicious, in use"}</span>${row.impact && html`<span>${IMPACTS[row.impact]}</span>`}</p>
    <p class="lede">${plain(row.about, 2000)}</p>
    ${row.reason === "new" && html`<p>No person has accepted it yet.</p>`}
    <${Signs} signs=${row.signs} />
    <${Diff} lines=${row.diff} />
    <${Accept} source=${row.source} name=${row.name} digest=${row.digest} may=${row.may_accept} accepted=${again} signs=${row.signs} lines=${row.diff} definition=${row.definition} />
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

// *lines*: the difference; *definition*: all of it, shown where there is none.
export function Accept({ source, name, digest, may, accepted, signs, lines, definition }) {
  const [state, setState] = useState({ busy: false, error: null, done: false });
  const [asking, setAsking] = useState(false);
  if (!may) return html`<${Note}>To accept it: <code>wicketgate lock --accept ${plain(`${source}:${name}`, 200)}</code><//>`;
  const accept = async () => {
    setAsking(false);
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
  const leave = () => setAsking(false);
  return html`<${Fragment}>
    <${Failure} error=${state.error} again=${state.error?.status === 409 ? accepted : null} />
    <div class="btns"><${Button} main disabled=${state.busy || state.done} onClick=${() => (signs.length ? setAsking(true) : accept())}>${state.done ? "Accepted" : "Accept this definition"}<//>
      <span class="foot0">Writes the lock file. Read all of the difference first.</span></div>
    ${asking && html`<${Question} title=${`Accept ${plain(name, 120)} of ${plain(source, 80)}?`} leave=${leave}>
      <p class="lede">It is suspicious. Once accepted, it is given to models as it is.</p>
      <${Signs} signs=${signs} />
      ${lines.length ? html`<${Diff} lines=${lines} />` : html`<p class="ask0">There is no difference to show. This is the definition:</p>${definition && html`<${Pre} label="Definition">${json(definition)}<//>`}`}
      <p class="foot">SHA-256 of what is accepted: <code>${digest}</code></p>
      <div class="btns"><button class="btn" type="button" autofocus onClick=${leave}>Do not accept</button><${Button} danger onClick=${accept}>Accept it all the same<//></div>
    <//>`}
  <//>`;
}

// A question that has to be answered before anything else. Escape leaves it.
function Question({ title, leave, children }) {
  const box = useRef(null);
  // Closing gives the focus back to where it was.
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${box} aria-labelledby="question" onCancel=${(event) => (event.preventDefault(), leave())}>
    <h2 id="question">${title}</h2>${children}
  </dialog>`;
}
