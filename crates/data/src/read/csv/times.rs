//! Dates and times as CSV has them: `2024-02-29`, `10:30`, `2024-02-29 10:30:00.25+02:00`.

use arrow_schema::TimeUnit;

/// A point in time. Without a zone, as the clock on some wall has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Since 1970.
    pub seconds: i64,
    pub nanoseconds: i64,
    pub has_zone: bool,
}

impl Moment {
    /// Nothing where the unit is too coarse for it, or 64 bits too few.
    pub fn in_unit(self, unit: TimeUnit) -> Option<i64> {
        let parts = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let length = 1_000_000_000 / parts;
        if self.nanoseconds % length != 0 {
            return None;
        }
        self.seconds.checked_mul(parts)?.checked_add(self.nanoseconds / length)
    }
}

/// A date, with or without a time of day.
pub(super) fn moment(value: &[u8]) -> Option<Moment> {
    let (day, rest) = value.split_at_checked(10)?;
    let midnight = i64::from(date(day)?) * 86_400;
    let [separator, time @ ..] = rest else {
        return Some(Moment { seconds: midnight, nanoseconds: 0, has_zone: false });
    };
    if !matches!(separator, b'T' | b' ') {
        return None;
    }
    let (time, offset) = match time {
        [time @ .., b'Z'] => (time, Some(0)),
        time => match time.iter().rposition(|byte| matches!(byte, b'+' | b'-')) {
            Some(at) => (&time[..at], Some(zone(&time[at..])?)),
            None => (time, None),
        },
    };
    let (time, nanoseconds) = match time.split_at_checked(8) {
        Some((time, [b'.', fraction @ ..])) => (time, parts(fraction)?),
        Some((time, [])) => (time, 0),
        Some(_) => return None,
        None => (time, 0),
    };
    let of_day = match time.len() {
        2 => digits(time, 24)? * 3_600,
        _ => time_of_day(time)?,
    };
    let seconds = midnight + i64::from(of_day) - offset.unwrap_or(0);
    Some(Moment { seconds, nanoseconds, has_zone: offset.is_some() })
}

/// Seconds since midnight: `hh:mm`, `hh:mm:ss`.
pub(super) fn time_of_day(value: &[u8]) -> Option<i32> {
    match value {
        [h1, h2, b':', m1, m2] => Some(digits(&[*h1, *h2], 24)? * 3_600 + digits(&[*m1, *m2], 60)? * 60),
        [minutes @ .., b':', s1, s2] if minutes.len() == 5 => Some(time_of_day(minutes)? + digits(&[*s1, *s2], 60)?),
        _ => None,
    }
}

/// Days since 1970, of `yyyy-mm-dd`.
pub(super) fn date(value: &[u8]) -> Option<i32> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = value else { return None };
    let (year, month) = (digits(&[*y1, *y2, *y3, *y4], 10_000)?, digits(&[*m1, *m2], 13)?);
    let day = digits(&[*d1, *d2], 32)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        0 => return None,
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if day == 0 || day > length {
        return None;
    }
    // A year that begins in March has its leap day at its end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(before + (153 * month + 2) / 5 + day - 1 - 719_468)
}

/// Seconds east of Greenwich: `+hh`, `+hhmm`, `+hh:mm`.
fn zone(value: &[u8]) -> Option<i64> {
    let (hours, minutes) = match &value[1..] {
        [h1, h2] => (digits(&[*h1, *h2], 24)?, 0),
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => (digits(&[*h1, *h2], 24)?, digits(&[*m1, *m2], 60)?),
        _ => return None,
    };
    let seconds = i64::from(hours * 3_600 + minutes * 60);
    Some(if value[0] == b'-' { -seconds } else { seconds })
}

/// Nanoseconds of up to nine digits after the point.
fn parts(fraction: &[u8]) -> Option<i64> {
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let mut number = 0;
    for place in 0..9 {
        let digit = fraction.get(place).unwrap_or(&b'0');
        number = number * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    Some(number)
}

/// A number of these digits, if it is below `end`.
fn digits(value: &[u8], end: i32) -> Option<i32> {
    let digit = |number: i32, digit: &u8| digit.is_ascii_digit().then(|| number * 10 + i32::from(digit - b'0'));
    value.iter().try_fold(0, digit).filter(|number| *number < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("0001-01-01", -719_162),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!(date(text.as_bytes()), Some(days), "{text}");
        }
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2020-00-01",
            "2020-13-01",
            "2020-01-00",
            "2020-04-31",
            "2020-1-01",
            "20-01-0001",
        ] {
            assert_eq!(date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn moments_with_and_without_zones() {
        let at =
            |text: &str| moment(text.as_bytes()).map(|moment| (moment.seconds, moment.nanoseconds, moment.has_zone));
        assert_eq!(at("1970-01-02"), Some((86_400, 0, false)));
        assert_eq!(at("1970-01-01T01"), Some((3_600, 0, false)));
        assert_eq!(at("1970-01-01 00:01"), Some((60, 0, false)));
        assert_eq!(at("1970-01-01 00:00:01.25"), Some((1, 250_000_000, false)));
        assert_eq!(at("1970-01-01T02:00:00+02:00"), Some((0, 0, true)));
        assert_eq!(at("1970-01-01T02:00:00.5-0130"), Some((12_600, 500_000_000, true)));
        assert_eq!(at("1970-01-01T02:00Z"), Some((7_200, 0, true)));
        for text in [
            "1970-01-01T",
            "1970-01-01x00:00",
            "1970-01-01 24:00",
            "1970-01-01 00:00:60",
            "1970-01-01 00:00:00.",
            "1970-01-01 00:00:00.1234567890",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
        assert_eq!(moment(b"9999-12-31 00:00:00").and_then(|moment| moment.in_unit(TimeUnit::Nanosecond)), None);
        assert_eq!(
            moment(b"1969-12-31 23:59:59.5").and_then(|moment| moment.in_unit(TimeUnit::Millisecond)),
            Some(-500)
        );
        assert_eq!(moment(b"1970-01-01 00:00:00.5").and_then(|moment| moment.in_unit(TimeUnit::Second)), None);
    }
}
