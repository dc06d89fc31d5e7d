//! How many clients each user, database and address has, over all workers.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use weir_session::status::Whose;

/// The counts. A user without clients has no entry, so that invented names leave nothing behind.
#[derive(Clone, Debug, Default)]
pub struct Seats(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    users: HashMap<Arc<str>, u32>,
    databases: HashMap<Arc<str>, u32>,
    /// By the role of the servers that a user stands for.
    roles: HashMap<Arc<str>, u32>,
    /// By the name that the servers have for a database.
    served: HashMap<Arc<str>, u32>,
    addresses: HashMap<IpAddr, u32>,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    User(u32),
    Database(u32),
    Address(u32),
}

/// One client, counted until this is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Seats,
    address: Option<IpAddr>,
    /// Its names, once they have been proven.
    whose: Option<Arc<Whose>>,
}

impl Seats {
    /// Counts a client by its address; a unix socket has none. A limit of 0 is none.
    pub fn at_door(&self, address: Option<IpAddr>, address_max: u32) -> Result<Seat, Full> {
        if let Some(address) = address {
            count(&mut self.0.lock().addresses, address, address_max).map_err(Full::Address)?;
        }
        Ok(Seat { seats: self.clone(), address, whose: None })
    }

    /// True if anyone is connected to a database of the servers, by any name.
    pub fn has_clients_of(&self, database: &str) -> bool {
        self.0.lock().served.contains_key(database)
    }

    /// True if anyone is connected as a role of the servers, by any name.
    pub fn has_role(&self, role: &str) -> bool {
        self.0.lock().roles.contains_key(role)
    }
}

impl Seat {
    /// Counts the client by its user and database, too.
    pub fn take(&mut self, whose: Arc<Whose>, user_max: u32, database_max: u32) -> Result<(), Full> {
        let Whose { user, database, server_user, server_database } = &*whose;
        let mut counts = self.seats.0.lock();
        // As in PgBouncer, the limit of the database is the one that is told where both are reached.
        count(&mut counts.databases, database.clone(), database_max).map_err(Full::Database)?;
        if let Err(max) = count(&mut counts.users, user.clone(), user_max) {
            uncount(&mut counts.databases, database);
            return Err(Full::User(max));
        }
        counts.served.entry(server_database.clone()).and_modify(|known| *known += 1).or_insert(1);
        counts.roles.entry(server_user.clone()).and_modify(|known| *known += 1).or_insert(1);
        self.whose = Some(whose);
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.seats.0.lock();
        if let Some(address) = &self.address {
            uncount(&mut counts.addresses, address);
        }
        if let Some(Whose { user, database, server_user, server_database }) = self.whose.as_deref() {
            uncount(&mut counts.users, user);
            uncount(&mut counts.databases, database);
            uncount(&mut counts.served, server_database);
            uncount(&mut counts.roles, server_user);
        }
    }
}

/// Error: the limit, which is reached.
fn count<K: Hash + Eq>(counts: &mut HashMap<K, u32>, key: K, max: u32) -> Result<(), u32> {
    let known = counts.get(&key).copied().unwrap_or(0);
    if max > 0 && known >= max {
        return Err(max);
    }
    counts.insert(key, known + 1);
    Ok(())
}

fn uncount<K: Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_until_they_leave_and_those_turned_away_are_not() {
        let seats = Seats::default();
        let of = |user: &str| {
            Whose { user: user.into(), database: "shop".into(), server_user: "forced".into(), server_database: "shop".into() }
                .into()
        };
        let home = Some(IpAddr::from([127, 0, 0, 1]));
        let mut one = seats.at_door(home, 2).unwrap();
        one.take(of("joe"), 1, 2).unwrap();
        let mut two = seats.at_door(home, 2).unwrap();
        assert_eq!(two.take(of("joe"), 1, 2), Err(Full::User(1)));
        two.take(of("ann"), 1, 2).unwrap();
        assert_eq!(seats.at_door(home, 2).unwrap_err(), Full::Address(2));
        let mut local = seats.at_door(None, 2).unwrap();
        assert_eq!(local.take(of("eve"), 1, 2), Err(Full::Database(2)));
        assert_eq!(local.take(of("joe"), 1, 2), Err(Full::Database(2)));
        drop(one);
        local.take(of("joe"), 1, 2).unwrap();
        assert!(seats.has_clients_of("shop") && !seats.has_clients_of("house"));
        assert!(seats.has_role("forced") && !seats.has_role("joe"));
        drop((two, local));
        assert!(!seats.has_clients_of("shop") && !seats.has_role("forced"));
        let counts = seats.0.lock();
        assert!(counts.users.is_empty() && counts.databases.is_empty() && counts.addresses.is_empty());
    }
}
