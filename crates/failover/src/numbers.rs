//! The numbers of transactions that had reached a standby before a Weir promoted it. The new primary keeps them for all Weirs (`commit_outcome`).

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromotionNumbers {
    /// The timeline that began with the promotion: on another one they tell nothing. 0: the promotion is only ordered.
    pub timeline: u32,
    /// Those below this one had reached it before: they are not given out again.
    pub reached: u64,
    /// Of those from this one on nothing had ended when it was out of recovery: what ends later is another's.
    pub fresh: u64,
    /// When the last transaction ended of which it had heard, by the clock of the primary of then: milliseconds since 1970.
    pub last_ms: Option<u64>,
}

impl PromotionNumbers {
    /// Left by the Weir that ordered a promotion, for one that goes on in its place. Older ones than the promotion prove less, and nothing wrong.
    pub fn is_ordered(&self) -> bool {
        self.timeline == 0
    }

    /// As a word that can stand in a connection string without quotes.
    pub fn show(&self) -> String {
        let PromotionNumbers { timeline, reached, fresh, last_ms } = self;
        let last_ms = last_ms.map_or("-".to_string(), |ms| ms.to_string());
        format!("{timeline}.{reached}.{fresh}.{last_ms}")
    }

    /// Reads what [`PromotionNumbers::show`] wrote.
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
