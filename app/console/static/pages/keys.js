// The keys that callers hold: whose, for what, for how long, when last used. Operators make, suspend and revoke them here.
// A key is shown once, when it is made; never its hash.

import { useEffect, useRef, useState } from "preact/hooks";
import { door, get, post, send } from "../api.js";
import { Button, Confirm, Copy, Failure, Figures, Fragment, Link, Loaded, Note, State, Table, Time, Title, announce, html, lasting, moment, plain, plural, useEvery, useLoad } from "../ui.js";

const STATES = { good: ["ready", "good"], suspended: ["down", "suspended"], expired: ["down", "expired"], not_yet_valid: ["connecting", "not valid yet"] };
const SOON_S = 14 * 86_400;
const REFRESH_MS = 15_000;

export default function Keys({ me }) {
  const data = useLoad((signal) => get("keys", { signal }), []);
  useEvery(REFRESH_MS, data.again);
  const found = data.value;
  const ended = found?.keys.filter((key) => key.state === "expired" || key.state === "suspended").length;
  const soon = found?.keys.filter((key) => ends(key, found.now)).length;
  return html`<${Fragment}>
    <div class="top"><${Title} name="Keys">${found ? plural(found.keys.length + found.more, "key") : "Keys"}<//>
      ${found && html`<${Figures} items=${[["Suspended or expired", ended, ended ? "bad" : ""], ["End within 14 days", soon, soon ? "wait" : ""]]} />`}</div>
    <p class="lede">Keys of the configuration are made with <code>wicketgate key new</code>. Those that are made here are kept in the store, and are good at once. Revoke a key of the configuration in its file; here it can be suspended.</p>
    ${me.may.write ? html`<${NewKey} done=${data.again} />` : html`<${Note}>To make, suspend or revoke keys takes the permission <code>ops:write</code>.<//>`}
    <${Loaded} data=${data}>${({ keys, more, now, since }) => html`<${Fragment}>
      <div class="keys"><${Table} columns=${["Key", "State", "Actor", "Permissions", "Good until", "Last use", me.may.write && "Change"]} rows=${keys.map((key) => {
        const [state, label] = STATES[key.state] || ["down", key.state];
        const may = [...key.permissions, ...key.roles.map((role) => `role:${role}`)];
        return [key.id, [
          html`<span class="nm">${plain(key.id || "–", 64)}</span>${key.made_here && html`<small>made here</small>`}`, html`<${State} state=${state}>${label}<//>`, plain(key.actor, 130),
          may.length ? html`<ul class="may">${may.slice(0, 20).map((each) => html`<li><code>${plain(each, 100)}</code></li>`)}${may.length > 20 && html`<li>${may.length - 20} more</li>`}</ul>` : "none",
          html`<span class=${ends(key, now) ? "wait" : ""}>${key.expires_at == null ? "no end" : html`${moment(key.expires_at)}<small>${key.expires_at > now ? `in ${lasting(key.expires_at - now)}` : ""}</small>`}${key.not_before > now && html`<small>good from ${moment(key.not_before)}</small>`}</span>`,
          key.last_used == null ? "not yet" : html`<${Time} at=${key.last_used} />`,
          ...(me.may.write ? [html`<${Change} of=${key} own=${key.id === me.key_id} done=${data.again} />`] : []),
        ]];
      })} /></div>
      ${more > 0 && html`<${Note}>${plural(more, "more key")} not listed.<//>`}
      <${Note}>Uses are counted by this process, since ${moment(since)}.<//>
    <//>`}<//>
    <${Connections} me=${me} />
  <//>`;
}

const FIELDS = [["id", "Id", "ann-1", "Lower-case letters, digits and hyphens"], ["actor", "Actor", "ann", "Whose calls these are"], ["permissions", "Permissions", "tools:github:*", "Only what your own key has; separated by commas"], ["roles", "Roles", "", "Only those of your own key"], ["days", "Good for days", "", "Empty: without an end"]];
const list = (text) => (text || "").split(",").map((each) => each.trim()).filter(Boolean);

function NewKey({ done }) {
  const [wanted, setWanted] = useState({});
  const [state, setState] = useState({ open: false, busy: false, error: null, made: null });
  const first = useRef(null), opener = useRef(null), made = useRef(null), was = useRef(false);
  useEffect(() => {
    if (state.open !== was.current) (state.open ? first : state.made ? made : opener).current?.focus();
    was.current = state.open;
  }, [state.open]);
  const make = async (event) => {
    event.preventDefault();
    setState({ ...state, busy: true, error: null });
    try {
      const days = wanted.days ? Number(wanted.days) : null;
      const made = await post("keys", { id: wanted.id || "", actor: wanted.actor || "", permissions: list(wanted.permissions), roles: list(wanted.roles), days });
      announce(`The key ${made.id} was made.`);
      setWanted({});
      setState({ open: false, busy: false, error: null, made });
      done();
    } catch (error) {
      setState({ ...state, busy: false, error });
    }
  };
  const close = (event) => event.key === "Escape" && setState({ ...state, open: false, error: null });
  return html`<section class="newkey" aria-label="A new key">
    ${state.made && html`<div class="made" role="status" tabindex="-1" ref=${made}><p>The key <b>${plain(state.made.id, 64)}</b>, shown this once: <code>${state.made.key}</code> <${Copy} text=${state.made.key} /> <${Link} page="connect">Connect a client<//></p></div>`}
    ${state.open
      ? html`<form onSubmit=${make} onKeyDown=${close}>
          ${FIELDS.map(([name, label, example, about], at) => html`<div class="f" key=${name}><label for=${`new-${name}`}>${label}</label>
            <input id=${`new-${name}`} ref=${at ? null : first} required=${at < 2} maxlength="500" autocomplete="off" spellcheck="false" placeholder=${example} value=${wanted[name] || ""} onInput=${(event) => setWanted({ ...wanted, [name]: event.target.value })} /><p>${about}</p></div>`)}
          <div class="btns"><button class="btn p" disabled=${state.busy}>Make the key</button><${Button} onClick=${() => setState({ ...state, open: false, error: null })}>Cancel<//></div>
          <${Failure} error=${state.error} />
        </form>`
      : html`<button class="btn" type="button" ref=${opener} onClick=${() => setState({ ...state, open: true, made: null })}>New key …</button>`}
  </section>`;
}

function Change({ of: key, own, done }) {
  const [state, setState] = useState({ busy: false, error: null });
  const box = useRef(null), acted = useRef(false);
  // The button that was pressed is another one now.
  useEffect(() => {
    if (acted.current) box.current?.querySelector("button")?.focus();
    acted.current = false;
  }, [key.state]);
  const act = (action) => async () => {
    setState({ busy: true, error: null });
    acted.current = true;
    try {
      const { done: told } = await post(`keys/${encodeURIComponent(key.id)}/${action}`);
      announce(`The key ${key.id} is ${told}.`);
      setState({ busy: false, error: null });
    } catch (error) {
      setState({ busy: false, error });
    }
    done();
  };
  if (own) return html`<span class="foot0">in use here</span>`;
  const id = plain(key.id, 64);
  return html`<div class="btns" ref=${box}>
    ${key.state === "suspended"
      ? html`<${Button} disabled=${state.busy} onClick=${act("resume")}>Resume<span class="vh"> ${id}</span><//>`
      : html`<${Confirm} label=${html`Suspend …<span class="vh"> ${id}</span>`} title=${`Suspend ${id}?`} text="It is refused from now on, at all processes, and what it has started ends. It can be made good again." yes="Suspend it" keep="Keep it" disabled=${state.busy} act=${act("suspend")} />`}
    ${key.made_here && html`<${Confirm} label=${html`Revoke …<span class="vh"> ${id}</span>`} title=${`Revoke ${id}?`} text="It is refused for good, at all processes, and what it has started ends." yes="Revoke it" keep="Keep it" disabled=${state.busy} act=${act("revoke")} />`}
    <${Failure} error=${state.error} />
  </div>`;
}

function Connections({ me }) {
  const data = useLoad((signal) => get(door("/connections?actor=*"), { signal }), []);
  const end = async ({ upstream, actor }) => {
    await send("DELETE", door(`/connections/${encodeURIComponent(upstream)}?actor=${encodeURIComponent(actor)}`));
    data.again();
  };
  if (!data.value?.connections.length) return null;
  return html`<section aria-labelledby="acc"><div class="sec"><h2 id="acc">Connected accounts</h2></div>
    <${Table} columns=${["Server", "Actor", "State", "Since", me.may.write && "End"]} rows=${data.value.connections.map((each) => [`${each.upstream} ${each.actor}`, [
      plain(each.upstream, 64), plain(each.actor, 130),
      html`<${State} state=${each.state === "active" ? "ready" : "down"}>${each.state === "active" ? "good" : "has to log in"}<//>`,
      moment(Date.parse(each.connected_at) / 1000), ...(me.may.write ? [html`<${Button} onClick=${() => end(each)}>Disconnect<//>`] : []),
    ]])} /></section>`;
}

const ends = (key, now) => key.state === "good" && key.expires_at != null && key.expires_at - now < SOON_S;
