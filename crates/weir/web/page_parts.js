// Small parts of pages.

import { html } from "./rendering.js";

/** Severity of a state's word, for its colour; the word itself is always there. */
const TONES = {
    up: "good", primary: "strong", standby: "plain", running: "good", leader: "strong", active: "good", execute: "good",
    waiting: "warning", recovering: "warning", paused: "warning", quarantine: "bad", suspended: "warning", stopping: "warning", warning: "warning",
    down: "bad", error: "bad", lost: "bad", fatal: "bad", panic: "bad",
};

export function StateWord({ word }) {
    const tone = TONES[String(word).toLowerCase().split(/[ _]/)[0]] ?? "plain";
    return html`<span class="state ${tone}">${word}</span>`;
}

export function Panel({ title, aside, children, wide }) {
    return html`<section class="panel ${wide ? "wide" : ""}">
        <header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>
        ${children}
    </section>`;
}

/** Why a page has nothing newer to show. */
export function Failure({ failure }) {
    if (!failure) return null;
    return html`<p class="failure" role="alert"><strong>${failure.message}</strong> ${failure.hint}</p>`;
}

export function Loading({ failure }) {
    return failure ? html`<${Failure} failure=${failure}/>` : html`<p class="quiet">Asking the proxy …</p>`;
}

/** Numbers with their names, side by side. Each is [name, value, more]. */
export function Figures({ figures }) {
    return html`<dl class="figures">
        ${figures.map(([name, value, more]) => html`<div key=${name}><dt>${name}</dt><dd>${value}${more && html` <small>${more}</small>`}</dd></div>`)}
    </dl>`;
}

/** One of a few; the chosen one is pressed. Each is [value, text]. */
export function Choice({ label, choices, value, onChoose }) {
    return html`<div class="choice" role="group" aria-label=${label}>
        ${choices.map(([choice, text]) => html`<button type="button" key=${choice} aria-pressed=${choice === value} onClick=${() => onChoose(choice)}>${text}</button>`)}
    </div>`;
}

export function Meter({ part, whole, text }) {
    const share = whole > 0 ? Math.min(1, part / whole) : 0;
    return html`<span class="meter"><meter min="0" max="1" low="0.7" high="0.9" optimum="0" value=${share} aria-label=${text}></meter>${text}</span>`;
}
