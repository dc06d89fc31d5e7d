//! Row layouts of Pgpool-II releases. A later release appends or inserts strings.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PcpLayout {
    /// 4.3.0 alone.
    V4_3_0,
    V4_3,
    V4_4,
    V4_5,
    V4_6,
    #[default]
    V4_7,
}

/// String counts of a node, by layout.
pub const NODE_LAYOUTS: [usize; 3] = [11, 12, 13];

/// Largest string count of a process.
pub const PROCESS_STRINGS: usize = 21;

/// A weight of 1 on the wire. Source: glibc, `RAND_MAX`, which Pgpool-II draws by.
const WEIGHT_UNIT: f64 = 2_147_483_647.0;

impl PcpLayout {
    /// Values of `pcp_protocol_version`.
    pub const WORDS: [&'static str; 6] = ["4.3.0", "4.3", "4.4", "4.5", "4.6", "4.7"];
    const ALL: [PcpLayout; 6] =
        [PcpLayout::V4_3_0, PcpLayout::V4_3, PcpLayout::V4_4, PcpLayout::V4_5, PcpLayout::V4_6, PcpLayout::V4_7];

    pub fn of_word(word: &str) -> Option<PcpLayout> {
        let at = PcpLayout::WORDS.iter().position(|known| *known == word)?;
        PcpLayout::ALL.get(at).copied()
    }

    pub fn has_delay_by_time(self) -> bool {
        self >= PcpLayout::V4_4
    }

    pub fn process_strings(self) -> usize {
        match self {
            PcpLayout::V4_3_0 | PcpLayout::V4_3 | PcpLayout::V4_4 => 17,
            PcpLayout::V4_5 | PcpLayout::V4_6 => 18,
            PcpLayout::V4_7 => PROCESS_STRINGS,
        }
    }
}

/// A node in the answer to `NodeInfo`.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeInfo {
    pub hostname: String,
    pub port: u16,
    pub status: NodeStatus,
    /// State of the server: `up`, `down` or `unknown`.
    pub pg_status: String,
    /// Share of reads, from 0 to 1.
    pub weight: f64,
    pub role: NodeRole,
    /// `primary`, `standby` or `unknown`.
    pub pg_role: String,
    pub delay: StandbyDelay,
    pub replication_state: String,
    pub replication_sync_state: String,
    /// Seconds since 1970.
    pub changed_at_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    Unused,
    Waiting,
    Up,
    Down,
    Quarantined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    Main,
    Replica,
    Primary,
    Standby,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyDelay {
    Bytes(u64),
    Micros(u64),
}

impl std::fmt::Display for StandbyDelay {
    /// Formats as Pgpool-II does.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StandbyDelay::Bytes(bytes) => write!(f, "{bytes}"),
            StandbyDelay::Micros(micros) => {
                let seconds = *micros as f64 / 1e6;
                write!(f, "{seconds:.6} second{}", if seconds >= 2.0 { "s" } else { "" })
            }
        }
    }
}

impl NodeStatus {
    const ALL: [NodeStatus; 5] =
        [NodeStatus::Unused, NodeStatus::Waiting, NodeStatus::Up, NodeStatus::Down, NodeStatus::Quarantined];

    /// Returns the state's number. A quarantined node is down, with a separate mark.
    pub fn number(self) -> u8 {
        match self {
            NodeStatus::Unused => 0,
            NodeStatus::Waiting => 1,
            NodeStatus::Up => 2,
            NodeStatus::Down | NodeStatus::Quarantined => 3,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            NodeStatus::Unused => "unused",
            NodeStatus::Waiting => "waiting",
            NodeStatus::Up => "up",
            NodeStatus::Down => "down",
            NodeStatus::Quarantined => "quarantine",
        }
    }

    fn read(number: &str, quarantine: &str) -> Option<NodeStatus> {
        let status = NodeStatus::ALL.into_iter().find(|status| status.number().to_string() == number)?;
        Some(if status == NodeStatus::Down && quarantine == "1" { NodeStatus::Quarantined } else { status })
    }
}

impl NodeRole {
    const ALL: [(NodeRole, &'static str); 4] = [
        (NodeRole::Main, "main"),
        (NodeRole::Replica, "replica"),
        (NodeRole::Primary, "primary"),
        (NodeRole::Standby, "standby"),
    ];

    pub fn name(self) -> &'static str {
        NodeRole::ALL.into_iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }

    fn number(self) -> usize {
        NodeRole::ALL.iter().position(|(role, _)| *role == self).unwrap_or(0)
    }

    fn read(number: &str) -> Option<NodeRole> {
        NodeRole::ALL.get(number.parse::<usize>().ok()?).map(|(role, _)| *role)
    }
}

impl NodeInfo {
    pub fn strings(&self, layout: PcpLayout) -> Vec<String> {
        let (is_by_time, delay) = match self.delay {
            StandbyDelay::Bytes(bytes) => ("0", bytes),
            StandbyDelay::Micros(micros) => ("1", micros),
        };
        let mut strings = vec![self.hostname.clone(), self.port.to_string(), self.status.number().to_string()];
        if layout >= PcpLayout::V4_3 {
            strings.push(u8::from(self.status == NodeStatus::Quarantined).to_string());
        }
        strings.extend([
            self.pg_status.clone(),
            format!("{:.6}", self.weight * WEIGHT_UNIT),
            self.role.number().to_string(),
            self.pg_role.clone(),
        ]);
        if layout.has_delay_by_time() {
            strings.push(is_by_time.to_string());
        }
        strings.extend([
            delay.to_string(),
            self.replication_state.clone(),
            self.replication_sync_state.clone(),
            self.changed_at_s.to_string(),
        ]);
        strings
    }

    /// Reads a node of any release, known by the string count; `None` if malformed.
    pub fn read(strings: &[String]) -> Option<NodeInfo> {
        let mut all: Vec<&str> = strings.iter().map(String::as_str).collect();
        if !NODE_LAYOUTS.contains(&all.len()) {
            return None;
        }
        if all.len() == 11 {
            all.insert(3, "0");
        }
        if all.len() == 12 {
            all.insert(8, "0");
        }
        let delay = all[9].parse().ok()?;
        Some(NodeInfo {
            hostname: all[0].to_string(),
            port: all[1].parse().ok()?,
            status: NodeStatus::read(all[2], all[3])?,
            pg_status: all[4].to_string(),
            weight: all[5].parse::<f64>().ok()? / WEIGHT_UNIT,
            role: NodeRole::read(all[6])?,
            pg_role: all[7].to_string(),
            delay: if all[8] == "1" { StandbyDelay::Micros(delay) } else { StandbyDelay::Bytes(delay) },
            replication_state: all[10].to_string(),
            replication_sync_state: all[11].to_string(),
            changed_at_s: all[12].parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_written() {
        for (role, number, name) in [
            (NodeRole::Main, "0", "main"),
            (NodeRole::Replica, "1", "replica"),
            (NodeRole::Primary, "2", "primary"),
            (NodeRole::Standby, "3", "standby"),
        ] {
            assert_eq!((role.name(), role.number().to_string().as_str()), (name, number));
            assert_eq!(NodeRole::read(number), Some(role));
        }
        assert_eq!((NodeRole::read("4"), NodeRole::read("x")), (None, None));
    }
}
