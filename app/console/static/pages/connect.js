// How a client is connected to this gate: the command, the entry of its file, and requests by hand.

import { useState } from "preact/hooks";
import { get } from "../api.js";
import { Copy, Fragment, Note, Pre, Section, Table, Title, html, number, plain, useLoad } from "../ui.js";

const GATE = new URL("..", new URL(".", location.href)).href.replace(/\/console\/$/, "").replace(/\/$/, "");
const CLIENTS = ["claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "zed", "cline", "continue", "codex", "gemini", "opencode"];
const FACES = [["", "Three tools (for models)"], ["?tools=all", "Every tool by its own name"]];

const Code = ({ label, text }) => html`<div class="snip"><${Pre} label=${label}>${text}<//><${Copy} text=${text} /></div>`;

export default function Connect({ me }) {
  const [client, setClient] = useState(CLIENTS[0]);
  const [face, setFace] = useState("");
  const data = useLoad((signal) => (me.may.read ? get("configuration", { signal }) : Promise.resolve({ gates: [] })), []);
  const gates = data.value?.gates || [];
  const url = `${GATE}/mcp${face}`, virtual = face.startsWith("/gates/") && face.slice("/gates/".length);
  const choice = virtual ? ` --gate ${virtual}` : face ? " --tools all" : " --tools search";
  const entry = { mcpServers: { wicketgate: { type: "http", url, headers: { Authorization: "Bearer ${WG_KEY}" } } } };
  const body = { messages: [{ role: "user", content: "What can you do?" }], metadata: { correlation_id: "try-1" } };
  return html`<${Fragment}>
    <${Title} name="Connect">Connect your client<//>
    <p class="lede">This gate speaks MCP at <code>${url}</code>. A client needs a key: make one on the page Keys, or with <code>wicketgate key new</code>.</p>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <div class="f"><label for="client">Client</label><select id="client" value=${client} onChange=${(event) => setClient(event.target.value)}>${CLIENTS.map((name) => html`<option value=${name}>${name}</option>`)}</select></div>
      <div class="f"><label for="face">It sees</label><select id="face" value=${face} onChange=${(event) => setFace(event.target.value)}>${[...FACES, ...gates.map((each) => [`/gates/${each.name}`, `Gate ${plain(each.name, 40)}`])].map(([value, label]) => html`<option value=${value}>${label}</option>`)}</select></div>
    </form>
    <${Section} title="By a command" id="cmd"><${Code} label="Command" text=${`export WG_KEY=...   # the key\nwicketgate connect ${client} --url ${GATE}${choice} --write`} />
      <${Note}>It writes the entry into the file of the client, and keeps a copy of that. Without <code>--write</code> it only prints the entry.<//><//>
    <${Section} title="By hand" id="hand"><${Code} label="Entry of a client's file" text=${JSON.stringify(entry, null, 2)} />
      <${Note}>Most clients read such an entry; some write the variable as <code>\${env:WG_KEY}</code> or want the key itself.<//><//>
    ${gates.length > 0 && html`<${Section} title="Virtual gates" id="gates"><${Table} columns=${["Gate", "Address", "Face", ["Tools", "r"]]} rows=${gates.map((each) => [each.name, [
      plain(each.name, 40), html`<code>${`${GATE}/mcp/gates/${each.name}`}</code>`, plain(each.face, 40), number(each.tools),
    ]])} /><${Note}>Each shows a part of the tools, as the section <code>gates</code> of the configuration says.<//><//>`}
    <${Section} title="A chat, with the model of this gate" id="chat"><${Code} label="Chat with curl" text=${`curl -N ${GATE}/engine/chat \\\n  -H "Authorization: Bearer $WG_KEY" -H "Content-Type: application/json" \\\n  -d '${JSON.stringify(body)}'`} /><//>
  <//>`;
}
