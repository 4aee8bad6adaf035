// A chat over the client that @hey-api/openapi-ts has generated.
import { createClient } from "./generated/hey_api/client/index.js";
import { engineChat } from "./generated/hey_api/sdk.gen.js";
import type { ChatEventData } from "./generated/hey_api/types.gen.js";

const client = createClient({ baseUrl: process.env.WG_URL!, auth: process.env.WG_KEY! });
const { stream } = await engineChat({
  client,
  body: { messages: [{ role: "user", content: "What time is it in Tokyo?" }], metadata: { correlation_id: "r1" } },
  sseMaxRetryAttempts: 1,
});
for await (const item of stream) {
  const typed: ChatEventData = item;
  if ("content" in typed) process.stdout.write(typed.content);
  else if ("arguments" in typed) console.log(typed.name);
  else if ("output" in typed) console.log(typed.output);
  else if ("error" in typed) console.log(typed.error);
  else if ("code" in typed) console.log(typed.message);
  else console.log(`\n${typed.finish_reason}`);
}
