// Statements: which cost most, why one goes where it goes, and what the query cache makes of them.

import { html, useState } from "./rendering.js";
import * as api from "./server_api.js";
import { bytes, count, microseconds, percent } from "./formats.js";
import { useList, usePolled } from "./live_state.js";
import { Failure, Figures, Loading, Panel } from "./page_parts.js";
import { DataTable, columns } from "./data_table.js";

const STATEMENTS_PERIOD_MS = 5_000;

/** The database that most clients use, which people ask about first. */
function busiest(databases) {
    const rows = databases?.records ?? [];
    return rows.reduce((best, row) => (!best || row.current_client_connections > best.current_client_connections ? row : best), null)?.name ?? "";
}

/** Columns that people look at first; others that the list has come after them. */
const STATEMENT_COLUMNS = {
    statement: { className: "sql" }, advice: { className: "advice" }, calls: {}, total_ms: {}, mean_ms: {}, p99_ms: {},
    rows: {}, errors: {}, primary_share: { title: "on primary" }, standby_share: { title: "on standbys" }, cache_share: { title: "from cache" },
    rule: {}, database: {}, username: { title: "user" }, statement_id: { isLeftOut: true },
};

export function StatementsPage() {
    const ask = async () => ((await api.hasList("pool_statements")) ? api.list("pool_statements") : null);
    const { answer: list, failure, isAnswered } = usePolled(ask, "statements", STATEMENTS_PERIOD_MS);
    if (isAnswered && !list) return html`<${Panel} title="Statements" wide><p>This Weir keeps no statistics of statements.</p><//>`;
    if (!list) return html`<${Loading} failure=${failure}/>`;
    return html`<${Failure} failure=${failure}/><${Panel} title="Statements" wide>
        <${DataTable} label="statements" records=${list.records} sortBy="-total_ms" keyOf=${(row) => `${row.statement_id} ${row.database} ${row.username}`} columns=${columns(list, STATEMENT_COLUMNS)} empty="No statement was seen yet."/>
    <//>`;
}

const SIDES = { primary: "Writes, and what only the primary may answer, go here.", reader: "Any of these nodes may answer; their weights decide." };

function RouteAnswer({ answer, overview }) {
    const numbers = [answer.node].flat().filter((node) => node !== null);
    const place = (number) => {
        const node = overview.nodes.find((of) => of.node === number);
        return node ? `node ${number}, ${node.role}, ${node.host}:${node.port}` : `node ${number}`;
    };
    return html`<div class="answer" role="status">
        <dl>
            <div><dt>Goes to</dt><dd>${numbers.length === 0 ? "no node now" : html`<ul>${numbers.map((number) => html`<li key=${number}>${place(number)}</li>`)}</ul>`}</dd></div>
            <div><dt>Rule</dt><dd><code>${answer.rule}</code></dd></div>
            <div><dt>Reason</dt><dd>${answer.reason}</dd></div>
            <div><dt>Kind</dt><dd>${answer.kind}${SIDES[answer.kind] ? `: ${SIDES[answer.kind]}` : ""}</dd></div>
        </dl>
    </div>`;
}

export function RoutePage({ overview }) {
    const [asked, setAsked] = useState({ answer: null, failure: null });
    const { list: databases } = useList("console_databases", {}, STATEMENTS_PERIOD_MS);
    const { list: rules, failure } = useList("pool_rules", {}, STATEMENTS_PERIOD_MS);
    const ask = async (event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget);
        try {
            setAsked({ answer: await api.get("route", Object.fromEntries(form)), failure: null });
        } catch (failure) {
            setAsked({ answer: null, failure });
        }
    };
    const onKey = (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form.requestSubmit();
    };
    const names = (databases?.records ?? []).map((row) => row.name);
    return html`<${Panel} title="Why does a statement go there?" wide>
            <form class="route" onSubmit=${ask}>
                <label>Statement<textarea name="statement" rows="5" required spellcheck=${false} onKeyDown=${onKey} placeholder="SELECT …"></textarea></label>
                <label>Database<input name="database" required list="databases" autocomplete="off" defaultValue=${busiest(databases)} key=${busiest(databases)}/></label>
                <datalist id="databases">${names.map((name) => html`<option key=${name} value=${name}/>`)}</datalist>
                <label>User<input name="user" autocomplete="off" placeholder="any"/></label>
                <button class="firm">Where would it go?</button>
            </form>
            <${Failure} failure=${asked.failure}/>
            ${asked.answer && html`<${RouteAnswer} answer=${asked.answer} overview=${overview}/>`}
            <p class="quiet">As for a client that has just logged in. Settings of a session and its open transaction are not known here; in a session, <code>SHOW route FOR …</code> counts them.</p>
        <//>
        <${Panel} title="Rules, and how many statements each has sent" wide>
            ${!rules ? html`<${Loading} failure=${failure}/>` : html`<${DataTable} label="rules" records=${rules.records} sortBy="-statements" keyOf=${(row) => row.rule} mark=${(row) => (row.rule === asked.answer?.rule ? "is-chosen" : "")} columns=${columns(rules, {})}/>`}
        <//>`;
}

const ENTRY_COLUMNS = {
    statement: { className: "sql" }, username: { title: "user" }, state: {}, hits: { isNumber: true }, bytes: { isNumber: true, title: "size" },
    age_ms: { isNumber: true, title: "age" }, server_us: { isNumber: true, title: "time at the server" }, saved_us: { isNumber: true, title: "time saved" }, database: { isLeftOut: true },
};

export function CachePage() {
    const [chosen, setDatabase] = useState("");
    const { list: cache, failure } = useList("pool_cache");
    const { list: databases } = useList("console_databases", {}, STATEMENTS_PERIOD_MS);
    const database = chosen || busiest(databases);
    const { list: entries } = useList("pool_cache_entries", { database }, STATEMENTS_PERIOD_MS);
    const { list: tables } = useList("pool_cache_tables", { database }, STATEMENTS_PERIOD_MS);
    const { list: follower } = useList("pool_cache_wal", {}, STATEMENTS_PERIOD_MS);
    if (!cache) return html`<${Loading} failure=${failure}/>`;
    const [sum = {}] = cache.records;
    const number = (value) => (value === null || value === undefined ? null : Number(value));
    const saved = (entries?.records ?? []).reduce((sum, row) => sum + Number(row.saved_us ?? 0), 0);
    const choose = html`<label>Database <select value=${database} onChange=${(event) => setDatabase(event.currentTarget.value)}>
        ${(databases?.records ?? []).map((row) => html`<option key=${row.name} value=${row.name}>${row.name}</option>`)}
    </select></label>`;
    const hits = number(sum.num_cache_hits) ?? 0;
    const asked = hits + (number(sum.num_selects) ?? 0);
    return html`<${Failure} failure=${failure}/>
        <${Figures} figures=${[
            ["Answered from the cache", percent(asked > 0 ? hits / asked : null)],
            ["Hits", count(hits)], ["Sent to servers", count(number(sum.num_selects))], ["Results kept", count(number(sum.num_cache_entries))],
            ["Memory used", bytes(number(sum.used_cache_entries_size)), `${bytes(number(sum.free_cache_entries_size))} free`],
            ["Time saved by results kept", entries?.records.length ? microseconds(saved) : "–"],
        ]}/>
        <${Panel} title="Tables whose changes invalidate most" wide aside=${choose}>
            ${tables && html`<${DataTable} label="tables" records=${tables.records} sortBy="-changes" columns=${columns(tables, { schema: {}, table: {}, changes: { isNumber: true }, writers: { isNumber: true } })} empty="No change was seen in this database."/>`}
        <//>
        <${Panel} title="Results kept" wide>
            ${entries && html`<${DataTable} label="results" records=${entries.records} sortBy="-saved_us" columns=${columns(entries, ENTRY_COLUMNS)} empty="No result of this database is kept."/>`}
        <//>
        ${follower?.records.length > 0 && html`<${Panel} title="Changes past Weir" wide><${DataTable} label="databases followed" search=${false} records=${follower.records} columns=${columns(follower, {})}/><//>`}`;
}
