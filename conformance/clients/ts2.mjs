// @modelcontextprotocol/client 2.4: both eras.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { ANSWER, ERA, KEY, URL_, commands, serve } from "./common.mjs";

const from = createRequire(process.env.MCP_MODULES + "/");
const resolved = from.resolve("@modelcontextprotocol/client").replace(/index\.cjs$/, "index.mjs");
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(resolved));

async function make({ asked, updated }) {
  const client = new Client(
    { name: "ts2", version: "1" },
    {
      capabilities: { elicitation: { form: {}, url: {} } },
      versionNegotiation: { mode: ERA === "2025" ? "legacy" : "auto" },
    },
  );
  client.setRequestHandler("elicitation/create", async ({ params }) => {
    asked.push(params.mode ?? "form");
    return params.mode === "url" ? { action: "accept" } : { action: "accept", content: ANSWER };
  });
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => updated(params.uri));
  const transport = new StreamableHTTPClientTransport(new URL(URL_), {
    requestInit: { headers: { Authorization: `Bearer ${KEY}` } },
  });
  await client.connect(transport);
  return { client, transport, version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion };
}

await serve(
  commands(make, {
    subscribe: (client, uri) =>
      ERA === "2025" ? client.subscribeResource({ uri }) : client.listen({ resourceSubscriptions: [uri] }),
    request: (client, params, options) => client.callTool(params, options),
  }),
);
