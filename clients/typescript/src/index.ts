/** A client of Wicketgate's engine: streams chats, resumes, approves and cancels them. */

export type Event =
  | { event: "text-delta"; data: { content: string } }
  | { event: "tool-call"; data: ToolCall }
  | { event: "tool-result"; data: { id: string; output: string } | { id: string; error: string } }
  | { event: "done"; data: Done };
export type ToolCall = { id: string; name: string; arguments: { [key: string]: unknown } };
export type Done = {
  finish_reason: string;
  usage: { prompt_tokens: number; completion_tokens: number; tool_tokens?: number; naive_tool_tokens?: number; cost?: number };
};
export type Decision = "approve" | "deny";
export type Message = {
  role: "system" | "developer" | "user" | "assistant" | "tool";
  content?: string | null;
  tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
};
/** A call that waits for a decision; `CallThatWaits` of the OpenAPI document has all fields. */
export type WaitingCall = {
  id: string;
  tool_id: string;
  actor: string;
  args: { [key: string]: unknown } | null;
  may_decide: boolean;
};
export type ChatOptions = {
  /** Decisions on calls that wait, by the id of the approval. */
  approvals?: { [id: string]: Decision };
  /** A lost connection is resumed; the same chat with `lastEventId` resumes the run from elsewhere. */
  idempotencyKey?: string;
  lastEventId?: string;
  onDisconnect?: "cancel" | "continue";
  /** Attempts without progress. */
  retries?: number;
  /** `conversation_id` and the like. */
  metadata?: { [key: string]: unknown };
  /** Aborting cancels the run. */
  signal?: AbortSignal;
};

/** The base of all errors of this client. */
export class WicketgateError extends Error {
  override name = this.constructor.name;
}
/** The gate refused the request; nothing was started. */
export class Refused extends WicketgateError {
  constructor(readonly status: number, readonly code: string, message: string, readonly retryAfterS?: number) {
    super(message);
  }
}
/** The stream ended in `error`: `provider_error`, `tool_error` or `context_overflow`. */
export class ChatFailed extends WicketgateError {
  constructor(readonly code: string, message: string) {
    super(message);
  }
}
/** The connection ended before the stream did. With an idempotency key, the run can still be resumed. */
export class ConnectionLost extends WicketgateError {}

type Send = (path: string, init: RequestInit) => Promise<Response>;

/** One chat; iterate over it once. Leaving the loop before `done` cancels the run. */
export class Chat implements AsyncIterable<Event> {
  /** After `done`, the history including this answer. */
  readonly messages: Message[];
  /** The calls that wait for the caller's own decision, by the id of the approval. */
  readonly waiting: { [approval: string]: ToolCall } = {};
  text = "";
  done: Done | undefined;
  lastEventId: string | undefined;
  readonly #given: number;
  readonly #calls = new Map<string, ToolCall>();
  readonly #body: string;
  #failures = 0;

  constructor(
    private readonly send: Send,
    messages: string | readonly Message[],
    private readonly options: ChatOptions,
  ) {
    const given = typeof messages === "string" ? [{ role: "user" as const, content: messages }] : messages;
    this.messages = given.map((message) => ({ ...message }));
    this.#given = given.length;
    this.lastEventId = options.lastEventId;
    const approvals = Object.entries(options.approvals ?? {}).map(([id, decision]) => ({ id, decision }));
    const metadata = { correlation_id: crypto.randomUUID(), approvals, ...options.metadata };
    this.#body = JSON.stringify({ messages: given, metadata });
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined> {
    while (!this.done) {
      const left = new AbortController();
      try {
        for await (const block of this.#blocks(left)) {
          const event = this.#read(block);
          if (event) yield event;
        }
        if (!this.done) throw new ConnectionLost("the stream ended without done or error");
      } catch (error) {
        await this.#wait(error);
      } finally {
        left.abort();
      }
    }
  }

  async *#blocks(left: AbortController): AsyncGenerator<string, void, undefined> {
    const { idempotencyKey, onDisconnect = "cancel", signal } = this.options;
    const headers: { [name: string]: string } = { "Content-Type": "application/json" };
    if (idempotencyKey) Object.assign(headers, { "Idempotency-Key": idempotencyKey, "X-On-Disconnect": onDisconnect });
    if (this.lastEventId) headers["Last-Event-ID"] = this.lastEventId;
    const either = signal ? AbortSignal.any([signal, left.signal]) : left.signal;
    const response = await this.send("engine/chat", { method: "POST", body: this.#body, headers, signal: either });
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      const blocks = (rest + read.value).split("\n\n");
      rest = blocks.pop() ?? "";
      yield* blocks;
    }
  }

  /** Waits before the next attempt. Throws if another attempt is useless or could run a tool twice. */
  async #wait(error: unknown): Promise<void> {
    const { idempotencyKey, retries = 5, signal } = this.options;
    if (signal?.aborted) throw signal.reason;
    const refused = error instanceof Refused && (error.status === 429 || error.status === 503);
    const lost = !(error instanceof WicketgateError) || error instanceof ConnectionLost;
    this.#failures += 1;
    if (this.#failures > retries || !(refused || (lost && idempotencyKey))) {
      throw lost && !(error instanceof ConnectionLost) ? new ConnectionLost(String(error), { cause: error }) : error;
    }
    const after = refused ? error.retryAfterS : undefined;
    await new Promise((resolve) => setTimeout(resolve, 1000 * (after ?? Math.min(0.25 * 2 ** this.#failures, 10))));
  }

  #read(block: string): Event | undefined {
    const fields = new Map(block.split("\n").map((line) => [line.split(": ", 1)[0], line.replace(/^[^:]*: /, "")]));
    const name = fields.get("event");
    if (!name) return undefined; // a comment
    const item = { event: name, data: JSON.parse(fields.get("data") ?? "null") } as Event | Failure;
    this.lastEventId = fields.get("id") ?? this.lastEventId;
    this.#failures = 0;
    switch (item.event) {
      case "text-delta":
        this.text += item.data.content;
        this.#answer().content += item.data.content;
        return item;
      case "tool-call":
        this.#call(item.data);
        return item;
      case "tool-result":
        this.#result(item.data.id, "output" in item.data ? item.data.output : item.data.error, "error" in item.data);
        return item;
      case "done":
        this.done = item.data;
        return item;
      case "error":
        throw new ChatFailed(item.data.code, item.data.message);
      default:
        return undefined; // an event of a later version
    }
  }

  #answer(): Message {
    const last = this.messages.at(-1);
    if (last?.role === "assistant" && this.messages.length > this.#given) return last;
    const answer: Message = { role: "assistant", content: "" };
    this.messages.push(answer);
    return answer;
  }

  #call(call: ToolCall): void {
    this.#calls.set(call.id, call);
    if (this.messages.some((message) => message.tool_calls?.some((each) => each.id === call.id))) return;
    const written = { name: call.name, arguments: JSON.stringify(call.arguments) };
    (this.#answer().tool_calls ??= []).push({ id: call.id, type: "function", function: written });
  }

  #result(id: string, content: string, failed: boolean): void {
    const [kind, approval, by] = content.split("\n", 1)[0]!.split(" ");
    const call = this.#calls.get(id);
    // Others name their approvers.
    if (failed && kind === "approval_required" && approval && !by && call) this.waiting[approval] = call;
    const message = this.messages.find((each) => each.tool_call_id === id);
    if (message) message.content = content;
    else this.messages.push({ role: "tool", tool_call_id: id, content });
  }
}

type Failure = { event: "error"; data: { code: string; message: string } };

export class Client {
  readonly #base: string;
  readonly #key: string;

  constructor(url: string, key: string) {
    this.#base = url.replace(/\/*$/, "/");
    this.#key = key;
  }

  chat(messages: string | readonly Message[], options: ChatOptions = {}): Chat {
    return new Chat((path, init) => this.#send(path, init), messages, options);
  }

  /** The calls that wait for a decision and that this key may see; decide if `may_decide`. */
  async approvals(): Promise<WaitingCall[]> {
    const response = await this.#send("console/api/approvals", {});
    return ((await response.json()) as { waiting: WaitingCall[] }).waiting;
  }

  /** Decides on a call of `approvals`. Returns false while it waits for another approver. */
  async decide(id: string, decision: Decision): Promise<boolean> {
    const init = { method: "POST", body: JSON.stringify({ decision }) };
    const response = await this.#send(`console/api/approvals/${encodeURIComponent(id)}`, init);
    return ((await response.json()) as { complete: boolean }).complete;
  }

  async #send(path: string, init: RequestInit): Promise<Response> {
    const headers = { ...init.headers, Authorization: `Bearer ${this.#key}` };
    const response = await fetch(this.#base + path, { ...init, headers });
    if (response.ok) return response;
    const body = (await response.json().catch(() => ({}))) as { code?: string; message?: string };
    const after = parseInt(response.headers.get("Retry-After") ?? "", 10);
    const { code = "unknown", message = response.statusText } = body;
    throw new Refused(response.status, code, message, ...(Number.isNaN(after) ? [] : [after]));
  }
}
