// Is all well, what changed, who suffers, and what would happen if the primary died now.

import { html } from "./rendering.js";
import * as api from "./server_api.js";
import { ago, amount, count, instant, microseconds, milliseconds, percent, plural, timeOf } from "./formats.js";
import { useList, usePolled } from "./live_state.js";
import { Figures, Loading, Panel } from "./page_parts.js";
import { FlowPicture } from "./flow_picture.js";
import { Curves } from "./curves.js";

const CHANGES_SHOWN = 8;
const SUFFERERS_SHOWN = 6;
const CHANGES_PERIOD_MS = 5_000;

const LEVELS = { error: "Broken", warning: "Warning", note: "Note" };

export function Attention({ points }) {
    if (points.length === 0) return html`<section class="attention well" aria-label="Attention"><h2><span class="mark" aria-hidden="true">✓</span> All is well</h2><p class="quiet">Nothing needs attention now.</p></section>`;
    return html`<section class="attention" aria-label="Attention">
        <h2>${plural(points.length, "thing")} ${points.length === 1 ? "needs" : "need"} attention</h2>
        <ul>${points.map((point) => html`<li key=${point.what} class=${point.level}>
            <span class="level">${LEVELS[point.level] ?? point.level}</span>
            <div><p>${point.what}</p><p class="remedy">${point.remedy}</p></div>
            <a href=${`#/${point.page}`}>Look</a>
        </li>`)}</ul>
    </section>`;
}

/** The log's lines of orders and of faults; logins and the like are left out. */
function ofLog(lines) {
    const tells = ({ level, text }) => /warning|error|fatal|panic/i.test(level) || (/^dashboard: /.test(text) && !/ logs in /.test(text));
    return lines.filter(tells).map(({ at, text }) => ({ at, text }));
}

function changesOf({ nodes, failovers, lines }, overview) {
    const started = new Date(timeOf(overview.at) - overview.uptime_s * 1000).toISOString();
    const changes = [
        { at: started, text: `Weir ${overview.version} started` },
        ...nodes.records.map((node) => ({ at: node.last_status_change, text: `Node ${node.node_id} became ${node.status}` })),
        ...failovers.records.filter((row) => row.event === "failover").map((row) => ({ at: row.time, text: `Primary moved from node ${row.old_primary} to node ${row.new_primary}: ${row.reason}`, page: "failover" })),
        ...ofLog(lines),
    ];
    return changes.filter(({ at }) => timeOf(at)).sort((a, b) => timeOf(b.at) - timeOf(a.at)).slice(0, CHANGES_SHOWN);
}

function Changes({ overview, user }) {
    const ask = async () => {
        const lines = user.role === "admin" ? api.get("log", { after: 0 }) : { lines: [] };
        const [nodes, failovers, log] = await Promise.all([api.list("pool_nodes"), api.list("pool_failover"), lines]);
        return { nodes, failovers, lines: log.lines };
    };
    const { answer, failure } = usePolled(ask, "changes", CHANGES_PERIOD_MS);
    return html`<${Panel} title="What changed?">
        ${!answer ? html`<${Loading} failure=${failure}/>` : html`<ol class="changes">${changesOf(answer, overview).map(({ at, text, page }, index) => html`<li key=${index}>
            <time title=${instant(at)}>${ago(at)}</time> <span class="clamp" title=${text}>${page ? html`<a href=${`#/${page}`}>${text}</a>` : text}</span>
        </li>`)}</ol>`}
    <//>`;
}

function Sufferers({ overview }) {
    const { list, failure } = useList("console_pools");
    const waits = (row) => Number(row.maxwait) + Number(row.maxwait_us) / 1e6;
    const rows = (list?.records ?? []).filter((row) => row.cl_waiting > 0).sort((a, b) => waits(b) - waits(a));
    const { errors_s, p99_us } = overview.rates;
    return html`<${Panel} title="Who suffers?">
        ${!list ? html`<${Loading} failure=${failure}/>` : rows.length === 0 ? html`<p>Nobody waits for a server connection.</p>` : html`<ul class="sufferers">
            ${rows.slice(0, SUFFERERS_SHOWN).map((row) => html`<li key=${`${row.database} ${row.user}`}><strong>${plural(row.cl_waiting, "client")}</strong> of <code>${row.user}</code> in <code>${row.database}</code>, the first for ${milliseconds(waits(row) * 1000)}</li>`)}
            ${rows.length > SUFFERERS_SHOWN && html`<li>${plural(rows.length - SUFFERERS_SHOWN, "more pool")}</li>`}
        </ul>`}
        <p>${p99_us === null ? "No statement was timed lately" : `One statement in a hundred takes longer than ${microseconds(p99_us)}`}; ${errors_s > 0 ? html`<strong>${amount(errors_s)} errors a second</strong>` : "no errors now"}.</p>
        <p class="links"><a href="#/clients">Clients</a> <a href="#/pools">Pools</a> <a href="#/statements">Statements</a></p>
    <//>`;
}

function Prospect({ group }) {
    const { list, failure } = useList("pool_failover");
    const forecast = list?.records.find((row) => row.event === "forecast");
    const leader = group?.members.find((member) => member.is_leader && !member.is_own);
    return html`<${Panel} title="If the primary died now?">
        ${!list ? html`<${Loading} failure=${failure}/>` : html`<p>${forecast?.reason || "No forecast yet: nodes are being looked at."}</p>`}
        ${leader && html`<p>Host ${leader.number}, <strong>${leader.host}${leader.port ? `:${leader.port}` : ""}</strong>, leads.</p>`}
        <p class="links"><a href="#/failover">Failover</a> <a href="#/route">Why did a statement go there?</a></p>
    <//>`;
}

export function OverviewPage({ overview, user }) {
    const { clients, servers, rates } = overview;
    return html`<${Attention} points=${overview.attention}/>
        <${Figures} figures=${[
            ["Statements/s", amount(rates.statements_s)],
            ["Transactions/s", amount(rates.transactions_s)],
            ["p50", microseconds(rates.p50_us)],
            ["p99", microseconds(rates.p99_us)],
            ["Errors/s", amount(rates.errors_s)],
            ["From cache", percent(rates.cache_hit_ratio)],
            ["Clients", count(clients.connected), `${count(clients.waiting)} waiting`],
            ["Connections", count(servers.active + servers.idle), `${count(servers.active)} in use`],
        ]}/>
        <${FlowPicture} overview=${overview}/>
        <div class="panels">
            <${Prospect} group=${overview.group}/>
            <${Sufferers} overview=${overview}/>
            <${Changes} overview=${overview} user=${user}/>
        </div>
        <${Curves}/>`;
}
