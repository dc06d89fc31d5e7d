//! Xids that had reached a standby before its promotion; the new primary keeps them for all Weirs (`commit_outcome`).

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromotionNumbers {
    /// Timeline begun by the promotion, for which alone the numbers hold. 0: only ordered.
    pub timeline: u32,
    /// Xids below this had arrived before the promotion, and are not assigned again.
    pub reached: u64,
    /// No xid >= this had finished when the standby left recovery; a later commit of such an xid belongs to another transaction.
    pub fresh: u64,
    /// End of the last received transaction by the old primary's clock: milliseconds since 1970.
    pub last_ms: Option<u64>,
}

impl PromotionNumbers {
    /// True if left by a Weir that only ordered the promotion. Earlier numbers prove less, and nothing wrong.
    pub fn is_ordered(&self) -> bool {
        self.timeline == 0
    }

    pub fn show(&self) -> String {
        let PromotionNumbers { timeline, reached, fresh, last_ms } = self;
        let last_ms = last_ms.map_or("-".to_string(), |ms| ms.to_string());
        format!("{timeline}.{reached}.{fresh}.{last_ms}")
    }

    pub fn parse(text: &str) -> Option<PromotionNumbers> {
        let mut parts = text.split('.');
        let (timeline, reached, fresh, last) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let last_ms = if last == "-" { None } else { Some(last.parse().ok()?) };
        let read = PromotionNumbers {
            timeline: timeline.parse().ok()?,
            reached: reached.parse().ok()?,
            fresh: fresh.parse().ok()?,
            last_ms,
        };
        parts.next().is_none().then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for last_ms in [None, Some(1_700_000_000_123)] {
            let numbers = PromotionNumbers { timeline: 5, reached: 1 << 40, fresh: 103, last_ms };
            assert_eq!(PromotionNumbers::parse(&numbers.show()), Some(numbers));
        }
        for wrong in ["", "5", "5.1.2", "5.1.2.-.", "5.1.2.x", "-1.1.2.3", "5.1.2.3.4"] {
            assert_eq!(PromotionNumbers::parse(wrong), None, "{wrong}");
        }
    }
}
