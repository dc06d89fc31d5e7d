// Servers: how each stands, and orders to them.

import { html, useState } from "./rendering.js";
import { amount, bytes, count, milliseconds, seconds } from "./formats.js";
import { useList } from "./live_state.js";
import { Choice, Loading, Panel, StateWord } from "./page_parts.js";
import { DataTable, columns } from "./data_table.js";
import { Acts } from "./act_dialog.js";

const LISTS = [
    ["pool_backend_stats", "Statements by kind"],
    ["pool_health_check_stats", "Health checks"],
    ["pool_agents", "Agents"],
    ["pool_recovery", "Recoveries"],
    ["pool_nodes", "As SHOW pool_nodes"],
];

const RECOVERY_PERIOD_MS = 1000;

/** Orders that make sense for a node as it is; the proxy judges each once more. */
function actsOf({ node, role, status }) {
    const isUp = status === "up" || status === "waiting";
    const order = (act) => ({ act, node });
    const acts = isUp ? [["Detach", `Detach node ${node}`, order("detach")]] : [["Attach", `Attach node ${node}`, order("attach")]];
    if (isUp && role !== "primary") {
        acts.push(["Switch over", `Switch over to node ${node}`, order("switchover")], ["Promote", `Promote node ${node}`, order("promote")]);
    }
    if (role !== "primary") acts.push(["Recover", `Recover node ${node}`, order("recover")]);
    acts.push(["Restart", `Restart node ${node}`, order("restart")]);
    return acts;
}

function NodeCard({ node, user }) {
    const facts = [
        ["Statements/s", amount(node.statements_s)],
        ["Connections", count(node.connections)],
        ["Weight", amount(node.weight)],
        ...(node.role === "primary" ? [] : [["Lag", `${bytes(node.lag_bytes)}, ${milliseconds(node.lag_ms)}`]]),
    ];
    return html`<article class="node" aria-label=${`Node ${node.node}`}>
        <header><h2>Node ${node.node}</h2><span class="role ${node.role}">${node.role}</span><${StateWord} word=${node.status}/></header>
        <p class="quiet">${node.host}:${node.port}</p>
        ${node.why && html`<p class="why">${node.why}</p>`}
        <dl>${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
        <${Acts} user=${user} acts=${actsOf(node)}/>
    </article>`;
}

/** Servers that are brought back now; nothing if there are none. */
function Recoveries() {
    const { list } = useList("pool_recovery", undefined, RECOVERY_PERIOD_MS);
    if (!list || list.records.length === 0) return null;
    const row = (one) => html`<li key=${one.node_id}><strong>Node ${one.node_id}</strong> ${one.doing}
        ${one.total_bytes > 0 && html` <progress max=${one.total_bytes} value=${one.done_bytes} aria-label=${`Node ${one.node_id}: ${one.done_percent} %`}></progress>
            ${bytes(one.done_bytes)} of ${bytes(one.total_bytes)}, ${bytes(one.bytes_per_second)}/s, ${seconds(one.seconds_left)} left`}</li>`;
    return html`<${Panel} title="Brought back now" wide><ul>${list.records.map(row)}</ul><//>`;
}

export function NodesPage({ overview, user }) {
    const [name, setName] = useState(LISTS[0][0]);
    const { list, failure } = useList(name);
    return html`<div class="node-cards">${overview.nodes.map((node) => html`<${NodeCard} key=${node.node} node=${node} user=${user}/>`)}</div>
        <${Recoveries}/>
        <${Panel} title="In numbers" wide aside=${html`<${Choice} label="List of nodes" choices=${LISTS} value=${name} onChoose=${setName}/>`}>
            ${!list ? html`<${Loading} failure=${failure}/>` : html`<${DataTable} key=${name} label="nodes" search=${false} records=${list.records} keyOf=${(row) => row.node_id}
                columns=${columns(list, { node_id: { title: "node" }, status: { show: (row) => html`<${StateWord} word=${row.status}/>` } })}/>`}
        <//>`;
}
