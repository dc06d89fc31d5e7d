// Curves of the last hour and day. All of them share the pointer's time.

import { html, useEffect, useRef, useState } from "./rendering.js";
import * as api from "./server_api.js";
import { amount, bytes, clock, microseconds, percent, timeOf, zone } from "./formats.js";
import { usePolled } from "./live_state.js";
import { Choice, Loading, Panel } from "./page_parts.js";

const HEIGHT = 118;
// Points of the hour come every 5 s, those of the day each minute.
const PERIOD_MS = { hour: 5_000, day: 30_000 };

const CURVES = [
    { title: "Statements per second", series: [["statements_s", "accent"]], show: amount },
    { title: "Transactions per second", series: [["transactions_s", "accent"]], show: amount },
    { title: "Time of a statement, p99", series: [["p99_us", "accent"]], show: microseconds },
    { title: "Clients, and those who wait", series: [["clients", "accent"], ["waiting", "warning"]], show: amount },
    { title: "Lag of the last standby", series: [["lag_bytes", "accent"]], show: bytes },
    { title: "Errors per second", series: [["errors_s", "bad"]], show: amount },
    { title: "Answered by the query cache", series: [["cache_hit_ratio", "accent"]], show: percent },
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function options(curve, width, tell) {
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const series = curve.series.map(([name, tone]) => ({ label: name, stroke: colour(tone), width: 1.5, points: { show: false }, fill: curve.series.length === 1 ? `${colour(tone)}22` : undefined }));
    const times = (_, ticks) => ticks.map((tick) => clock(new Date(tick * 1000)).slice(0, 5));
    return {
        width, height: HEIGHT, legend: { show: false }, padding: [8, 6, 0, 0],
        cursor: { sync: { key: "curves" }, drag: { x: false, y: false }, points: { size: 5 } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 1e-3) * 1.1] } },
        axes: [{ ...axis, values: times, size: 26 }, { ...axis, size: 62, values: (_, ticks) => ticks.map(curve.show), space: 28 }],
        series: [{}, ...series],
        hooks: { setCursor: [tell] },
    };
}

function Curve({ curve, history }) {
    const [place, told, chart] = [useRef(null), useRef(null), useRef(null)];
    const values = curve.series.map(([name]) => history.series[name] ?? []);
    const first = timeOf(history.first_at)?.getTime() / 1000;
    const points = [values[0].map((_, at) => first + at * history.step_s), ...values];
    const tell = (chart) => {
        const at = chart.cursor.idx ?? chart.data[0].length - 1;
        const texts = chart.data.slice(1).map((of) => curve.show(of[at]));
        const time = chart.cursor.idx === null || chart.cursor.idx === undefined ? "" : `${clock(new Date(chart.data[0][at] * 1000))}  `;
        if (told.current) told.current.textContent = time + texts.join(" / ");
    };
    useEffect(() => {
        const build = () => {
            chart.current?.destroy();
            chart.current = new window.uPlot(options(curve, place.current.clientWidth, tell), points, place.current);
            tell(chart.current);
        };
        build();
        const observer = new ResizeObserver(() => chart.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
        observer.observe(place.current);
        const scheme = matchMedia("(prefers-color-scheme: dark)");
        scheme.addEventListener("change", build);
        return () => {
            observer.disconnect();
            scheme.removeEventListener("change", build);
            chart.current.destroy();
        };
    }, []);
    useEffect(() => {
        chart.current.setData(points);
        tell(chart.current);
    }, [history]);
    return html`<figure class="curve"><figcaption>${curve.title} <output ref=${told}></output></figcaption><div ref=${place}></div></figure>`;
}

export function Curves() {
    const [span, setSpan] = useState("hour");
    const { answer, failure } = usePolled(async () => ({ span, history: await api.get("history", { span }) }), span, PERIOD_MS[span]);
    const history = answer?.span === span ? answer.history : null;
    const choice = html`<${Choice} label="Span of the curves" value=${span} onChoose=${setSpan} choices=${[["hour", "Last hour"], ["day", "Last day"]]}/>`;
    const isThere = (curve) => curve.series.some(([name]) => history.series[name]?.some((value) => value !== null));
    return html`<${Panel} title="Curves" wide aside=${html`<span class="quiet">Times in ${zone(new Date())}</span> ${choice}`}>
        ${!history ? html`<${Loading} failure=${failure}/>`
            : history.first_at === null ? html`<p class="quiet">The first points come within a minute.</p>`
            : html`<div class="curves">${CURVES.filter(isThere).map((curve) => html`<${Curve} key=${`${span} ${curve.title}`} curve=${curve} history=${history}/>`)}</div>`}
    <//>`;
}
