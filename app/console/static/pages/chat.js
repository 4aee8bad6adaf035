// A conversation with the engine: what it says, which tools it calls, and the approvals that it waits for.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get } from "../api.js";
import { href, followed } from "../route.js";
import { Button, Failure, Fragment, Nothing, Pre, Title, announce, html, json, number, plain, plural, useLoad } from "../ui.js";
import { again, choose, clear, conversation, decide, follow, resume, say, stop, waiting } from "./talk.js";
import { Arguments, Why } from "./waiting.js";

const REASONS = {
  length: "The model's answer was cut off: it has reached its longest.",
  content_filter: "The model's provider has held the answer back.",
  max_iterations: "The run has reached engine.max_iterations.",
  cancelled: "The run was cancelled.",
};
const LONGEST = 16_384;
const TRY = "list+find+get+show";

function useTalk(owner) {
  const [, redraw] = useState(0);
  useEffect(() => {
    resume(owner);
    redraw((count) => count + 1);
    return follow(() => redraw((count) => count + 1));
  }, [owner]);
  return conversation();
}

// The end stays in sight while it grows, unless the reader has scrolled away from it.
function useEnd(talk) {
  const pinned = useRef(true);
  useEffect(() => {
    const look = () => (pinned.current = innerHeight + scrollY > document.documentElement.scrollHeight - 120);
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  useEffect(() => {
    if (pinned.current && talk.items.length) requestAnimationFrame(() => scrollTo(0, document.documentElement.scrollHeight));
  });
  return () => (pinned.current = true);
}

export default function Chat({ me }) {
  const talk = useTalk(me.actor);
  const mine = talk.owner === me.actor ? talk : { items: [], run: null };
  const busy = !!mine.run;
  const [text, setText] = useState("");
  const toEnd = useEnd(mine);
  const was = useRef(false);
  useEffect(() => {
    if (was.current && !busy) announce(waiting().length ? (waiting().some((call) => !call.needs) ? "A call waits for your approval." : "A call waits for the approval of others.") : "The answer is complete.");
    was.current = busy;
  }, [busy]);
  return html`<div class="talk">
    <div class="top">
      <${Title} name="Chat">Chat<//>
      ${mine.items.length > 0 && html`<${Button} onClick=${clear}>New conversation<//>`}
    </div>
    ${!mine.items.length && html`<${Start} me=${me} use=${setText} />`}
    <ol class="said">${mine.items.map((item, place) =>
      item.kind === "user"
        ? html`<li class="you" key=${place}><h2>You</h2><p class="words">${plain(item.text)}</p></li>`
        : html`<${Answer} item=${item} busy=${busy && place === mine.items.length - 1} last=${place === mine.items.length - 1} key=${place} />`,
    )}</ol>
    <${Composer} busy=${busy} sending=${toEnd} text=${text} setText=${setText} />
  </div>`;
}

function Answer({ item, busy, last }) {
  return html`<li class="it">
    <h2>Answer</h2>
    ${item.steps.map((step, place) => html`<${Fragment} key=${place}>
      ${step.text && html`<p class="words">${plain(step.text)}</p>`}
      ${step.calls.map((call) => html`<${Call} call=${call} key=${call.id} />`)}
    <//>`)}
    ${busy && html`<p class="foot">${item.steps.length ? "…" : "The model is asked …"}</p>`}
    ${item.error && html`<p class="told" role="alert">${plain(item.error.message, 500)}${item.error.code && html` <code>${plain(item.error.code, 60)}</code>`}</p>`}
    ${item.again && last && !busy && html`<p class="foot">The gate is starting, stopping or away. When it answers, send the same again: it runs once.</p><div class="btns"><${Button} onClick=${again}>Send again<//></div>`}
    ${item.stopped && html`<p class="foot">Stopped here. The gate ends the run within seconds; a call that had left may have had its effect.</p>`}
    ${item.done && html`<${Ended} done=${item.done} />`}
    ${last && !busy && html`<${Asked} />`}
  </li>`;
}

function Ended({ done }) {
  const usage = done.usage || {};
  const { tool_tokens: given, naive_tool_tokens: naive } = usage;
  const said = [];
  if (usage.prompt_tokens || usage.completion_tokens) said.push(`${number(usage.prompt_tokens)} tokens read, ${number(usage.completion_tokens)} written`);
  if (naive) said.push(`tools: about ${number(given)} tokens, about ${number(naive)} with every definition in the prompt${given < naive ? ` (${(100 - (given / naive) * 100).toFixed(1)}% spared)` : ""}`);
  return html`<${Fragment}>
    ${REASONS[done.finish_reason] && html`<p class="wait">${REASONS[done.finish_reason]}</p>`}
    ${said.length > 0 && html`<p class="foot">${said.join(" · ")}</p>`}
  <//>`;
}

const nameOf = (id) => id.replace(/^[^:]*:/, "").replace(/#[^#]*$/, "");
const target = (call) => (typeof call.args?.tool_id === "string" ? nameOf(call.args.tool_id) : "");
const sent = (call) => (call.args && typeof call.args.args === "object" && call.args.args !== null ? call.args.args : target(call) ? {} : call.args || {});

function brief(call) {
  const { tool_id: _, args: __, ...rest } = call.args || {};
  const shown = target(call) ? sent(call) : rest;
  return Object.entries(shown).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
}

function state(call) {
  if (call.running) return ["wait", "running"];
  if (call.asks && !call.ran) return ["wait", call.sent ? "decided" : call.needs ? "waits for others" : "waits for you"];
  if (["denied by the owner", "denied by an approver"].includes(call.error)) return ["bad", "denied"];
  if (call.error != null) return ["bad", "failed"];
  if (call.output == null) return ["wait", "stopped"];
  return ["ok", call.ran ? "approved, done" : "done"];
}

function pretty(text) {
  try {
    return json(JSON.parse(text));
  } catch {
    return plain(text);
  }
}

function Call({ call }) {
  const [tone, word] = state(call);
  const [open, setOpen] = useState(false);
  return html`<details class="call" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>
      <span class="nm">${plain(target(call) || call.name, 80)}</span>
      <span class="brief">${plain(brief(call), 200)}</span>
      <span class=${`state ${tone}`}><i class="dot" aria-hidden="true" />${word}</span>
    </summary>
    ${open && html`<div class="in">
      <h3>${plain(call.name, 80)}${target(call) && html`, <code>${plain(call.args.tool_id, 300)}</code>`}</h3>
      <${Pre} label="Arguments">${json(call.args)}<//>
      ${(call.output ?? call.error) != null && html`<h3>${call.error != null ? "Failure" : "Result"}</h3><${Pre} label="Result">${pretty(call.output ?? call.error)}<//>`}
    </div>`}
  </details>`;
}

// The calls that wait: several are decided together, in one request.
function Asked() {
  const asked = waiting();
  if (!asked.length) return null;
  const open = asked.filter((call) => !call.decision && !call.needs);
  return html`<section class="ask" aria-labelledby="asked">
    <h2 id="asked">${asked.some((call) => !call.needs) ? "Waiting for you" : "Waiting for others"}</h2>
    ${asked.map((call) => {
      const long = JSON.stringify(sent(call)).length > LONGEST;
      return html`<div key=${call.asks} role="group" aria-label=${plain(target(call) || call.name, 80)}>
        <p class="what">${plain(target(call) || call.name, 120)}</p>
        <${Arguments} args=${sent(call)} whole />
        <${Why} text=${call.why} />
        ${long && html`<p class="bad">These arguments are too long to be read here, so they cannot be approved here.</p>`}
        ${call.needs ? html`<p>Needs the approval of ${plain(call.needs, 300)}.</p>` : call.decision
          ? html`<p role="status">${call.decision === "approve" ? "Approved" : "Denied"}; ${plural(open.length, "more decision")} to go.</p>`
          : html`<div class="btns">
              ${!long && html`<${Button} main onClick=${() => choose(call, "approve")}>Approve<//>`}
              <${Button} onClick=${() => choose(call, "deny")}>Deny<//>
            </div>`}
      </div>`;
    })}
    <p>Good for these arguments only, and once. The conversation goes on when you have decided, or with your next message; without an
      approval nothing runs. Decided on <a href=${href("approvals")} onClick=${followed("approvals")}>Approvals</a>? <button class="lnk" type="button" onClick=${decide}>Go on</button></p>
  </section>`;
}

// What stands here before anything was said: what will happen, and what may be asked.
function Start({ me, use }) {
  const data = useLoad((signal) => Promise.all([get("traffic", { signal }), get(`search?q=${TRY}`, { signal })]), []);
  const [traffic, found] = data.value || [];
  const behind = traffic?.totals.behind;
  const tries = found ? [...new Set(found.hits.map((hit) => plain(hit.about.split(/[.;:(]/)[0], 90).trim()))].filter((text) => text.length > 8).slice(0, 3) : [];
  const fill = (text) => {
    use(text);
    document.getElementById("words").focus();
  };
  return html`<div class="start">
    <p class="lede">A conversation with the model of this gate. It is given three tools in the place of ${behind ? `the ${plural(behind, "tool")}` : "all"} behind the gate:</p>
    <ol>
      <li>With <code>tool_browse</code> it looks for tools that fit your words. What your key may not use, it does not find.</li>
      <li>With <code>tool_execute</code> it runs them, with your permissions. Each call stands here as a line, which opens to its arguments and its result.</li>
      <li>A call that a rule holds waits here until you approve or deny it, with all of its arguments before you.</li>
      <li>With <code>tool_view</code> it reads parts of long results. Below each answer stands how many tokens all that took.</li>
    </ol>
    <${Failure} error=${data.error} again=${data.again} />
    ${behind === 0 && html`<${Nothing} read=${me.may.read} />`}
    ${tries.length > 0 && html`<h2>What to ask: what some of the tools do</h2>
      <ul class="tries">${tries.map((text) => html`<li key=${text}><button type="button" onClick=${() => fill(text)}>${text}</button></li>`)}</ul>
      <p class="foot">A click puts it below, where you add which one you mean. Nothing is sent by that.</p>`}
  </div>`;
}

function Composer({ busy, sending, text, setText }) {
  const area = useRef(null);
  useLayoutEffect(() => {
    area.current.style.height = "auto";
    area.current.style.height = `${Math.min(area.current.scrollHeight + 2, 240)}px`;
  }, [text]);
  const submit = (event) => {
    event.preventDefault();
    if (busy || !text.trim()) return;
    sending();
    say(text.trim());
    setText("");
  };
  const keyed = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`<form class="write" onSubmit=${submit}>
    <label class="vh" for="words">Message</label>
    <textarea id="words" rows="1" ref=${area} value=${text} placeholder="Ask for something" onInput=${(event) => setText(event.target.value)} onKeyDown=${keyed}></textarea>
    ${busy ? html`<${Button} onClick=${stop}>Stop<//>` : html`<button class="btn p" type="submit" disabled=${!text.trim()}>Send</button>`}
    <p class="foot">Enter sends, Shift and Enter begin a line. The conversation stays in this tab.</p>
  </form>`;
}
