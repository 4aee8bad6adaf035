// Search as the model does: what it would be given, and why; and one tool whole. Quarantined definitions with their differences.

import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../api.js";
import { useLive } from "../live.js";
import { followed, go, href } from "../route.js";
import { Fragment, Loaded, Nothing, Title, html, number, plain, plural, useLater, useLoad } from "../ui.js";
import { Held, HeldList } from "./held.js";
import { MOST_COLOURS, Tool, colours } from "./tool.js";

const MOST_LISTED = 200;

// The session of the view "as sent": of this tab, until it is begun anew.
let session = newSession();
function newSession() {
  return Math.random().toString(36).slice(2, 12);
}

const with_ = (query, more) => ({ ...query, ...more });

export default function Tools({ query, me }) {
  const sent = query.view === "sent";
  const held = query.show === "held";
  const [text, setText] = useState(query.q || "");
  const settled = useLater(text, 160);
  const wanted = query.q || "";
  const told = useRef(wanted);
  const search = (q, replace) => {
    told.current = q;
    go("tools", with_(query, { q, id: "", show: "", tool: "" }), { replace });
  };
  // A letter more is the same search, seen otherwise; a session is only told what was meant to be asked.
  useEffect(() => {
    if (!sent && settled.trim() !== told.current && settled === text) search(settled.trim(), true);
  }, [settled]);
  // The browser went back, or a link was followed.
  useEffect(() => {
    if (wanted !== told.current) {
      told.current = wanted;
      setText(wanted);
    }
  }, [wanted]);
  const ask = (signal) => get(`search?q=${encodeURIComponent(wanted)}${sent ? `&session=${session}` : ""}`, { signal });
  const found = useLoad(wanted ? ask : async () => null, [wanted, sent]);
  const chosen = query.id || (wanted && !held ? found.value?.hits[0]?.id : "");
  const submit = (event) => {
    event.preventDefault();
    if (text.trim() !== wanted) search(text.trim());
    else if (sent) found.again();
  };
  const open = query.id || query.tool;
  return html`<div class=${`two tl${open ? " open" : ""}`}>
    <div class="left">
      <${Title} name="Tools">Search as the model does<//>
      <form class="q" role="search" onSubmit=${submit}>
        <label for="q" class="vh">What the tool should do</label>
        <input id="q" type="search" value=${text} maxlength="500" autocomplete="off" placeholder="What should the tool do?" onInput=${(event) => setText(event.target.value)} />
      </form>
      ${open && html`<p class="back"><a href=${href("tools", with_(query, { id: "", tool: "" }))} onClick=${followed("tools", with_(query, { id: "", tool: "" }))}>← ${held ? "All that is quarantined or suspicious" : wanted ? "All results" : "All tools"}</a></p>`}
      <div class="list">
        ${held
          ? html`<${HeldList} query=${query} />`
          : wanted
            ? html`<${Loaded} data=${found}>${(value) => value && html`<${Results} found=${value} query=${query} chosen=${chosen} sent=${sent} again=${() => {
                session = newSession();
                found.again();
              }} />`}<//>`
            : html`<${All} query=${query} me=${me} />`}
      </div>
    </div>
    <div class="right">
      ${held && query.tool && html`<${Held} key=${query.tool} wanted=${query.tool} />`}
      ${!held && chosen && html`<${Tool} key=${chosen} id=${chosen} query=${query} me=${me} found=${wanted ? found.value : null} />`}
      ${!held && !chosen && !wanted && html`<${About} />`}
    </div>
  </div>`;
}

const About = () => html`<div class="about">
  <h2>What you see here</h2>
  <p>A model has three tools. With <code>tool_browse</code> it searches by words, and gets a card for each tool that fits: one line, at most 80 tokens. This page asks the same question of the same ranking, and adds why each tool is where it is.</p>
  <p>Choose a tool for its schema, its pin and who may use it, and to run it with your own permissions.</p>
</div>`;

// Words.

function Words({ words }) {
  let colour = 0;
  return html`<p class="words"><span class="vh">The words of the query: </span>${words.map((word, place) => {
    if (word.idle) return html`<span class="skip2" key=${place} title="says nothing of any tool">${plain(word.text, 60)}</span> `;
    const mine = colour++;
    if (!word.found_in) return html`<span class="miss" key=${place}>${plain(word.text, 60)} <small>in no tool</small></span> `;
    return html`<span class="hit" key=${place}><i class=${`w${Math.min(mine, MOST_COLOURS - 1)}`} aria-hidden="true" />${plain(word.text, 60)} <small>in ${number(word.found_in)}</small></span> `;
  })}</p>`;
}

// Results.

function Results({ found, query, chosen, sent, again }) {
  const tints = colours(found.words);
  const top = Math.max(...found.hits.map((hit) => hit.score || 0), 0.0001);
  return html`<${Fragment}>
    <${Words} words=${found.words} />
    ${found.cache_stable && html`<div class="views" role="group" aria-label="Order">
      ${[["", "Ranked"], ["sent", "As sent in this session"]].map(
        ([view, name]) => html`<a key=${view} href=${href("tools", with_(query, { view, id: "" }))} onClick=${followed("tools", with_(query, { view, id: "" }))} aria-current=${(query.view || "") === view ? "true" : null}>${name}</a>`,
      )}
      ${sent && html`<button class="lnk" type="button" onClick=${again}>New session</button>`}
    </div>`}
    <div class="sec">
      <h2>${found.matched ? `${number(found.matched)} ${found.matched === 1 ? "tool matches" : "tools match"}` : "Nothing matches"}</h2>
      <span class="foot0">${found.shown ? `${plural(found.shown, "card")}, ${number(found.tokens)} tokens, not about ${number(found.naive_tokens)}` : ""}</span>
    </div>
    ${!found.hits.length && html`<p class="empty">A model is told: “${plain(found.text, 300)}”</p>`}
    <ol class="res">
      ${found.hits.map((hit, place) => html`<${Fragment} key=${hit.id}>
        ${!sent && place === found.shown && html`<li class="cut"><p>A model is given the ${found.shown} above. These also match:</p></li>`}
        ${sent && place > 0 && found.hits[place - 1].seen && !hit.seen && html`<li class="cut"><p>Above: as sent before, in the same bytes, so that a prompt cache keeps them. Below: new.</p></li>`}
        <${Hit} hit=${hit} place=${place} query=${query} current=${hit.id === chosen} tints=${tints} top=${top} sent=${sent} />
      <//>`)}
    </ol>
    ${found.hits.length > 0 && html`<details class="asread"><summary>As the model reads it</summary><pre tabindex="0">${plain(found.text)}</pre></details>`}
  <//>`;
}

function Hit({ hit, place, query, current, tints, top, sent }) {
  const to = with_(query, { id: hit.id });
  const stale = sent && hit.seen && hit.sent_score != null && hit.sent_score !== hit.score;
  const width = (part) => `${Math.max(0, (part.adds / top) * 100)}%`;
  return html`<li><a href=${href("tools", to)} onClick=${followed("tools", to)} aria-current=${current ? "true" : null}>
    <span class="rk">${place + 1}</span>
    <span class="nm">${plain(hit.name, 80)}<small>${plain(hit.namespace, 60)}</small>${sent && hit.seen && html`<span class="tag">sent before</span>`}</span>
    <span class="ds">${plain(hit.about, 200)}</span>
    <span class="sc">${(sent && hit.sent_score != null ? hit.sent_score : hit.score ?? 0).toFixed(2)}<small>${hit.card.tokens} tok</small></span>
    <span class="seg" aria-hidden="true">${hit.parts.map((part, at) => html`<i key=${at} class=${part.word == null ? "w4" : tints[part.word]} style=${{ width: width(part) }} />`)}</span>
    ${stale && html`<span class="ds wait">Its score is that of then; for these words it is ${hit.score == null ? "none" : hit.score.toFixed(2)}.</span>`}
  </a></li>`;
}

// All tools, where nothing is asked for.

function All({ query, me }) {
  const map = useLoad((signal) => get("map?path=%2F", { signal }), []);
  useLive((event) => event === "catalog" && map.again());
  return html`<${Loaded} data=${map}>${(found) => {
    const known = found.columns.id.length;
    const [id, name, about, writes] = ["id", "name", "about", "writes"].map((each) => [...found.columns[each], ...found.hidden[each]]);
    const odd = new Set(found.suspicious);
    return html`<${Fragment}>
      ${me.may.read && (found.held > 0 || odd.size > 0) && html`<p class="heldline"><a href=${href("tools", { show: "held" })} onClick=${followed("tools", { show: "held" })}>${[found.held && `${plural(found.held, "tool")} quarantined`, odd.size && `${number(odd.size)} suspicious in use`].filter(Boolean).join(", ")}</a></p>`}
      ${!id.length && html`<${Nothing} read=${me.may.read && !found.upstreams.length} />`}
      <div class="sec"><h2>${plural(id.length, "tool")}</h2>${id.length > MOST_LISTED && html`<span class="foot0">the first ${MOST_LISTED}; search for the others</span>`}</div>
      <ol class="res plainlist">${id.slice(0, MOST_LISTED).map((each, at) => {
        const to = with_(query, { id: each });
        return html`<li key=${each}><a href=${href("tools", to)} onClick=${followed("tools", to)} aria-current=${query.id === each ? "true" : null}>
          <i class=${`t key${writes[at] ? " w" : ""}`} role="img" aria-label=${writes[at] ? "changes things" : "reads"} />
          <span class="nm">${plain(name[at], 80)}<small>${plain(each.split(":")[0], 60)}</small>${odd.has(each) && html`<span class="tag wait">suspicious</span>`}${at >= known && html`<span class="tag">hidden from you</span>`}</span>
          <span class="ds">${plain(about[at], 160)}</span>
        </a></li>`;
      })}</ol>
    <//>`;
  }}<//>`;
}
