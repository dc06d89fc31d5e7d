//! Settings of an `ldap` rule.
//!
//! Source: PostgreSQL manual, "LDAP Authentication"; `parse_hba_auth_opt` and `parse_hba_line` in hba.c, `CheckLDAPAuth` in auth.c.

use std::fmt;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LdapDirectory {
    /// Hosts, asked in order until one answers.
    pub servers: Vec<String>,
    /// 0: the scheme's default.
    port: u16,
    /// True for TLS from the start (`ldaps`).
    pub is_ldaps: bool,
    /// True for StartTLS (`ldaptls`).
    pub starts_tls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    bind_name: Option<String>,
    bind_password: Option<BindPassword>,
    attribute: Option<String>,
    filter: Option<String>,
    scope: LdapSearchScope,
    /// True if Weir logs in to servers with the accepted password (Pgpool-II's `backend_use_passwd`).
    pub is_password_for_servers: bool,
}

/// A password hidden in `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BindPassword(String);

impl fmt::Debug for BindPassword {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// Depth of the search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LdapSearchScope {
    Base,
    OneLevel,
    #[default]
    Subtree,
}

/// Steps to check a user's password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LdapSteps<'a> {
    /// Bind by this name.
    Bind(String),
    /// Bind by `name` and `password`, search, and bind by the name found.
    Search {
        /// Empty for an anonymous search.
        name: &'a str,
        password: &'a str,
        base: &'a str,
        scope: LdapSearchScope,
        /// Filter with the user's name inserted.
        filter: String,
    },
}

/// Reads a switch as Pgpool-II writes it.
pub(super) fn is_on(value: &str) -> bool {
    matches!(value, "1" | "on" | "true" | "yes")
}

impl LdapDirectory {
    pub fn port(&self) -> u16 {
        match (self.port, self.is_ldaps) {
            (0, false) => 389,
            (0, true) => 636,
            (port, _) => port,
        }
    }

    /// Returns the steps; `None` if the user's name has filter characters.
    pub fn steps(&self, user: &str) -> Option<LdapSteps<'_>> {
        let Some(base) = &self.base else {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            return Some(LdapSteps::Bind(part(&self.prefix) + user + &part(&self.suffix)));
        };
        if user.contains(['*', '(', ')', '\\', '/', '\0']) {
            return None;
        }
        let filter = match (&self.filter, &self.attribute) {
            (Some(filter), _) => filter.replace("$username", user),
            (None, Some(attribute)) => format!("({attribute}={user})"),
            (None, None) => format!("(uid={user})"),
        };
        let name = self.bind_name.as_deref().unwrap_or_default();
        let password = self.bind_password.as_ref().map_or("", |hidden| hidden.0.as_str());
        Some(LdapSteps::Search { name, password, base, scope: self.scope, filter })
    }

    /// Sets an option; `None` if it does not belong to a directory.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let text = Some(value.to_string());
        match name {
            "ldapserver" => self.servers = value.split_ascii_whitespace().map(str::to_string).collect(),
            "ldapport" => match value.parse() {
                Ok(port) if port > 0 => self.port = port,
                _ => return Some(Err(format!("invalid LDAP port number: \"{value}\""))),
            },
            "ldapscheme" => match value {
                "ldap" => self.is_ldaps = false,
                "ldaps" => self.is_ldaps = true,
                _ => return Some(Err(format!("invalid ldapscheme value: \"{value}\""))),
            },
            "ldaptls" => self.starts_tls = value == "1",
            "ldapprefix" => self.prefix = text,
            "ldapsuffix" => self.suffix = text,
            "ldapbasedn" => self.base = text,
            "ldapbinddn" => self.bind_name = text,
            "ldapbindpasswd" => self.bind_password = Some(BindPassword(value.to_string())),
            "ldapsearchattribute" => self.attribute = text,
            "ldapsearchfilter" => self.filter = text,
            "ldapurl" => return Some(self.take_url(value)),
            "backend_use_passwd" => self.is_password_for_servers = is_on(value),
            _ => return None,
        }
        Some(Ok(()))
    }

    /// Parses `ldap[s]://host[:port]/basedn[?[attribute][?[scope][?[filter]]]]` (RFC 4516).
    fn take_url(&mut self, url: &str) -> Result<(), String> {
        let wrong = |what: &str| format!("could not parse LDAP URL \"{url}\": {what}");
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        self.is_ldaps = match scheme.to_ascii_lowercase().as_str() {
            "ldap" => false,
            "ldaps" => true,
            _ => return Err(format!("unsupported LDAP URL scheme: {scheme}")),
        };
        let (place, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong("the port is no number"))?),
            None => (place, 0),
        };
        (self.servers, self.port) = (decoded(host).into_iter().filter(|host| !host.is_empty()).collect(), port);
        let mut fields = rest.split('?');
        let mut next = || match fields.next().filter(|field| !field.is_empty()) {
            None => Ok(None),
            Some(field) => decoded(field).map(Some).ok_or_else(|| wrong("a % is not followed by two hex digits")),
        };
        self.base = next()?;
        self.attribute = next()?.map(|list| list.split(',').next().unwrap_or_default().to_string());
        self.scope = match next()?.as_deref() {
            Some("sub") => LdapSearchScope::Subtree,
            Some("one") => LdapSearchScope::OneLevel,
            // RFC 4516 reads an empty word as none.
            None | Some("base") => LdapSearchScope::Base,
            Some(other) => return Err(wrong(&format!("scope \"{other}\" is none of base, one and sub"))),
        };
        self.filter = next()?;
        Ok(())
    }

    /// Checks that the options fit together.
    pub(super) fn check(&self) -> Result<(), String> {
        let searches = self.bind_name.is_some()
            || self.bind_password.is_some()
            || self.base.is_some()
            || self.attribute.is_some()
            || self.filter.is_some();
        if self.servers.is_empty() {
            return Err("authentication method \"ldap\" requires argument \"ldapserver\" to be set".into());
        }
        if (self.prefix.is_some() || self.suffix.is_some()) && searches {
            return Err("cannot mix options for simple bind (ldapprefix, ldapsuffix) and search+bind (ldapbasedn, ldapbinddn, \
                        ldapbindpasswd, ldapsearchattribute, ldapsearchfilter, ldapurl)"
                .into());
        }
        if self.prefix.is_none() && self.suffix.is_none() && self.base.is_none() {
            return Err("authentication method \"ldap\" requires argument \"ldapbasedn\", \"ldapprefix\", or \"ldapsuffix\" \
                        to be set"
                .into());
        }
        if self.attribute.is_some() && self.filter.is_some() {
            return Err("cannot use ldapsearchattribute together with ldapsearchfilter".into());
        }
        Ok(())
    }
}

/// Decodes percent-encoding; `None` if invalid.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                after
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                after
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(options: &[(&str, &str)]) -> Result<LdapDirectory, String> {
        let mut directory = LdapDirectory::default();
        for (name, value) in options {
            directory.set(name, value).unwrap_or_else(|| panic!("{name} is no option"))?;
        }
        directory.check().map(|()| directory)
    }

    #[test]
    fn a_user_is_bound_by_a_name_made_of_his_or_searched_for() {
        let simple = directory(&[("ldapserver", "a b"), ("ldapprefix", "cn="), ("ldapsuffix", ", dc=example")]).unwrap();
        assert_eq!(simple.servers, ["a", "b"]);
        assert_eq!(simple.port(), 389);
        assert_eq!(simple.steps("joe"), Some(LdapSteps::Bind("cn=joe, dc=example".into())));
        let search = |more: &[(&str, &str)]| {
            let base = [("ldapserver", "a"), ("ldapbasedn", "dc=example")];
            let directory = directory(&[&base, more].concat()).unwrap();
            match directory.steps("joe") {
                Some(LdapSteps::Search { name, password, base, filter, .. }) => format!("{name}|{password}|{base}|{filter}"),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(search(&[]), "||dc=example|(uid=joe)");
        assert_eq!(search(&[("ldapsearchattribute", "cn")]), "||dc=example|(cn=joe)");
        let filter = ("ldapsearchfilter", "(|(uid=$username)(mail=$username))");
        let who = [("ldapbinddn", "cn=finder"), ("ldapbindpasswd", "secret"), filter];
        assert_eq!(search(&who), "cn=finder|secret|dc=example|(|(uid=joe)(mail=joe))");
    }

    #[test]
    fn a_name_that_would_mean_something_in_a_filter_is_not_searched_for() {
        let search = directory(&[("ldapserver", "a"), ("ldapbasedn", "dc=example")]).unwrap();
        for name in ["*", "a)(uid=b", "a\\2a", "a/b"] {
            assert_eq!(search.steps(name), None, "{name}");
        }
    }

    #[test]
    fn a_url_has_all_of_it_and_its_password_is_not_shown() {
        let url = "ldaps://ldap.example:1636/dc=example,dc=org?cn?one?";
        let by_url = directory(&[("ldapurl", url), ("ldapbindpasswd", "secret")]).unwrap();
        assert_eq!((by_url.servers.as_slice(), by_url.port(), by_url.is_ldaps), (&["ldap.example".to_string()][..], 1636, true));
        assert_eq!((by_url.base.as_deref(), by_url.attribute.as_deref()), (Some("dc=example,dc=org"), Some("cn")));
        assert_eq!((by_url.scope, by_url.filter.as_deref()), (LdapSearchScope::OneLevel, None));
        assert!(!format!("{by_url:?}").contains("secret"));
        let by_filter = directory(&[("ldapurl", "ldap://[::1]/dc=a%20b???(uid=$username)")]).unwrap();
        assert_eq!((by_filter.servers[0].as_str(), by_filter.port(), by_filter.scope), ("[::1]", 389, LdapSearchScope::Base));
        assert_eq!((by_filter.base.as_deref(), by_filter.filter.as_deref()), (Some("dc=a b"), Some("(uid=$username)")));
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let server = ("ldapserver", "a");
        for (options, expected) in [
            (&[("ldapbasedn", "b")][..], "requires argument \"ldapserver\""),
            (&[server], "requires argument \"ldapbasedn\""),
            (&[server, ("ldapprefix", "cn="), ("ldapbasedn", "b")], "cannot mix"),
            (&[server, ("ldapbasedn", "b"), ("ldapsearchattribute", "c"), ("ldapsearchfilter", "d")], "cannot use"),
            (&[("ldapport", "0")], "invalid LDAP port"),
            (&[("ldapport", "70000")], "invalid LDAP port"),
            (&[("ldapscheme", "http")], "invalid ldapscheme"),
            (&[("ldapurl", "http://a/b")], "unsupported LDAP URL scheme: http"),
            (&[("ldapurl", "a")], "no scheme"),
            (&[("ldapurl", "ldap://a/b??far")], "scope \"far\""),
            (&[("ldapurl", "ldap://a/%g")], "hex digits"),
        ] {
            let error = directory(options).unwrap_err();
            assert!(error.contains(expected), "{options:?}: {error}");
        }
    }
}
