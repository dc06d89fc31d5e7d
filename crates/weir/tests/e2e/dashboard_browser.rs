//! The dashboard's pages in a real browser, before real servers: what a person sees, and what no page may do.

mod web_driver;

use crate::cancel::{SLEEP, wait_for_sleepers};
use crate::failover;
use crate::failover::grouped::{Group, writes};
use crate::failover::load::Load;
use crate::support::ground::cluster;
use crate::support::time::check_took;
use crate::support::{Ground, Proxy, wait_until, wire};
use crate::switchover::{Stand, check_none_failed, crew};
use std::time::{Duration, Instant};
use web_driver::Browser;
use weir_demo::{ReservedPort, Server};

const USERS: &str = "admin_users = 'boss'\nstats_users = 'watcher'\npool_passwd = 'FOLDER/pool_passwd'\n";
const PASSWORDS: &str = "boss:TEXTsecret of boss\nwatcher:TEXTsecret of watcher\n";
const HOSTILE: &str = "<script>alert(1)</script>";
/// Pages by the words of their addresses.
const PAGES: [&str; 11] =
    ["overview", "nodes", "failover", "pools", "clients", "servers", "cache", "statements", "route", "configuration", "log"];
/// CSS pixels of a small phone.
const PHONE_WIDTH: u32 = 360;
/// From the order of things in the proxy to what a person sees, without a reload.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// Milliseconds for work in the page after a click, on a machine that does other things as well.
const CLICK_MS_MAX: f64 = 1_000.0;

/// The lines and the file that turn the dashboard on.
fn dashboard() -> (ReservedPort, String) {
    let port = ReservedPort::any().unwrap();
    let lines = format!("metrics_listen_addresses = '127.0.0.1'\nmetrics_port = {}\ndashboard = on\n{USERS}", port.number());
    (port, lines)
}

fn proxy(servers: &[&Server], lines: &str) -> Proxy {
    Proxy::with_files(servers, lines, &[("pool_passwd", PASSWORDS)], &[])
}

/// A browser at the login page.
fn open(port: &ReservedPort) -> Option<Browser> {
    let browser = Browser::open()?;
    browser.go(&format!("http://127.0.0.1:{}/", port.number()));
    browser.wait_for("form input[name=user]");
    Some(browser)
}

fn log_in(browser: &Browser, user: &str) {
    browser.enter("input[name=user]", user);
    browser.enter("input[name=password]", &format!("secret of {user}"));
    browser.click("form button");
    browser.wait_for("main.overview .picture svg");
}

fn turn_to(browser: &Browser, page: &str) {
    browser.run(&format!("location.hash = '#/{page}'; return null"));
    browser.wait_for(&format!("main.{page} section, main.{page} article"));
    // Lists that were asked for have come.
    wait_until("all lists of the page", || browser.run("return !document.body.innerText.includes('Asking the proxy')") == true);
}

/// No fault in the console, but for answers that the test provokes.
fn check_console(browser: &Browser, provoked: &[&str]) {
    let faults: Vec<String> =
        browser.console().into_iter().filter(|line| !provoked.iter().any(|part| line.contains(part))).collect();
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn every_page_shows_texts_as_texts_and_asks_only_this_proxy() {
    let ground = Ground::new();
    let (port, lines) = dashboard();
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let proxy = proxy(&servers, &lines);
    let Some(browser) = open(&port) else { return };
    browser.keep_picture("login");
    browser.enter("input[name=user]", "boss");
    browser.enter("input[name=password]", HOSTILE);
    browser.click("form button");
    browser.wait_text("form .failure", "user or password is wrong");
    assert!(browser.texts("nav").is_empty(), "a refused login leads nowhere");
    log_in(&browser, "boss");
    // Statements are noted once somebody has looked, as a row of the list shows. This one runs until the test ends.
    let mut client = ground.client_with(&proxy, &[("application_name", HOSTILE)]);
    client.run("select 1");
    turn_to(&browser, "servers");
    browser.wait_for("td");
    client.send(&wire::query(&format!("select pg_sleep(600) /* {HOSTILE} */")));
    for page in PAGES {
        turn_to(&browser, page);
        browser.be_wide();
        browser.prefer("light");
        browser.keep_picture(page);
        browser.be_phone(PHONE_WIDTH, 740);
        let width = browser.run("return document.documentElement.scrollWidth");
        assert_eq!(width, PHONE_WIDTH, "{page} on a phone");
        browser.keep_picture(&format!("{page}-phone"));
        browser.be_wide();
        browser.prefer("dark");
        browser.keep_picture(&format!("{page}-dark"));
    }
    turn_to(&browser, "clients");
    browser.wait_text("td", HOSTILE);
    turn_to(&browser, "servers");
    browser.wait_text("td", HOSTILE);
    browser.enter("input[type=search]", "nothing has these words");
    browser.wait_text(".page", "Nothing fits the search.");
    browser.enter("input[type=search]", "pg_sleep");
    browser.wait_text("td", HOSTILE);
    turn_to(&browser, "route");
    browser.prefer("light");
    browser.enter("textarea[name=statement]", &format!("select '{HOSTILE}', nextval('s')"));
    browser.enter("input[name=database]", HOSTILE);
    browser.click(".route form button");
    browser.wait_text(".answer", "primary");
    browser.keep_picture("route");
    assert_eq!(browser.run("return document.querySelectorAll('body script').length"), 0);
    browser.click("header.bar > button:last-child");
    browser.wait_for("form input[name=user]");
    let status =
        browser.run("const ask = new XMLHttpRequest(); ask.open('GET', '/api/v1/me', false); ask.send(); return ask.status");
    assert_eq!(status, 401, "the login has ended for the proxy as well");
    browser.go(&format!("http://127.0.0.1:{}/#/nodes", port.number()));
    browser.wait_for("form input[name=user]");
    let own = format!("http://127.0.0.1:{}/", port.number());
    let (here, elsewhere): (Vec<String>, Vec<String>) =
        browser.asked().into_iter().partition(|address| address.starts_with(&own));
    assert!(here.iter().any(|address| address.ends_with("/assets/dashboard.js")), "{here:?}");
    assert_eq!(elsewhere, Vec::<String>::new());
    // The refused login, and the question after the sign-off.
    check_console(&browser, &["the server responded with a status of 401"]);
}

#[test]
fn who_only_reads_sees_all_numbers_and_no_orders() {
    let ground = Ground::new();
    let (port, lines) = dashboard();
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let _proxy = proxy(&servers, &lines);
    let Some(browser) = open(&port) else { return };
    log_in(&browser, "watcher");
    for page in PAGES.into_iter().filter(|page| *page != "log") {
        turn_to(&browser, page);
        assert_eq!(browser.texts(".acts"), Vec::<String>::new(), "{page}");
    }
    assert!(browser.texts("nav.pages a").iter().all(|title| title != "Log"));
    check_console(&browser, &[]);
}

#[test]
fn the_page_shows_a_dead_primary_and_the_next_one_without_a_reload() {
    let servers = cluster(2);
    let (port, lines) = dashboard();
    let builtin = "failover_mode = builtin\nfailover_alone = on\nfailover_lag_max = -1\nhealth_check_period = 1\nhealth_check_timeout = 1\n\
        health_check_max_retries = 1\nhealth_check_retry_delay = 1\nfailover_on_backend_shutdown = on\n";
    let all: Vec<&Server> = servers.servers().iter().collect();
    let proxy = proxy(&all, &format!("{builtin}{lines}"));
    wait_until("the proxy to let writes through", || proxy.log().contains("writes go to node"));
    let Some(browser) = open(&port) else { return };
    log_in(&browser, "boss");
    turn_to(&browser, "nodes");
    browser.wait_text("article.node:nth-child(1)", "primary");
    // A reload would forget it.
    browser.run("window.isSamePage = true; return null");
    servers.primary().kill9().unwrap();
    wait_until("the proxy to hold the primary for dead", || proxy.nodes("status")[0] == "down");
    let known = Instant::now();
    browser.wait_text("article.node:nth-child(1)", "down");
    check_took("the page to show the dead primary", known, SEEN_WITHIN);
    wait_until("another primary", || proxy.nodes("role").iter().skip(1).any(|role| role == "primary"));
    let known = Instant::now();
    wait_until("the page to show it", || {
        let cards = browser.texts("article.node");
        cards.iter().skip(1).any(|card| card.contains("primary"))
    });
    check_took("the page to show the new primary", known, SEEN_WITHIN);
    turn_to(&browser, "failover");
    browser.wait_text(".history li", "Node 0 → node");
    browser.keep_picture("failover-history");
    turn_to(&browser, "overview");
    browser.wait_text(".attention li.error", "Node 0 is down");
    browser.wait_text(".changes", "Primary moved from node 0");
    browser.keep_picture("overview-failed");
    assert_eq!(browser.run("return window.isSamePage"), true);
    check_console(&browser, &[]);
}

#[test]
fn orders_from_the_page_say_first_what_they_do_and_fail_no_statement() {
    let Some(mut stand) = Stand::new("") else { return };
    let (port, lines) = dashboard();
    stand.proxy = stand.another_with(&lines, &[("pool_passwd", PASSWORDS)]);
    let Some(browser) = open(&port) else { return };
    log_in(&browser, "boss");
    let load = Load::with(&stand.proxy, crew());
    turn_to(&browser, "nodes");
    order(&browser, "Detach node 2", "Takes node 2 out of use");
    browser.wait_text("article.node:nth-child(3)", "down");
    order(&browser, "Attach node 2", "Takes node 2 into use");
    wait_until("node 2 to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
    browser.wait_text("article.node:nth-child(3)", "Detach");
    order(&browser, "Switch over to node 1", "Moves the primary to node 1");
    browser.wait_text("article.node:nth-child(2) .role", "primary");
    load.wait_acknowledged(20);
    let outcome = load.end();
    assert_eq!(stand.check("a switchover from the page", &outcome), 1);
    check_none_failed(&outcome);
    order(&browser, "Restart node 2", "Has the server of node 2 started anew");
    // Its agent has started it: it is no child of the test.
    stand.server(2).kill9().unwrap();
    browser.wait_text("article.node:nth-child(3)", "down");
    order(&browser, "Recover node 2", "Makes the server of node 2 anew");
    wait_until("node 2 to be made anew", || stand.proxy.nodes("status") == ["up", "up", "up"]);
    let log = stand.proxy.log();
    for act in ["detach node 2", "attach node 2", "switchover node 1", "restart node 2", "recover node 2"] {
        assert!(log.contains(&format!("dashboard: {act} by user \"boss\" from 127.0.0.1")), "{act}: {log}");
    }
    // A refused order says why.
    browser.click("article.node:nth-child(1) [aria-label='Promote node 0']");
    browser.wait_for("dialog[data-stage=asking]");
    browser.click("dialog footer button:first-child");
    wait_until("the dialog to close", || browser.texts("dialog").is_empty());
    check_console(&browser, &[]);
}

/// Orders something on the page about nodes, and waits for its end.
fn order(browser: &Browser, title: &str, does: &str) {
    browser.click(&format!("[aria-label='{title}']"));
    browser.wait_text("dialog[data-stage=asking]", does);
    browser.wait_text("dialog[data-stage=asking]", "touched now");
    browser.keep_picture(&title.to_lowercase().replace(' ', "-"));
    browser.click("dialog .firm");
    browser.wait_for("dialog[data-stage=done], dialog[data-stage=failed]");
    assert_eq!(browser.texts("dialog .failure"), Vec::<String>::new());
    browser.click("dialog footer button");
    wait_until("the dialog to close", || browser.texts("dialog").is_empty());
}

#[test]
fn databases_clients_and_files_take_orders_from_their_pages() {
    let ground = Ground::new();
    let (port, lines) = dashboard();
    let proxy = proxy(&[ground.cluster.primary()], &format!("{lines}pool_size = 7\n"));
    let Some(browser) = open(&port) else { return };
    log_in(&browser, "boss");
    let mut client = ground.client(&proxy);
    client.rows("select 1");
    let database = &ground.database;
    turn_to(&browser, "pools");
    order(&browser, &format!("Pause database {database}"), "transactions end, then its clients wait");
    client.send(&wire::query("select 'after the pause'"));
    browser.wait_text("[aria-label=databases] tr", "paused");
    order(&browser, &format!("Resume database {database}"), "its clients go on");
    assert!(client.until_ready().iter().any(|message| message.tag == b'D'), "the statement waited, and was done");
    client.send(&wire::query(SLEEP));
    wait_for_sleepers(&ground, 1);
    turn_to(&browser, "clients");
    order(&browser, &format!("Cancel the statement of client {}", client.pid), "fails with SQLSTATE 57014");
    assert_eq!(client.until_ready().iter().find(|message| message.tag == b'E').expect("an error").failure().sqlstate, "57014");
    turn_to(&browser, "configuration");
    browser.wait_text(".panel", "The files say what is in force.");
    proxy.add_conf("pool_size = 9\nlisten_backlog_multiplier = 3\n");
    turn_to(&browser, "overview");
    turn_to(&browser, "configuration");
    browser.wait_text(".waits li", "says 9: that counts after a reload");
    browser.wait_text(".waits li", "says 3: that counts after a restart");
    browser.keep_picture("configuration-waits");
    order(&browser, "Reload the configuration", "a wrong file changes nothing");
    proxy.add_conf("pool_size = many\n");
    turn_to(&browser, "overview");
    turn_to(&browser, "configuration");
    browser.wait_text(".panel .failure", "The files cannot be used now: 1 error");
    browser.run("document.querySelector('.panel:nth-of-type(2) header button').click(); return null");
    browser.wait_text(".found li.error", "pool_size");
    browser.keep_picture("configuration-check");
    check_console(&browser, &[]);
}

#[test]
fn a_group_is_shown_whole_and_an_order_at_any_host_is_for_all() {
    let cluster = failover::servers(1, &[]);
    let port = ReservedPort::any().unwrap();
    let lines = format!("metrics_listen_addresses = 'HOST_ADDRESS'\nmetrics_port = {}\ndashboard = on\n{USERS}", port.number());
    let group = Group::start(&cluster, &lines);
    assert_eq!(group.leaders(), [0], "the lowest host founds the group");
    for proxy in &group.proxies {
        proxy.write_file("pool_passwd", PASSWORDS);
        proxy.reload();
    }
    let Some(browser) = Browser::open() else { return };
    browser.go(&format!("http://127.0.1.2:{}/", port.number()));
    browser.wait_for("form input[name=user]");
    log_in(&browser, "boss");
    wait_until("all Weirs in the picture", || {
        let titles = browser.texts(".picture .title");
        ["127.0.0.1:20000", "127.0.0.1:20001", "127.0.0.1:20002"].iter().all(|title| titles.iter().any(|shown| shown == title))
    });
    let words = browser.texts(".picture .word");
    assert_eq!(words.iter().filter(|word| *word == "leader").count(), 1, "{words:?}");
    browser.wait_text(".panel", "Host 0, 127.0.0.1:20000, leads.");
    browser.keep_picture("overview-group");
    let shown = |status: &str| group.proxies.iter().all(|proxy| proxy.nodes("status") == ["up", status]);
    turn_to(&browser, "nodes");
    order(&browser, "Detach node 1", "Host 0 (127.0.0.1) leads the group and does it, for all members.");
    wait_until("all hosts to have detached it", || shown("down"));
    browser.wait_text("article.node:nth-child(2)", "Attach");
    order(&browser, "Attach node 1", "for all members");
    wait_until("all hosts to have attached it", || shown("up"));
    turn_to(&browser, "pools");
    order(&browser, "Pause all databases", "All members of the group do so.");
    for host in [0, 2] {
        let log = group.proxies[host].log();
        assert!(log.contains("host 1 passes on: pause"), "{log}");
    }
    order(&browser, "Resume all databases", "All members of the group do so.");
    wait_until("clients of all hosts to go on", || group.proxies.iter().all(writes));
    check_console(&browser, &[]);
}

#[test]
fn five_hundred_pools_are_searched_sorted_and_leafed_through_at_once() {
    let ground = Ground::new();
    let (port, lines) = dashboard();
    let servers: Vec<&Server> = ground.cluster.servers().iter().collect();
    let _proxy = proxy(&servers, &lines);
    let Some(browser) = open(&port) else { return };
    log_in(&browser, "boss");
    turn_to(&browser, "pools");
    // The proxy's own list, with one of its rows under 500 names.
    browser.run(
        "const real = window.fetch;
         window.fetch = async (path, options) => {
             const answer = await real(path, options);
             if (!String(path).includes('show/console_pools')) return answer;
             const list = await answer.json();
             list.rows = [...Array(500).keys()].map((at) => list.rows[0].map((value, column) => column === 0 ? `shop_${at}` : value));
             return new Response(JSON.stringify(list), { headers: { 'Content-Type': 'application/json' } });
         };
         return null",
    );
    browser.wait_text(".leaf", "of 500");
    let rows = browser.run("return document.querySelectorAll('.panel:first-of-type tbody tr').length");
    assert!(rows.as_u64().is_some_and(|rows| (20..=100).contains(&rows)), "{rows} rows in the document");
    let took = browser.run(
        "const begun = performance.now();
         document.querySelector('.leaf button:last-child').click();
         return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begun))))",
    );
    assert!(took.as_f64().is_some_and(|took| took <= CLICK_MS_MAX), "{took} ms, limit is {CLICK_MS_MAX}");
    browser.wait_text(".leaf", "51–100 of 500");
    browser.enter("input[type=search]", "shop_499");
    browser.wait_text(".panel:first-of-type .tools", "1 of 500");
    browser.wait_text("td", "shop_499");
    check_console(&browser, &[]);
}
