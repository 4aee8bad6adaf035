// What waits for an approval, with all of its arguments, and what was decided last.

import { get } from "../api.js";
import { useLive } from "../live.js";
import { Figures, Fragment, Loaded, Note, Pre, Table, Title, clock, html, lasting, moment, number, plain, plural, useEvery, useLoad } from "../ui.js";
import { Arguments, Ask, isMine, useApprovals } from "./waiting.js";

export default function Approvals({ me }) {
  const found = useApprovals();
  const { waiting = [], decided = [] } = found.value || {};
  // The stream tells of a use only as the call that it was.
  useLive((event, call) => event === "call" && decided.some((ask) => !ask.used && ask.tool_id === call.tool_id) && found.again());
  const now = Date.now() / 1000;
  const own = waiting.filter(isMine);
  const others = waiting.filter((ask) => !isMine(ask));
  return html`<${Fragment}>
    <div class="top">
      <${Title} name="Approvals">${found.value ? (waiting.length ? `${plural(waiting.length, "call")} waiting` : "Nothing waits for an approval") : "Approvals"}<//>
      ${me.may.read && waiting.length > 0 && html`<${Figures} items=${[["For you", number(own.length), own.length ? "wait" : ""], ["For others", number(others.length)]]} />`}
    </div>
    <p class="lede">A call that a rule holds is shown here as it would be sent. To approve it does not run it: the caller makes the same call
      again, which then runs once. With another argument it asks again. The actor whose call it is decides, or those whom the rule names.</p>
    <${Loaded} data=${found}>${() => null}<//>
    ${own.length > 0 && html`<section aria-labelledby="own">
      <div class="sec"><h2 id="own">Waiting for you</h2></div>
      <div class="asks">${own.map((ask) => html`<div class="ask" key=${ask.id}><${Ask} ask=${ask} decided=${found.again} whole together=${own.filter((each) => each.program && each.program === ask.program && each.may_decide)} /></div>`)}</div>
    </section>`}
    ${others.length > 0 && html`<section aria-labelledby="others">
      <div class="sec"><h2 id="others">Waiting for others</h2></div>
      <${Table} columns=${["Tool", "Server", "For", "Needs", "Arguments", "Asked", "Waits for", ["Time left", "r"]]} rows=${others.map((ask) => [ask.id, [
        html`<span class="nm">${plain(ask.name, 120)}</span>${ask.definition_changed && html` <span class="tag bad">changed</span>`}`,
        plain(ask.server, 64) || "–", plain(ask.actor, 80), needs(ask), plain(ask.arg_names.join(", ") || "none", 300),
        html`<span title=${moment(ask.asked_at)}>${clock(ask.asked_at)}</span>`, lasting(now - ask.asked_at), lasting(ask.expires_at - now),
      ]])} />
    </section>`}
    <${Programs} />
    <section aria-labelledby="decided">
      <div class="sec"><h2 id="decided">Decided</h2></div>
      ${!found.value ? null : decided.length ? html`<${Decided} decided=${decided} />` : html`<p class="empty">None lately. The audit keeps all decisions, without the arguments.</p>`}
    </section>
  <//>`;
}

// Programs of models that outlived their requests: their text, what they have called, and the call that waits.
function Programs() {
  const found = useLoad((signal) => get("programs", { signal }), []);
  useLive((event) => (event === "approval" || event === "call" || event === "gap") && found.value?.on && found.again());
  // The end of a program is no event.
  useEvery(2000, () => found.value?.programs.some((each) => each.status === "running") && found.again());
  if (!found.value?.programs.length) return null;
  return html`<section aria-labelledby="programs">
    <div class="sec"><h2 id="programs">Programs</h2></div>
    <${Table} columns=${["Program", "For", "State", "Calls", "Waits for", "Began"]} rows=${found.value.programs.map((each) => [each.id, [
      each.text ? html`<details><summary>${plain(each.id, 40)}</summary><${Pre} label=${`Program ${each.id}`}>${plain(each.text, 20000)}<//></details>` : plain(each.id, 40),
      plain(each.actor, 80), plain(each.status, 20),
      plain(Object.entries(each.ran).map(([tool, times]) => `${tool} (${times})`).join(", ") || "none", 300),
      plain(each.waits, 300) || "–", html`<span title=${moment(each.began)}>${clock(each.began)}</span>`,
    ]])} />
  </section>`;
}

const needs = (ask) => {
  const approved = ask.votes.filter((vote) => vote.decision === "approve").map((vote) => plain(vote.actor, 80));
  return `${plain(ask.needs || ask.actor, 300)}${approved.length ? `; approved by ${approved.join(", ")}` : ""}`;
};

// What each approver has said, where others than the caller decide.
const words = ({ votes }) => votes.map((vote) => `; ${vote.decision === "deny" ? "denied" : "approved"} by ${plain(vote.actor, 80)}`).join("");

function Decided({ decided }) {
  return html`<${Fragment}>
    <${Table} columns=${["Tool", "Server", "For", "Arguments", "Decided", "Decision"]} rows=${decided.map((ask) => [ask.id, [
      html`<span class="nm">${plain(ask.name, 120)}</span>`, plain(ask.server, 64) || "–", plain(ask.actor, 80),
      ask.args ? html`<${Arguments} args=${ask.args} />` : plain(ask.arg_names.join(", ") || "none", 300),
      html`<span title=${moment(ask.decided_at)}>${clock(ask.decided_at)}</span>`,
      html`<span class=${ask.decision === "deny" ? "bad" : ""}>${ask.decision === "deny" ? "denied" : ask.used ? "approved, used" : "approved"}${words(ask)}</span>`,
    ]])} />
    <${Note}>The last ${number(50)} at most, until their approvals expire.<//>
  <//>`;
}
