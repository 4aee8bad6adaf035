// Calls that wait for an approval, with the arguments that they are bound to: on the pages Gate and Approvals.

import { useState } from "preact/hooks";
import { get, post } from "../api.js";
import { useLive } from "../live.js";
import { followed, href } from "../route.js";
import { Button, announce, html, json, lasting, plain, plural, useEvery, useLoad } from "../ui.js";

export const useApprovals = () => {
  const found = useLoad((signal) => get("approvals", { signal }), []);
  useLive((event) => (event === "approval" || event === "begun" || event === "gap") && found.again());
  return found;
};

const shown = (value) => (typeof value === "string" ? `“${plain(value, 300)}”` : json(value, 300));

// *most*: how many are shown in full; the others are counted.
export function Waiting({ most }) {
  const found = useApprovals();
  const waiting = found.value?.waiting || [];
  if (!waiting.length) return null;
  const [first, more] = [waiting.slice(0, most), waiting.length - most];
  return html`<section class="ask" aria-labelledby="ask">
    <h2 id="ask">${waiting.some((each) => each.own) ? "Waiting for you" : "Waiting for others"}</h2>
    ${first.map((each) => html`<${Ask} ask=${each} key=${each.id} decided=${found.again} />`)}
    ${more > 0 && html`<p><a href=${href("approvals")} onClick=${followed("approvals")}>${plural(more, "more call")} waiting</a></p>`}
  </section>`;
}

export function Ask({ ask, decided }) {
  const [now, setNow] = useState(Date.now() / 1000);
  const [state, setState] = useState({ busy: false, told: "" });
  useEvery(1000, () => setNow(Date.now() / 1000));
  const left = ask.expires_at - now;
  const decide = async (decision) => {
    setState({ busy: true, told: "" });
    try {
      await post(`approvals/${encodeURIComponent(ask.id)}`, { decision });
      announce(decision === "approve" ? "Approved." : "Denied.");
      setState({ busy: false, told: decision === "approve" ? "Approved: the same call will run once." : "Denied." });
      decided();
    } catch (error) {
      setState({ busy: false, told: plain(error.message, 300) });
    }
  };
  const args = Object.entries(ask.args || {});
  return html`<div>
    <p class="what">${plain(ask.name, 120)}</p>
    ${args.length > 0 && html`<dl>${args.slice(0, 20).map(([name, value]) => html`<dt>${plain(name, 80)}</dt><dd>${shown(value)}</dd>`)}</dl>`}
    ${!ask.own && html`<p>For ${plain(ask.actor, 80)}${ask.arg_names?.length ? `; arguments: ${plain(ask.arg_names.join(", "), 200)}` : ""}.</p>`}
    <p>Good for these arguments only, once, ${left > 0 ? `for the next ${lasting(left)}` : "and no longer"}. A change of one letter asks again.</p>
    ${ask.definition_changed && html`<p class="bad">The tool has changed since it was asked.</p>`}
    ${state.told && html`<p role="status">${state.told}</p>`}
    ${ask.may_decide && left > 0 && html`<div class="btns">
      <${Button} main disabled=${state.busy} onClick=${() => decide("approve")}>Approve<//>
      <${Button} disabled=${state.busy} onClick=${() => decide("deny")}>Deny<//>
    </div>`}
  </div>`;
}
