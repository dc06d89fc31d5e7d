//! Acts of operators, each by a text of its own: none begins twice, and answers are true.

use std::collections::{HashMap, HashSet};

use weir_group::ActAnswer;

#[derive(Default)]
pub struct ActBook {
    tickets: u64,
    begun: HashSet<String>,
    /// Ended, since nobody had begun it.
    never: HashSet<String>,
    open: HashMap<u64, String>,
}

impl ActBook {
    pub fn ask(&mut self) -> (u64, String) {
        self.tickets += 1;
        let text = format!("act {}", self.tickets);
        self.open.insert(self.tickets, text.clone());
        (self.tickets, text)
    }

    #[must_use]
    pub fn begin(&mut self, text: &str) -> Option<String> {
        let is_new = self.begun.insert(text.to_owned());
        if self.never.contains(text) {
            return Some(format!("{text} begins after its asker heard that it does not"));
        }
        (!is_new).then(|| format!("{text} begins twice"))
    }

    #[must_use]
    pub fn end(&mut self, ticket: u64, answer: &ActAnswer) -> Option<String> {
        let Some(text) = self.open.remove(&ticket) else { return Some(format!("ticket {ticket} ends twice")) };
        let is_begun = self.begun.contains(&text);
        match answer {
            ActAnswer::Done(_) if !is_begun => Some(format!("{text} counts as done and never began")),
            ActAnswer::NotLeader if is_begun => Some(format!("{text} began, and its asker hears that it did not")),
            ActAnswer::NotLeader => {
                self.never.insert(text);
                None
            }
            ActAnswer::Done(_) | ActAnswer::Refused(_) | ActAnswer::Unknown => None,
        }
    }
}
