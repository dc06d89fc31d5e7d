// Parameters: each value with its source, what in the files waits, and what `weir check` says of them.

import { html, useState } from "./rendering.js";
import * as api from "./server_api.js";
import { plural } from "./formats.js";
import { usePolled } from "./live_state.js";
import { Choice, Failure, Loading, Panel } from "./page_parts.js";
import { DataTable, columns } from "./data_table.js";
import { Acts } from "./act_dialog.js";

const PERIOD_MS = 10_000;
const VALUE_LENGTH_MAX = 60;

/** Places that a value may come from, in words; a file is told by its name and line. */
const SOURCES = {
    default: "default", file: "file", command_line: "command line", environment: "environment", systemd: "systemd",
    called_pgpool: "called pgpool", debian: "Debian's package", console: "SET in the console",
};
const APPLIES = { restart: "after a restart", reload: "at a reload", session: "at a reload, or for a session" };
const KINDS = {
    all: () => true, changed: (row) => row.value !== row.default, waiting: (row) => row.waiting !== null, restart: (row) => row.applies === "restart",
};
const CHOICES = [["all", "All"], ["changed", "Other than the default"], ["waiting", "Waiting"], ["restart", "Need a restart"]];
const COLUMNS = ["name", "value", "unit", "source", "default", "waiting", "applies", "description"].map((name) => ({ name, type: "text" }));

const place = (source) => (source?.file ? `${source.file}:${source.line}` : SOURCES[source?.kind] ?? "");
const shortPlace = (source) => place(source).replace(/^.*\//, "");
const short = (value) => (value === null || value === "" ? "–" : value.slice(0, VALUE_LENGTH_MAX));

/** A change that does not count yet, as a sentence. */
function waitingWords({ value, waiting }) {
    const then = waiting.until === "restart" ? "counts after a restart" : "counts after a reload";
    if (waiting.value === null) return `is in force, and no longer in the files: its end ${then}`;
    return `is ${value === null ? "not there" : short(value)}; ${place(waiting.source) || "the files"} says ${short(waiting.value)}: that ${then}`;
}

function Waiting({ rows }) {
    if (rows.length === 0) return html`<p class="quiet">The files say what is in force.</p>`;
    return html`<ul class="waits">${rows.map((row) => html`<li key=${row.name}><code>${row.name}</code> ${waitingWords(row)}.</li>`)}</ul>`;
}

/** The words of `weir check`, once somebody has asked: it asks the servers as well. */
function Check() {
    const [stage, setStage] = useState({ name: "none" });
    const ask = async () => {
        setStage({ name: "asking" });
        try {
            setStage({ name: "told", found: await api.get("check") });
        } catch (failure) {
            setStage({ name: "failed", failure });
        }
    };
    const line = ({ level, file, line, what }, at) => html`<li key=${at} class=${level}><span class="level">${level}</span> <div><p>${what}</p>${file && html`<p class="remedy">${file}${line === null ? "" : `:${line}`}</p>`}</div></li>`;
    const words = ({ errors, problems }) => (problems.length === 0 ? "The configuration is valid, and nothing is to be said of it." : errors === 0 ? `The configuration is valid; ${plural(problems.length, "warning")}.` : `A start or reload would be refused: ${plural(errors, "error")}.`);
    return html`<${Panel} title="What weir check says" wide aside=${html`<button type="button" disabled=${stage.name === "asking"} onClick=${ask}>Check the files</button>`}>
        ${stage.name === "none" && html`<p class="quiet">Reads the files as they are now, and asks each server how it lets clients in. <code>weir check --connect</code> also says what the servers lack.</p>`}
        ${stage.name === "asking" && html`<p class="quiet">Checking …</p>`}
        ${stage.name === "failed" && html`<${Failure} failure=${stage.failure}/>`}
        ${stage.name === "told" && html`<div class="attention found" role="status"><p>${words(stage.found)}</p><ul>${stage.found.problems.map(line)}</ul>${stage.found.notes.map((note) => html`<p class="quiet">${note}</p>`)}</div>`}
    <//>`;
}

export function ConfigurationPage({ user }) {
    const [kind, setKind] = useState("all");
    const { answer, failure } = usePolled(() => api.get("configuration"), "configuration", PERIOD_MS);
    if (!answer) return html`<${Loading} failure=${failure}/>`;
    const waiting = answer.parameters.filter(KINDS.waiting);
    const shown = columns({ columns: COLUMNS }, {
        name: { title: "parameter", className: "name" },
        value: { className: "value", show: (row) => html`<span class=${KINDS.changed(row) ? "is-changed" : ""}>${short(row.value)}</span>` },
        unit: { help: "Unit of a number without one" },
        source: { value: (row) => place(row.source), show: (row) => html`<span title=${place(row.source)}>${shortPlace(row.source)}</span>` },
        default: { className: "value", show: (row) => (KINDS.changed(row) ? row.default ?? "" : "") },
        waiting: { title: "in the files", className: "value", value: (row) => (row.waiting ? row.waiting.value ?? "" : null), show: (row) => (row.waiting ? html`${short(row.waiting.value)} <small class="below-it">after a ${row.waiting.until}</small>` : "") },
        applies: { title: "a change counts", value: (row) => APPLIES[row.applies], show: (row) => APPLIES[row.applies] },
        description: { show: (row) => html`<span class="clamp" title=${row.description}>${row.description}</span>` },
    });
    return html`<${Failure} failure=${failure}/>
        <${Panel} title="What waits" wide aside=${html`<${Acts} user=${user} acts=${[["Reload", "Reload the configuration", { act: "reload" }]]}/>`}>
            ${answer.file_errors > 0 ? html`<p class="failure" role="alert"><strong>The files cannot be used now: ${plural(answer.file_errors, "error")}.</strong> The values in force stay; a reload or start would be refused.</p>` : html`<${Waiting} rows=${waiting}/>`}
        <//>
        ${user.role === "admin" && html`<${Check}/>`}
        <${Panel} title="Configuration" wide>
            <${DataTable} label="parameters" records=${answer.parameters.filter(KINDS[kind])} sortBy="name" keyOf=${(row) => row.name} columns=${shown}>
                <${Choice} label="Parameters" value=${kind} onChoose=${setKind} choices=${CHOICES}/>
            <//>
        <//>`;
}
