// Run by `make sdk`, which starts the gate, and a proxy that cuts each stream after its first event.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Chat, ChatFailed, Client, ConnectionLost, type Event, Refused } from "wicketgate-client";

const QUESTION = "What time is it in Tokyo?";
const { WG_URL = "", CUT_URL = "", WG_KEY = "", OWNER_KEY = "", ASKER_KEY = "", LEAD_KEY = "" } = process.env;
const gate = new Client(WG_URL, WG_KEY);

async function all(chat: Chat): Promise<Event[]> {
  const events: Event[] = [];
  for await (const event of chat) events.push(event);
  return events;
}

async function runningCalls(): Promise<number> {
  const response = await fetch(`${WG_URL}/operations/call`, {
    method: "POST",
    headers: { Authorization: `Bearer ${WG_KEY}` },
    body: JSON.stringify({ operation: "/slow/count_running" }),
  });
  return ((await response.json()) as { result: number }).result;
}

async function untilCalls(running: boolean): Promise<void> {
  for (let tries = 0; (await runningCalls()) > 0 !== running; tries += 1) {
    assert.ok(tries < 600);
    await sleep(50);
  }
}

test("a chat is streamed as typed events and kept as a history", async () => {
  const chat = gate.chat(QUESTION);
  const events = await all(chat);
  assert.deepEqual(new Set(events.map((each) => each.event)), new Set(["text-delta", "tool-call", "tool-result", "done"]));
  assert.equal(chat.done?.finish_reason, "stop");
  assert.equal(chat.text, events.map((each) => (each.event === "text-delta" ? each.data.content : "")).join(""));
  assert.deepEqual(chat.messages.slice(0, 3).map((each) => each.role), ["user", "assistant", "tool"]);
  const second = gate.chat([...chat.messages, { role: "user", content: QUESTION }]);
  await all(second);
  assert.ok(second.messages.length > chat.messages.length + 1);
});

test("a stream that is cut is resumed and runs each call once", async () => {
  const idempotencyKey = randomUUID();
  const chat = new Client(CUT_URL, WG_KEY).chat(QUESTION, { idempotencyKey });
  const events = await all(chat);
  const calls = events.flatMap((each) => (each.event === "tool-call" ? [each.data.id] : []));
  assert.ok(calls.length >= 2 && new Set(calls).size === calls.length);
  assert.deepEqual(await all(gate.chat(QUESTION, { idempotencyKey })), events);
  await assert.rejects(all(new Client(CUT_URL, WG_KEY).chat(QUESTION)), ConnectionLost);
});

test("the owner approves a call and the history has its result", async () => {
  const owner = new Client(WG_URL, OWNER_KEY);
  const chat = owner.chat(QUESTION);
  await all(chat);
  assert.equal(chat.done?.finish_reason, "approval_required");
  const [[approval, call] = assert.fail(), ...others] = Object.entries(chat.waiting);
  assert.deepEqual([call.name, others], ["tool_execute", []]);
  const second = owner.chat(chat.messages, { approvals: { [approval]: "approve" } });
  const events = await all(second);
  assert.deepEqual(events.slice(0, 2).map((each) => each.event), ["tool-call", "tool-result"]);
  const answer = second.messages.find((each) => each.tool_call_id === call.id);
  assert.equal(JSON.parse(answer?.content ?? "").status, "ok");
  assert.equal(second.done?.finish_reason, "stop");
});

test("an approver decides on the call of another", async () => {
  const [asker, lead] = [new Client(WG_URL, ASKER_KEY), new Client(WG_URL, LEAD_KEY)];
  const chat = asker.chat(QUESTION);
  await all(chat);
  assert.deepEqual(chat.waiting, {});
  const [call = assert.fail()] = (await lead.approvals()).filter((each) => each.may_decide);
  assert.ok(await lead.decide(call.id, "approve"));
  const [asked, ran] = await all(asker.chat(chat.messages));
  assert.equal(asked?.event, "tool-call");
  assert.ok(ran?.event === "tool-result" && "output" in ran.data);
  await assert.rejects(lead.decide(call.id, "deny"), { status: 404, code: "not_found", name: "Refused" });
});

test("leaving the loop cancels the run, and so does a signal", async () => {
  for await (const event of gate.chat("Rest, please")) {
    if (event.event !== "tool-call" || event.data.arguments["dry_run"] || !event.data.arguments["args"]) continue;
    await untilCalls(true);
    break;
  }
  await untilCalls(false);
  const abort = new AbortController();
  const chat = all(gate.chat("Rest, please", { signal: abort.signal }));
  await untilCalls(true);
  abort.abort();
  await assert.rejects(chat, { name: "AbortError" });
  await untilCalls(false);
});

test("refusals and failures are errors", async () => {
  await assert.rejects(all(new Client(WG_URL, "wg_unknown").chat(QUESTION)), { status: 401, code: "unauthorized" });
  await assert.rejects(all(gate.chat([])), (error) => error instanceof Refused && error.status === 400);
  await assert.rejects(all(gate.chat("time ".repeat(150_000))), (error) => error instanceof ChatFailed && error.code === "context_overflow");
});
