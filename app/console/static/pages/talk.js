// The conversation of this tab with the engine: what was said, the run that goes on, and the way back to it.
// It is kept in sessionStorage with the key of the run and the last event that was seen, so that a reload goes on there.

import { door, key, passing, readEvents, send } from "../api.js";

const KEPT = "wicketgate.chat";
const AGAIN_MS = [300, 1000, 2000, 4000];
const REQUIRED = "approval_required ";
const STOPPED = "Not known: the run was stopped before its result came.";

// items: {kind: "user", text} and {kind: "answer", steps: [{text, calls: [{id, name, args, output, error, asks, decision}]}], done, error}
// run: {key, body, last} while an answer comes.
let talk = { owner: "", items: [], run: null };
let ending = null;
let saving = 0;
let drawing = 0;
const listeners = new Set();

export const conversation = () => talk;

export function follow(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    for (const listener of listeners) listener();
  });
  saving ||= setTimeout(save, 250);
}

function save() {
  clearTimeout(saving);
  saving = 0;
  if (!key.get()) return; // signed out meanwhile
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(talk));
  } catch {
    // Too long for the browser: the conversation lives as long as the page.
    sessionStorage.removeItem(KEPT);
  }
}
addEventListener("pagehide", () => talk.owner && save());

// Called by the page when it opens. Another actor has another conversation.
export function resume(owner) {
  if (talk.owner === owner) return;
  stop();
  talk = { owner, items: [], run: null };
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
    if (kept?.owner === owner && Array.isArray(kept.items)) talk = kept;
  } catch {
    // Not ours.
  }
  if (talk.run) go();
}

export function clear() {
  stop();
  talk = { owner: talk.owner, items: [], run: null };
  changed();
}

export function say(text) {
  talk.items.push({ kind: "user", text });
  begin([]);
}

// The decisions on calls of the last answers, all at once; without any the model goes on with what it has.
export function decide() {
  const decided = waiting().filter((call) => call.decision && !call.sent && !call.needs);
  for (const call of decided) call.sent = true;
  begin(decided.map((call) => ({ id: call.asks, decision: call.decision })));
}

export const waiting = () => allCalls().filter((call) => call.asks && !call.sent);

const allCalls = () => talk.items.flatMap((item) => (item.steps || []).flatMap((step) => step.calls));

export function choose(call, decision) {
  call.decision = decision;
  if (waiting().every((each) => each.decision || each.needs)) decide();
  else changed();
}

export function stop() {
  ending?.abort();
  ending = null;
  if (!talk.run) return;
  talk.run = null;
  answer().stopped = true;
  changed();
}

export function again() {
  const last = answer();
  talk.run = last.again;
  delete last.again;
  delete last.error;
  changed();
  go();
}

const answer = () => talk.items[talk.items.length - 1];

function begin(approvals) {
  // What a conversation has read counts in this one alone.
  talk.id ||= token();
  const metadata = { correlation_id: `console-${token()}`, conversation_id: talk.id };
  if (approvals.length) metadata.approvals = approvals;
  talk.run = { key: `console-${token()}`, body: { messages: messages(), metadata }, last: "" };
  talk.items.push({ kind: "answer", steps: [] });
  changed();
  save();
  go();
}

// Not crypto.randomUUID, which pages without TLS lack outside this machine.
const token = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");

async function go() {
  const run = talk.run;
  const mine = (ending = new AbortController());
  let failed = 0;
  while (talk.run === run) {
    let refused = null;
    try {
      const headers = { "idempotency-key": run.key, ...(run.last && { "last-event-id": run.last }) };
      const response = await send("POST", door("/engine/chat"), run.body, { headers, signal: mine.signal });
      await readEvents(response, (event, data, id) => {
        if (talk.run !== run) return;
        failed = 0;
        if (id) run.last = id;
        took(event, JSON.parse(data));
        changed();
      });
    } catch (error) {
      if (mine.signal.aborted) return;
      refused = error;
    }
    if (talk.run !== run) return;
    // A refusal is final; a stream that broke off is taken up where it ended.
    if ((refused?.status >= 400 && refused.status !== 503) || failed >= AGAIN_MS.length) {
      talk.run = null;
      // What the gate could not take now may be sent again as it is: under the same key it runs once.
      if (!refused || passing(refused)) answer().again = run;
      answer().error = { code: refused?.code || "", message: refused?.message || "The stream has ended without its last word." };
      return changed();
    }
    await new Promise((again) => setTimeout(again, AGAIN_MS[failed++]));
  }
}

function took(event, data) {
  const { steps } = answer();
  let step = steps[steps.length - 1];
  const begun = () => {
    // What comes after results is another turn of the model.
    if (!step || step.calls.some((call) => "output" in call || "error" in call)) steps.push((step = { text: "", calls: [] }));
    return step;
  };
  if (event === "text-delta") begun().text += data.content;
  else if (event === "tool-call") {
    // An approved call comes again under its id: it is the same one.
    const known = allCalls().find((call) => call.id === data.id && call.asks && !call.ran);
    if (known) {
      known.sent = true;
      known.ran = true;
      known.running = true;
    } else begun().calls.push({ id: data.id, name: data.name, args: data.arguments, running: true });
  } else if (event === "tool-result") {
    const call = allCalls().findLast((each) => each.id === data.id && each.running);
    if (!call) return;
    delete call.running;
    delete call.error;
    if ("output" in data) call.output = data.output;
    else {
      call.error = data.error;
      if (data.error.startsWith(REQUIRED)) {
        const [first, ...why] = data.error.slice(REQUIRED.length).split("\n");
        [call.asks, call.needs = ""] = first.split(" by ");
        call.why = why.join("\n");
      }
    }
  } else if (event === "done" || event === "error") {
    answer()[event] = data;
    talk.run = null;
  }
}

// The history as the chat door takes it.
function messages() {
  const all = [];
  for (const item of talk.items) {
    if (item.kind === "user") {
      all.push({ role: "user", content: item.text });
      continue;
    }
    for (const step of item.steps) {
      if (!step.text && !step.calls.length) continue;
      const made = step.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: JSON.stringify(call.args) } }));
      all.push({ role: "assistant", content: step.text, ...(made.length && { tool_calls: made }) });
      for (const call of step.calls) all.push({ role: "tool", tool_call_id: call.id, content: call.output ?? call.error ?? STOPPED });
    }
  }
  return all;
}
