import { createMCPClient } from "@ai-sdk/mcp";
import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs } from "ai";

const gate = await createMCPClient({
  transport: {
    type: "http",
    url: `${process.env.WG_URL ?? "http://127.0.0.1:8080"}/mcp`,
    headers: { Authorization: `Bearer ${process.env.WG_KEY}` },
  },
});
const { text } = await generateText({
  model: openai.chat(process.env.MODEL ?? "gpt-5-mini"),
  tools: await gate.tools(),
  stopWhen: stepCountIs(10),
  prompt: "What time is it in Tokyo?",
});
console.log(text);
await gate.close();
