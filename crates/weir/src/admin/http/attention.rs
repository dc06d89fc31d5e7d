//! Conditions that need an operator's attention, in words, with the remedy. Pure: facts in, sentences out, the worst first.

use crate::counted;
use serde_json::{Value, json};
use weir_failover::FailoverProspect;

const DAY_S: u64 = 24 * 3600;
/// A certificate that ends sooner is to be renewed now.
const CERTIFICATE_LEFT_S: u64 = 14 * DAY_S;
/// Below this part of hits the query cache costs about what it saves (docs/cache.md, "When it pays").
const CACHE_RATIO_LOW: f64 = 0.1;
/// Fewer reads tell nothing of the ratio.
const CACHE_READS_MIN: u64 = 1_000;
/// Part of the last hour in which clients waited, from which a pool is too small.
const WAITING_SHARE_HIGH: f64 = 0.05;
/// Part of the clients allowed.
const CLIENTS_SHARE_HIGH: f64 = 0.9;
/// Pools and databases named one by one; more are counted.
const NAMED_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttentionLevel {
    Error,
    Warning,
    Note,
}

impl AttentionLevel {
    fn word(self) -> &'static str {
        match self {
            AttentionLevel::Error => "error",
            AttentionLevel::Warning => "warning",
            AttentionLevel::Note => "note",
        }
    }
}

/// A page of the dashboard that tells more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionPage {
    Nodes,
    Failover,
    Pools,
    Clients,
    Cache,
    Configuration,
}

impl AttentionPage {
    fn word(self) -> &'static str {
        match self {
            AttentionPage::Nodes => "nodes",
            AttentionPage::Failover => "failover",
            AttentionPage::Pools => "pools",
            AttentionPage::Clients => "clients",
            AttentionPage::Cache => "cache",
            AttentionPage::Configuration => "configuration",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionPoint {
    pub level: AttentionLevel,
    pub what: String,
    pub remedy: String,
    pub page: AttentionPage,
}

impl AttentionPoint {
    pub fn shown(&self) -> Value {
        json!({ "level": self.level.word(), "what": self.what, "remedy": self.remedy, "page": self.page.word() })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    pub id: u16,
    pub is_up: bool,
    /// Taken out of use by an operator, or being recovered.
    pub is_set_aside: bool,
    pub why: Option<String>,
    /// Answers, though it may be out of use.
    pub answers: bool,
    /// More than the operator's threshold.
    pub lags: bool,
    pub lag_bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WaitFacts {
    pub database: String,
    pub user: String,
    pub clients: usize,
    pub longest_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionFacts {
    pub is_stopping: bool,
    pub is_suspended: bool,
    pub are_all_paused: bool,
    /// Paused by themselves.
    pub paused: Vec<String>,
    pub has_primary: bool,
    /// Why this host of a group may not let anybody write.
    pub lacks_lease: bool,
    pub nodes: Vec<NodeFacts>,
    pub prospect: FailoverProspect,
    pub forecast: String,
    /// Pools with clients that wait now.
    pub waits: Vec<WaitFacts>,
    /// Part of the last hour in which clients waited.
    pub waiting_share: f64,
    pub clients: u64,
    pub clients_max: u64,
    /// Hits and other reads of the query cache; `None`: it is off.
    pub cache: Option<(u64, u64)>,
    /// Own certificates, and how many seconds they are still valid.
    pub certificates: Vec<(String, i64)>,
}

pub fn points(facts: &AttentionFacts) -> Vec<AttentionPoint> {
    let mut points = Vec::new();
    about_state(facts, &mut points);
    about_nodes(facts, &mut points);
    about_failover(facts, &mut points);
    about_clients(facts, &mut points);
    about_cache(facts, &mut points);
    about_certificates(facts, &mut points);
    points.sort_by_key(|point| point.level);
    points
}

fn point(level: AttentionLevel, page: AttentionPage, what: impl Into<String>, remedy: impl Into<String>) -> AttentionPoint {
    AttentionPoint { level, what: what.into(), remedy: remedy.into(), page }
}

fn about_state(facts: &AttentionFacts, points: &mut Vec<AttentionPoint>) {
    use AttentionLevel::{Error, Warning};
    if facts.is_stopping {
        let what = "The proxy is shutting down, and takes no more clients.";
        points.push(point(
            Warning,
            AttentionPage::Clients,
            what,
            "It ends when its clients have left; start it again after that.",
        ));
    }
    if facts.are_all_paused {
        let what = "All databases are paused: no statement is sent to a server.";
        points.push(point(Error, AttentionPage::Pools, what, "RESUME without a name ends the pause."));
    }
    if facts.is_suspended {
        let what = "All sessions are suspended.";
        points.push(point(Error, AttentionPage::Clients, what, "RESUME in the console ends it."));
    }
    for database in facts.paused.iter().take(NAMED_MAX) {
        let what = format!("Database \"{database}\" is paused: its clients wait.");
        points.push(point(Warning, AttentionPage::Pools, what, format!("RESUME {database} ends the pause.")));
    }
    if let Some(more) = facts.paused.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        let what = format!("{more} more databases are paused.");
        points.push(point(Warning, AttentionPage::Pools, what, "SHOW DATABASES of the console names all."));
    }
    if facts.lacks_lease {
        let what = "This host reaches no majority of its group: writes wait here.";
        points.push(point(
            Error,
            AttentionPage::Failover,
            what,
            "See which hosts are lost, and repair them or the network between.",
        ));
    }
}

fn about_nodes(facts: &AttentionFacts, points: &mut Vec<AttentionPoint>) {
    for node in &facts.nodes {
        let id = node.id;
        if node.is_set_aside {
            let what = format!("Node {id} is out of use by an order.");
            points.push(point(
                AttentionLevel::Note,
                AttentionPage::Nodes,
                what,
                format!("Attach node {id} when it is to serve again."),
            ));
        } else if !node.is_up && node.answers {
            let what = format!("Node {id} answers again, and is out of use since it was lost.");
            let remedy = format!("Attach node {id}; with auto_failback = on that happens by itself.");
            points.push(point(AttentionLevel::Warning, AttentionPage::Nodes, what, remedy));
        } else if !node.is_up {
            let why = node.why.as_deref().map(|why| format!(": {}", why.trim_end_matches('.'))).unwrap_or_default();
            let remedy = format!("Repair its server; if it does not come back by itself, attach or recover node {id}.");
            points.push(point(AttentionLevel::Error, AttentionPage::Nodes, format!("Node {id} is down{why}."), remedy));
        } else if node.lags {
            let what = format!("Standby {id} lags by {} bytes, more than its threshold, and gets no reads.", node.lag_bytes);
            let remedy = "Look for long queries, a slow disk or a slow network there, or raise delay_threshold.";
            points.push(point(AttentionLevel::Warning, AttentionPage::Nodes, what, remedy));
        }
    }
}

fn about_failover(facts: &AttentionFacts, points: &mut Vec<AttentionPoint>) {
    match facts.prospect {
        FailoverProspect::NoPrimary => {}
        FailoverProspect::WritesWait if facts.has_primary => {
            let what = format!("If the primary died now, {}.", facts.forecast);
            let remedy = "Bring a standby that may be promoted; the page about failover says what each lacks.";
            points.push(point(AttentionLevel::Warning, AttentionPage::Failover, what, remedy));
        }
        FailoverProspect::Unknown | FailoverProspect::Replaced | FailoverProspect::NotByWeir | FailoverProspect::WritesWait => {}
    }
    if !facts.has_primary && !facts.nodes.is_empty() {
        let more = if facts.forecast.is_empty() { String::new() } else { format!(": {}", facts.forecast) };
        let remedy = "Start the primary's server, or promote a standby.";
        points.push(point(AttentionLevel::Error, AttentionPage::Failover, format!("No primary is known{more}."), remedy));
    }
}

fn about_clients(facts: &AttentionFacts, points: &mut Vec<AttentionPoint>) {
    for wait in facts.waits.iter().take(NAMED_MAX) {
        let what = format!(
            "{} of user \"{}\" in database \"{}\" {} for a server connection, the first for {} ms.",
            counted(wait.clients, "client"),
            wait.user,
            wait.database,
            if wait.clients == 1 { "waits" } else { "wait" },
            wait.longest_ms
        );
        let remedy = "Look for long transactions, or raise pool_size if the servers can bear more.";
        points.push(point(AttentionLevel::Warning, AttentionPage::Pools, what, remedy));
    }
    if facts.waiting_share >= WAITING_SHARE_HIGH {
        let what = format!("Pools were full for {:.0} % of the last hour: clients waited.", facts.waiting_share * 100.0);
        let remedy = "Raise pool_size if the servers can bear more, or shorten transactions.";
        points.push(point(AttentionLevel::Warning, AttentionPage::Pools, what, remedy));
    }
    if facts.clients_max > 0 && facts.clients as f64 >= facts.clients_max as f64 * CLIENTS_SHARE_HIGH {
        let what = format!("{} of {} clients are connected.", facts.clients, facts.clients_max);
        let remedy = "Raise max_client_connections, or look for programs that leave connections open.";
        points.push(point(AttentionLevel::Warning, AttentionPage::Clients, what, remedy));
    }
}

fn about_cache(facts: &AttentionFacts, points: &mut Vec<AttentionPoint>) {
    let Some((hits, reads)) = facts.cache else { return };
    let all = hits + reads;
    if all >= CACHE_READS_MIN && (hits as f64) < all as f64 * CACHE_RATIO_LOW {
        let what = format!("The query cache answers {:.0} % of the reads only.", hits as f64 * 100.0 / all as f64);
        let remedy =
            "Keep tables that change often out of it by cache_unsafe_memqcache_table_list, or set memory_cache_enabled = off.";
        points.push(point(AttentionLevel::Note, AttentionPage::Cache, what, remedy));
    }
}

fn about_certificates(facts: &AttentionFacts, points: &mut Vec<AttentionPoint>) {
    for (file, left_s) in &facts.certificates {
        let remedy = "Put a new certificate in its place, and reload.";
        let (level, what) = match u64::try_from(*left_s) {
            Err(_) => (AttentionLevel::Error, format!("The certificate {file} has expired.")),
            Ok(left) if left < CERTIFICATE_LEFT_S => {
                let days = usize::try_from(left / DAY_S).unwrap_or(0);
                (AttentionLevel::Warning, format!("The certificate {file} ends in {}.", counted(days, "day")))
            }
            Ok(_) => continue,
        };
        points.push(point(level, AttentionPage::Configuration, what, remedy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> AttentionFacts {
        let node = |id| NodeFacts { id, is_up: true, is_set_aside: false, why: None, answers: true, lags: false, lag_bytes: 0 };
        AttentionFacts {
            has_primary: true,
            nodes: vec![node(0), node(1)],
            prospect: FailoverProspect::Replaced,
            forecast: "node 1 would be promoted; lost: nothing".into(),
            clients: 5,
            clients_max: 100,
            cache: Some((900, 100)),
            certificates: vec![("server.crt".into(), 60 * DAY_S as i64)],
            ..AttentionFacts::default()
        }
    }

    /// Node 1 when it does not answer.
    fn silent(why: Option<&str>) -> NodeFacts {
        let why = why.map(str::to_owned);
        NodeFacts { id: 1, is_up: false, is_set_aside: false, why, answers: false, lags: false, lag_bytes: 0 }
    }

    /// Checks that these facts need attention, by a level, a page and a part of the sentence.
    fn check(change: impl Fn(&mut AttentionFacts), expected: &[(&str, &str, &str)]) {
        let mut facts = well();
        change(&mut facts);
        let points = points(&facts);
        let told: Vec<(&str, &str, &str)> =
            points.iter().map(|point| (point.level.word(), point.page.word(), point.what.as_str())).collect();
        assert_eq!(told, expected);
        assert!(points.iter().all(|point| point.what.ends_with('.') && point.remedy.ends_with('.')), "{points:?}");
    }

    #[test]
    fn nothing_is_said_while_all_is_well() {
        check(|_| {}, &[]);
        check(|facts| facts.prospect = FailoverProspect::NotByWeir, &[]);
        check(|facts| facts.cache = Some((0, 999)), &[]);
        check(|facts| facts.clients_max = 0, &[]);
    }

    #[test]
    fn each_trouble_is_one_sentence() {
        check(
            |facts| facts.nodes[1] = silent(Some("it refuses connections")),
            &[("error", "nodes", "Node 1 is down: it refuses connections.")],
        );
        check(|facts| facts.nodes[1] = silent(None), &[("error", "nodes", "Node 1 is down.")]);
        check(
            |facts| facts.nodes[1].is_up = false,
            &[("warning", "nodes", "Node 1 answers again, and is out of use since it was lost.")],
        );
        check(
            |facts| (facts.nodes[1].is_up, facts.nodes[1].is_set_aside) = (false, true),
            &[("note", "nodes", "Node 1 is out of use by an order.")],
        );
        check(
            |facts| (facts.nodes[1].lags, facts.nodes[1].lag_bytes) = (true, 4096),
            &[("warning", "nodes", "Standby 1 lags by 4096 bytes, more than its threshold, and gets no reads.")],
        );
        check(
            |facts| (facts.prospect, facts.forecast) = (FailoverProspect::WritesWait, "writes would wait: no standby".into()),
            &[("warning", "failover", "If the primary died now, writes would wait: no standby.")],
        );
        check(
            |facts| (facts.has_primary, facts.forecast) = (false, "there is no primary".into()),
            &[("error", "failover", "No primary is known: there is no primary.")],
        );
        check(
            |facts| facts.are_all_paused = true,
            &[("error", "pools", "All databases are paused: no statement is sent to a server.")],
        );
        check(
            |facts| facts.waiting_share = 0.3,
            &[("warning", "pools", "Pools were full for 30 % of the last hour: clients waited.")],
        );
        check(|facts| facts.clients = 90, &[("warning", "clients", "90 of 100 clients are connected.")]);
        check(|facts| facts.cache = Some((50, 950)), &[("note", "cache", "The query cache answers 5 % of the reads only.")]);
        check(
            |facts| facts.certificates[0].1 = 9 * DAY_S as i64 + 5,
            &[("warning", "configuration", "The certificate server.crt ends in 9 days.")],
        );
        check(|facts| facts.certificates[0].1 = -1, &[("error", "configuration", "The certificate server.crt has expired.")]);
        check(
            |facts| facts.lacks_lease = true,
            &[("error", "failover", "This host reaches no majority of its group: writes wait here.")],
        );
    }

    #[test]
    fn the_worst_comes_first_and_long_lists_are_cut() {
        let mut facts = well();
        facts.cache = Some((0, 2_000));
        facts.paused = (0..8).map(|number| format!("shop{number}")).collect();
        let wait = WaitFacts { database: "shop".into(), user: "joe".into(), clients: 1, longest_ms: 1_200 };
        facts.waits = vec![wait; 9];
        (facts.nodes[0].is_up, facts.nodes[0].answers) = (false, false);
        let points = points(&facts);
        let levels: Vec<AttentionLevel> = points.iter().map(|point| point.level).collect();
        assert!(levels.is_sorted() && levels.len() == 1 + 6 + 5 + 1, "{points:?}");
        let has = |what: &str| points.iter().any(|point| point.what == what);
        assert!(has("1 client of user \"joe\" in database \"shop\" waits for a server connection, the first for 1200 ms."));
        assert!(has("3 more databases are paused."), "{points:?}");
    }
}
