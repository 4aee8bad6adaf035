// A chat over openapi-fetch, with the types of openapi-typescript.
import createClient from "openapi-fetch";
import type { components, paths } from "./generated/schema.js";

const headers = { Authorization: `Bearer ${process.env.WG_KEY}` };
const gate = createClient<paths>({ baseUrl: process.env.WG_URL!, headers });
const body: components["schemas"]["ChatRequest"] = {
  messages: [{ role: "user", content: "What time is it in Tokyo?" }],
  metadata: { correlation_id: "r1" },
};
const { data, error } = await gate.POST("/engine/chat", { body, parseAs: "stream" });
if (!data) throw new Error(error?.message);
let rest = "";
for await (const text of data.pipeThrough(new TextDecoderStream())) {
  const blocks = (rest + text).split("\n\n");
  rest = blocks.pop()!;
  for (const block of blocks) {
    const found = /^event: (.*)\ndata: (.*)$/m.exec(block);
    if (found) show({ event: found[1], data: JSON.parse(found[2]!) } as components["schemas"]["ChatEvent"]);
  }
}

function show(item: components["schemas"]["ChatEvent"]): void {
  if (item.event === "text-delta") process.stdout.write(item.data.content);
  else if (item.event === "tool-call") console.log(item.data.name);
  else if (item.event === "tool-result") console.log("output" in item.data ? item.data.output : item.data.error);
  else if (item.event === "error") console.log(item.data.message);
  else console.log(`\n${item.data.finish_reason}`);
}
