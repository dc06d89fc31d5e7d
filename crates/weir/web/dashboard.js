// The dashboard: who is logged in, which page is seen, and what surrounds it.

import { html, render, useEffect, useRef, useState } from "./rendering.js";
import * as api from "./server_api.js";
import { instant, plural, seconds } from "./formats.js";
import { useOverview } from "./live_state.js";
import { Failure, StateWord } from "./page_parts.js";
import { ActPlace } from "./act_dialog.js";
import { OverviewPage } from "./overview_page.js";
import { NodesPage } from "./nodes_page.js";
import { FailoverPage } from "./failover_page.js";
import { ClientsPage, PoolsPage, ServersPage } from "./connection_pages.js";
import { CachePage, RoutePage, StatementsPage } from "./statement_pages.js";
import { ConfigurationPage } from "./configuration_page.js";
import { LogPage } from "./log_page.js";

const PAGES = [
    ["overview", "Overview", OverviewPage], ["nodes", "Nodes", NodesPage], ["failover", "Failover", FailoverPage],
    ["pools", "Pools", PoolsPage], ["clients", "Clients", ClientsPage], ["servers", "Servers", ServersPage],
    ["cache", "Cache", CachePage], ["statements", "Statements", StatementsPage], ["route", "Route", RoutePage],
    ["configuration", "Configuration", ConfigurationPage], ["log", "Log", LogPage],
];

/** Tells whether asking for the login is worth it; the login itself is a cookie that scripts cannot read. */
const SIGNED_IN = "weir_signed_in";

const pageNow = () => PAGES.find(([name]) => location.hash === `#/${name}`) ?? PAGES[0];

function LoginPage({ onSignedIn }) {
    const [stage, setStage] = useState({ isAsking: false, failure: null });
    const first = useRef(null);
    useEffect(() => first.current.focus(), []);
    const enter = async (event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget);
        setStage({ isAsking: true, failure: null });
        try {
            onSignedIn(await api.logIn(form.get("user"), form.get("password")));
        } catch (failure) {
            setStage({ isAsking: false, failure });
        }
    };
    return html`<main class="login"><form onSubmit=${enter}>
        <h1><img src="/assets/weir-icon.svg" alt="" width="28" height="28"/> Weir</h1>
        <label>User<input ref=${first} name="user" autocomplete="username" required/></label>
        <label>Password<input name="password" type="password" autocomplete="current-password" required/></label>
        <button class="firm" disabled=${stage.isAsking}>Log in</button>
        <${Failure} failure=${stage.failure}/>
        <p class="quiet">Users of admin_users and stats_users, with their passwords of pool_passwd.</p>
    </form></main>`;
}

function Navigation({ user, page, isOpen, attention }) {
    const seen = PAGES.filter(([name]) => name !== "log" || user.role === "admin");
    return html`<nav class="pages ${isOpen ? "is-open" : ""}" id="pages" aria-label="Pages"><ul>
        ${seen.map(([name, title]) => html`<li key=${name}><a href=${`#/${name}`} aria-current=${name === page ? "page" : undefined}>${title}${name === "overview" && attention > 0 && html` <span class="badge" aria-label=${`${plural(attention, "thing")} to look at`}>${attention}</span>`}</a></li>`)}
    </ul></nav>`;
}

function Shell({ user, onSignedOut }) {
    const { overview, isLate } = useOverview();
    const [[name, title, Page], setPage] = useState(pageNow());
    const [isOpen, setOpen] = useState(false);
    const main = useRef(null);
    // The library takes listeners away some time after the page has gone.
    useEffect(() => {
        const turn = () => {
            setPage(pageNow());
            setOpen(false);
            main.current?.focus({ preventScroll: true });
            scrollTo(0, 0);
        };
        // "/" goes to the search of the page, as in many tools.
        const seek = (event) => {
            if (event.key !== "/" || event.target.closest?.("input, textarea, select, dialog")) return;
            const field = main.current?.querySelector("input[type=search]");
            if (field) event.preventDefault();
            field?.focus();
        };
        addEventListener("hashchange", turn);
        addEventListener("keydown", seek);
        return () => {
            removeEventListener("hashchange", turn);
            removeEventListener("keydown", seek);
        };
    }, []);
    const attention = overview?.attention.filter(({ level }) => level !== "note").length ?? 0;
    useEffect(() => {
        document.title = `${attention > 0 ? `(${attention}) ` : ""}${title} · Weir on ${overview?.host ?? user.host}`;
    }, [attention, title, overview?.host]);
    const leave = async () => {
        await api.logOut().catch(() => {});
        onSignedOut();
    };
    return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>To the page</a>
        <header class="bar">
            <button type="button" class="menu" aria-expanded=${isOpen} aria-controls="pages" onClick=${() => setOpen(!isOpen)}>Pages</button>
            <a class="brand" href="#/overview"><img src="/assets/weir-icon.svg" alt="" width="22" height="22"/> Weir</a>
            <span class="host">${overview?.host ?? user.host}</span>
            ${overview && html`<${StateWord} word=${overview.state}/> <span class="quiet wide-only">up ${seconds(overview.uptime_s)} · ${overview.version}</span>`}
            <span class="space"></span>
            <span class="live ${isLate ? "is-late" : ""}" role="status">${isLate ? "No news: is Weir there?" : overview ? html`<span class="wide-only">${instant(overview.at)}</span>` : "Connecting …"}</span>
            <span class="user">${user.user}${user.role === "stats" && html` <small>(reads)</small>`}</span>
            <button type="button" onClick=${leave}>Sign off</button>
        </header>
        <div class="below">
            <${Navigation} user=${user} page=${name} isOpen=${isOpen} attention=${attention}/>
            <main id="main" ref=${main} tabindex="-1" class=${`page ${name} ${isLate ? "is-late" : ""}`}>
                <h1 class="unseen">${title}</h1>
                ${overview ? html`<${Page} key=${name} overview=${overview} user=${user}/>` : html`<p class="quiet">Asking the proxy …</p>`}
            </main>
        </div>
        <${ActPlace} overview=${overview}/>`;
}

function Dashboard() {
    const [user, setUser] = useState(localStorage.getItem(SIGNED_IN) ? undefined : null);
    const signIn = (known) => {
        localStorage.setItem(SIGNED_IN, "1");
        setUser(known);
    };
    const signOut = () => {
        localStorage.removeItem(SIGNED_IN);
        document.title = "Weir";
        setUser(null);
    };
    useEffect(() => {
        api.onSignedOut(signOut);
        if (user === undefined) api.me().then(signIn, signOut);
    }, []);
    if (user === undefined) return null;
    return user ? html`<${Shell} user=${user} onSignedOut=${signOut}/>` : html`<${LoginPage} onSignedIn=${signIn}/>`;
}

render(html`<${Dashboard}/>`, document.body);
