//! Once a second: samples for the curves, and overviews for open pages.

use super::dashboard::Dashboard;
use super::overview_streams::event;
use crate::control::control_context::ControlContext;
use crate::runtime::shared::ProxyShutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

const PERIOD: Duration = Duration::from_secs(1);

/// Takes samples for the curves, and sends overviews to open pages, while the dashboard is on. Cancel safe.
pub async fn pulse(c: Rc<ControlContext>, dashboard: Arc<Dashboard>) {
    let mut beats = tokio::time::interval(PERIOD);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let is_on = c.shared.config.load().admin.dashboard.is_on;
        c.shared.log.recent.keep(is_on);
        if !is_on || c.shared.is_handed_over() || c.shared.stop_mode() > ProxyShutdown::Fast {
            dashboard.streams.end_all();
            continue;
        }
        if dashboard.streams.keep(|login| dashboard.is_known(login)) {
            // A fault is logged by the panic hook; the next second makes another one.
            if let Ok(overview) = dashboard.job(|own| own.traffic.overview(&own.shared)).await {
                dashboard.streams.send(&event(&overview));
            }
        } else if dashboard.traffic.is_due(&c.shared) {
            let _ = dashboard.job(|own| own.traffic.note(&own.shared)).await;
        }
    }
}
