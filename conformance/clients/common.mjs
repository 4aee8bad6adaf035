// The loop of the drivers in JavaScript.
import { createInterface } from "node:readline";

export const URL_ = process.env.MCP_URL;
export const KEY = process.env.MCP_KEY;
export const ERA = process.env.MCP_ERA;
export const ANSWER = { name: "Ada" };

export async function serve(does) {
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    let reply;
    try {
      if (!does[order.do]) throw new Error(`NotImplementedError: ${order.do}`);
      reply = { ok: (await does[order.do](order)) ?? null };
    } catch (error) {
      reply = { error: `${error.name}: ${error.message}`, code: error.code ?? null, data: error.data ?? null };
    }
    process.stdout.write(JSON.stringify(reply) + "\n");
  }
  process.exit(0);
}

// What both generations do alike with their clients. *make* gives {client, transport}, connected; *updated* the next URI.
export function commands(make, { subscribe, request, through = (own, action) => action() }) {
  let own;
  const asked = [];
  const updates = [];
  const waiting = [];
  const hooks = {
    asked,
    updated: (uri) => (waiting.length ? waiting.shift()(uri) : updates.push(uri)),
  };
  const next = () => (updates.length ? updates.shift() : new Promise((resolve) => waiting.push(resolve)));
  return {
    connect: async (order) => {
      own = await make(hooks, order);
      return own.version;
    },
    list: () => through(own, () => own.client.listTools()),
    call: async ({ name, arguments: args }) => {
      asked.length = 0;
      let progress = 0;
      const options = { onprogress: () => (progress += 1) };
      const result = await through(own, () => request(own.client, { name, arguments: args }, options));
      return { result, progress, asked: [...asked] };
    },
    cancel: async ({ name, arguments: args }) => {
      const stop = new AbortController();
      const call = request(own.client, { name, arguments: args }, { signal: stop.signal, onprogress: () => stop.abort("enough") });
      await call.then(
        () => { throw new Error("the call ended by itself"); },
        () => undefined,
      );
    },
    resources: () => own.client.listResources(),
    templates: () => own.client.listResourceTemplates(),
    read: ({ uri }) => own.client.readResource({ uri }),
    updated: async ({ uri, name, arguments: args }) => {
      await subscribe(own.client, uri);
      await own.client.callTool({ name, arguments: args });
      return next();
    },
    prompts: () => own.client.listPrompts(),
    prompt: ({ name, arguments: args }) => own.client.getPrompt({ name, arguments: args }),
    complete: ({ name, argument, value }) =>
      own.client.complete({ ref: { type: "ref/prompt", name }, argument: { name: argument, value } }),
    sessions: ({ count }) =>
      Promise.all(
        Array.from({ length: count }, async () => {
          const { client, transport } = await make({ asked: [], updated: () => {} }, {});
          const listed = await client.listTools();
          if (transport.sessionId) await transport.terminateSession();
          await client.close();
          return listed.tools.length;
        }),
      ),
  };
}
