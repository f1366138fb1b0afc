//! Which type a column has: the first of those that read every value of it, as pyarrow tries them.

use std::ops::BitAnd;

use arrow_schema::{DataType, TimeUnit};

use super::times::{date, moment, time_of_day};
use super::values::{Nulls, boolean, float, integer, trim};

/// The types that read the same values, in the order in which they are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u16);

impl Kinds {
    const NULL: Self = Self(1);
    const INTEGER: Self = Self(1 << 1);
    const BOOLEAN: Self = Self(1 << 2);
    const DATE: Self = Self(1 << 3);
    const TIME: Self = Self(1 << 4);
    const SECONDS: Self = Self(1 << 5);
    const NANOSECONDS: Self = Self(1 << 6);
    const SECONDS_UTC: Self = Self(1 << 7);
    const NANOSECONDS_UTC: Self = Self(1 << 8);
    const FLOAT: Self = Self(1 << 9);
    pub const TEXT: Self = Self(1 << 10);
    /// What reads nothing yet, and what is null.
    pub const ALL: Self = Self((1 << 11) - 1);

    fn and_text(self) -> Self {
        Self(self.0 | Self::TEXT.0)
    }

    fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }

    fn only_if(self, holds: bool) -> u16 {
        if holds { self.0 } else { 0 }
    }

    /// Whether no value was seen.
    pub fn is_unknown(self) -> bool {
        self.has(Self::NULL)
    }

    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>, nulls: &Nulls) -> Self {
        let mut all = Self::ALL;
        for value in values {
            all = all & Self::of_one(value, nulls);
            if all == Self::TEXT {
                break;
            }
        }
        all
    }

    fn of_one(value: &[u8], nulls: &Nulls) -> Self {
        if nulls.has(value) {
            return Self::ALL;
        }
        if integer(value).is_some() {
            return Self(Self::INTEGER.0 | Self::FLOAT.0 | Self::BOOLEAN.only_if(boolean(value).is_some())).and_text();
        }
        if boolean(value).is_some() {
            return Self::BOOLEAN.and_text();
        }
        if float(value).is_some() {
            return Self::FLOAT.and_text();
        }
        let value = trim(value);
        if time_of_day(value).is_some() {
            return Self::TIME.and_text();
        }
        let Some(moment) = moment(value) else { return Self::TEXT };
        let (seconds, nanoseconds) = match moment.has_zone {
            true => (Self::SECONDS_UTC, Self::NANOSECONDS_UTC),
            false => (Self::SECONDS, Self::NANOSECONDS),
        };
        let fits = |unit| moment.in_unit(unit).is_some();
        // With digits after the point it is meant to be fine, whatever they are.
        let seconds = seconds.only_if(fits(TimeUnit::Second) && !value.contains(&b'.'));
        let nanoseconds = nanoseconds.only_if(fits(TimeUnit::Nanosecond));
        Self(Self::DATE.only_if(date(value).is_some()) | seconds | nanoseconds).and_text()
    }

    pub fn data_type(self) -> DataType {
        let utc = || Some("UTC".into());
        let types: [(Self, DataType); 10] = [
            (Self::NULL, DataType::Null),
            (Self::INTEGER, DataType::Int64),
            (Self::BOOLEAN, DataType::Boolean),
            (Self::DATE, DataType::Date32),
            (Self::TIME, DataType::Time32(TimeUnit::Second)),
            (Self::SECONDS, DataType::Timestamp(TimeUnit::Second, None)),
            (Self::NANOSECONDS, DataType::Timestamp(TimeUnit::Nanosecond, None)),
            (Self::SECONDS_UTC, DataType::Timestamp(TimeUnit::Second, utc())),
            (Self::NANOSECONDS_UTC, DataType::Timestamp(TimeUnit::Nanosecond, utc())),
            (Self::FLOAT, DataType::Float64),
        ];
        let first = types.into_iter().find(|(kind, _)| self.has(*kind));
        first.map_or(DataType::Utf8, |(_, kind)| kind)
    }
}

/// What reads the values of both.
impl BitAnd for Kinds {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
