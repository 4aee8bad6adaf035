// The keys that callers hold: whose, for what, for how long, when last used. Never the key itself, nor its hash.

import { door, get, send } from "../api.js";
import { Button, Figures, Fragment, Loaded, Note, State, Table, Time, Title, html, lasting, moment, plain, plural, useEvery, useLoad } from "../ui.js";

const STATES = { good: ["ready", "good"], suspended: ["down", "suspended"], expired: ["down", "expired"], not_yet_valid: ["connecting", "not valid yet"] };
const SOON_S = 14 * 86_400;
const REFRESH_MS = 15_000;

export default function Keys({ me }) {
  const data = useLoad((signal) => get("keys", { signal }), []);
  useEvery(REFRESH_MS, data.again);
  const found = data.value;
  const ended = found?.keys.filter((key) => key.state === "expired" || key.state === "suspended").length;
  const soon = found?.keys.filter((key) => ends(key, found.now)).length;
  return html`<${Fragment}>
    <div class="top"><${Title} name="Keys">${found ? plural(found.keys.length + found.more, "key") : "Keys"}<//>
      ${found && html`<${Figures} items=${[["Not good any more", ended, ended ? "bad" : ""], ["End soon", soon, soon ? "wait" : ""]]} />`}</div>
    <p class="lede">Keys are made with <code>wicketgate key new</code>, and configured as hashes.</p>
    <${Loaded} data=${data}>${({ keys, more, now, since }) => html`<${Fragment}>
      <div class="keys"><${Table} columns=${["Key", "State", "Actor", "Permissions", "Good until", "Last use"]} rows=${keys.map((key) => {
        const [state, label] = STATES[key.state] || ["down", key.state];
        return [key.id, [
          html`<span class="nm">${plain(key.id || "–", 64)}</span>`, html`<${State} state=${state}>${label}<//>`, plain(key.actor, 130),
          key.permissions.length ? html`<ul class="may">${key.permissions.slice(0, 20).map((each) => html`<li><code>${plain(each, 100)}</code></li>`)}${key.permissions.length > 20 && html`<li>${key.permissions.length - 20} more</li>`}</ul>` : "none",
          html`<span class=${ends(key, now) ? "wait" : ""}>${key.expires_at == null ? "no end" : html`${moment(key.expires_at)}<small>${key.expires_at > now ? `in ${lasting(key.expires_at - now)}` : ""}</small>`}${key.not_before > now && html`<small>good from ${moment(key.not_before)}</small>`}</span>`,
          key.last_used == null ? "not yet" : html`<${Time} at=${key.last_used} />`,
        ]];
      })} /></div>
      ${more > 0 && html`<${Note}>${plural(more, "more key")} not listed.<//>`}
      <${Note}>Uses are counted by this process, since ${moment(since)}.<//>
    <//>`}<//>
    <${Connections} me=${me} />
  <//>`;
}

function Connections({ me }) {
  const data = useLoad((signal) => get(door("/connections?actor=*"), { signal }), []);
  const end = async ({ upstream, actor }) => {
    await send("DELETE", door(`/connections/${encodeURIComponent(upstream)}?actor=${encodeURIComponent(actor)}`));
    data.again();
  };
  if (!data.value?.connections.length) return null;
  return html`<section aria-labelledby="acc"><div class="sec"><h2 id="acc">Connected accounts</h2></div>
    <${Table} columns=${["Server", "Actor", "State", "Since", me.may.write && "End"]} rows=${data.value.connections.map((each) => [`${each.upstream} ${each.actor}`, [
      plain(each.upstream, 64), plain(each.actor, 130),
      html`<${State} state=${each.state === "active" ? "ready" : "down"}>${each.state === "active" ? "good" : "has to log in"}<//>`,
      moment(Date.parse(each.connected_at) / 1000), ...(me.may.write ? [html`<${Button} onClick=${() => end(each)}>Disconnect<//>`] : []),
    ]])} /></section>`;
}

const ends = (key, now) => key.state === "good" && key.expires_at != null && key.expires_at - now < SOON_S;
