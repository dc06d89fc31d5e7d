// Pools, clients and connections to servers: who waits for whom, and orders about them.

import { html, useState } from "./rendering.js";
import { count, instant, milliseconds, plural } from "./formats.js";
import { useList } from "./live_state.js";
import { Choice, Failure, Loading, Meter, Panel, StateWord } from "./page_parts.js";
import { DataTable, columns } from "./data_table.js";
import { Acts } from "./act_dialog.js";

const DATABASES_PERIOD_MS = 4_000;
const WAITERS_SHOWN = 8;

const waitOf = (row, name) => Number(row[name]) + Number(row[`${name}_us`]) / 1e6;
const wait = (name) => ({ title: "longest wait", isNumber: true, value: (row) => waitOf(row, name), show: (row) => (waitOf(row, name) > 0 ? milliseconds(waitOf(row, name) * 1000) : "–") });
const left = { isLeftOut: true };

const POOL_COLUMNS = (sizes) => ({
    database: {}, user: {},
    cl_active: { title: "clients active" }, cl_waiting: { title: "clients waiting" }, maxwait: wait("maxwait"),
    sv_active: { title: "connections in use", isNumber: true, show: (row) => html`<${Meter} part=${row.sv_active} whole=${sizes.get(row.database)} text=${sizes.has(row.database) ? `${count(row.sv_active)} of ${count(sizes.get(row.database))}` : count(row.sv_active)}/>` },
    sv_idle: { title: "at rest" }, sv_login: { title: "opening" }, sv_tested: { title: "being cleaned" }, pool_mode: { title: "mode" },
});

export function PoolsPage({ user }) {
    const { list, failure } = useList("console_pools");
    const { list: databases, failure: lacks } = useList("console_databases", {}, DATABASES_PERIOD_MS);
    if (!list || !databases) return html`<${Loading} failure=${failure ?? lacks}/>`;
    const sizes = new Map(databases.records.map((row) => [row.name, row.pool_size]));
    const pause = (row) => (row.paused ? [["Resume", `Resume database ${row.name}`, { act: "resume", database: row.name }]] : [["Pause", `Pause database ${row.name}`, { act: "pause", database: row.name }]]);
    const all = [["Pause all", "Pause all databases", { act: "pause" }], ["Resume all", "Resume all databases", { act: "resume" }]];
    const databaseColumns = [
        ...columns(databases, {
            name: { title: "database" }, pool_size: {}, current_connections: { title: "connections" }, max_connections: { title: "connections at most" },
            current_client_connections: { title: "clients" }, max_client_connections: { title: "clients at most" }, pool_mode: { title: "own mode" },
            paused: { title: "state", isNumber: false, show: (row) => html`<${StateWord} word=${row.disabled ? "disabled" : row.paused ? "paused" : "open"}/>` },
        }, true),
        ...(user.role === "admin" ? [{ name: "acts", title: "Orders", isAct: true, value: () => "", show: (row) => html`<${Acts} user=${user} acts=${pause(row)}/>` }] : []),
    ];
    return html`<${Failure} failure=${failure ?? lacks}/>
        <${Panel} title="Pools" wide>
            <${DataTable} label="pools" records=${list.records} sortBy="-cl_waiting" keyOf=${(row) => `${row.database}\n${row.user}`} mark=${(row) => (row.cl_waiting > 0 ? "is-waiting" : "")} columns=${columns(list, POOL_COLUMNS(sizes), true)}/>
        <//>
        <${Panel} title="Databases" wide aside=${html`<${Acts} user=${user} acts=${all}/>`}>
            <${DataTable} label="databases" records=${databases.records} sortBy="name" keyOf=${(row) => row.name} columns=${databaseColumns}/>
        <//>`;
}

/** Clients that wait, each with the one that holds a connection of its pool for longest. */
function Waiters({ records }) {
    const waiting = records.filter((row) => row.state === "waiting").sort((a, b) => waitOf(b, "wait") - waitOf(a, "wait"));
    if (waiting.length === 0) return null;
    const holders = new Map();
    for (const row of records.filter((row) => row.state === "active")) {
        const pool = `${row.database}\n${row.user}`;
        const known = holders.get(pool);
        if (!known || row.request_time < known.request_time) holders.set(pool, row);
    }
    const words = (row) => {
        const holder = holders.get(`${row.database}\n${row.user}`);
        return holder ? html`; client ${holder.id} <code>${holder.application_name ?? ""}</code> holds a connection of the pool, at work since ${instant(holder.request_time)}` : "; nobody holds a connection of the pool";
    };
    return html`<${Panel} title="Who waits for whom" wide><ul>${waiting.slice(0, WAITERS_SHOWN).map((row) => html`<li key=${row.id}>Client ${row.id} <code>${row.application_name ?? ""}</code> of <code>${row.user}</code> in <code>${row.database}</code> waits for ${milliseconds(waitOf(row, "wait") * 1000)}${words(row)}.</li>`)}
        ${waiting.length > WAITERS_SHOWN && html`<li>${plural(waiting.length - WAITERS_SHOWN, "more client")}</li>`}</ul><//>`;
}

/** Orders about a client: its statement, if it runs one, and its connection. */
function actsOf(client, runs) {
    const cancel = ["Cancel", `Cancel the statement of client ${client}`, { act: "cancel_client", client }];
    const end = ["End", `End the connection of client ${client}`, { act: "kill_client", client }];
    return runs ? [cancel, end] : [end];
}

export function ClientsPage({ user }) {
    const [state, setState] = useState("all");
    const { list, failure } = useList("console_clients");
    if (!list) return html`<${Loading} failure=${failure}/>`;
    const records = state === "all" ? list.records : list.records.filter((row) => row.state === state);
    const acts = (row) => actsOf(row.id, row.state !== "idle");
    const shown = [
        ...columns(list, {
            id: { title: "client" }, application_name: { title: "application" },
            state: { show: (row) => html`<${StateWord} word=${row.state}/>` },
            wait: { ...wait("wait"), title: "waits" }, user: {}, database: {},
            addr: { title: "address", value: (row) => `${row.addr}:${row.port}`, show: (row) => `${row.addr}:${row.port}` },
            request_time: { title: "last request" }, connect_time: { title: "connected" }, prepared_statements: { title: "prepared" },
        }, true),
        ...(user.role === "admin" ? [{ name: "acts", title: "Orders", isAct: true, value: () => "", show: (row) => html`<${Acts} user=${user} acts=${acts(row)}/>` }] : []),
    ];
    return html`<${Failure} failure=${failure}/><${Waiters} records=${list.records}/>
        <${Panel} title="Clients" wide>
            <${DataTable} label="clients" records=${records} sortBy="-wait" keyOf=${(row) => row.id} mark=${(row) => (row.state === "waiting" ? "is-waiting" : "")} columns=${shown}>
                <${Choice} label="State of clients" value=${state} onChoose=${setState} choices=${[["all", "All"], ["active", "Active"], ["waiting", "Waiting"], ["idle", "Idle"]]}/>
            <//>
        <//>`;
}

export function ServersPage({ user }) {
    const { list, failure } = useList("pool_pools");
    if (!list) return html`<${Loading} failure=${failure}/>`;
    // At rest, the list tells the process of the proxy.
    const isLent = (row) => row.pool_connected === 1;
    const acts = (row) => actsOf(row.pool_pid, /^Execute/.test(row.status));
    const client = (row) => (row.client_host === null ? "" : `${row.client_host}${row.client_port === null ? "" : `:${row.client_port}`}`);
    const shown = [
        ...columns(list, {
            backend_id: { title: "node", isNumber: true }, pool_backendpid: { title: "process", isNumber: true, help: "Process of the server, as in pg_stat_activity" }, database: {}, username: { title: "user" },
            status: { show: (row) => html`<${StateWord} word=${row.status}/>` }, statement: { className: "sql" },
            pool_pid: { title: "client", isNumber: false, value: (row) => (isLent(row) ? `${row.pool_pid} ${client(row)}` : null), show: (row) => (isLent(row) ? html`${row.pool_pid} <small class="below-it">${client(row)}</small>` : "–") },
            pool_connected: { isLeftOut: true },
            client_disconnection_time: { title: "at rest since" },
        }, true),
        ...(user.role === "admin" ? [{ name: "acts", title: "Orders", isAct: true, value: () => "", show: (row) => (isLent(row) ? html`<${Acts} user=${user} acts=${acts(row)}/>` : "") }] : []),
    ];
    return html`<${Failure} failure=${failure}/><${Panel} title="Connections to servers" wide>
        <${DataTable} label="connections" records=${list.records} sortBy="-pool_connected" keyOf=${(row) => `${row.backend_id} ${row.pool_id} ${row.pool_backendpid}`} columns=${shown}/>
    <//>`;
}
