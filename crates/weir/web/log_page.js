// The log, as it is written.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./rendering.js";
import * as api from "./server_api.js";
import { instant } from "./formats.js";
import { Choice, Failure, Panel, StateWord } from "./page_parts.js";

const PERIOD_MS = 1_000;
const LINES_MAX = 1_000;
// Nearer to the end than this, in pixels, somebody reads the newest line.
const END_NEAR = 40;
const TYPING_PAUSE_MS = 250;

const isGrave = ({ level }) => /warning|error|fatal|panic/i.test(level);

/** Lines with these words, the newest last; a pause keeps what is seen. */
function useLog(contains, isPaused) {
    const [seen, setSeen] = useState({ lines: [], failure: null });
    useEffect(() => {
        let [isLeft, timer, next] = [false, null, 0];
        const step = async () => {
            if (!document.hidden) {
                try {
                    const answer = await api.get("log", { after: next, contains });
                    const isFirst = next === 0;
                    next = answer.next;
                    if (isLeft) return;
                    setSeen((before) => ({ lines: [...(isFirst ? [] : before.lines), ...answer.lines].slice(-LINES_MAX), failure: null }));
                } catch (failure) {
                    if (!isLeft) setSeen((before) => ({ ...before, failure }));
                }
            }
            if (!isLeft) timer = setTimeout(step, PERIOD_MS);
        };
        if (!isPaused) step();
        return () => {
            isLeft = true;
            clearTimeout(timer);
        };
    }, [contains, isPaused]);
    return seen;
}

export function LogPage({ user }) {
    const [[typed, contains], setWords] = useState(["", ""]);
    const [level, setLevel] = useState("all");
    const [isPaused, setPaused] = useState(false);
    const { lines, failure } = useLog(contains, isPaused);
    const [place, isAtEnd] = [useRef(null), useRef(true)];
    useEffect(() => {
        const timer = setTimeout(() => setWords(([typed]) => [typed, typed]), TYPING_PAUSE_MS);
        return () => clearTimeout(timer);
    }, [typed]);
    useLayoutEffect(() => {
        if (place.current && isAtEnd.current) place.current.scrollTop = place.current.scrollHeight;
    }, [lines]);
    if (user.role !== "admin") return html`<${Panel} title="Log" wide><p>Only users in admin_users see the log.</p><//>`;
    const note = ({ currentTarget: log }) => {
        isAtEnd.current = log.scrollHeight - log.scrollTop - log.clientHeight < END_NEAR;
    };
    const shown = level === "all" ? lines : lines.filter(isGrave);
    return html`<${Failure} failure=${failure}/><${Panel} title="Log" wide>
        <div class="tools">
            <input type="search" aria-label="Lines with these words" placeholder="Only lines with …" value=${typed} onInput=${(event) => setWords([event.currentTarget.value, contains])}/>
            <${Choice} label="Level" value=${level} onChoose=${setLevel} choices=${[["all", "All"], ["grave", "Warnings and errors"]]}/>
            <button type="button" aria-pressed=${isPaused} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
            <span class="quiet">${shown.length} lines</span>
        </div>
        <ol class="log" ref=${place} tabindex="0" onScroll=${note} aria-label="Lines of the log">${shown.map((line) => html`<li key=${line.n} class=${isGrave(line) ? "is-grave" : ""}>
            <time>${instant(line.at)}</time> <${StateWord} word=${line.level}/> <span>${line.text}</span>
        </li>`)}</ol>
        ${shown.length === 0 && html`<p class="quiet">No lines.</p>`}
    <//>`;
}
