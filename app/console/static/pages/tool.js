// One tool: its card against its definition, why it ranks, its schema, its pin, who may use it, its last calls; and Run.

import { useEffect, useRef } from "preact/hooks";
import { get } from "../api.js";
import { useLive } from "../live.js";
import { followed, go, href } from "../route.js";
import { Copy, Fragment, Loaded, Note, Pane, Pre, Table, Tabs, Tile, Time, html, json, ms, number, outcome, plain, plural, useLoad } from "../ui.js";
import { resolved, typeWords } from "./form.js";
import { Accept, Signs } from "./held.js";
import { Run } from "./run.js";

const FIELDS = { name: "name", namespace: "namespace", said: "your words for it", description: "description", arguments: "arguments", learned: "learned from runs" };
const MOST_ARGUMENTS = 100;
export const MOST_COLOURS = 5;

// The colour of each word, by its place: words that count are coloured in their order.
export function colours(words) {
  let colour = 0;
  return words.map((word) => (word.idle ? "w4" : `w${Math.min(colour++, MOST_COLOURS - 1)}`));
}

export function Tool({ id, query, me, found }) {
  const asked = ["key", "actor", "permissions", "roles"].filter((name) => query[name]).map((name) => `&${name}=${encodeURIComponent(query[name])}`).join("");
  const data = useLoad((signal) => get(`tool?id=${encodeURIComponent(id)}${asked}`, { signal }), [id, asked]);
  useLive((event) => event === "catalog" && data.again());
  const hit = found?.hits.find((each) => each.id === id);
  const choose = (next) => go("tools", { ...query, id, tab: next }, { replace: true });
  return html`<${Loaded} data=${data}>${(tool) => {
    const tabs = [...(tool.hidden ? [] : [["run", "Run"]]), ...(found ? [["why", "Why here"]] : []), ["schema", "Schema"], ...(me.may.read ? [["pin", "Pin"], ["who", "Who may"]] : []), ["calls", "Calls"]];
    const tab = tabs.some(([name]) => name === query.tab) ? query.tab : tool.hidden ? "who" : found ? "why" : "run";
    return html`<article class="card" aria-labelledby="toolname">
    <${Name} name=${tool.name} opened=${query.id} />
    <p class="id">${plain(tool.id, 300)} <${Copy} text=${tool.id} /></p>
    ${tool.title && html`<p class="foot0">${plain(tool.title, 200)}</p>`}
    <p class="lede">${plain(tool.description, 600)}</p>
    <p class="tags">
      <span><${Tile} writes=${tool.writes} />${tool.writes ? "changes things" : "reads"}, by its own word</span>
      ${tool.path && html`<span><a href=${href("gate", { path: up(tool.path) })} onClick=${followed("gate", { path: up(tool.path) })}>${plain(up(tool.path), 100)}</a></span>`}
      ${tool.traffic && html`<span>${plural(tool.traffic[0], "call")}${tool.traffic[1] ? `, ${number(tool.traffic[1])} failed` : ""}${tool.traffic[2] == null ? "" : `, median ${ms(tool.traffic[2])}`}</span>`}
      ${tool.hidden && html`<span class="wait">hidden from you</span>`}
      ${tool.pin && html`<span class=${tool.pin.state === "suspicious" ? "wait" : ""}>${PINS[tool.pin.state]}</span>`}
    </p>
    <${Compared} tool=${tool} />
    <${Tabs} label="About this tool" tabs=${tabs} tab=${tab} choose=${choose} />
    <${Pane} tab=${tab}>
      ${tab === "run" && html`<${Run} tool=${tool} ran=${data.again} />`}
      ${tab === "why" && html`<${Why} hit=${hit} found=${found} />`}
      ${tab === "schema" && html`<${Schemas} tool=${tool} />`}
      ${tab === "pin" && html`<${Pin} tool=${tool} again=${data.again} />`}
      ${tab === "who" && html`<${Who} tool=${tool} query=${query} />`}
      ${tab === "calls" && html`<${Calls} tool=${tool} all=${me.may.read} />`}
    <//>
  </article>`;
  }}<//>`;
}

const PINS = { none: "not pinned", accepted: "as it was accepted", new: "in use, never accepted", suspicious: "suspicious" };
const up = (path) => path.slice(0, path.lastIndexOf("/")) || "/";

// Where the list makes room for the tool, or is longer than the page, the reader is taken along.
function Name({ name, opened }) {
  const head = useRef(null);
  useEffect(() => {
    if (!opened) return;
    if (!document.querySelector(".tl .list")?.offsetParent) head.current.focus();
    else if (head.current.getBoundingClientRect().top < 0) head.current.scrollIntoView();
  }, [opened]);
  return html`<h2 class="name" id="toolname" tabindex="-1" ref=${head}>${plain(name, 200)}</h2>`;
}

function Compared({ tool }) {
  const most = Math.max(tool.card.tokens, tool.definition_tokens, 1);
  const bar = (value) => ({ width: `${Math.max(1, (value / most) * 100)}%` });
  return html`<${Fragment}>
    <dl class="cmp">
      <dt>Its card</dt><dd class="a" aria-hidden="true"><i style=${bar(tool.card.tokens)} /></dd><dd class="r">${number(tool.card.tokens)} tokens</dd>
      <dt>Its definition</dt><dd aria-hidden="true"><i style=${bar(tool.definition_tokens)} /></dd><dd class="r">about ${number(tool.definition_tokens)} tokens</dd>
    </dl>
    ${tool.card.text ? html`<p class="line">${plain(tool.card.text, 1000)}</p>` : html`<p class="foot">It has no card, so no search gives it: ${plain(tool.no_card, 300)}</p>`}
  <//>`;
}

function Why({ hit, found }) {
  const words = plain(found.query, 200);
  if (!hit?.parts.length) return html`<p>It is not among the first ${number(found.hits.length)} for “${words}”.</p>`;
  const tints = colours(found.words);
  const place = found.hits.filter((each) => each.score > hit.score).length + 1;
  const top = Math.max(...hit.parts.map((part) => part.adds), 1e-9);
  const missing = found.words.filter((word, at) => !word.idle && !hit.parts.some((part) => part.word === at));
  const learned = hit.parts.reduce((all, part) => all + part.learned, 0);
  return html`<div class="why">
    <p>Place ${place} for “${words}”, score ${hit.score.toFixed(4)}.</p>
    <${Table} columns=${["word", "found in its", ["rarity", "r"], ["weight", "r"], ["share", "b"], ["adds", "r"]]} rows=${hit.parts.map((part, at) => [at, [
      html`${part.word == null ? plain(part.term, 60) : plain(found.words[part.word].text, 60)}${part.via && part.via !== part.term && html` <small>as “${plain(part.via, 40)}”</small>`}`,
      part.fields.map((field) => FIELDS[field]).join(", "), part.rarity.toFixed(2), part.weight ? part.weight.toFixed(2) : "–",
      html`<i aria-hidden="true" class=${part.word == null ? "w4" : tints[part.word]} style=${{ width: `${(part.adds / top) * 100}%` }} />`,
      part.adds.toFixed(3),
    ]])} />
    <p class="sum0">Together <b>${hit.parts.reduce((all, part) => all + part.adds, 0).toFixed(3)}</b></p>
    ${missing.length > 0 && html`<p>It lacks ${missing.map((word) => `“${plain(word.text, 40)}”`).join(", ")}, which lowers its score.</p>`}
    ${learned > 0 && html`<p>${learned.toFixed(3)} of it was learned: these words led to runs of this tool before.</p>`}
    ${hit.factors.coverage && html`<p>A long request: what each word adds was taken times ${hit.factors.coverage.toFixed(2)}, by how much of the request the tool has.</p>`}
    ${hit.factors.other_deed && html`<p>Its name says another deed than the request: times ${hit.factors.other_deed.toFixed(2)}.</p>`}
    ${hit.factors.behind && html`<p>It stays behind the first 20, which were ordered again: times ${hit.factors.behind.toFixed(2)}.</p>`}
    ${hit.request.length > 0 && html`<p>The query asks for several things. This one counts for it beside the whole: “${hit.request.map((at) => plain(found.words[at].text, 40)).join(" ")}”.</p>`}
    <${Note}>A score is the share of what a tool made for these words would reach. Rarity: words that few tools have count for more. Weight: where in the tool the word stands, and how long that text is.<//>
  </div>`;
}

function Schemas({ tool }) {
  const schema = tool.input_schema;
  const top = schema ? resolved(schema, schema) : {};
  const names = Object.keys(top.properties || {}).slice(0, MOST_ARGUMENTS);
  const required = Array.isArray(top.required) ? top.required : [];
  return html`<${Fragment}>
    ${tool.description.length > 600 && html`<details><summary>The whole description</summary><${Pre} label="Description">${plain(tool.description)}<//></details>`}
    ${names.length
      ? html`<${Table} columns=${["argument", "type", "what it is"]} rows=${names.map((name) => {
          const each = resolved(top.properties[name], schema);
          return [name, [
            html`<span class="nm">${plain(name, 100)}</span>${required.includes(name) && html`<span class="must"> *<span class="vh"> required</span></span>`}`, typeWords(each, schema),
            html`${plain(typeof each.description === "string" ? each.description : "", 600)}${Array.isArray(each.enum) && html`<small class="enum">${plain(each.enum.map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join(", "), 400)}</small>`}`,
          ]];
        })} />`
      : html`<p>It takes no named arguments.</p>`}
    ${[["Input schema", schema], ["Output schema", tool.output_schema], ["Hints of its server, not verified", tool.annotations], ["Examples", tool.examples?.length ? tool.examples : null], ["The whole definition", tool.definition]].map(
      ([name, value]) => value && html`<details key=${name}><summary>${name}</summary><${Pre} label=${name}>${json(value)}<//><${Copy} text=${JSON.stringify(value, null, 2)} /></details>`,
    )}
    ${!schema && html`<${Note}>Its schema is too large to be shown here.<//>`}
  <//>`;
}

function Pin({ tool, again }) {
  const { pin } = tool;
  return html`<${Fragment}>
    ${pin.state === "accepted" && html`<p>Its definition is the one that was accepted${pin.trusted ? ", by a person who was shown its suspicious signs" : ""}. If it changes, it is <a href=${href("tools", { show: "held" })} onClick=${followed("tools", { show: "held" })}>quarantined</a>: nobody can call it until somebody accepts the change.</p>`}
    ${pin.state === "none" && html`<p>Nothing is pinned at this gate: a server can change this definition at any time. <code>wicketgate lock</code> keeps definitions as they are now, and with <code>pins.file</code> what differs is quarantined.</p>`}
    ${pin.state === "new" && html`<p>It is in use, and no person has accepted it: <code>pins.new_tools</code> lets new tools in.</p>`}
    <${Signs} signs=${pin.signs} />
    ${(pin.state === "new" || pin.state === "suspicious") && html`<${Accept} source=${tool.upstream} name=${tool.upstream_name} digest=${pin.digest} may=${pin.may_accept} accepted=${again} signs=${pin.signs} lines=${[]} definition=${tool.definition} />`}
    ${pin.digest && html`<p class="foot">SHA-256 of the definition: <code>${pin.digest}</code></p>`}
  <//>`;
}

function Who({ tool, query }) {
  const { policy } = tool;
  const see = (more) => go("tools", { ...query, id: tool.id, tab: "who", key: "", actor: "", permissions: "", roles: "", ...more }, { replace: true });
  const pick = (event) => see({ key: event.target.value });
  const ask = (event) => {
    event.preventDefault();
    see(Object.fromEntries(new FormData(event.target)));
  };
  return html`<${Fragment}>
    <div class="f who-key"><label for="whokey">Key</label><select id="whokey" value=${policy.key} onChange=${pick}>
      ${!policy.keys.some((each) => each.id === policy.key) && html`<option value=${policy.key}>${plain(policy.actor, 80)}</option>`}
      ${policy.keys.map((each) => html`<option value=${each.id} key=${each.id}>${plain(each.id, 60)} (${plain(each.actor, 60)})</option>`)}
    </select></div>
    <details open=${!!query.actor}><summary>Another caller</summary><form class="filters" onSubmit=${ask}>
      ${[["actor", "Actor"], ["permissions", "Permissions"], ["roles", "Roles"]].map(([name, label]) => html`<div class="f" key=${name}><label for=${`who-${name}`}>${label}</label>
        <input id=${`who-${name}`} name=${name} maxlength="500" autocomplete="off" required=${name === "actor"} placeholder=${name === "permissions" ? "tools:github:*" : ""} defaultValue=${query[name] || ""} /></div>`)}
      <button class="btn">Ask</button></form></details>
    <p>${plain(policy.actor, 130)}: <b class=${policy.usable ? "ok" : "bad"}>${policy.usable ? "Sees it" : "Does not see it"}</b></p>
    <ol class="steps">${policy.lines.map((line, at) => html`<li key=${at} class=${line.startsWith("  ") ? "in" : ""}>${plain(line.trim(), 400)}</li>`)}</ol>
    <${Note}>The same as <code>wicketgate explain</code> tells. No caller is told this.<//>
  <//>`;
}

function Calls({ tool, all }) {
  if (!tool.recent.length) return html`<p>${all ? "Nobody has" : "You have not"} called it of late.</p>`;
  return html`<${Fragment}>
    <${Table} columns=${["when", all && "actor", "outcome", ["took", "r"]]} rows=${tool.recent.map((call) => {
      const [word, tone] = outcome(call);
      return [call.id, [html`<${Time} at=${call.at} />`, ...(all ? [plain(call.actor, 60)] : []), html`<span class=${tone}>${word}</span>${call.code && html` <small>${plain(call.code, 60)}</small>`}`, ms(call.duration_ms)]];
    })} />
    <p class="foot"><a href=${href("calls", { tool: tool.id })} onClick=${followed("calls", { tool: tool.id })}>All its calls</a></p>
  <//>`;
}
