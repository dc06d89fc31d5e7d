//! The events of the log: a stable name for each line, its meaning, and what to do.
//!
//! A line of JSON or logfmt bears the name of the row that fits its text best; `docs/log.md` is made from the table.

/// A kind of line.
#[derive(Debug)]
pub struct LogEvent {
    /// Never changes once it is released: alerts of operators hang on it.
    pub name: &'static str,
    pub level: &'static str,
    /// The text; `<...>` stands for a part that differs. A line that begins so may have any words before it.
    pub line: &'static str,
    pub meaning: &'static str,
    pub advice: &'static str,
}

#[derive(Debug)]
pub struct LogTopic {
    pub title: &'static str,
    pub events: &'static [LogEvent],
}

const fn event(
    name: &'static str,
    level: &'static str,
    line: &'static str,
    meaning: &'static str,
    advice: &'static str,
) -> LogEvent {
    LogEvent { name, level, line, meaning, advice }
}

/// Lines that quote a client's statement, which could hold the words of any other row: a line that begins as one of them is no other.
const QUOTING: LogTopic = LogTopic {
    title: "Statements",
    events: &[
        event("statement", "LOG", "statement: <text>", "`log_statement`: a statement", "–"),
        event(
            "statement_node",
            "LOG",
            "DB node id: <n> backend pid: <pid> <text>",
            "`log_per_node_statement`: a statement and its server",
            "–",
        ),
        event(
            "statement_slow",
            "LOG",
            "duration: <time> ms (server <time> ms, waited <time> ms) <text>",
            "`log_min_duration_statement`: a statement that took as long",
            "look at its server and its wait",
        ),
        event(
            "statement_cached",
            "LOG",
            "fetch from memory cache <text>",
            "`log_per_node_statement`: an answer of the query cache",
            "–",
        ),
        event(
            "statement_cached_pgpool",
            "LOG",
            "query result fetched from cache. statement: <text>",
            "Pgpool-II's line: an answer of the query cache",
            "–",
        ),
        event("client_message", "LOG", "<name> message from frontend.<text>", "`log_client_messages`: a message", "–"),
    ],
};

pub const TOPICS: &[LogTopic] = &[
    LogTopic {
        title: "Start and end",
        events: &[
            event(
                "start",
                "LOG",
                "weir <version> starts: port <port>, <nodes>, <workers>",
                "the process is about to serve clients",
                "–",
            ),
            event(
                "witness_start",
                "LOG",
                "weir <version> votes as host <n> of its group",
                "a witness without servers and clients has begun",
                "–",
            ),
            event("end", "LOG", "stopped", "the process ends", "–"),
            event("reload", "LOG", "configuration reloaded", "the new values count", "–"),
            event(
                "restart_needed",
                "WARNING",
                "parameter \"<name>\" cannot be changed without a restart",
                "the reload left the parameter as it was",
                "restart, or `weir renew`, when it suits",
            ),
            event(
                "takeover_begin",
                "LOG",
                "another process takes over: it has <count> listening sockets",
                "a new process gets the new clients",
                "–",
            ),
            event(
                "takeover_old",
                "LOG",
                "another process has taken over; ending when the last client has left",
                "the old process serves its clients to their end",
                "–",
            ),
            event("takeover_new", "LOG", "taken over from the running proxy", "the new process serves new clients", "–"),
            event(
                "takeover_incomplete",
                "WARNING",
                "taken over, but: <cause>",
                "the new process serves, and something of the old one is missing",
                "the cause says what",
            ),
            event(
                "takeover_failed",
                "WARNING",
                "nobody took over: <cause>",
                "a `--takeover` failed; the old process goes on",
                "mend the cause, start the new process again",
            ),
            event(
                "takeover_impossible",
                "ERROR",
                "nobody can take over from this process: <cause>",
                "`takeover_socket` does not work",
                "mend the cause: folder and rights of the socket",
            ),
            event(
                "takeover_drain",
                "LOG",
                "clients are still there after takeover_drain_timeout",
                "the old process disconnects them now",
                "raise [takeover_drain_timeout](parameters.md) if that is too early",
            ),
            event("renewal", "LOG", "process <pid> is started to take over (weir renew)", "`weir renew` has begun", "–"),
            event(
                "renewal_failed",
                "WARNING",
                "weir renew starts no process: <why>",
                "the running process goes on",
                "mend the reason, call `weir renew` again",
            ),
            event(
                "session_fault",
                "ERROR",
                "session <number> ended by a fault in the proxy",
                "a defect of Weir ended one session; the others go on",
                "report it with the lines around it",
            ),
            event(
                "task_fault",
                "ERROR",
                "the task for <name> ended by a fault in the proxy; it is begun again",
                "a defect of Weir ended a task, which runs again",
                "report it with the lines around it",
            ),
            event(
                "worker_hangs",
                "ERROR",
                "worker <id> has done nothing for <time> ms",
                "a thread hangs; `/healthz` fails",
                "report it; with `WatchdogSec` systemd restarts Weir",
            ),
            event(
                "control_hangs",
                "ERROR",
                "the control thread has done nothing for <time> ms",
                "the thread that watches servers hangs; `/healthz` fails",
                "report it; with `WatchdogSec` systemd restarts Weir",
            ),
            event(
                "systemd_untold",
                "ERROR",
                "the watchdog is not told that all is well: <why>",
                "systemd restarts Weir, since a thread hangs",
                "report it with the lines before it",
            ),
            event("scheduling", "DEBUG", "worker_scheduling has no effect: <cause>", "the system does not let Weir choose", "–"),
            event(
                "control_scheduling",
                "DEBUG",
                "the control thread keeps its scheduling: <cause>",
                "the system does not let Weir choose",
                "–",
            ),
        ],
    },
    LogTopic {
        title: "The log itself",
        events: &[
            event(
                "lines_missing",
                "WARNING",
                "<count> lines of the log are missing: <cause>",
                "the destination of the log was full, slow or gone",
                "make room, or choose another destination",
            ),
            event(
                "lines_left_out",
                "as the line",
                "left out <count> times within a second: <line>",
                "the line came more than ten times in a second",
                "look at the line itself",
            ),
            event(
                "log_unwritable",
                "ERROR",
                "<cause>; lines are counted until it can be written",
                "the destination of the log takes nothing; this line goes to stderr",
                "make room, mend rights, or choose another destination",
            ),
            event(
                "log_unopened",
                "ERROR",
                "cannot open a file in <folder>, the log stays where it is: <cause>",
                "a reload could not move the log",
                "mend folder or rights, reload",
            ),
            event(
                "log_stays",
                "ERROR",
                "the log stays where it is: <cause>",
                "a reload could not move the log",
                "mend folder or rights, reload",
            ),
        ],
    },
    LogTopic {
        title: "Servers",
        events: &[
            event("writes_open", "LOG", "writes go to node <n>", "there is a primary, and it is used", "–"),
            event(
                "writes_wait",
                "LOG",
                "writes wait: <reason>",
                "no statement that writes runs",
                "the reason says what is missing; `SHOW pool_failover` says more",
            ),
            event("primary_found", "LOG", "find_primary_node: primary node is <n>", "a node was found to be the primary", "–"),
            event(
                "primary_not_found",
                "WARNING",
                "no primary node was found (search_primary_node_timeout); writes wait, and one that appears is taken",
                "the search has lasted as long as the parameter says",
                "start the primary, or promote a standby",
            ),
            event(
                "primary_searched",
                "LOG",
                "find_primary_node_repeatedly: waiting for finding a primary node",
                "no server is a primary yet",
                "–",
            ),
            event(
                "primary_raw",
                "LOG",
                "everything goes to node <n> (backend_clustering_mode = raw)",
                "the first server in use has everything",
                "–",
            ),
            event(
                "node_down",
                "WARNING",
                "node <n> is out of use: <reason>",
                "no session uses the node",
                "[Failover](failover.md): bring it back, then attach it",
            ),
            event("node_up", "LOG", "node <n> is in use again", "sessions use it again", "–"),
            event(
                "node_given_up",
                "LOG",
                "node <n> is given up: <count> connections to it are broken",
                "clients that waited for the node hear an error or go on elsewhere",
                "[Clients during a failover](failover-clients.md)",
            ),
            event(
                "two_primaries",
                "ERROR",
                "node <n> calls itself primary, too: <what>",
                "two servers are primaries; one of them gets no writes",
                "make the other one a standby. Do not attach it before",
            ),
            event(
                "other_cluster",
                "ERROR",
                "node <n> is a server of another cluster (system identifier <number>, not <number>): <text>",
                "another database answers at the node's address",
                "[Another cluster at the address of a server](failover.md#another-cluster-at-the-address-of-a-server)",
            ),
            event(
                "position_unknown",
                "WARNING",
                "<...>its WAL position is not known, so that reads that must show recent writes avoid it",
                "positions of a standby cannot be asked",
                "let `sr_check_user` log in there, with `pg_monitor`",
            ),
            event(
                "standby_not_streaming",
                "WARNING",
                "<...>is a standby and does not stream from any server: look at its log for <settings>",
                "the standby gets nothing new",
                "mend its `primary_conninfo` or its login",
            ),
            event(
                "node_apart",
                "WARNING",
                "node <n> is not to be used: <reason>",
                "its data has left the cluster's",
                "copy it anew",
            ),
            event(
                "node_no_login",
                "ERROR",
                "node <n> has answered no login for <time> s: <text>",
                "the server hangs, or is full",
                "look at the server",
            ),
            event("node_report", "LOG to ERROR", "node <n>: <text>", "something about one server, in words", "as the words say"),
            event("node_state", "LOG to ERROR", "node <n> <text>", "something about one server, in words", "as the words say"),
            event("node_asked", "DEBUG", "nodes are asked for their roles: <reason>", "a reason to look at all servers", "–"),
            event(
                "server_connection",
                "LOG",
                "server connection to <address>: <text>",
                "a connection was lost or could not be opened",
                "the text has the server's words",
            ),
            event(
                "name_unresolved",
                "WARNING",
                "host name \"<name>\" is not resolved: <cause>",
                "the last known address is used",
                "look at the name service",
            ),
            event("name_resolved", "LOG", "host name \"<name>\" can be resolved again", "–", "–"),
            event(
                "name_report",
                "WARNING",
                "host name \"<name>\" <text>: <cause>",
                "the name service does not answer as before",
                "look at the name service",
            ),
            event("store_back", "LOG", "<store> serves as a store of answers again", "the query cache uses its store again", "–"),
            event(
                "log_followed",
                "WARNING",
                "the log of database \"<name>\" is followed again",
                "changes past Weir are seen again",
                "–",
            ),
            event(
                "sharding_unread",
                "WARNING",
                "how the tables of database \"<name>\" are spread over shards cannot be read, and what was read before counts; until then statements that name tables are refused: <error>",
                "`parallel_mode`: the engine cannot be asked; what was read before counts",
                "let `sr_check_user` log in to the engine's database",
            ),
            event(
                "engine_of_others",
                "WARNING",
                "database \"<name>\" is not used as the engine of \"<name>\": <reason>",
                "`parallel_mode`: it belongs to an ordinary user, who could lead statements astray",
                "drop it, or give it to a superuser",
            ),
            event(
                "sharded_table_unused",
                "WARNING",
                "sharded table \"<schema>\".\"<table>\" of database \"<name>\" is not used, and statements that name it are refused: <reason>",
                "`parallel_mode`: its definition is otherwise than `weir shard` makes it",
                "look at `weir shard check`",
            ),
            event(
                "engine_ready",
                "LOG",
                "the engine of database \"<name>\" answers statements over several shards",
                "`parallel_mode`: the engine has all that `weir shard engine` gives it",
                "–",
            ),
            event(
                "engine_behind",
                "WARNING",
                "the engine of database \"<name>\" answers no statements over several shards: <reason>",
                "`parallel_mode`: something that answers depend on has changed since `weir shard engine`",
                "if the reason is a change of the database, wait for `engine_follows`; else run `weir shard engine` again",
            ),
            event(
                "engine_follows",
                "LOG",
                "the tables of database \"<name>\" have changed: <outcome>",
                "`parallel_mode`: columns, rights or settings changed on shard 0, and Weir has made the engine ready again",
                "–",
            ),
            event(
                "engine_cannot_follow",
                "WARNING",
                "the engine of database \"<name>\" does not follow the change of its tables, and answers no statements over several shards; it is tried \
                 again, or run weir shard engine <name>: <error>",
                "`parallel_mode`: as `sr_check_user` Weir could not make the engine ready again after a change",
                "do what the error says: `sr_check_user` must be a superuser on the shards, and the role of the engine needs its rights",
            ),
            event(
                "engine_defines_only",
                "LOG",
                "the engine of database \"<name>\" holds definitions only",
                "`parallel_mode`: the engine that answered before does so no longer",
                "–",
            ),
        ],
    },
    LogTopic {
        title: "Failover",
        events: &[
            event(
                "failed_over",
                "WARNING",
                "node <new> is the primary after node <old> (<reason>); <times>; lost: <loss>",
                "a standby was promoted. `lost` bounds what clients were told and the new primary does not have",
                "compare the loss with what you can bear; bring the old server back",
            ),
            event(
                "no_failover",
                "ERROR",
                "there is no failover: <reason>",
                "the primary is gone and nothing is promoted",
                "the reason says why. `PROMOTE n` or `pcp_promote_node` decides by hand",
            ),
            event(
                "state_unwritable",
                "ERROR",
                "<file> cannot be written, so that no failover is decided until it can: <cause>; work_dir (<folder>) must be a folder <rights>",
                "a failover that is not stored is not begun",
                "make the folder, give it to Weir's user, look at the disk",
            ),
            event(
                "file_unwritable",
                "ERROR or WARNING",
                "<file> cannot be written: <cause>; <text>",
                "a file of `work_dir` is not written",
                "make room, mend rights",
            ),
            event(
                "file_unread",
                "ERROR or WARNING",
                "<file> is not read: <cause>; <text>",
                "a file of `work_dir` is not read",
                "mend rights or the disk",
            ),
            event(
                "file_broken",
                "ERROR",
                "<file> is broken; what it held is found again from the servers",
                "a file of `work_dir` was damaged",
                "look at the disk",
            ),
            event("file_written", "LOG", "<file> is written again", "the disk takes writes again", "–"),
            event("promotion_begun", "LOG", "node <n> is to be the primary; it is looked at", "a failover is decided", "–"),
            event(
                "promotion_voted",
                "LOG",
                "node <n> is the primary that servers have voted for; it is looked at",
                "another Weir has decided",
                "–",
            ),
            event(
                "failover_left",
                "LOG",
                "the primary is gone, and failover_mode leaves it to others to promote a standby",
                "Weir waits for a primary",
                "promote one, or see why nobody does",
            ),
            event("failover_mode", "LOG", "failover: <who> from here on", "a reload changed who decides", "–"),
            event("failover_primary", "LOG", "failover: set new primary node: <n>", "Pgpool-II's line: the new primary", "–"),
            event("failover_event", "DEBUG", "failover: <event>", "an event, as the decisions see it", "–"),
            event("failover_noted", "LOG", "failover request noted for node <n>: <reason>", "a server is suspected", "–"),
            event(
                "failover_start",
                "LOG",
                "=== Starting degeneration. shutdown host <host> ===",
                "Pgpool-II's line: a failover begins",
                "–",
            ),
            event(
                "failover_end",
                "LOG",
                "=== Failover done. shutdown host <host> ===",
                "Pgpool-II's line: a failover has ended",
                "–",
            ),
            event("failover_done", "LOG", "failover done. shutdown host <host>", "Pgpool-II's line: a failover has ended", "–"),
            event(
                "failback_start",
                "LOG",
                "=== Starting fail back. reconnect host <host> ===",
                "Pgpool-II's line: a server comes back",
                "–",
            ),
            event(
                "quarantine_start",
                "LOG",
                "=== Starting quarantine. shutdown host <host> ===",
                "Pgpool-II's line: a server is out of use for this host",
                "–",
            ),
            event(
                "quarantined",
                "LOG",
                "changed to quarantine node request: host <host>",
                "Pgpool-II's line: the group does not agree that the server is lost",
                "–",
            ),
            event(
                "consensus",
                "LOG",
                "building consensus for request: failover of host <host>",
                "Pgpool-II's line: the group is asked",
                "–",
            ),
            event(
                "cut_off_node",
                "ERROR",
                "<...>this proxy does not reach it, and most of its group do: nothing is decided about it",
                "the network between this Weir and the server",
                "look at the network of this host",
            ),
            event(
                "cut_off_primary",
                "ERROR",
                "<...>this proxy does not reach the primary, and its standbys do: writes wait, and nothing is promoted",
                "the network between this Weir and the primary",
                "look at the network of this host",
            ),
            event("agent_back", "LOG", "node <n>: its agent answers again", "the server can be brought back by itself", "–"),
            event(
                "return_failed",
                "WARNING",
                "node <n> is not brought back, and is tried again: <cause>",
                "an agent could not make the old primary a standby",
                "the cause is the agent's; [Agents](agent.md)",
            ),
            event(
                "upgrade_waits",
                "WARNING",
                "node <n> is out of use and has no agent: start its server anew now",
                "a rolling upgrade waits for you",
                "restart that server ([Switchover](switchover.md))",
            ),
            event(
                "returned",
                "LOG",
                "node <n> was started as a standby of node <n> by its agent",
                "an old primary is a standby",
                "–",
            ),
            event(
                "order_void",
                "WARNING",
                "node <n>: an order is not given: the lead of the group is over",
                "another host decides now",
                "–",
            ),
            event(
                "recovery",
                "LOG",
                "online recovery of node <n><step>",
                "a step of `pcp_recovery_node` or of the dashboard's recovery",
                "–",
            ),
            event(
                "failover_step",
                "LOG",
                "<text> (attempt <n> of <mark>)",
                "a step of a failover or switchover, with its attempt",
                "–",
            ),
            event("file_renamed", "LOG", "<file> is <file> now", "a file of `work_dir` has another name", "–"),
            event("order_begun", "LOG", "<order>, ordered by <who>: begins", "an order of an operator begins", "–"),
            event("order_done", "LOG", "<order>: done after <time> ms", "an order of an operator has ended", "–"),
            event(
                "order_failed",
                "WARNING",
                "<order>: failed after <time> ms: <cause>",
                "an order of an operator was not carried out",
                "the cause says why",
            ),
            event("command_run", "LOG", "execute command: <command>", "a command of the configuration is run", "–"),
            event(
                "command_failed",
                "WARNING",
                "<command> failed: <status>",
                "a command of the configuration has failed",
                "look at its output in the lines before",
            ),
            event(
                "command_node_failed",
                "ERROR",
                "<command> for node <n> failed",
                "a command of the configuration has failed",
                "look at its output in the lines before",
            ),
            event(
                "command_not_run",
                "ERROR",
                "<command> could not be run: <cause>",
                "a command of the configuration is not there, or has no right",
                "mend path or rights",
            ),
            event(
                "command_killed",
                "ERROR",
                "<command> was killed after <time> s",
                "a command of the configuration took too long",
                "make it faster",
            ),
        ],
    },
    LogTopic {
        title: "Group of Weirs",
        events: &[
            event(
                "group_leader",
                "LOG",
                "watchdog: host <n> leads the group in term <term>, and decides on failover",
                "there is a leader",
                "–",
            ),
            event(
                "group_host_lost",
                "LOG",
                "watchdog: host <n> is lost: it was silent",
                "the group goes on without the host",
                "start Weir there",
            ),
            event(
                "group_parameters",
                "WARNING",
                "watchdog: host <n> has other values than this host for <parameters>: all hosts must have them alike, see PGPOOL SHOW on both",
                "the configurations differ",
                "copy the file to all hosts, reload",
            ),
            event(
                "group_unfit",
                "WARNING",
                "this host is unfit to lead: <reason>",
                "trusted servers or interfaces are out of reach",
                "look at the network of this host",
            ),
            event(
                "group_writes_closed",
                "LOG",
                "watchdog: writes are closed after epoch <n>",
                "nobody may write until the group names a primary",
                "[Watchdog](watchdog.md)",
            ),
            event("group_fit", "LOG", "this host is fit to lead again", "trusted servers and interfaces are there again", "–"),
            event(
                "group_writes_open",
                "LOG",
                "watchdog: writes go to node <n>, in epoch <n>",
                "the group has named the primary",
                "–",
            ),
            event("group_host_back", "LOG", "watchdog: host <n> is back", "the host is a member again", "–"),
            event("group_host_end", "LOG", "watchdog: host <n> is shutting down", "the host leaves in order", "–"),
            event("group_host_next", "LOG", "watchdog: host <n> is to lead the group", "the host has won the vote", "–"),
            event(
                "group_lead_lost",
                "LOG",
                "watchdog: this host does not lead the group any more",
                "another host leads, or none",
                "–",
            ),
            event(
                "group_lead_moves",
                "LOG",
                "watchdog: the lead goes from host <n> to host <n>, once the first certainly has it no more",
                "the lead changes hands",
                "–",
            ),
            event(
                "group_members",
                "LOG",
                "watchdog: the group has the hosts <hosts>",
                "the members, as this host knows them",
                "–",
            ),
            event(
                "group_members_change",
                "LOG",
                "watchdog: members change from hosts <hosts> to <hosts>",
                "a change of the members is decided",
                "–",
            ),
            event(
                "group_parameters_alike",
                "LOG",
                "watchdog: host <n> has the parameters alike again that all hosts must have alike",
                "the configurations agree again",
                "–",
            ),
            event(
                "group_forced",
                "WARNING",
                "watchdog: an operator formed a group by force: <note>",
                "`weir watchdog form --force` was given",
                "keep the hosts that are left out from starting as they were",
            ),
            event("group_link_up", "LOG", "watchdog: link to <host> is up", "the host can be reached", "–"),
            event(
                "group_link_down",
                "WARNING",
                "watchdog: no link to <host>: <text>",
                "the host cannot be reached",
                "look at the host and the network",
            ),
            event(
                "group_link_refused",
                "WARNING",
                "watchdog: a link from <address> is refused: <cause>",
                "somebody without the key, or with another configuration",
                "compare `wd_authkey` and the lists of hosts",
            ),
            event(
                "group_escalation",
                "LOG",
                "watchdog: I am the cluster leader node. Starting escalation process of term <term>",
                "Pgpool-II's line: this host takes the virtual address",
                "–",
            ),
            event(
                "group_no_member",
                "WARNING",
                "watchdog: this process is no member of its group yet: <text>",
                "the host waits",
                "the text says for what",
            ),
            event("group_report", "LOG to ERROR", "watchdog: <text>", "something about the group, in words", "as the words say"),
            event(
                "group_ping",
                "WARNING",
                "watchdog failed to ping host:\"<host>\": <cause>",
                "a trusted server is out of reach",
                "look at the network of this host",
            ),
            event(
                "group_interfaces",
                "ERROR",
                "monitored interfaces: <cause>",
                "interfaces of this host cannot be looked at",
                "look at `wd_monitoring_interfaces_list`",
            ),
            event(
                "address_command",
                "LOG",
                "<command>: <text>",
                "output of a command of the configuration, or words about an order",
                "–",
            ),
            event(
                "address_released",
                "WARNING",
                "wd_de_escalation_command was not run: the lease is over",
                "another host may have the address already",
                "run it by hand if it does more than give the address up",
            ),
        ],
    },
    LogTopic {
        title: "Clients",
        events: &[
            event(
                "too_many_clients",
                "FATAL",
                "<...>sorry, too many clients already: max_client_connections = <n>",
                "the limit refuses clients",
                "raise it, or find who opens so many ([Limits](limits.md))",
            ),
            event(
                "pool_full",
                "ERROR",
                "<...>no server connection became free in <time> ms (pool_wait_timeout): all of <limit> on node <n> are in use",
                "statements fail, since the pool is full",
                "[Pooling](pooling.md): raise `pool_size`, or find what keeps connections",
            ),
            event(
                "login_failed",
                "FATAL",
                "<...>password authentication failed for user \"<name>\"",
                "a wrong password, or a user that is not known",
                "look at user and address in the line",
            ),
            event(
                "accept_failed",
                "ERROR",
                "cannot accept <whom>, tried again until it succeeds: <cause>",
                "no descriptor or no memory is left for new connections",
                "raise `LimitNOFILE` or lower `max_client_connections`",
            ),
            event("accept_works", "LOG", "<whom> are accepted again", "descriptors and memory are there again", "–"),
            event(
                "listening_fault",
                "ERROR",
                "cannot watch a listening socket: <cause>",
                "new connections of this kind are not seen",
                "report it; restart",
            ),
            event(
                "pcp_listening_fault",
                "ERROR",
                "cannot watch a listening socket of PCP: <cause>",
                "new connections of this kind are not seen",
                "report it; restart",
            ),
            event("client_lost", "LOG", "a client was lost as it came: <cause>", "the connection broke before the login", "–"),
            event(
                "client_connection",
                "LOG",
                "connection from <address>: <text>",
                "a client broke off, or spoke something else than PostgreSQL's protocol",
                "–",
            ),
            event(
                "client_login",
                "LOG",
                "user \"<name>\" from <address> <text>",
                "a login was refused, or a client has come or gone",
                "the text says why",
            ),
            event(
                "client_replicates",
                "LOG",
                "replication connection authorized<:user=...>",
                "`log_connections`: a client that takes the log is logged in",
                "–",
            ),
            event(
                "console_end",
                "LOG",
                "console session ended: <error>",
                "a session of the console ended with an error, which the client was told",
                "the error is that of the client",
            ),
            event("client_in", "LOG", "connection authorized<:user=...>", "`log_connections`: a client is logged in", "–"),
            event("client_left", "LOG", "disconnection<:user=...>", "`log_disconnections`: a client has left", "–"),
            event(
                "session_end",
                "LOG",
                "session ends: <error>",
                "a session ended with an error, which the client was told",
                "the error is that of the client",
            ),
            event(
                "cancel_unknown",
                "LOG",
                "process id <pid> in a cancel request is of no session",
                "a cancel request came too late, or is a guess",
                "–",
            ),
        ],
    },
    LogTopic {
        title: "Operators",
        events: &[
            event("console_order", "LOG", "console: <order> by user \"<name>\" from <address>", "a command of the console", "–"),
            event(
                "dashboard_login_failed",
                "WARNING",
                "dashboard: login failed for user \"<name>\" from <address>",
                "a wrong password, or a user without rights",
                "look at user and address",
            ),
            event("dashboard_login", "LOG", "dashboard: user \"<name>\" logs in from <address> as <role>", "a login", "–"),
            event("dashboard_order", "LOG", "dashboard: <order> by user \"<name>\" from <address>", "an order from a page", "–"),
            event(
                "dashboard_order_failed",
                "LOG",
                "dashboard: <order> is not done: <cause>",
                "an order was not carried out",
                "the cause says why",
            ),
            event(
                "pcp_login_failed",
                "WARNING",
                "PCP: authentication failed for user \"<name>\" from <address>",
                "a wrong password",
                "look at user and address",
            ),
            event("pcp_report", "LOG", "PCP: <text>", "a request over PCP and its outcome", "–"),
            event(
                "paused",
                "LOG",
                "all databases are paused (SIGUSR1, or gracefully over PCP)",
                "clients wait",
                "RESUME, or SIGUSR2",
            ),
            event("resumed", "LOG", "databases go on (SIGUSR2, or after that)", "the pause is over", "–"),
            event(
                "rights_unknown",
                "LOG",
                "cannot ask what user \"<name>\" may see, <instead>: <cause>",
                "SHOW shows what everybody may see",
                "look at the server",
            ),
            event("metrics_full", "DEBUG", "more than <n> readers of metrics", "one is sent away", "–"),
            event(
                "metrics_tls",
                "DEBUG",
                "a reader of metrics from <address> fails at TLS",
                "its certificate or protocol does not fit",
                "–",
            ),
            event(
                "metrics_fault",
                "ERROR",
                "cannot watch the socket of metrics_port: <cause>",
                "nothing is answered over HTTP",
                "report it; restart",
            ),
            event("agent_start", "LOG", "agent of <folder> listens on <address>", "an agent has begun", "–"),
            event(
                "agent_accept_failed",
                "ERROR",
                "cannot accept a connection: <cause>",
                "the agent has no descriptor or memory left",
                "raise `LimitNOFILE`",
            ),
        ],
    },
    LogTopic {
        title: "All others",
        events: &[event(
            "other",
            "any",
            "<text>",
            "a line without a row of its own: answers that the configuration deserves, mostly at the start and at a reload",
            "as the words say",
        )],
    },
];

/// The name of the event that a line is about.
///
/// Among the rows that fit, the one with most words of its own counts. Names of users and others stand in quotes: words behind a quote are not those of a row
/// that may have any words before it.
pub fn event_of(text: &str) -> &'static str {
    let fitting = |topic: &'static LogTopic| topic.events.iter().filter(|event| fits(event.line, text));
    let quoting = fitting(&QUOTING).next();
    let best = || TOPICS.iter().flat_map(fitting).max_by_key(|event| own_bytes(event.line));
    quoting.or_else(best).map_or("other", |event| event.name)
}

/// The parts of a row's line that do not differ, in order.
fn fixed_parts(line: &'static str) -> impl Iterator<Item = &'static str> {
    line.split('<')
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once('>').map_or(part, |(_, fixed)| fixed) })
}

fn own_bytes(line: &'static str) -> usize {
    fixed_parts(line).map(str::len).sum()
}

fn fits(line: &'static str, text: &str) -> bool {
    let mut parts = fixed_parts(line);
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let is_anchored = !line.starts_with('<');
    for (at, part) in parts.enumerate() {
        let Some((before, behind)) = rest.split_once(part) else { return false };
        if at == 0 && !is_anchored && before.contains('"') {
            return false;
        }
        rest = behind;
    }
    true
}

/// The page of all events.
pub fn page() -> String {
    let mut page = String::from(
        "# Lines of the log\n\nGenerated from the table in `crates/weir/src/log/events.rs`. With `log_format = json` or `logfmt` each line has the name of its event \
         (`event`), which stays\nthe same when words are improved. `<...>` stands for what differs from line to line. How to choose destination, format and level is in \
         [Operations](operations.md#log).\n",
    );
    for topic in TOPICS.iter().take(TOPICS.len() - 1).chain([&QUOTING]).chain(TOPICS.last()) {
        page += &format!("\n## {}\n\n| event | line | level | meaning | what to do |\n|---|---|---|---|---|\n", topic.title);
        for LogEvent { name, level, line, meaning, advice } in topic.events {
            page += &format!("| `{name}` | `{line}` | {level} | {meaning} | {advice} |\n");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn all() -> impl Iterator<Item = &'static LogEvent> {
        TOPICS.iter().chain([&QUOTING]).flat_map(|topic| topic.events)
    }

    #[test]
    fn each_row_has_a_name_of_its_own_and_names_its_own_line() {
        let mut names = BTreeSet::new();
        for event in all() {
            assert!(event.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", event.name);
            assert!(names.insert(event.name), "{} stands there twice", event.name);
            assert_eq!(event_of(&event.line.replace(['<', '>'], "")), event.name, "{}", event.line);
        }
    }

    #[test]
    fn the_row_with_most_words_counts_and_a_client_cannot_choose_one() {
        for (line, name) in [
            ("node 1 is in use again", "node_up"),
            ("node 1 is very slow", "node_state"),
            ("node 1: its WAL position is not known, so that reads that must show recent writes avoid it", "position_unknown"),
            ("watchdog: something new", "group_report"),
            ("session ends: 28P01: password authentication failed for user \"joe\"", "login_failed"),
            ("left out 12 times within a second: node 1 is in use again", "lines_left_out"),
            ("statement: select 'node 1 is in use again'", "statement"),
            ("statement: select 1 -- cannot accept new clients, tried again until it succeeds: x", "statement"),
            (
                "user \"its WAL position is not known, so that reads that must show recent writes avoid it\" from ::1 is refused",
                "client_login",
            ),
            ("words that nobody has written down", "other"),
            ("", "other"),
        ] {
            assert_eq!(event_of(line), name, "{line}");
        }
    }

    /// Rust files below a folder.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                sources(&entry, found);
            } else if entry.extension().is_some_and(|ending| ending == "rs") {
                found.push(entry);
            }
        }
    }

    /// Texts of lines that a source writes: behind a level and `format_args!(`.
    fn texts(source: &str) -> Vec<String> {
        let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let calls = code.split("Level::").skip(1).filter(|call| call.starts_with(char::is_uppercase));
        let text = |call: &str| {
            let (before, behind) = call.split_once("format_args!(")?;
            let is_same_call = before.len() < 200 && !before.contains(';') && !before.contains("=>");
            let behind = behind.trim_start().strip_prefix('"').filter(|_| is_same_call)?;
            let end = behind
                .as_bytes()
                .iter()
                .enumerate()
                .position(|(at, byte)| *byte == b'"' && (at == 0 || behind.as_bytes()[at - 1] != b'\\'))?;
            let parts = behind[..end].split("\\\n").map(str::trim_start);
            Some(parts.collect::<String>().replace("\\\"", "\""))
        };
        calls.filter_map(text).collect()
    }

    /// `{...}` as a value.
    fn filled(text: &str) -> String {
        let mut parts = text.split('{');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |line, part| line + "7" + part.split_once('}').map_or(part, |(_, rest)| rest))
    }

    #[test]
    fn each_line_with_words_of_its_own_has_a_row() {
        let mut files = Vec::new();
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        [own.join("src"), own.join("../session/src")].iter().for_each(|folder| sources(folder, &mut files));
        let texts: BTreeSet<String> = files.iter().flat_map(|file| texts(&fs::read_to_string(file).unwrap())).collect();
        assert!(texts.len() > 120 && texts.contains("writes go to node {node}"), "{texts:?}");
        let has_words = |text: &&String| {
            filled(text).split_whitespace().filter(|word| word.chars().filter(|c| c.is_alphabetic()).count() > 1).count() > 1
        };
        let nameless: Vec<&String> = texts.iter().filter(has_words).filter(|text| event_of(&filled(text)) == "other").collect();
        assert!(nameless.is_empty(), "lines without a row in log/events.rs: {nameless:#?}");
    }
}
