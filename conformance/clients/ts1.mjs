// @modelcontextprotocol/sdk 1.32: the handshake era.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { ANSWER, KEY, URL_, commands, serve } from "./common.mjs";
import { provider, spoil, through } from "./login.mjs";

const from = createRequire(process.env.MCP_MODULES + "/");
const load = (name) => import(pathToFileURL(from.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ElicitRequestSchema, ResourceUpdatedNotificationSchema } = await load("@modelcontextprotocol/sdk/types.js");

async function make(hooks, order) {
  if (order.access_token) spoil(order.access_token);
  let transport;
  const finish = (found) => transport.finishAuth(found.get("code"));
  const connected = async () => {
    let client;
    [client, transport] = offered(hooks);
    await client.connect(transport);
    return client;
  };
  const client = await through(connected, finish);
  return { client, transport, finish, version: transport.protocolVersion };
}

function offered({ asked, updated }) {
  const client = new Client({ name: "ts1", version: "1" }, { capabilities: { elicitation: { form: {}, url: {} } } });
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params.mode ?? "form");
    return params.mode === "url" ? { action: "accept" } : { action: "accept", content: ANSWER };
  });
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => updated(params.uri));
  const transport = new StreamableHTTPClientTransport(new URL(URL_), {
    ...(provider ? { authProvider: provider } : { requestInit: { headers: { Authorization: `Bearer ${KEY}` } } }),
  });
  return [client, transport];
}

await serve(
  commands(make, {
    subscribe: (client, uri) => client.subscribeResource({ uri }),
    through: (own, action) => through(action, own.finish),
    request: (client, params, options) => client.callTool(params, undefined, options),
  }),
);
