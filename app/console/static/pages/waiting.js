// Calls that wait for an approval, with the arguments that they are bound to: on the pages Gate and Approvals.

import { useState } from "preact/hooks";
import { get, post } from "../api.js";
import { useLive } from "../live.js";
import { followed, href } from "../route.js";
import { Button, announce, html, json, lasting, moment, plain, plural, useEvery, useLoad } from "../ui.js";

export const useApprovals = () => {
  const found = useLoad((signal) => get("approvals", { signal }), []);
  useLive((event) => (event === "approval" || event === "begun" || event === "gap") && found.again());
  return found;
};

const DOORS = { chat: "the chat", mcp: "/mcp", stdio: "stdio", operations: "/operations", console: "the console" };
const SHORT = 300;
const LONG = 100_000;
const MOST = 20;

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const shown = (value, longest) => (typeof value === "string" ? `“${plain(value, longest)}”` : json(value, longest));
const isCut = (args) => Object.keys(args).length > MOST || Object.values(args).some((value) => text(value).length > SHORT);

// *whole*: all of it, to decide by. Otherwise what fits beside other things.
export function Arguments({ args, whole }) {
  const entries = Object.entries(args || {});
  if (!entries.length) return html`<p>Without arguments.</p>`;
  const first = whole ? entries : entries.slice(0, MOST);
  return html`<dl>${first.map(([name, value]) => html`<dt key=${name}>${plain(name, whole ? LONG : 80)}</dt><dd>${shown(value, whole ? LONG : SHORT)}</dd>`)}</dl>`;
}

// The reasons of a flow rule, one a line.
export const Why = ({ text }) => (text || "").split("\n").filter(Boolean).map((line) => html`<p class="bad" key=${line}>${plain(line, 1000)}</p>`);

// Calls that the reader decides on: its own, and those whose rule names it. What others decide is listed apart.
export const isMine = (ask) => (ask.needs ? ask.approver : ask.own);

// *most*: how many are shown in full; the others are counted.
export function Waiting({ most }) {
  const found = useApprovals();
  const waiting = (found.value?.waiting || []).toSorted((a, b) => isMine(b) - isMine(a));
  if (!waiting.length) return null;
  const [first, more] = [waiting.slice(0, most), waiting.length - most];
  return html`<section class="ask" aria-labelledby="ask">
    <h2 id="ask">${waiting.some(isMine) ? "Waiting for you" : "Waiting for others"}</h2>
    ${first.map((each) => html`<${Ask} ask=${each} key=${each.id} decided=${found.again} />`)}
    ${more > 0 && html`<p><a href=${href("approvals")} onClick=${followed("approvals")}>${plural(more, "more call")} waiting</a></p>`}
  </section>`;
}

// *together*: the calls of the same program that are shown beside it, itself included.
export function Ask({ ask, decided, whole, together = [] }) {
  const [now, setNow] = useState(Date.now() / 1000);
  const [state, setState] = useState({ busy: false, told: "" });
  useEvery(1000, () => setNow(Date.now() / 1000));
  const left = ask.expires_at - now;
  const decide = async (decision) => {
    setState({ busy: true, told: "" });
    try {
      const { complete } = await post(`approvals/${encodeURIComponent(ask.id)}`, { decision });
      announce(decision === "deny" ? "Denied." : "Approved.");
      const done = complete ? "Approved: the caller must make the same call again; it then runs once." : "Approved by you; it waits for another approver.";
      setState({ busy: false, told: decision === "deny" ? "Denied." : done });
      decided();
    } catch (error) {
      setState({ busy: false, told: plain(error.message, 300) });
    }
  };
  // Exactly those that are shown: what the program asks for later asks again.
  const approveAll = async () => {
    setState({ busy: true, told: "" });
    try {
      for (const each of together) await post(`approvals/${encodeURIComponent(each.id)}`, { decision: "approve" });
      announce("Approved.");
      setState({ busy: false, told: `Approved: ${plural(together.length, "call")}, each of them once.` });
    } catch (error) {
      setState({ busy: false, told: plain(error.message, 300) });
    }
    decided();
  };
  // Nobody decides on what is not shown.
  const cut = !whole && isMine(ask) && ask.args && isCut(ask.args);
  const approved = ask.votes.filter((vote) => vote.decision === "approve").map((vote) => plain(vote.actor, 80));
  return html`<div>
    <p class="what">${plain(ask.name, 120)}</p>
    <p class="from">${ask.server ? `on ${plain(ask.server, 64)}, ` : ""}for ${plain(ask.actor, 80)}${ask.key_id ? ` (key ${plain(ask.key_id, 64)})` : ""}${ask.door ? `, through ${DOORS[ask.door] || plain(ask.door, 20)}` : ""}, waiting for <time title=${moment(ask.asked_at)}>${lasting(now - ask.asked_at)}</time></p>
    ${ask.args && html`<${Arguments} args=${ask.args} whole=${whole} />`}
    ${isMine(ask) && !ask.args && html`<p class="bad">The arguments are too large to be shown${ask.needs ? ", so nobody can decide on them" : ": decide in the client that made the call"}.</p>`}
    ${ask.needs && html`<p>Needs the approval of ${plain(ask.needs, 300)}${approved.length > 0 && html`; approved by ${approved.join(", ")}`}.</p>`}
    ${!isMine(ask) && !ask.args && html`<p>${ask.arg_names?.length ? `Arguments: ${plain(ask.arg_names.join(", "), 200)}` : "Without arguments"}. Only ${ask.needs ? "who has to approve" : plain(ask.actor, 80)} sees their values, and decides.</p>`}
    <${Why} text=${ask.why} />
    ${ask.requests.map((each) => html`<p key=${each}><a href=${href("calls", { q: each })} onClick=${followed("calls", { q: each })}>Show the calls of request ${plain(each, 130)}</a></p>`)}
    <p>Good for these arguments only, once, ${left > 0 ? `for the next ${lasting(left)}` : "and no longer"}. A change of one letter asks again.</p>
    ${whole && html`<p class="id"><code>${plain(ask.tool_id, 300)}</code>, definition <code title=${ask.definition}>${plain(ask.definition, 12)}</code></p>`}
    ${ask.definition_changed && html`<p class="bad">The tool has changed since it was asked.</p>`}
    ${state.told && html`<p role="status">${state.told}</p>`}
    ${cut && html`<p><a href=${href("approvals")} onClick=${followed("approvals")}>Read all of it to decide</a></p>`}
    ${ask.may_decide && !cut && left > 0 && html`<div class="btns">
      <${Button} main disabled=${state.busy} onClick=${() => decide("approve")}>Approve<//>
      ${together.length > 1 && html`<${Button} disabled=${state.busy} onClick=${approveAll}>Approve these ${plural(together.length, "call")} of its program<//>`}
      ${ask.strange && html`<${Button} disabled=${state.busy} onClick=${() => decide("approve_for_conversation")}>Approve, and accept its destinations for this conversation<//>`}
      <${Button} disabled=${state.busy} onClick=${() => decide("deny")}>Deny<//>
    </div>`}
  </div>`;
}
