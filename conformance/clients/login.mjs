// Logging in with OAuth, for the drivers in JavaScript. The issuer's pages are opened by a browser of the runner.
export const LOGIN = process.env.MCP_LOGIN ? JSON.parse(process.env.MCP_LOGIN) : null;

const ROUNDS = 3;

let client;
let tokens;
let verifier;
let answer;
const state = "of this process";

export const provider = LOGIN && {
  clientMetadataUrl: LOGIN.document || undefined,
  redirectUrl: `http://127.0.0.1:${LOGIN.port}/callback`,
  clientMetadata: {
    client_name: LOGIN.name,
    redirect_uris: [`http://127.0.0.1:${LOGIN.port}/callback`],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  state: () => state,
  clientInformation: () => client,
  saveClientInformation: (given) => void (client = given),
  tokens: () => tokens,
  saveTokens: (given) => void (tokens = given),
  codeVerifier: () => verifier,
  saveCodeVerifier: (given) => void (verifier = given),
  redirectToAuthorization: async (url) => {
    const opened = await fetch(`${LOGIN.browser}?${new URLSearchParams({ url: String(url) })}`);
    const text = await opened.text();
    if (!opened.ok) throw new Error(text);
    answer = new URL(text);
  },
};

// Puts *token* in the place of the one that the client kept.
export const spoil = (token) => void (tokens = { ...tokens, access_token: token });

// Does *action* as an application does it: what asks for a login is done again once *finish* has taken the answer.
export async function through(action, finish) {
  for (let round = 0; ; round += 1) {
    try {
      return await action();
    } catch (error) {
      const found = answer?.searchParams;
      answer = undefined;
      if (!found || round === ROUNDS) throw error;
      if (found.get("state") !== state) throw new Error("the answer has another state");
      await finish(found);
    }
  }
}
