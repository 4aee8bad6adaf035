// The keys that callers hold: whose, for what, for how long, when last used. Never the key itself, nor its hash.

import { get } from "../api.js";
import { Figures, Fragment, Loaded, Note, State, Time, Title, html, lasting, moment, plain, plural, useEvery, useLoad } from "../ui.js";

const STATES = { good: ["ready", "good"], suspended: ["down", "suspended"], expired: ["down", "expired"], not_yet_valid: ["connecting", "not valid yet"] };
const SOON_S = 14 * 86_400;
const REFRESH_MS = 15_000;

export default function Keys() {
  const data = useLoad((signal) => get("keys", { signal }), []);
  useEvery(REFRESH_MS, data.again);
  const found = data.value;
  const ended = found?.keys.filter((key) => key.state === "expired" || key.state === "suspended").length;
  const soon = found?.keys.filter((key) => ends(key, found.now)).length;
  return html`<${Fragment}>
    <div class="top"><${Title} name="Keys">${found ? plural(found.keys.length + found.more, "key") : "Keys"}<//>
      ${found && html`<${Figures} items=${[["Not good any more", ended, ended ? "bad" : ""], ["End soon", soon, soon ? "wait" : ""]]} />`}</div>
    <p class="lede">Keys are made with <code>wicketgate key new</code> and stand in the configuration as hashes, which are not shown here.</p>
    <${Loaded} data=${data}>${({ keys, more, now, since }) => html`<${Fragment}>
      <div class="scroll keys" tabindex="0" role="region" aria-label="Keys"><table><thead><tr><th>Key</th><th>State</th><th>Actor</th><th>Permissions</th><th>Good until</th><th>Last use</th></tr></thead>
        <tbody>${keys.map((key) => {
          const [state, label] = STATES[key.state] || ["down", key.state];
          return html`<tr key=${key.id}>
            <td class="nm">${plain(key.id || "–", 64)}</td><td><${State} state=${state}>${label}<//></td><td>${plain(key.actor, 130)}</td>
            <td>${key.permissions.length ? html`<ul class="may">${key.permissions.slice(0, 20).map((each) => html`<li><code>${plain(each, 100)}</code></li>`)}${key.permissions.length > 20 && html`<li>${key.permissions.length - 20} more</li>`}</ul>` : "none"}</td>
            <td class=${ends(key, now) ? "wait" : ""}>${key.expires_at == null ? "no end" : html`${moment(key.expires_at)}<small>${key.expires_at > now ? `in ${lasting(key.expires_at - now)}` : ""}</small>`}${key.not_before > now && html`<small>good from ${moment(key.not_before)}</small>`}</td>
            <td>${key.last_used == null ? "not yet" : html`<${Time} at=${key.last_used} />`}</td>
          </tr>`;
        })}</tbody></table></div>
      ${more > 0 && html`<${Note}>${plural(more, "more key")} not listed.<//>`}
      <${Note}>Uses are counted by this process, since ${moment(since)}.<//>
    <//>`}<//>
  <//>`;
}

const ends = (key, now) => key.state === "good" && key.expires_at != null && key.expires_at - now < SOON_S;
