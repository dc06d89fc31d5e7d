//! A statement that waits for the end of a look at the database, and then is looked at again.
//!
//! Definitions make facts unknown for a moment: the defaults of transactions, the columns and indexes of spread tables, the code that may read them. A
//! look tells them again. A session without a server connection waits in its checkout, as for the engine. One that has a connection keeps it, and its
//! message waits for the look as for an answer; a cancel request does not end that.

use crate::checkout;
use crate::context::Context;
use crate::flow::{ConnRequirement, MessageFlow};
use crate::plan::MessagePlan;
use crate::routing::RouteClass;
use crate::session::{IDLE, Session};
use crate::sharding::engine_standing::{self, ENGINE_WAIT};
use crate::sharding::known_sharding::EngineLack;
use crate::sharding::shard_target::{BoundStatements, LOOK, LookWait};
use crate::sharding::write_steps;
use crate::{participants, timing};
use std::time::Duration;
use weir_catalog::rule::RoutingRule;

/// Has the client's message wait until the lack is over. An error tells that it has waited for long enough.
#[cold]
pub fn begin(s: &mut Session, w: &Context, lack: EngineLack) -> MessagePlan {
    let now_s = (w.now_ms() / 1000) as u8;
    let wait = LookWait { lack, since_s: s.sharding.look_wait.map_or(now_s, |wait| wait.since_s) };
    if is_over(wait, now_s) {
        write_steps::abandon(s);
        return MessagePlan::Refused(engine_standing::not_ready(s, lack));
    }
    s.sharding.look_wait = Some(wait);
    if s.transaction() == IDLE && s.sharding.bound() == BoundStatements::Nothing {
        checkout::leave_reader(s, w);
    }
    if s.has_server() || participants::has_others(s) {
        s.account.known.await_look(s.waiter(w));
        timing::asked(s, w);
        s.host.wake_at(w.now() + ENGINE_WAIT);
        // A look that ended before the session stood in the list wakes nobody.
        return MessagePlan::Later(if engine_standing::lacks(s, w, lack) { MessageFlow::Hold } else { checkout::again(s) });
    }
    let class = RouteClass::primary(RoutingRule::AllShards);
    let (shard, is_read, ends_with_primary) = (LOOK, false, false);
    MessagePlan::Later(MessageFlow::Need(ConnRequirement { class, shard, is_read, wish: None, conn: None, ends_with_primary }))
}

fn is_over(wait: LookWait, now_s: u8) -> bool {
    Duration::from_secs(now_s.wrapping_sub(wait.since_s).into()) >= ENGINE_WAIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_after_ten_seconds_of_a_clock_that_wraps() {
        for (since_s, now_s, is_over) in [(7, 7, false), (7, 16, false), (7, 17, true), (250, 3, false), (250, 4, true)] {
            let wait = LookWait { lack: EngineLack::DefaultsUnread, since_s };
            assert_eq!(super::is_over(wait, now_s), is_over, "{since_s} {now_s}");
        }
    }
}
