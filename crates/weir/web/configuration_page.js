// Parameters: value, default, and when a change of each counts.

import { html, useState } from "./rendering.js";
import { useList } from "./live_state.js";
import { Choice, Failure, Loading, Panel } from "./page_parts.js";
import { DataTable, column, columns } from "./data_table.js";
import { Acts } from "./act_dialog.js";

const PERIOD_MS = 10_000;
const VALUE_LENGTH_MAX = 60;

const isChanged = (row) => row.value !== row.default;
const waitsForRestart = (row) => row.changeable === "no";

export function ConfigurationPage({ user }) {
    const [kind, setKind] = useState("all");
    const { list, failure } = useList("console_config", {}, PERIOD_MS);
    const { list: described } = useList("pool_status", {}, PERIOD_MS);
    if (!list) return html`<${Loading} failure=${failure}/>`;
    const help = new Map((described?.records ?? []).map((row) => [row.item, row.description]));
    const records = list.records.filter((row) => kind === "all" || (kind === "changed" ? isChanged(row) : waitsForRestart(row)));
    const shown = [
        ...columns(list, {
            key: { title: "parameter", className: "name" },
            value: { className: "value", isNumber: false, show: (row) => html`<span class=${isChanged(row) ? "is-changed" : ""}>${String(row.value ?? "").slice(0, VALUE_LENGTH_MAX) || "–"}</span>` },
            default: { className: "value", isNumber: false, show: (row) => (isChanged(row) ? String(row.default ?? "") : "") },
            changeable: { title: "a change counts", show: (row) => (waitsForRestart(row) ? "after a restart" : "at a reload") },
        }),
        column({ name: "description", type: "text" }, { value: (row) => help.get(row.key) ?? null, show: (row) => html`<span class="clamp" title=${help.get(row.key)}>${help.get(row.key)}</span>` }),
    ];
    const choices = [["all", "All"], ["changed", "Other than the default"], ["restart", "Need a restart"]];
    return html`<${Failure} failure=${failure}/>
        <${Panel} title="Configuration" wide aside=${html`<${Acts} user=${user} acts=${[["Reload", "Reload the configuration", { act: "reload" }]]}/>`}>
            <${DataTable} label="parameters" records=${records} sortBy="key" keyOf=${(row) => row.key} columns=${shown}>
                <${Choice} label="Parameters" value=${kind} onChoose=${setKind} choices=${choices}/>
            <//>
            <p class="quiet">Before a change: <code>weir check</code> tells what is wrong with the files, <code>weir check --connect</code> what the servers lack.</p>
        <//>`;
}
