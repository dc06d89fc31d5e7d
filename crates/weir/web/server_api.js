// The proxy's interface /api/v1: requests with their limits, and refusals as errors that say what to do.

const ROOT = "/api/v1/";
const ANSWER_LIMIT_MS = 15_000;
// A recovery copies a whole server.
const ACT_LIMIT_MS = 3_600_000;
// Longer addresses are refused by the proxy.
const ADDRESS_LENGTH_MAX = 7_000;

let token = "";
let signedOut = () => {};

/** Why a request was not answered. Status 0: no answer came. */
export class ApiFailure extends Error {
    constructor(status, message, hint) {
        super(message);
        this.status = status;
        this.hint = hint ?? "";
    }
}

/** Calls this when the proxy does not know the login any more. */
export function onSignedOut(then) {
    signedOut = then;
}

async function ask(path, options, limitMs) {
    let response;
    try {
        response = await fetch(ROOT + path, { ...options, credentials: "same-origin", signal: AbortSignal.timeout(limitMs) });
    } catch (cause) {
        const isLate = cause.name === "TimeoutError";
        const text = isLate ? `no answer within ${limitMs / 1000} s` : "the proxy cannot be reached";
        throw new ApiFailure(0, text, "Look whether it runs, and whether this machine reaches it.");
    }
    const answer = await response.json().catch(() => null);
    if (response.ok) return answer;
    if (response.status === 401 && path !== "login") signedOut();
    const error = answer?.error ?? {};
    throw new ApiFailure(response.status, error.message ?? `the proxy answers ${response.status}`, error.hint);
}

function address(path, values) {
    const query = new URLSearchParams(Object.entries(values ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== ""));
    const whole = `${path}?${query}`;
    if (whole.length > ADDRESS_LENGTH_MAX) throw new ApiFailure(0, "the text is too long to be asked about", "Shorten it: lists of values can be cut.");
    return whole;
}

export async function get(path, values) {
    return ask(address(path, values), {}, ANSWER_LIMIT_MS);
}

async function post(path, body, limitMs) {
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": token };
    return ask(path, { method: "POST", headers, body: JSON.stringify(body) }, limitMs);
}

export async function logIn(user, password) {
    token = (await post("login", { user, password }, ANSWER_LIMIT_MS)).csrf;
    return me();
}

export async function me() {
    const known = await get("me");
    token = known.csrf;
    return known;
}

export async function logOut() {
    await post("logout", {}, ANSWER_LIMIT_MS);
    token = "";
}

export async function act(order) {
    return post("act", order, ACT_LIMIT_MS);
}

/** True if this Weir knows the list. */
export async function hasList(name) {
    return (await get("show")).views.some((view) => view.name === name);
}

/** A list of SHOW, each row as an object with the names of the columns. */
export async function list(name, values) {
    const { columns, rows, at } = await get(`show/${name}`, values);
    const record = (row) => Object.fromEntries(columns.map((column, at) => [column.name, row[at]]));
    return { columns, at, records: rows.map(record) };
}
