// The values in force, to be read only: what differs from the defaults first, secrets as the names of their variables.

import { useState } from "preact/hooks";
import { get } from "../api.js";
import { useLive } from "../live.js";
import { Fragment, Link, Loaded, Note, Section, State, Title, ago, html, moment, plain, plural, useLoad } from "../ui.js";

const STORES = { memory: "in memory: gone with this process", sqlite: "a file", redis: "Redis, shared by replicas" };

export default function Configuration() {
  const [every, setEvery] = useState(false);
  const [word, setWord] = useState("");
  const data = useLoad((signal) => get("configuration", { signal }), []);
  useLive((event, call) => (event === "begun" || event === "catalog" || (event === "call" && ["reload", "server", "accept"].includes(call.operation))) && data.again());
  return html`<${Fragment}>
    <${Title} name="Configuration">Configuration<//>
    <${Loaded} data=${data}>${(found) => {
      const low = word.trim().toLowerCase();
      const fits = (row) => (every || !row.default || row.waits) && (!low || row.path.toLowerCase().includes(low) || row.value.toLowerCase().includes(low));
      const sections = found.sections.map((each) => ({ ...each, shown: each.rows.filter(fits) })).filter((each) => each.shown.length);
      return html`<${Fragment}>
        <p class="lede">${found.file ? html`<code>${plain(found.file, 300)}</code>, read ${ago(found.loaded_at)}` : html`No file: only defaults and variables`}. It is changed in the file, which is read again on SIGHUP, and with <code>--watch</code> whenever it changes.</p>
        <div class="two conf">
          <div>
            <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
              <div class="f"><label for="word">Setting or value</label><input id="word" type="search" maxlength="100" value=${word} onInput=${(event) => setWord(event.currentTarget.value)} /></div>
              <label class="check"><input type="checkbox" checked=${every} onChange=${(event) => setEvery(event.currentTarget.checked)} /> Defaults too</label>
            </form>
            ${!sections.length && html`<p class="empty">${low ? "No setting fits." : "Everything is at its default."}</p>`}
            ${sections.map(({ name, shown }) => html`<section key=${name} aria-labelledby=${`s-${name}`}><div class="sec"><h2 id=${`s-${name}`} class="mono">${name}</h2></div>
              <dl class="rows">${shown.map((row) => html`<div key=${row.path} class=${row.default ? "usual" : ""}><dt>${plain(row.path === name ? row.path : row.path.slice(name.length).replace(/^\./, ""), 200)}</dt><dd>${plain(row.value, 400)}${row.waits && html` <span class="tag wait">waits for a restart</span>`}</dd></div>`)}</dl></section>`)}
            ${found.cut && html`<${Note}>There are more settings than are shown.<//>`}
          </div>
          <${InForce} found=${found} />
        </div>
      <//>`;
    }}<//>
  <//>`;
}

function InForce({ found }) {
  const switched = Object.entries(found.switched);
  return html`<div class="now">
    ${found.waiting.length > 0 && html`<div class="ask"><h2>Waits for a restart</h2><p>The file has other values by now, which these settings take at the next start:</p><ul>${found.waiting.map((each) => html`<li class="mono">${plain(each, 100)}</li>`)}</ul></div>`}
    ${switched.length > 0 && html`<div class="ask"><h2>Until the next reload</h2><ul>${switched.map(([name, on]) => html`<li><${Link} page="servers" query=${{ name }}>${plain(name, 64)}<//> was ${on ? "enabled" : "disabled"} by an operator</li>`)}</ul></div>`}
    <${Section} title="Patterns that match no tool" id="un">${found.unmatched.length ? html`<ul class="lines">${found.unmatched.map((each) => html`<li class="wait">${plain(each, 400)}</li>`)}</ul>` : html`<${Note}>None: every rule, limit and word matches something.<//>`}<//>
    <${Section} title="Store" id="store"><p class="pad"><${State} state=${found.storage.away ? "down" : "ready"}>${plain(found.storage.shown, 200)}<//></p><p class="foot0">${STORES[found.storage.kind]}</p>
      ${found.storage.away && html`<div class="fail"><p>It is away: ${plain(found.storage.away, 400)}</p></div>`}
      ${found.storage.shortfalls.length > 0 && html`<ul class="lines">${found.storage.shortfalls.map((each) => html`<li>${plain(each, 400)}</li>`)}</ul>`}<//>
    ${[["Left out of the catalog", "lo", found.left_out], ["Keys that end", "ke", found.key_notes]].map(([title, id, lines]) => lines.length > 0 && html`<${Section} title=${title} id=${id} key=${id}><ul class="lines">${lines.map((each) => html`<li>${plain(each, 400)}</li>`)}</ul><//>`)}
    <${Section} title="Catalog" id="cat"><p class="pad">${plural(found.catalog.tools, "tool")}, version <code>${plain(found.catalog.version, 80)}</code></p><p class="foot0">This process runs since ${moment(found.since)}.</p><//>
  </div>`;
}
