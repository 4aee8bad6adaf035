// @modelcontextprotocol/client 2.4: both eras.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { ANSWER, ERA, KEY, URL_, commands, serve } from "./common.mjs";
import { provider, spoil, through } from "./login.mjs";

const from = createRequire(process.env.MCP_MODULES + "/");
const resolved = from.resolve("@modelcontextprotocol/client").replace(/index\.cjs$/, "index.mjs");
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(resolved));

async function make(hooks, order) {
  if (order.access_token) spoil(order.access_token);
  let transport;
  const finish = (found) => transport.finishAuth(found);
  const connected = async () => {
    let client;
    [client, transport] = offered(hooks);
    await client.connect(transport);
    return client;
  };
  const client = await through(connected, finish);
  return { client, transport, finish, version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion };
}

function offered({ asked, updated }) {
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
    ...(provider ? { authProvider: provider } : { requestInit: { headers: { Authorization: `Bearer ${KEY}` } } }),
  });
  return [client, transport];
}

await serve(
  commands(make, {
    subscribe: (client, uri) =>
      ERA === "2025" ? client.subscribeResource({ uri }) : client.listen({ resourceSubscriptions: [uri] }),
    through: (own, action) => through(action, own.finish),
    request: (client, params, options) => client.callTool(params, options),
  }),
);
