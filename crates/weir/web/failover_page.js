// The forecast of a primary's death now, and the history of those that died.

import { html } from "./rendering.js";
import { ago, instant, milliseconds } from "./formats.js";
import { useList } from "./live_state.js";
import { Failure, Loading, Panel, StateWord } from "./page_parts.js";
import { DataTable, columns } from "./data_table.js";

/** Parts of a failover in their order, with what each waits for. */
const PARTS = [
    ["verdict_ms", "Verdict", "from the first failed look until the old primary was held to be dead"],
    ["pledge_ms", "Pledge", "until the standbys agreed on the new one"],
    ["promote_ms", "Promotion", "until the new primary took writes"],
    ["vote_ms", "Vote", "until a majority knew it"],
];
const PART_LENGTH_MIN = 0.5;

function Timeline({ row, longest }) {
    const words = PARTS.map(([name, title]) => `${title} ${milliseconds(row[name])}`).join(", ");
    let x = 0;
    const bars = PARTS.map(([name], at) => {
        const width = row[name] > 0 ? Math.max(PART_LENGTH_MIN, (100 * row[name]) / longest) : 0;
        x += width;
        return html`<rect key=${name} class="part${at}" x=${x - width} y="0" width=${width} height="10"/>`;
    });
    return html`<li>
        <div class="what"><strong>${row.old_primary === null ? `Node ${row.new_primary} is the primary` : `Node ${row.old_primary} → node ${row.new_primary}`}</strong>
            <time title=${instant(row.time)}>${instant(row.time)}, ${ago(row.time)}</time></div>
        <p>${row.reason}</p>
        ${row.total_ms > 0 && html`<svg class="timeline" role="img" aria-label=${words} viewBox="0 0 100 10" preserveAspectRatio="none">${bars}</svg>
            <p class="parts">${PARTS.map(([name, title, help], at) => html`<span key=${name} title=${help}><i class="key part${at}"></i>${title} ${milliseconds(row[name])}</span>`)} <strong>Total ${milliseconds(row.total_ms)}</strong></p>`}
        ${row.lost !== null && html`<p class="loss">Lost: ${row.lost}</p>`}
    </li>`;
}

function Group() {
    const { list } = useList("pool_watchdog");
    if (!list || list.records.length === 0) return null;
    const named = { host_id: { title: "host" }, hostname: {}, state: { show: (row) => html`<${StateWord} word=${row.state}/>` } };
    return html`<${Panel} title="Group of Weirs" wide><${DataTable} label="hosts" search=${false} records=${list.records} columns=${columns(list, named)} keyOf=${(row) => row.host_id}/><//>`;
}

export function FailoverPage() {
    const { list, failure } = useList("pool_failover");
    if (!list) return html`<${Loading} failure=${failure}/>`;
    const of = (...events) => list.records.filter((row) => events.includes(row.event));
    const [forecast] = of("forecast");
    const [looks, changes, decisions] = [of("look", "apart"), of("failover", "start"), of("group")];
    const longest = Math.max(1, ...changes.map((row) => row.total_ms ?? 0));
    return html`<${Failure} failure=${failure}/>
        <${Panel} title="If the primary died now" wide>
            <p class="forecast">${forecast?.reason || "No forecast yet: nodes are being looked at."}</p>
            ${looks.length > 0 && html`<ul>${looks.map((row) => html`<li key=${row.reason}>${row.reason}</li>`)}</ul>`}
        <//>
        <${Panel} title="History" wide>
            ${changes.length === 0 ? html`<p class="quiet">The primary has not changed since this Weir started.</p>` : html`<ol class="history">${changes.map((row, at) => html`<${Timeline} key=${`${row.time} ${at}`} row=${row} longest=${longest}/>`)}</ol>`}
        <//>
        <${Group}/>
        ${decisions.length > 0 && html`<${Panel} title="Decisions of the group" wide><ol>${decisions.map((row) => html`<li key=${row.reason}>${row.reason}</li>`)}</ol><//>`}`;
}
