// What was used and what it cost: the cost of each day as bars, and the sums in a table.

import { get } from "../api.js";
import { go } from "../route.js";
import { Figures, Fragment, Link, Loaded, Note, Table, Title, html, number, plain, useLoad } from "../ui.js";

const BY = ["actor", "key", "model", "tool", "day"];
const SPANS = [[7, "7 days"], [30, "30 days"], [90, "90 days"], [400, "400 days"]];
const WIDTH = 900, HEIGHT = 120;

const money = (cost) => cost.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: cost < 1 ? 6 : 2 });
const daysAgo = (days) => new Date(Date.now() - (days - 1) * 86_400_000).toISOString().slice(0, 10);

export default function Spending({ query }) {
  const by = BY.includes(query.by) ? query.by : "actor";
  const span = SPANS.some(([days]) => String(days) === query.days) ? Number(query.days) : 30;
  const actor = query.actor || "";
  const data = useLoad((signal) => get(`spending?by=${by}&since=${daysAgo(span)}${actor && `&actor=${encodeURIComponent(actor)}`}`, { signal }), [by, span, actor]);
  const found = data.value;
  const choose = (name) => (event) => go("spending", { by, days: span, actor, [name]: event.target.value }, { replace: true });
  const total = found ? found.days.reduce((all, { cost }) => all + cost, 0) : 0;
  return html`<${Fragment}>
    <div class="top"><${Title} name="Spending">Spending<//>
      ${found?.priced && html`<${Figures} items=${[["In all", money(total)], ["Today", money(found.days.at(-1)?.cost || 0)]]} />`}</div>
    <p class="lede">Tokens are counted by the providers. Costs are in the currency of <code>model.prices</code> and <code>spending.tools</code>. Days are those of UTC.</p>
    <form class="choose" onSubmit=${(event) => event.preventDefault()}>
      <label>Sums by <select value=${by} onChange=${choose("by")}>${BY.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Of the last <select value=${String(span)} onChange=${choose("days")}>${SPANS.map(([days, label]) => html`<option value=${days}>${label}</option>`)}</select></label>
      ${actor && html`<span>Only of <b>${plain(actor, 130)}</b> <${Link} page="spending" query=${{ by, days: span }}>all actors<//></span>`}
    </form>
    ${(by === "model" || by === "tool") && html`<${Note}>${by === "model" ? "Without calls of tools." : "Without turns of models."}<//>`}
    <${Loaded} data=${data}>${({ rows, days, priced }) => html`<${Fragment}>
      ${priced ? html`<${Chart} days=${days} />` : html`<${Note}>No prices are configured, so only turns, calls and tokens are known.<//>`}
      ${rows.length ? html`<${Table} columns=${[by[0].toUpperCase() + by.slice(1), ["Turns", "r"], ["Calls", "r"], ["Prompt", "r"], ["of it cached", "r"], ["Completion", "r"], ["Cost", "r"]]}
        rows=${rows.map((row) => [row.name, [html`<span class="nm">${by === "actor" ? html`<${Link} page="spending" query=${{ by: "tool", days: span, actor: row.name }}>${plain(row.name, 200)}<//> <small><${Link} page="spending" query=${{ by: "day", days: span, actor: row.name }}>by day<//></small>` : plain(row.name, 200)}</span>`, number(row.turns), number(row.calls),
          number(row.prompt_tokens), number(row.cached_tokens), number(row.completion_tokens), money(row.cost)]])} />` : html`<p class="empty">Nothing was used in this time.</p>`}
    <//>`}<//>
  <//>`;
}

function Chart({ days }) {
  const most = Math.max(...days.map(({ cost }) => cost), 0);
  const step = WIDTH / days.length;
  const bar = ({ day, cost }, place) => {
    const height = most ? (cost / most) * HEIGHT : 0;
    return html`<rect x=${place * step} y=${HEIGHT - height} width=${Math.max(step - 1, 0.5)} height=${height}><title>${day}: ${money(cost)}</title></rect>`;
  };
  return html`<figure class="days">
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`Cost by day, at most ${money(most)}`}>${days.map(bar)}</svg>
    <figcaption><span>${days[0]?.day}</span><span>at most ${money(most)} a day</span><span>${days.at(-1)?.day}</span></figcaption>
  </figure>`;
}
