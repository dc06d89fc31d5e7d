// State that pages share and look at again: the overview, which the proxy sends once a second, and lists.

import { useEffect, useRef, useState } from "./rendering.js";
import * as api from "./server_api.js";

// The proxy sends one overview a second.
const LATE_MS = 5_000;
const LATE_LOOK_MS = 1_000;
const LIST_PERIOD_MS = 2_000;

/**
 * The last overview, and whether it is still of now. A hidden page asks for none: browsers allow few connections.
 */
export function useOverview() {
    const [seen, setSeen] = useState({ overview: null, isLate: false });
    useEffect(() => {
        let [source, heard, isLeft] = [null, Date.now(), false];
        const take = (event) => {
            heard = Date.now();
            setSeen({ overview: JSON.parse(event.data), isLate: false });
        };
        const open = () => {
            if (isLeft || source || document.hidden) return;
            source = new EventSource("/api/v1/events");
            source.addEventListener("overview", take);
        };
        const close = () => {
            source?.close();
            source = null;
        };
        const look = () => {
            if (document.hidden || Date.now() - heard <= LATE_MS) return;
            setSeen((before) => (before.isLate ? before : { ...before, isLate: true }));
            // A stream that was refused does not begin again by itself.
            if (source?.readyState !== EventSource.CLOSED) return;
            close();
            heard = Date.now();
            api.me().then(open, open);
        };
        const turn = () => {
            heard = Date.now();
            if (document.hidden) close();
            else open();
        };
        const timer = setInterval(look, LATE_LOOK_MS);
        document.addEventListener("visibilitychange", turn);
        open();
        return () => {
            isLeft = true;
            clearInterval(timer);
            document.removeEventListener("visibilitychange", turn);
            close();
        };
    }, []);
    return seen;
}

/** Asks now and then again after each answer, while the page is seen. Gives the last answer, and why there is no newer one. */
export function usePolled(question, key, periodMs = LIST_PERIOD_MS) {
    const [seen, setSeen] = useState({ answer: null, failure: null, isAnswered: false });
    const latest = useRef(question);
    latest.current = question;
    const [again, setAgain] = useState(0);
    useEffect(() => {
        let [isLeft, timer] = [false, null];
        const step = async () => {
            if (!document.hidden) {
                try {
                    const answer = await latest.current();
                    if (!isLeft) setSeen({ answer, failure: null, isAnswered: true });
                } catch (failure) {
                    if (!isLeft) setSeen((before) => ({ ...before, failure }));
                }
            }
            if (!isLeft) timer = setTimeout(step, periodMs);
        };
        step();
        return () => {
            isLeft = true;
            clearTimeout(timer);
        };
    }, [key, again]);
    return { ...seen, refresh: () => setAgain((number) => number + 1) };
}

export function useList(name, values, periodMs) {
    const key = `${name} ${JSON.stringify(values ?? {})}`;
    const { answer, failure, refresh } = usePolled(async () => ({ of: key, list: await api.list(name, values) }), key, periodMs);
    // The answer may still be about the values of before.
    return { list: answer?.of === key ? answer.list : null, failure, refresh };
}
