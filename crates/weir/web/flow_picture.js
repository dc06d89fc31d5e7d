// The picture of the overview: clients, Weirs and servers, and how much flows between them.

import { html, useLayoutEffect, useRef, useState } from "./rendering.js";
import { amount, bytes, count, microseconds, milliseconds, percent } from "./formats.js";

const NARROW_WIDTH = 700;
const BOX_HEIGHT = 74;
const GAP = 14;
const RAIL = 18;
// Of the fonts in the boxes; longer lines are cut.
const LETTER_WIDTH = 6.7;
const TITLE_LETTER_WIDTH = 8;
const LINE_WIDTH_MAX = 7;

const fit = (text, width, letter = LETTER_WIDTH) => {
    const most = Math.max(4, Math.floor(width / letter));
    return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
};

function clientsBox({ clients }) {
    return { title: "Clients", state: clients.waiting > 0 ? `${count(clients.waiting)} waiting` : "", tone: clients.waiting > 0 ? "warning" : "good",
        lines: [`${count(clients.connected)} of ${count(clients.max)} connected`, `${count(clients.active)} active`] };
}

function weirBoxes({ host, state, rates, group }) {
    const own = { title: group ? host : `Weir on ${host}`, state, tone: state === "running" ? "good" : "warning",
        lines: [`${amount(rates.statements_s)} statements/s`, `p50 ${microseconds(rates.p50_us)} · p99 ${microseconds(rates.p99_us)}`] };
    if (!group) return [own];
    const word = (member) => (member.is_leader ? "leader" : member.state);
    const isShared = (member) => group.members.filter(({ host }) => host === member.host).length > 1;
    // Several hosts of one machine have one name.
    const title = (member) => (isShared(member) && member.port ? `${member.host}:${member.port}` : member.host);
    const other = (member) => ({ title: title(member), state: word(member), tone: /lost|shutdown|dead|down/i.test(member.state) ? "bad" : "good", lines: ["member of the group"], isOther: true });
    const self = group.members.find((member) => member.is_own);
    const others = group.members.filter((member) => member !== self);
    return [{ ...own, title: self ? title(self) : host, state: self ? word(self) : state, lines: [`this one · ${own.lines[0]}`, own.lines[1]] }, ...others.map(other)];
}

function serverBox(node, sum) {
    const isUp = node.status === "up" || node.status === "waiting";
    const lag = node.role === "primary" ? "" : ` · lag ${node.lag_ms ? milliseconds(node.lag_ms) : bytes(node.lag_bytes)}`;
    const third = isUp ? `${amount(node.statements_s)} st/s · ${count(node.connections)} conn.${lag}` : node.why ?? "not in use";
    return { title: `Node ${node.node} · ${node.role}`, state: node.status, tone: isUp ? "good" : "bad", isStrong: node.role === "primary",
        lines: [`${node.host}:${node.port}`, third], share: sum > 0 ? (node.statements_s ?? 0) / sum : 0, isCut: !isUp };
}

/** Boxes with their places, and lines between them, for a width in pixels. */
export function layout(overview, width) {
    const sum = overview.nodes.reduce((sum, node) => sum + (node.statements_s ?? 0), 0);
    const columns = [[clientsBox(overview)], weirBoxes(overview), overview.nodes.map((node) => serverBox(node, sum))];
    return width < NARROW_WIDTH ? stacked(columns, width) : abreast(columns, width);
}

function abreast(columns, width) {
    const tall = Math.max(...columns.map((boxes) => boxes.length)) * (BOX_HEIGHT + GAP) - GAP;
    const lane = Math.min(150, width * 0.1);
    const room = width - 2 * lane;
    const widths = [room * 0.26, room * 0.33, room * 0.41];
    let x = 0;
    const placed = columns.map((boxes, at) => {
        const top = (tall - (boxes.length * (BOX_HEIGHT + GAP) - GAP)) / 2;
        const column = boxes.map((box, row) => ({ ...box, x, y: top + row * (BOX_HEIGHT + GAP), width: widths[at] }));
        x += widths[at] + lane;
        return column;
    });
    const middle = (box) => box.y + BOX_HEIGHT / 2;
    const line = (from, to, share, isCut) => {
        const [x1, x2, half] = [from.x + from.width, to.x, (to.x - from.x - from.width) / 2];
        return { path: `M${x1} ${middle(from)}C${x1 + half} ${middle(from)} ${x2 - half} ${middle(to)} ${x2} ${middle(to)}`, share, isCut };
    };
    const [[clients], weirs, servers] = placed;
    const lines = [...weirs.map((weir) => line(clients, weir, weir.isOther ? 0 : 1)), ...servers.map((server) => line(weirs[0], server, server.share, server.isCut))];
    return { height: tall, boxes: placed.flat(), lines };
}

function stacked(columns, width) {
    let y = 0;
    const boxes = [];
    // The Weir that is asked stands next to the servers.
    const [clients, [own, ...others], servers] = columns;
    [clients, [...others, own], servers].forEach((column, at) => column.forEach((box) => {
        const x = at === 2 ? RAIL : 0;
        boxes.push({ ...box, at, x, y, width: width - x });
        y += BOX_HEIGHT + GAP;
    }));
    const weirs = boxes.filter((box) => box.at === 1);
    const lines = [{ path: `M${width / 2} ${BOX_HEIGHT}V${BOX_HEIGHT + GAP}`, share: 1 }];
    const begin = weirs[weirs.length - 1].y + BOX_HEIGHT;
    for (const box of boxes.filter((box) => box.at === 2)) {
        lines.push({ path: `M${RAIL / 2} ${begin}V${box.y + BOX_HEIGHT / 2}H${RAIL}`, share: box.share, isCut: box.isCut });
    }
    return { height: y - GAP, boxes, lines };
}

/** The picture in words, for those who do not see it. */
function described({ clients, nodes, host, rates, group }) {
    const node = (of) => `node ${of.node}, ${of.role}, ${of.status}, ${amount(of.statements_s)} statements a second`;
    const others = (group?.members ?? []).filter((member) => !member.is_own).map((member) => `host ${member.number} of the group ${member.state}; `).join("");
    return `${count(clients.connected)} clients, Weir on ${host} with ${amount(rates.statements_s)} statements a second, ${others}${nodes.map(node).join("; ")}`;
}

function Box({ box }) {
    const room = box.width - 24;
    const state = box.state ?? "";
    return html`<g class="box ${box.tone} ${box.isStrong ? "is-strong" : ""} ${box.isCut ? "is-cut" : ""}" transform="translate(${box.x} ${box.y})">
        <rect class="frame" width=${box.width} height=${BOX_HEIGHT} rx="6"/>
        <rect class="edge" width="4" height=${BOX_HEIGHT} rx="2"/>
        <text class="title" x="14" y="23">${fit(box.title, room - state.length * TITLE_LETTER_WIDTH, TITLE_LETTER_WIDTH)}</text>
        <text class="word" x=${box.width - 12} y="23" text-anchor="end">${state}</text>
        ${box.lines.map((text, at) => html`<text key=${at} class="line" x="14" y=${44 + at * 18}>${fit(text, room)}</text>`)}
    </g>`;
}

export function FlowPicture({ overview }) {
    const place = useRef(null);
    const [width, setWidth] = useState(0);
    useLayoutEffect(() => {
        const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
        observer.observe(place.current);
        return () => observer.disconnect();
    }, []);
    const { height, boxes, lines } = width > 0 ? layout(overview, width) : { height: 0, boxes: [], lines: [] };
    const thick = (share) => 1.5 + share * (LINE_WIDTH_MAX - 1.5);
    return html`<div class="picture" ref=${place}>
        <svg role="img" aria-label=${described(overview)} width=${width} height=${height} viewBox="0 0 ${width} ${height}">
            ${lines.map(({ path, share, isCut }, at) => html`<path key=${at} class="flow ${isCut ? "is-cut" : ""}" d=${path} stroke-width=${thick(share)}/>`)}
            ${boxes.map((box, at) => html`<${Box} key=${at} box=${box}/>`)}
        </svg>
        <p class="unseen">Cache hits: ${percent(overview.rates.cache_hit_ratio)}</p>
    </div>`;
}
