// The way to the gate: JSON and event streams below api/, with the key of this tab.
// The key is kept in sessionStorage: it ends with the tab, and no other site can make a request with it.

const KEY = "wicketgate.key";
const BASE = new URL("api/", new URL(".", location.href));

let onSignedOut = () => {};

export class ApiError extends Error {
  // *status* 0: the gate was not reached.
  constructor(status, code, message, details) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }
}

// The gate is not there, or not yet: what failed can be tried again as it was.
export const passing = (error) => [0, 502, 503, 504].includes(error?.status);

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

export function whenSignedOut(listener) {
  onSignedOut = listener;
}

export async function send(method, path, body, { signal, headers = {} } = {}) {
  const secret = key.get();
  const all = { ...headers };
  if (secret) all.authorization = `Bearer ${secret}`;
  if (body !== undefined) all["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, BASE), {
      method,
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "not_reached", "The gate cannot be reached. It may be restarting.");
  }
  if (response.status === 401 && secret === key.get()) {
    key.clear();
    onSignedOut(secret ? "This key is not valid, or no longer." : "");
  }
  return response;
}

async function failure(response) {
  let said = {};
  try {
    said = await response.json();
  } catch {
    // Not ours: a proxy's page, for example.
  }
  const text = typeof said.message === "string" ? said.message : `The gate answered with status ${response.status}.`;
  return new ApiError(response.status, said.code || "", text, said.details);
}

// Answers that have an ETag are kept here, so that the same again costs a line.
const kept = new Map();

export async function get(path, { signal } = {}) {
  const known = kept.get(path);
  const response = await send("GET", path, undefined, { signal, headers: known ? { "if-none-match": known.etag } : {} });
  if (response.status === 304 && known) return known.value;
  if (!response.ok) throw await failure(response);
  const value = await response.json();
  const etag = response.headers.get("etag");
  if (etag) {
    if (kept.size > 20) kept.clear();
    kept.set(path, { etag, value });
  }
  return value;
}

export async function post(path, body = {}, { signal } = {}) {
  const response = await send("POST", path, body, { signal });
  if (!response.ok) throw await failure(response);
  return response.status === 204 ? null : response.json();
}

export function forget() {
  kept.clear();
}

// Reads the server-sent events of a response: calls *take*(event, data, id) for each, with the data as text.
export async function readEvents(response, take) {
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "message", data = [], id = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) take(event, data.join("\n"), id);
        event = "message";
        data = [];
      } else if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line.startsWith("id:")) id = line.slice(3).trim();
    }
  }
}

// Paths of other doors, such as /engine/chat, from below api/.
export const door = (path) => new URL(`../..${path}`, BASE).href;
