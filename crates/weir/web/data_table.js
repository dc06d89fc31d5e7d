// A table that is searched, sorted and leafed through. Only one page of it is in the document, so that its length costs nothing.

import { html, useMemo, useState } from "./rendering.js";
import { cell, count, instant, timeOf } from "./formats.js";

const PAGE_ROWS = 50;
// Longer texts are seen in full by the pointer, and by who opens the cell.
const SHORT_LENGTH = 90;

/** A column of a table out of a column of a list. `more` says what is different of it. */
export function column(of, more) {
    const title = of.name.replace(/_(us|ms)$/, "").replace(/_cnt$/, "").replaceAll("_", " ");
    return { name: of.name, title, isNumber: of.type === "number", value: (record) => record[of.name], show: (record) => cell(of, record[of.name]), ...more };
}

/** Columns of a list: those that are named first, in this order, with what is different of them; then the others unless `only`. */
export function columns(list, named, only) {
    const known = new Map(list.columns.map((of) => [of.name, of]));
    const first = Object.entries(named).filter(([name]) => known.has(name)).map(([name, more]) => column(known.get(name), more));
    const rest = only ? [] : list.columns.filter((of) => !(of.name in named)).map((of) => column(of));
    return [...first, ...rest];
}

function compare(a, b) {
    const [noneA, noneB] = [a === null || a === undefined, b === null || b === undefined];
    if (noneA || noneB) return noneA - noneB;
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function sorted(records, of, isFalling) {
    if (!of) return records;
    const isNone = (record) => of.value(record) === null || of.value(record) === undefined;
    const sign = isFalling ? -1 : 1;
    // Unknown values stand last in either direction.
    return [...records].sort((a, b) => isNone(a) - isNone(b) || sign * compare(of.value(a), of.value(b)));
}

function Text({ shown }) {
    if (typeof shown !== "string" || shown.length <= SHORT_LENGTH) return shown;
    return html`<details class="long"><summary title=${shown}>${shown.slice(0, SHORT_LENGTH)}…</summary><div>${shown}</div></details>`;
}

/**
 * `sortBy` is a column's name, also of one left out, with "-" before it for the highest first. `keyOf` gives a row's identity, `mark` a class for it.
 */
export function DataTable({ label, columns: known, records, keyOf, sortBy = "", empty = "Nothing here now.", mark, search = true, children }) {
    const columns = known.filter((of) => !of.isLeftOut);
    const [words, setWords] = useState("");
    const [order, setOrder] = useState({ name: sortBy.replace(/^-/, ""), isFalling: sortBy.startsWith("-") });
    const [page, setPage] = useState(0);
    const shown = useMemo(() => {
        const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
        const textOf = (record) => columns.map((of) => String(of.value(record) ?? "")).join(" ").toLowerCase();
        const found = wanted.length ? records.filter((record) => wanted.every((word) => textOf(record).includes(word))) : records;
        return sorted(found, known.find((of) => of.name === order.name), order.isFalling);
    }, [records, words, order, columns.length]);
    const last = Math.max(0, Math.ceil(shown.length / PAGE_ROWS) - 1);
    const at = Math.min(page, last);
    const rows = shown.slice(at * PAGE_ROWS, (at + 1) * PAGE_ROWS);
    const sort = (of) => {
        setOrder(order.name === of.name ? { ...order, isFalling: !order.isFalling } : { name: of.name, isFalling: of.isNumber });
        setPage(0);
    };
    const seek = (event) => {
        setWords(event.currentTarget.value);
        setPage(0);
    };
    const head = (of) => {
        const direction = order.name === of.name ? (order.isFalling ? "descending" : "ascending") : undefined;
        return html`<th key=${of.name} scope="col" class=${of.isNumber ? "number" : ""} aria-sort=${direction}>
            ${of.isAct ? html`<span class="unseen">${of.title}</span>` : html`<button type="button" title=${of.help} onClick=${() => sort(of)}>${of.title}</button>`}
        </th>`;
    };
    return html`<div class="table">
        ${(search || children) && html`<div class="tools">
            ${search && html`<input type="search" aria-label=${`Search ${label}`} placeholder="Search" value=${words} onInput=${seek}/>`}
            ${children}
            <span class="quiet" role="status">${words ? `${count(shown.length)} of ` : ""}${count(records.length)} ${records.length === 1 ? label.replace(/s$/, "") : label}</span>
        </div>`}
        <div class="scroll" tabindex="0" role="region" aria-label=${label}><table aria-label=${label}>
            <thead><tr>${columns.map(head)}</tr></thead>
            <tbody>${rows.map((record, index) => html`<tr key=${keyOf ? keyOf(record) : index} class=${mark?.(record) ?? ""}>
                ${columns.map((of) => html`<td key=${of.name} class=${of.isNumber ? "number" : of.isAct ? "orders" : of.className ?? ""} title=${timeOf(of.value(record)) ? instant(of.value(record)) : undefined}><${Text} shown=${of.show(record)}/></td>`)}
            </tr>`)}</tbody>
        </table></div>
        ${shown.length === 0 && html`<p class="quiet">${words ? "Nothing fits the search." : empty}</p>`}
        ${last > 0 && html`<nav class="leaf" aria-label=${`Pages of ${label}`}>
            <button type="button" disabled=${at === 0} onClick=${() => setPage(at - 1)}>Before</button>
            <span>${count(at * PAGE_ROWS + 1)}–${count(Math.min(shown.length, (at + 1) * PAGE_ROWS))} of ${count(shown.length)}</span>
            <button type="button" disabled=${at === last} onClick=${() => setPage(at + 1)}>Next</button>
        </nav>`}
    </div>`;
}
