// A form made from a JSON Schema, over a plain JSON value: what is undefined is not sent. What a form cannot say, such
// as a schema without a type, is written as JSON. Schemas are foreign: depth and breadth are bounded, text stays text.

import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { html, plain } from "../ui.js";

const MOST_DEEP = 8;
const MOST_FIELDS = 100;
const MOST_ITEMS = 100;
const MOST_CHOICES = 300;

// By the paths of arguments, what is wrong with them.
const Faults = createContext(new Map());

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const own = (object, name) => (isObject(object) && Object.hasOwn(object, name) ? object[name] : undefined);

// The schema behind its $ref (of this document only), with its allOf folded in.
export function resolved(schema, root, seen = 0) {
  if (!isObject(schema) || seen > 20) return {};
  const { $ref: ref, allOf: all, ...rest } = schema;
  let found = rest;
  if (typeof ref === "string") {
    let target = ref.startsWith("#") ? root : undefined;
    for (const part of ref.slice(1).split("/").filter(Boolean)) target = own(target, decoded(part)) ?? (Array.isArray(target) ? target[part] : undefined);
    found = { ...resolved(target, root, seen + 1), ...rest };
  }
  for (const each of Array.isArray(all) ? all.slice(0, 20) : []) {
    const more = resolved(each, root, seen + 1);
    found = { ...more, ...found, properties: { ...more.properties, ...found.properties }, required: [...listed(more.required), ...listed(found.required)] };
  }
  return found;
}

function decoded(part) {
  try {
    return decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
  } catch {
    return part;
  }
}

const listed = (value) => (Array.isArray(value) ? value : []);

// The alternatives of a schema: those of anyOf and oneOf, or of several types.
function alternatives(schema) {
  const { anyOf, oneOf, ...rest } = schema;
  const found = [...listed(anyOf), ...listed(oneOf)].slice(0, 30);
  if (found.length) {
    // What stands beside the alternatives holds for each of them.
    const { title, description, default: _, ...shared } = rest;
    const apart = Object.keys(shared).length && (shared.properties || shared.type) && found.every((each) => !own(each, "type") && !own(each, "$ref"));
    return apart && shared.properties ? [] : found.map((each) => ({ ...shared, ...each }));
  }
  return Array.isArray(schema.type) && schema.type.length > 1 ? schema.type.map((type) => ({ ...rest, type })) : [];
}

function kindOf(schema, depth) {
  if (Array.isArray(schema.enum) || "const" in schema) return "choice";
  if (depth >= MOST_DEEP) return "json";
  if (alternatives(schema).length) return "alternatives";
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "object" || (!type && isObject(schema.properties))) {
    return isObject(schema.properties) && Object.keys(schema.properties).length && Object.keys(schema.properties).length <= MOST_FIELDS ? "object" : "json";
  }
  if (type === "array" || (!type && schema.items)) return isObject(schema.items) ? "array" : "json";
  return { string: "string", number: "number", integer: "number", boolean: "boolean", null: "null" }[type] || "json";
}

export function typeWords(given, root, depth = 0) {
  const schema = resolved(given, root);
  if (Array.isArray(schema.enum)) return "one of";
  if ("const" in schema) return plain(JSON.stringify(schema.const), 40);
  const some = alternatives(schema);
  if (some.length && depth < 3) return [...new Set(some.map((each) => typeWords(each, root, depth + 1)))].join(" or ");
  const type = Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type;
  if (type === "array" && schema.items && depth < 3) return `list of ${typeWords(schema.items, root, depth + 1)}`;
  return plain(schema.format ? `${type} (${schema.format})` : type || (schema.properties ? "object" : "any"), 60);
}

// Whether a value is of the kind of a schema: to find the alternative that it was made with.
function fits(value, schema) {
  switch (schema.type) {
    case "object": return isObject(value);
    case "array": return Array.isArray(value);
    case "integer": return Number.isInteger(value);
    case "null": return value === null;
    case undefined: return "const" in schema ? value === schema.const : !schema.enum || schema.enum.includes(value);
    default: return typeof value === schema.type && (!schema.enum || schema.enum.includes(value));
  }
}

const fresh = (schema, root, depth) =>
  ({ object: () => ({}), array: () => [], null: () => null, choice: () => ("const" in schema ? schema.const : undefined) })[kindOf(schema, depth)]?.();

export function SchemaForm({ errors, ...given }) {
  return html`<${Faults.Provider} value=${errors}><${Whole} ...${given} /><//>`;
}

function Whole({ schema, value, change, id = "f" }) {
  const root = isObject(schema) ? schema : {};
  const top = resolved(root, root);
  const names = isObject(top.properties) ? Object.keys(top.properties).length : 0;
  const some = alternatives(top).length;
  if (names && names <= MOST_FIELDS && !some) return html`<${Members} schema=${top} root=${root} value=${value} change=${change} id=${id} at="$" depth=${0} />`;
  if (!names && !some && top.additionalProperties === false) return html`<p class="foot">This tool takes no arguments.</p>`;
  return html`<${Field} id=${id} name="arguments" given=${root} root=${root} value=${value} change=${change} at="$" required depth=${0} />`;
}

function Members({ schema, root, value, change, id, at, depth }) {
  const required = listed(schema.required);
  const names = Object.keys(schema.properties);
  // The required ones first, each group in the order of the schema.
  const ordered = [...names.filter((name) => required.includes(name)), ...names.filter((name) => !required.includes(name))];
  const set = (name) => (next) => {
    const whole = isObject(value) ? { ...value } : {};
    if (next === undefined) delete whole[name];
    else Object.defineProperty(whole, name, { value: next, enumerable: true, configurable: true, writable: true });
    change(whole);
  };
  return ordered.map(
    (name, place) => html`<${Field} key=${name} id=${`${id}-${place}`} name=${name} given=${schema.properties[name]} root=${root}
      value=${own(value, name)} change=${set(name)} at=${`${at}.${name}`} required=${required.includes(name)} depth=${depth + 1} />`,
  );
}

function Field({ id, name, given, root, value, change, required, at, depth }) {
  const schema = resolved(given, root);
  const kind = kindOf(schema, depth);
  const about = typeof schema.description === "string" ? plain(schema.description, 600) : "";
  const head = { id, name: plain(name, 80), type: typeWords(given, root), required, about, fallback: schema.default };
  const fault = useContext(Faults).get(at);
  const input = { id, schema, root, value, change, required, at, depth, fault };
  if (kind === "object" || kind === "array" || kind === "alternatives") return html`<${Group} ...${head} ...${input} kind=${kind} />`;
  const Part = { choice: Choice, boolean: Truth, number: NumberInput, string: Text, null: Nothing, json: Json }[kind];
  return html`<div class="f">
    <label for=${id}><span class="mono">${head.name}${required && html`<span class="must" title="required"> *<span class="vh"> required</span></span>`}</span><small>${head.type}</small></label>
    <${Part} ...${input} describedby=${[about && `${id}-d`, fault && `${id}-e`].filter(Boolean).join(" ") || null} />
    <${Fault} id=${id} fault=${fault} />
    ${about && html`<p id=${`${id}-d`}>${about}</p>`}
  </div>`;
}

const Fault = ({ id, fault }) => fault && html`<p class="why-not" id=${`${id}-e`}>${plain(fault, 300)}</p>`;

// Parts inside others: an optional one is there once it is added.
function Group({ id, name, type, required, about, schema, root, value, change, at: path, depth, kind, fault }) {
  const there = value !== undefined || (required && kind === "object");
  const [chosen, setChosen] = useState(null);
  const some = kind === "alternatives" ? alternatives(schema).map((each) => resolved(each, root)) : [];
  const found = some.findIndex((each) => fits(value, each));
  const at = value === undefined ? -1 : chosen !== null && fits(value, some[chosen] || {}) ? chosen : found;
  const pick = (next) => {
    setChosen(next);
    change(next < 0 ? undefined : fresh(some[next], root, depth + 1) ?? empty(some[next]));
  };
  return html`<fieldset class="grp">
    <legend><span class="mono">${name}${required && html`<span class="must"> *<span class="vh"> required</span></span>`}</span> <small>${type}</small>
      ${kind !== "alternatives" && !there && html`<button class="lnk" type="button" onClick=${() => change(kind === "array" ? [] : {})} aria-label=${`Add ${name}`}>Add</button>`}
      ${kind !== "alternatives" && value !== undefined && !(required && kind === "object") && html`<button class="lnk" type="button" onClick=${() => change(undefined)} aria-label=${`Leave out ${name}`}>Leave out</button>`}
    </legend>
    ${about && html`<p class="about">${about}</p>`}
    <${Fault} id=${id} fault=${fault} />
    ${kind === "object" && there && html`<${Members} schema=${schema} root=${root} value=${value} change=${change} id=${id} at=${path} depth=${depth} />`}
    ${kind === "array" && there && html`<${Items} id=${id} name=${name} schema=${schema} root=${root} value=${value} change=${change} at=${path} depth=${depth} />`}
    ${kind === "alternatives" && html`<div class="f">
      <label for=${id} class="vh">Form of ${name}</label>
      <select id=${id} value=${String(at)} onChange=${(event) => pick(Number(event.target.value))}>
        <option value="-1">${required ? "Choose …" : "not sent"}</option>
        ${some.map((each, place) => html`<option value=${String(place)} key=${place}>${plain(each.title || typeWords(each, root), 80)}</option>`)}
      </select>
    </div>
    ${at >= 0 && kindOf(some[at], depth + 1) !== "null" && html`<${Field} key=${at} id=${`${id}-a`} name=${some[at].title || name} given=${some[at]} root=${root} value=${value} change=${(next) => change(next === undefined ? empty(some[at]) : next)} at=${path} required depth=${depth + 1} />`}`}
  </fieldset>`;
}

const empty = (schema) => ({ string: "", boolean: false, number: 0, integer: 0 })[schema.type] ?? (Array.isArray(schema.enum) ? schema.enum[0] : {});

function Items({ id, name, schema, root, value, change, at: path, depth }) {
  const items = Array.isArray(value) ? value : [];
  const each = resolved(schema.items, root);
  const set = (place) => (next) => change(items.map((item, at) => (at === place ? (next === undefined ? empty(each) : next) : item)));
  return html`<div class="items">
    ${items.slice(0, MOST_ITEMS).map(
      (item, place) => html`<div class="item" key=${place}>
        <${Field} id=${`${id}-${place}`} name=${`${place + 1}`} given=${schema.items} root=${root} value=${item} change=${set(place)} at=${`${path}[${place}]`} required depth=${depth + 1} />
        <button class="lnk" type="button" aria-label=${`Remove item ${place + 1} of ${name}`} onClick=${() => change(items.filter((_, at) => at !== place))}>Remove</button>
      </div>`,
    )}
    ${items.length > MOST_ITEMS && html`<p class="foot">The others are in the JSON.</p>`}
    <button class="lnk" type="button" aria-label=${`Add an item to ${name}`} onClick=${() => change([...items, fresh(each, root, depth + 1) ?? empty(each)])}>Add item</button>
  </div>`;
}

function Choice({ id, schema, value, change, required, describedby, fault }) {
  const values = ("const" in schema ? [schema.const] : schema.enum).slice(0, MOST_CHOICES);
  const at = values.findIndex((each) => JSON.stringify(each) === JSON.stringify(value));
  return html`<select id=${id} value=${String(at)} aria-describedby=${describedby} aria-invalid=${fault ? "true" : null} onChange=${(event) => change(event.target.value === "-1" ? undefined : values[Number(event.target.value)])}>
    <option value="-1">${required ? "Choose …" : "not sent"}</option>
    ${values.map((each, place) => html`<option value=${String(place)} key=${place}>${plain(typeof each === "string" ? each : JSON.stringify(each), 80)}</option>`)}
  </select>`;
}

const Truth = ({ id, value, change, required, describedby, schema, fault }) =>
  html`<select id=${id} value=${String(value)} aria-describedby=${describedby} aria-invalid=${fault ? "true" : null} onChange=${(event) => change({ true: true, false: false }[event.target.value])}>
    <option value="undefined">${required ? "Choose …" : `not sent${typeof schema.default === "boolean" ? ` (${schema.default})` : ""}`}</option>
    <option value="true">true</option><option value="false">false</option>
  </select>`;

// What is no number yet is kept as text, so that the gate can say what it expects.
function NumberInput({ id, value, change, schema, describedby, fault }) {
  const [text, setText] = useState(value === undefined ? "" : String(value));
  useEffect(() => {
    if (value === undefined ? text !== "" : Number(text) !== value && text !== value) setText(value === undefined ? "" : String(value));
  }, [value]);
  const type = (event) => {
    const next = event.target.value.trim();
    setText(next);
    change(next === "" ? undefined : Number.isFinite(Number(next)) ? Number(next) : next);
  };
  return html`<input id=${id} inputmode="decimal" autocomplete="off" value=${text} onInput=${type} aria-describedby=${describedby} aria-invalid=${fault ? "true" : null} placeholder=${hint(schema)} />`;
}

const hint = (schema) => {
  if (["string", "number", "boolean"].includes(typeof schema.default)) return plain(`${schema.default} if not sent`, 60);
  const example = listed(schema.examples)[0];
  return ["string", "number"].includes(typeof example) ? plain(`e.g. ${example}`, 60) : "";
};

function Text({ id, value, change, schema, required, describedby, fault }) {
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  const type = (event) => change(event.target.value === "" && !required ? undefined : event.target.value);
  const more = { id, value: text, onInput: type, "aria-describedby": describedby, "aria-invalid": fault ? "true" : null, placeholder: hint(schema), spellcheck: false, autocomplete: "off" };
  return schema.maxLength > 300 || text.length > 80 || text.includes("\n") ? html`<textarea ...${more} />` : html`<input ...${more} />`;
}

const Nothing = ({ id, value, change }) =>
  html`<select id=${id} value=${String(value)} onChange=${(event) => change(event.target.value === "null" ? null : undefined)}>
    <option value="undefined">not sent</option><option value="null">null</option>
  </select>`;

// Any JSON. It is passed on as soon as it is whole.
export function Json({ id, value, change, wrong, describedby, label }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const [fault, setFault] = useState("");
  useEffect(() => {
    try {
      if (JSON.stringify(text.trim() === "" ? undefined : JSON.parse(text)) === JSON.stringify(value)) return;
    } catch {
      if (document.activeElement?.id === id) return;
    }
    setText(value === undefined ? "" : JSON.stringify(value, null, 2));
    told("");
  }, [value]);
  const told = (next) => {
    setFault(next);
    wrong?.(!!next);
  };
  const type = (event) => {
    setText(event.target.value);
    try {
      const next = event.target.value.trim() === "" ? undefined : JSON.parse(event.target.value);
      told("");
      change(next);
    } catch (error) {
      told("This is not JSON yet.");
    }
  };
  return html`<textarea id=${id} value=${text} onInput=${type} spellcheck=${false} aria-invalid=${fault ? "true" : null} aria-describedby=${fault ? `${id}-w` : describedby} aria-label=${label} />
    ${fault && html`<p class="why-not" id=${`${id}-w`}>${fault}</p>`}`;
}
