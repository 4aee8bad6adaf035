import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const url = new URL(`${process.env.WG_URL ?? "http://127.0.0.1:8080"}/mcp`);
const headers = { Authorization: `Bearer ${process.env.WG_KEY}` };

const client = new Client({ name: "my-program", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
const found = await client.callTool({ name: "tool_browse", arguments: { query: "current time in a city" } });
console.log(found.content[0].text);
await client.close();
