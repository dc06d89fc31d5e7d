// Curves of the last hour and day. All of them share the pointer's time.

import { html, useEffect, useRef, useState } from "./rendering.js";
import * as api from "./server_api.js";
import { amount, bytes, clock, microseconds, percent, timeOf, zone } from "./formats.js";
import { usePolled } from "./live_state.js";
import { Choice, Loading, Panel } from "./page_parts.js";

const HEIGHT = 118;
const MINUTE_S = 60;
// A young curve does not stretch over the whole width.
const SPAN_S_MIN = 10 * MINUTE_S;
const TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360].map((minutes) => minutes * MINUTE_S);
// Points of the hour come every 5 s, those of the day each minute.
const PERIOD_MS = { hour: 5_000, day: 30_000 };

/** `least` is the smallest height of the scale: without it noise looks like a mountain. */
const CURVES = [
    { title: "Statements and transactions per second", least: 1, series: [["statements_s", "accent"], ["transactions_s", "quiet"]], show: amount },
    { title: "Time of a statement, p99", least: 1000, series: [["p99_us", "accent"]], show: microseconds },
    { title: "Clients, and those who wait", least: 1, series: [["clients", "accent"], ["waiting", "warning"]], show: amount },
    { title: "Lag of the last standby", least: 1024, series: [["lag_bytes", "accent"]], show: bytes },
    { title: "Errors per second", least: 1, series: [["errors_s", "bad"]], show: amount },
    { title: "Answered by the query cache", least: 0.1, series: [["cache_hit_ratio", "accent"]], show: percent },
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function options(curve, width, tell) {
    const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const series = curve.series.map(([name, tone]) => ({ label: name, stroke: colour(tone), width: 1.5, points: { show: false }, fill: curve.series.length === 1 ? `${colour(tone)}22` : undefined }));
    const times = (_, ticks) => ticks.map((tick) => clock(new Date(tick * 1000)).slice(0, 5));
    return {
        width, height: HEIGHT, legend: { show: false }, padding: [8, 18, 0, 0],
        cursor: { sync: { key: "curves" }, drag: { x: false, y: false }, points: { size: 5 } },
        scales: { x: { range: (_, first, last) => [Math.min(first, last - SPAN_S_MIN), last] }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, curve.least) * 1.1] } },
        axes: [{ ...axis, values: times, incrs: TICKS_S, size: 26 }, { ...axis, size: 62, values: (_, ticks) => ticks.map(curve.show), space: 28 }],
        series: [{}, ...series],
        hooks: { setCursor: [tell] },
    };
}

/** The library comes while the rest of the page is seen already. */
const library = new Promise((come, fail) => {
    const script = document.createElement("script");
    script.src = "/assets/vendor/uplot.js";
    script.onload = () => come(window.uPlot);
    script.onerror = () => fail(new Error("uplot.js does not come"));
    document.head.append(script);
});

function Curve({ curve, history, uPlot }) {
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
        const frame = place.current;
        const build = () => {
            chart.current?.destroy();
            chart.current = new uPlot(options(curve, frame.clientWidth, tell), points, frame);
            tell(chart.current);
        };
        build();
        const observer = new ResizeObserver(() => chart.current.setSize({ width: frame.clientWidth, height: HEIGHT }));
        observer.observe(frame);
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

const pointsOf = (history) => Math.max(...Object.values(history.series).map((values) => values.length));

export function Curves() {
    const [span, setSpan] = useState("hour");
    const { answer, failure } = usePolled(async () => ({ span, uPlot: await library, history: await api.get("history", { span }) }), span, PERIOD_MS[span]);
    const history = answer?.span === span ? answer.history : null;
    const choice = html`<${Choice} label="Span of the curves" value=${span} onChoose=${setSpan} choices=${[["hour", "Last hour"], ["day", "Last day"]]}/>`;
    const isThere = (curve) => curve.series.some(([name]) => history.series[name]?.some((value) => value !== null));
    return html`<${Panel} title="Curves" wide aside=${html`<span class="quiet">Times in ${zone(new Date())}</span> ${choice}`}>
        ${!history ? html`<${Loading} failure=${failure}/>`
            : pointsOf(history) < 2 ? html`<p class="quiet">The first points come within a minute.</p>`
            : html`<div class="curves">${CURVES.filter(isThere).map((curve) => html`<${Curve} key=${`${span} ${curve.title}`} curve=${curve} history=${history} uPlot=${answer.uPlot}/>`)}</div>`}
    <//>`;
}
