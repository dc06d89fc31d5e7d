// An order to the proxy: first what it will do and to how many clients, then the question, then how it goes.

import { html, useEffect, useRef, useState } from "./rendering.js";
import * as api from "./server_api.js";
import { plural, seconds } from "./formats.js";
import { useList } from "./live_state.js";
import { Failure, StateWord } from "./page_parts.js";

const CLOCK_PERIOD_MS = 500;

function Elapsed({ since }) {
    const [now, setNow] = useState(Date.now());
    useEffect(() => {
        const timer = setInterval(() => setNow(Date.now()), CLOCK_PERIOD_MS);
        return () => clearInterval(timer);
    }, []);
    return seconds(Math.floor((now - since) / 1000));
}

/** Words of the agent beside the node about its work, such as how much of a copy is done. */
function AgentWork({ node }) {
    const { list } = useList("pool_agents");
    const work = list?.records.find((row) => row.node_id === node)?.doing;
    return work ? html`<p class="quiet">Its agent: ${work}</p>` : null;
}

/** How the nodes stand while an order is carried out. */
function NodeStates({ overview }) {
    const nodes = overview?.nodes ?? [];
    return html`<ul class="node-states">${nodes.map((node) => html`<li key=${node.node}>node ${node.node}: ${node.role} <${StateWord} word=${node.status}/></li>`)}</ul>`;
}

/** `order` is what the proxy is asked, `title` its words on the button. */
function ActDialog({ order, title, overview, onClose }) {
    const [stage, setStage] = useState({ name: "looking" });
    const dialog = useRef(null);
    useEffect(() => {
        dialog.current.showModal();
        api.get("act", order).then(
            (forecast) => setStage({ name: "asking", forecast }),
            (failure) => setStage({ name: "failed", failure }),
        );
    }, []);
    const begin = async () => {
        setStage({ name: "doing", since: Date.now() });
        try {
            const { notices } = await api.act(order);
            setStage({ name: "done", notices: notices ?? [] });
        } catch (failure) {
            setStage({ name: "failed", failure });
        }
    };
    const isAsking = stage.name === "asking";
    const clients = isAsking ? stage.forecast.clients : 0;
    return html`<dialog ref=${dialog} aria-label=${title} data-stage=${stage.name} onClose=${onClose}>
        <h2>${title}</h2>
        ${stage.name === "looking" && html`<p class="quiet">Asking what it would do …</p>`}
        ${isAsking && html`<p>${stage.forecast.does}</p><p>${clients === 0 ? "No client is touched now." : html`<strong>${plural(clients, "client")}</strong> ${clients === 1 ? "is" : "are"} touched now.`}${stage.forecast.in_group ? " Clients of other members are not counted." : ""}</p>`}
        ${stage.name === "doing" && html`<p>Being done since <${Elapsed} since=${stage.since}/>. Closing this does not stop it.</p><progress aria-label="Being done"></progress>${order.node !== undefined && html`<${AgentWork} node=${order.node}/>`}<${NodeStates} overview=${overview}/>`}
        ${stage.name === "done" && html`<p role="status"><${StateWord} word="done"/> ${stage.notices.length === 0 ? "It is done." : ""}</p>${stage.notices.map((notice) => html`<p>${notice}</p>`)}<${NodeStates} overview=${overview}/>`}
        ${stage.name === "failed" && html`<${Failure} failure=${stage.failure}/>`}
        <footer>
            <button type="button" onClick=${() => dialog.current.close()}>${isAsking ? "Leave it" : "Close"}</button>
            ${isAsking && html`<button type="button" class="firm" onClick=${begin}>${title}</button>`}
        </footer>
    </dialog>`;
}

let show = () => {};

/** Where the dialog is seen: rows with buttons may go while it is open. */
export function ActPlace({ overview }) {
    const [open, setOpen] = useState(null);
    useEffect(() => {
        show = setOpen;
        return () => {
            show = () => {};
        };
    }, []);
    return open && html`<${ActDialog} key=${open.title} ...${open} overview=${overview} onClose=${() => setOpen(null)}/>`;
}

/** Buttons that open the dialog; nothing for those who may not order. Each of `acts` is [word, title, order]. */
export function Acts({ user, acts }) {
    if (user.role !== "admin") return null;
    return html`<span class="acts">
        ${acts.map(([word, title, order]) => html`<button type="button" key=${word} aria-label=${title} onClick=${() => show({ title, order })}>${word}</button>`)}
    </span>`;
}
