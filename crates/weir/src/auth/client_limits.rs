//! Numbers of clients of each user, database and address.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_session::status::ClientIdentity;

/// Unused names have no entry: invented ones leave nothing behind.
#[derive(Clone, Debug, Default)]
pub struct ClientCounts(Arc<Mutex<ClientCountTables>>);

#[derive(Debug, Default)]
struct ClientCountTables {
    users: Named,
    databases: Named,
    /// By role at the servers.
    roles: Named,
    /// By database at the servers.
    served: Named,
    addresses: HashMap<IpAddr, u32>,
}

/// Holders keep the count in the table.
#[derive(Debug, Default)]
struct NameCount {
    clients: AtomicU32,
    holders: AtomicU32,
}

type Named = HashMap<Arc<str>, Arc<NameCount>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientLimit {
    User(u32),
    Database(u32),
    Address(u32),
}

/// Counts looked up once for many logins.
#[derive(Debug)]
pub struct LoginCounts {
    seats: ClientCounts,
    whose: Arc<ClientIdentity>,
    user: Arc<NameCount>,
    database: Arc<NameCount>,
    role: Arc<NameCount>,
    served: Arc<NameCount>,
}

/// A client, counted until dropped.
#[derive(Debug)]
pub struct CountedClient {
    seats: ClientCounts,
    address: Option<IpAddr>,
    /// Counts of the client's names, once proven.
    places: Option<Arc<LoginCounts>>,
}

impl ClientCounts {
    /// `None`: unix socket. Limit 0: unlimited.
    pub fn at_door(&self, address: Option<IpAddr>, address_max: u32) -> Result<CountedClient, ClientLimit> {
        if let Some(address) = address {
            let mut counts = self.0.lock();
            match counts.addresses.entry(address) {
                Entry::Occupied(known) if address_max > 0 && *known.get() >= address_max => {
                    return Err(ClientLimit::Address(address_max));
                }
                Entry::Occupied(mut known) => *known.get_mut() += 1,
                Entry::Vacant(free) => drop(free.insert(1)),
            }
        }
        Ok(CountedClient { seats: self.clone(), address, places: None })
    }

    pub fn places(&self, whose: Arc<ClientIdentity>) -> Arc<LoginCounts> {
        let of = |named: &mut Named, name: &Arc<str>| {
            let count = named.entry(name.clone()).or_default();
            count.holders.fetch_add(1, Ordering::Relaxed);
            count.clone()
        };
        let counts = &mut *self.0.lock();
        Arc::new(LoginCounts {
            seats: self.clone(),
            user: of(&mut counts.users, &whose.user),
            database: of(&mut counts.databases, &whose.database),
            role: of(&mut counts.roles, &whose.server_user),
            served: of(&mut counts.served, &whose.server_database),
            whose,
        })
    }

    /// True if a client uses this database of the servers.
    pub fn has_clients_of(&self, database: &str) -> bool {
        self.0.lock().served.get(database).is_some_and(|count| count.clients.load(Ordering::Relaxed) > 0)
    }

    /// True if a client uses this role of the servers.
    pub fn has_role(&self, role: &str) -> bool {
        self.0.lock().roles.get(role).is_some_and(|count| count.clients.load(Ordering::Relaxed) > 0)
    }
}

impl LoginCounts {
    #[inline]
    fn each(&self, change: impl Fn(&AtomicU32) -> u32) {
        change(&self.user.clients);
        change(&self.database.clients);
        change(&self.role.clients);
        change(&self.served.clients);
    }
}

impl Drop for LoginCounts {
    fn drop(&mut self) {
        let forget = |named: &mut Named, name: &Arc<str>, own: &NameCount| {
            if own.holders.fetch_sub(1, Ordering::Relaxed) == 1 {
                named.remove(name);
            }
        };
        let counts = &mut *self.seats.0.lock();
        forget(&mut counts.users, &self.whose.user, &self.user);
        forget(&mut counts.databases, &self.whose.database, &self.database);
        forget(&mut counts.roles, &self.whose.server_user, &self.role);
        forget(&mut counts.served, &self.whose.server_database, &self.served);
    }
}

impl CountedClient {
    pub fn take(&mut self, places: &Arc<LoginCounts>, user_max: u32, database_max: u32) -> Result<(), ClientLimit> {
        let turn = self.seats.0.lock();
        // As in PgBouncer, the database's limit is reported first.
        check(&places.database, database_max).map_err(ClientLimit::Database)?;
        check(&places.user, user_max).map_err(ClientLimit::User)?;
        places.each(|clients| clients.fetch_add(1, Ordering::Relaxed));
        drop(turn);
        self.places = Some(places.clone());
        Ok(())
    }
}

impl Drop for CountedClient {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            match self.seats.0.lock().addresses.entry(address) {
                Entry::Occupied(mut known) if *known.get() > 1 => *known.get_mut() -= 1,
                Entry::Occupied(known) => drop(known.remove()),
                Entry::Vacant(_) => {}
            }
        }
        if let Some(places) = &self.places {
            places.each(|clients| clients.fetch_sub(1, Ordering::Relaxed));
        }
    }
}

fn check(count: &NameCount, max: u32) -> Result<(), u32> {
    if max > 0 && count.clients.load(Ordering::Relaxed) >= max { Err(max) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_until_they_leave_and_those_turned_away_are_not() {
        let seats = ClientCounts::default();
        let of = |user: &str| {
            let [user, shop, forced] = [user, "shop", "forced"].map(Arc::<str>::from);
            seats.places(ClientIdentity { user, database: shop.clone(), server_user: forced, server_database: shop }.into())
        };
        let home = Some(IpAddr::from([127, 0, 0, 1]));
        let mut one = seats.at_door(home, 2).unwrap();
        one.take(&of("joe"), 1, 2).unwrap();
        let mut two = seats.at_door(home, 2).unwrap();
        assert_eq!(two.take(&of("joe"), 1, 2), Err(ClientLimit::User(1)));
        two.take(&of("ann"), 1, 2).unwrap();
        assert_eq!(seats.at_door(home, 2).unwrap_err(), ClientLimit::Address(2));
        let mut local = seats.at_door(None, 2).unwrap();
        assert_eq!(local.take(&of("eve"), 1, 2), Err(ClientLimit::Database(2)));
        assert_eq!(local.take(&of("joe"), 1, 2), Err(ClientLimit::Database(2)));
        drop(one);
        local.take(&of("joe"), 1, 2).unwrap();
        assert!(seats.has_clients_of("shop") && !seats.has_clients_of("house"));
        assert!(seats.has_role("forced") && !seats.has_role("joe"));
        drop((two, local));
        assert!(!seats.has_clients_of("shop") && !seats.has_role("forced"));
        let counts = seats.0.lock();
        assert!(counts.users.is_empty() && counts.databases.is_empty() && counts.addresses.is_empty());
        assert!(counts.roles.is_empty() && counts.served.is_empty());
    }
}
