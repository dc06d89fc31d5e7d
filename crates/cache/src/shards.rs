//! Redis Cluster: the master of a key by `CLUSTER NODES`. An outdated map costs misses only. Source: redis.io, "Redis
//! cluster specification".

const SLOTS: usize = 16_384;

/// Limit: each master is a connection of every worker.
const MASTERS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMaster {
    /// Empty: the node that was asked, which does not know its own name.
    pub name: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMap {
    pub masters: Vec<ShardMaster>,
    /// Index of the master, by slot.
    slots: Box<[u8]>,
}

impl ShardMap {
    /// Reads a node's map; the error says why the cluster cannot be used.
    pub fn read(text: &str) -> Result<ShardMap, String> {
        let (mut masters, mut slots) = (Vec::new(), vec![u8::MAX; SLOTS]);
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_id, address, flags, _master, _ping, _pong, _epoch, _link, ranges @ ..] = words.as_slice() else {
                return Err(format!("\"{line}\" tells of no node"));
            };
            if ranges.is_empty() || !flags.split(',').any(|flag| flag == "master") {
                continue;
            }
            let number = u8::try_from(masters.len()).ok().filter(|number| usize::from(*number) < MASTERS_MAX);
            let number = number.ok_or_else(|| format!("more than {MASTERS_MAX} masters"))?;
            // Slots that are being moved follow in brackets; their node redirects.
            for range in ranges.iter().filter(|range| !range.starts_with('[')) {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let range = first.parse::<usize>().ok().zip(last.parse::<usize>().ok()).filter(|(first, last)| first <= last);
                let found = range.and_then(|(first, last)| slots.get_mut(first..=last));
                found.ok_or_else(|| format!("\"{line}\" tells of no slots"))?.fill(number);
            }
            let (name, port) = address_of(address).ok_or_else(|| format!("\"{address}\" is no address"))?;
            masters.push(ShardMaster { name, port });
        }
        if slots.contains(&u8::MAX) {
            return Err("some keys of the cluster are at no node".into());
        }
        Ok(ShardMap { masters, slots: slots.into() })
    }

    pub fn master_of(&self, key: &[u8]) -> usize {
        usize::from(self.slots[slot_of(key)])
    }
}

/// Parses `ip:port@bus-port,name`.
fn address_of(text: &str) -> Option<(String, u16)> {
    let (address, _) = text.split_once('@').unwrap_or((text, ""));
    let (name, port) = address.rsplit_once(':')?;
    Some((name.to_string(), port.parse().ok()?))
}

/// Returns the slot of a key; a part in braces decides alone.
fn slot_of(key: &[u8]) -> usize {
    let after = |at: usize| key[at + 1..].iter().position(|byte| *byte == b'}').map(|length| &key[at + 1..at + 1 + length]);
    let tag = key.iter().position(|byte| *byte == b'{').and_then(after).filter(|tag| !tag.is_empty());
    usize::from(crc16(tag.unwrap_or(key))) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, _| if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ (u16::from(*byte) << 8), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "aa 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460\n\
                         bb 10.0.0.2:7000@17000,host-b master - 0 1700000000000 2 connected 5461-10922\n\
                         cc ::1:7002@17002 master - 0 1700000000001 3 connected 10923-16382 16383\n\
                         dd 10.0.0.4:7000@17000 slave aa 0 1700000000002 1 connected\n\
                         ee :0@0 master,noaddr - 0 0 0 disconnected\n";

    #[test]
    fn a_map_is_read_as_a_node_tells_it() {
        let shards = ShardMap::read(THREE).unwrap();
        let names: Vec<(&str, u16)> = shards.masters.iter().map(|master| (master.name.as_str(), master.port)).collect();
        assert_eq!(names, [("10.0.0.1", 7000), ("10.0.0.2", 7000), ("::1", 7002)]);
        // Slots as Redis itself gives them (CLUSTER KEYSLOT).
        for (key, slot) in
            [("foo", 12182), ("bar", 5061), ("hello", 866), ("{foo}.x", 12182), ("123456789", 12739), ("a{}b", 13694)]
        {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!((shards.master_of(b"bar"), shards.master_of(b"foo")), (0, 2));
    }

    #[test]
    fn keys_that_are_being_moved_are_where_they_were() {
        let moving = ShardMap::read(&THREE.replace("16383", "16383 [77->-bb]"));
        assert_eq!(moving, ShardMap::read(THREE));
    }

    #[test]
    fn what_cannot_be_relied_upon_is_refused_in_words() {
        for (text, words) in [
            ("", "at no node"),
            (&THREE.replace(" 16383", ""), "at no node"),
            (&THREE.replace("16383", "16384"), "no slots"),
            (&THREE.replace("0-5460", "5460-0"), "no slots"),
            ("what", "no node"),
        ] {
            assert!(ShardMap::read(text).is_err_and(|error| error.contains(words)), "{words}: {:?}", ShardMap::read(text));
        }
    }
}
