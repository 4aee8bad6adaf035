// A conversation with the engine: what it says, which tools it calls, and the approvals that it waits for.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { href, followed } from "../route.js";
import { Button, Fragment, Pre, Title, announce, html, json, number, plain, plural } from "../ui.js";
import { choose, clear, conversation, decide, follow, resume, say, stop, waiting } from "./talk.js";
import { Arguments } from "./waiting.js";

const REASONS = {
  length: "The model's answer was cut off: it has reached its longest.",
  content_filter: "The model's provider has held the answer back.",
  max_iterations: "The run has reached engine.max_iterations.",
  cancelled: "The run was cancelled.",
};
const LONGEST = 16_384;

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
  const toEnd = useEnd(mine);
  const was = useRef(false);
  useEffect(() => {
    if (was.current && !busy) announce(waiting().length ? "A call waits for your approval." : "The answer is complete.");
    was.current = busy;
  }, [busy]);
  return html`<div class="talk">
    <div class="top">
      <${Title} name="Chat">Chat<//>
      ${mine.items.length > 0 && html`<${Button} onClick=${clear}>New conversation<//>`}
    </div>
    ${!mine.items.length && html`<p class="lede">The engine gives your words to the model of this gate, with three tools in the place of all that stand behind it. Every call is shown here.</p>`}
    <ol class="said">${mine.items.map((item, place) =>
      item.kind === "user"
        ? html`<li class="you" key=${place}><h2>You</h2><p class="words">${plain(item.text)}</p></li>`
        : html`<${Answer} item=${item} busy=${busy && place === mine.items.length - 1} last=${place === mine.items.length - 1} key=${place} />`,
    )}</ol>
    <${Composer} busy=${busy} sending=${toEnd} />
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
  if (naive) said.push(`tools: ${number(given)} tokens, ${number(naive)} with every definition in the prompt${given < naive ? ` (${(100 - (given / naive) * 100).toFixed(1)}% spared)` : ""}`);
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
  if (call.asks && !call.ran) return ["wait", call.sent ? "decided" : "waits for you"];
  if (call.error === "denied by the owner") return ["bad", "denied"];
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
  const open = asked.filter((call) => !call.decision);
  return html`<section class="ask" aria-labelledby="asked">
    <h2 id="asked">Waiting for you</h2>
    ${asked.map((call) => {
      const long = JSON.stringify(sent(call)).length > LONGEST;
      return html`<div key=${call.asks} role="group" aria-label=${plain(target(call) || call.name, 80)}>
        <p class="what">${plain(target(call) || call.name, 120)}</p>
        <${Arguments} args=${sent(call)} whole />
        ${long && html`<p class="bad">These arguments are too long to be read here, so they cannot be approved here.</p>`}
        ${call.decision
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

function Composer({ busy, sending }) {
  const [text, setText] = useState("");
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
