// @modelcontextprotocol/sdk 1.32: the handshake era.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { ANSWER, KEY, URL_, commands, serve } from "./common.mjs";

const from = createRequire(process.env.MCP_MODULES + "/");
const load = (name) => import(pathToFileURL(from.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { ElicitRequestSchema, ResourceUpdatedNotificationSchema } = await load("@modelcontextprotocol/sdk/types.js");

async function make({ asked, updated }) {
  const client = new Client({ name: "ts1", version: "1" }, { capabilities: { elicitation: { form: {}, url: {} } } });
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params.mode ?? "form");
    return params.mode === "url" ? { action: "accept" } : { action: "accept", content: ANSWER };
  });
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => updated(params.uri));
  const transport = new StreamableHTTPClientTransport(new URL(URL_), {
    requestInit: { headers: { Authorization: `Bearer ${KEY}` } },
  });
  await client.connect(transport);
  return { client, transport, version: transport.protocolVersion };
}

await serve(
  commands(make, {
    subscribe: (client, uri) => client.subscribeResource({ uri }),
    request: (client, params, options) => client.callTool(params, undefined, options),
  }),
);
