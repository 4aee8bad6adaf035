// A real issuer of tokens: oidc-provider, as ISSUER (JSON) says. It prints "ready", then a JSON line for each thing that
// it did. Its pages are those for development: any name logs in, and consent is one more form.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const given = JSON.parse(process.env.ISSUER);
const from = createRequire(process.env.MCP_MODULES + "/");
const { Provider } = await import(pathToFileURL(from.resolve("oidc-provider")));

// Clients of this name are given a token without the last scope first, as by a person who allows less than was asked.
const seen = new Set();
const granted = (client) => {
  if (client.clientName !== given.cautious || seen.has(client.clientId)) return given.scopes;
  return given.scopes.slice(0, -1);
};

const provider = new Provider(given.url, {
  scopes: ["openid", "offline_access", ...given.scopes],
  jwks: given.jwks,
  clients: given.clients,
  cookies: { keys: ["a key of the tests"] },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed("refresh_token"),
  ttl: { AccessToken: 300, Grant: 3600, IdToken: 300, Interaction: 300, RefreshToken: 3600, Session: 3600 },
  fetch: async (url) =>
    new Response(JSON.stringify(given.documents[String(url)]), { headers: { "content-type": "application/json" } }),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true, allowedPolicy: () => true },
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource, client) => ({
        scope: granted(client).join(" "),
        audience: resource,
        accessTokenFormat: given.opaque ? "opaque" : "jwt",
        accessTokenTTL: 300,
      }),
    },
  },
});

const did = (what) => process.stdout.write(JSON.stringify(what) + "\n");
provider.on("registration_create.success", (ctx, client) => did({ did: "registered", client: client.clientId }));
provider.on("grant.success", (ctx) => {
  seen.add(ctx.oidc.client.clientId);
  const { grant_type: kind, resource } = ctx.oidc.params;
  did({ did: kind, client: ctx.oidc.client.clientId, resource, scope: ctx.body.scope });
});
for (const name of ["authorization", "grant", "registration_create", "introspection", "server"])
  provider.on(name === "server" ? "server_error" : `${name}.error`, (ctx, error) =>
    did({ did: "refused", where: name, error: error.message, detail: error.error_description ?? "" }));
provider.listen(new URL(given.url).port, "127.0.0.1", () => process.stderr.write("ready\n"));
