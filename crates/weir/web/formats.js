// Numbers, sizes and times as people read them. Nothing known is an en dash.

const NOTHING = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
// The proxy's lists tell times in UTC, with or without saying so.
const LIST_TIME = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?: UTC)?$/;

const isNone = (value) => value === null || value === undefined || value === "" || Number.isNaN(value);

export function count(value) {
    return isNone(value) ? NOTHING : whole.format(value);
}

/** A number per second, a mean and the like. */
export function amount(value) {
    if (isNone(value)) return NOTHING;
    return Math.abs(value) < 10 ? fine.format(value) : whole.format(value);
}

export function bytes(value) {
    if (isNone(value)) return NOTHING;
    let [left, unit] = [Number(value), 0];
    while (Math.abs(left) >= 1024 && unit < UNITS.length - 1) {
        left /= 1024;
        unit += 1;
    }
    return `${amount(left)} ${UNITS[unit]}`;
}

export function microseconds(value) {
    if (isNone(value)) return NOTHING;
    if (value < 1000) return `${whole.format(value)} µs`;
    return milliseconds(value / 1000);
}

export function milliseconds(value) {
    if (isNone(value)) return NOTHING;
    if (value > 0 && value < 1) return `${whole.format(value * 1000)} µs`;
    if (value < 1000) return `${amount(value)} ms`;
    return seconds(value / 1000);
}

export function seconds(value) {
    if (isNone(value)) return NOTHING;
    if (value < 120) return `${amount(value)} s`;
    const minutes = Math.floor(value / 60);
    if (minutes < 120) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export function percent(ratio) {
    return isNone(ratio) ? NOTHING : `${amount(ratio * 100)} %`;
}

export function plural(number, noun) {
    return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

const two = (number) => String(number).padStart(2, "0");

/** The time that a list or a line of the log tells; null if the text is none. */
export function timeOf(text) {
    if (typeof text !== "string") return null;
    const parts = LIST_TIME.exec(text);
    const time = new Date(parts ? `${parts[1]}T${parts[2]}Z` : text);
    return (parts || /^\d{4}-\d\d-\d\dT/.test(text)) && !Number.isNaN(time.getTime()) ? time : null;
}

export function zone(time) {
    const east = -time.getTimezoneOffset();
    if (east === 0) return "UTC";
    return `${east < 0 ? "−" : "+"}${two(Math.floor(Math.abs(east) / 60))}:${two(Math.abs(east) % 60)}`;
}

export function clock(time) {
    return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** A time of a list, in the zone of who reads. */
export function instant(text) {
    const time = timeOf(text);
    if (!time) return isNone(text) ? NOTHING : String(text);
    return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(time)} ${zone(time)}`;
}

/** A time of a list in a cell: without the day if it is today's. The title of the cell has all of it. */
export function moment(text) {
    const time = timeOf(text);
    if (!time) return instant(text);
    const isToday = time.toDateString() === new Date().toDateString();
    return isToday ? `${clock(time)} ${zone(time)}` : instant(text);
}

/** How long ago a time of a list is. */
export function ago(text) {
    const time = timeOf(text);
    return time ? `${seconds(Math.max(0, Math.round((Date.now() - time) / 1000)))} ago` : NOTHING;
}

/** A cell of any list, by the unit at the end of its column's name. */
export function cell(column, value) {
    if (isNone(value)) return NOTHING;
    if (column.type !== "number") return timeOf(value) ? moment(value) : String(value);
    if (/_us$/.test(column.name)) return microseconds(value);
    if (/_ms$/.test(column.name)) return milliseconds(value);
    if (/(^|_)bytes($|_)|_entries_size$/.test(column.name)) return bytes(value);
    if (/ratio$|share$|^share_/.test(column.name)) return value <= 1 ? percent(value) : `${amount(value)} %`;
    if (/pid$|port$|(^|_)id$/.test(column.name)) return String(value);
    return amount(value);
}
