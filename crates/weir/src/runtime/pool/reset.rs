//! Statements that clean a server connection for its next client.

use weir_sql::facts::{TransactionEnd, TransactionVerb};

/// Returns the statements of `reset_query_list` needed without an open transaction. The end of a transaction is left out unless an
/// earlier statement begins one: the server would log a warning.
pub fn needed_at_rest(list: &[String]) -> impl Iterator<Item = &String> {
    let mut is_open = false;
    list.iter().filter(move |query| match weir_sql::facts(query.as_bytes()).transaction {
        TransactionVerb::End(TransactionEnd::Rollback | TransactionEnd::Commit) => std::mem::take(&mut is_open),
        TransactionVerb::Begin(_) | TransactionVerb::Many => {
            is_open = true;
            true
        }
        TransactionVerb::None
        | TransactionVerb::End(TransactionEnd::Prepare)
        | TransactionVerb::Chain(_)
        | TransactionVerb::Within
        | TransactionVerb::Prepared => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_at_rest_is_sent_nothing_that_ends_a_transaction() {
        let check = |list: &[&str], expected: &[&str]| {
            let list: Vec<String> = list.iter().map(|query| (*query).to_owned()).collect();
            assert_eq!(needed_at_rest(&list).collect::<Vec<_>>(), expected);
        };
        check(&["ABORT", "DISCARD ALL"], &["DISCARD ALL"]);
        check(&["rollback work", "commit", "end", "RESET ALL"], &["RESET ALL"]);
        check(&["ABORT", "BEGIN", "SELECT 1", "COMMIT", "ABORT", "DISCARD ALL"], &["BEGIN", "SELECT 1", "COMMIT", "DISCARD ALL"]);
        check(&["ABORT; DISCARD ALL"], &["ABORT; DISCARD ALL"]);
        check(&[], &[]);
    }
}
