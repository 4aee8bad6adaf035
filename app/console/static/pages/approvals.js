// What waits for an approval, with all of its arguments, and what was decided last.

import { useLive } from "../live.js";
import { Failure, Figures, Fragment, Note, Title, clock, html, lasting, moment, number, plain, plural } from "../ui.js";
import { Arguments, Ask, useApprovals } from "./waiting.js";

export default function Approvals({ me }) {
  const found = useApprovals();
  const { waiting = [], decided = [] } = found.value || {};
  // The stream tells of a use only as the call that it was.
  useLive((event, call) => event === "call" && decided.some((ask) => !ask.used && ask.tool_id === call.tool_id) && found.again());
  const own = waiting.filter((ask) => ask.own);
  const others = waiting.filter((ask) => !ask.own);
  return html`<${Fragment}>
    <div class="top">
      <${Title} name="Approvals">${found.value ? (waiting.length ? `${plural(waiting.length, "call")} waiting` : "Nothing waits for an approval") : "Approvals"}<//>
      ${me.may.read && waiting.length > 0 && html`<${Figures} items=${[["For you", number(own.length), own.length ? "wait" : ""], ["For others", number(others.length)]]} />`}
    </div>
    <p class="lede">A call that a rule holds is shown here as it would be sent. To approve it does not run it: the caller makes the same call
      again, which then runs once. With another argument it asks again. Only the actor whose call it is decides.</p>
    <${Failure} error=${found.error} again=${found.again} />
    ${own.length > 0 && html`<section aria-labelledby="own">
      <div class="sec"><h2 id="own">Waiting for you</h2></div>
      <div class="asks">${own.map((ask) => html`<div class="ask" key=${ask.id}><${Ask} ask=${ask} decided=${found.again} whole /><${Since} ask=${ask} /></div>`)}</div>
    </section>`}
    ${others.length > 0 && html`<section aria-labelledby="others">
      <div class="sec"><h2 id="others">Waiting for others</h2></div>
      <div class="scroll" tabindex="0" role="region" aria-labelledby="others"><table>
        <thead><tr><th scope="col">Tool</th><th scope="col">For</th><th scope="col">Arguments</th><th scope="col">Asked</th><th scope="col" class="r">Time left</th></tr></thead>
        <tbody>${others.map((ask) => html`<tr key=${ask.id}>
          <td class="nm">${plain(ask.name, 120)}${ask.definition_changed && html` <span class="tag bad">changed</span>`}</td>
          <td>${plain(ask.actor, 80)}</td><td>${plain(ask.arg_names.join(", ") || "none", 300)}</td>
          <td title=${moment(ask.asked_at)}>${clock(ask.asked_at)}</td><td class="r">${lasting(ask.expires_at - Date.now() / 1000)}</td>
        </tr>`)}</tbody>
      </table></div>
    </section>`}
    <section aria-labelledby="decided">
      <div class="sec"><h2 id="decided">Decided</h2></div>
      ${decided.length ? html`<${Decided} decided=${decided} />` : html`<p class="empty">None since this process began. The audit keeps all decisions, without the arguments.</p>`}
    </section>
  <//>`;
}

const Since = ({ ask }) => html`<p class="since">Asked at <time title=${moment(ask.asked_at)}>${clock(ask.asked_at)}</time> by ${plain(ask.actor, 80)} · <code>${plain(ask.tool_id, 300)}</code></p>`;

function Decided({ decided }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-labelledby="decided"><table>
    <thead><tr><th scope="col">Tool</th><th scope="col">For</th><th scope="col">Arguments</th><th scope="col">Decided</th><th scope="col">Decision</th></tr></thead>
    <tbody>${decided.map((ask) => html`<tr key=${ask.id}>
      <td class="nm">${plain(ask.name, 120)}</td><td>${plain(ask.actor, 80)}</td>
      <td>${ask.args ? html`<${Arguments} args=${ask.args} />` : plain(ask.arg_names.join(", ") || "none", 300)}</td>
      <td title=${moment(ask.decided_at)}>${clock(ask.decided_at)}</td>
      <td class=${ask.decision === "deny" ? "bad" : ""}>${ask.decision === "deny" ? "denied" : ask.used ? "approved, used" : "approved"}</td>
    </tr>`)}</tbody>
  </table></div>
  <${Note}>The last ${number(50)} of this process at most; “used” is told of approvals that were given here.<//>`;
}
