//! Small parts of sentences that many messages need: numbers with their nouns and verbs, and words as a shell takes them.

/// `1 line`, `3 lines`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The verb that goes with so many things: `was` or `were`.
pub fn verb<'a>(number: u64, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}

/// The name that somebody may have meant who wrote `word`: one that differs by a third of its letters at most, so that of one or two letters nothing is guessed.
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = word.chars().count() / 3;
    let close = known.into_iter().map(|name| (distance(word, name), name)).filter(|(distance, _)| *distance <= most);
    close.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// How many letters have to be changed, added, taken away, or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (at, letter) in one.iter().enumerate() {
        let mut row = vec![at + 1];
        for (to, wanted) in other.iter().enumerate() {
            let changed = rows[at][to] + usize::from(letter != wanted);
            let mut least = changed.min(rows[at][to + 1] + 1).min(row[to] + 1);
            if at > 0 && to > 0 && *letter == other[to - 1] && one[at - 1] == *wanted {
                least = least.min(rows[at - 1][to - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// A word as one would type it: quoted where a shell would see more in it.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Four digits that count, without zeros at the end.
pub fn significant(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    if number == 0.0 {
        return "0".into();
    }
    // Of the number as it is rounded: 0.99996 is 1.
    let rounded: f64 = format!("{number:.3e}").parse().unwrap_or(number);
    let exponent = rounded.abs().log10().floor() as i32;
    if !(-4..7).contains(&exponent) {
        let text = format!("{rounded:.3e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trimmed(digits));
    }
    trimmed(&format!("{number:.*}", usize::try_from(3 - exponent).unwrap_or(0))).to_owned()
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_that_count() {
        for (number, text) in [
            (0.1, "0.1"),
            (0.123456, "0.1235"),
            (0.00012345, "0.0001234"),
            (0.0000123456, "1.235e-5"),
            (12345.678, "12346"),
            (123456789.0, "1.235e8"),
            (1e-9, "1e-9"),
            (0.99996, "1"),
            (99999.6, "100000"),
            (-2.5, "-2.5"),
            (100.0, "100"),
            (0.0, "0"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(significant(number), text);
        }
    }

    #[test]
    fn nouns_and_verbs_go_with_their_number() {
        let sentence = |number| format!("{} {} left out", count(number, "line"), verb(number, "was", "were"));
        assert_eq!(sentence(1), "1 line was left out");
        assert_eq!(sentence(0), "0 lines were left out");
        assert_eq!(sentence(2), "2 lines were left out");
    }

    #[test]
    fn a_slip_of_the_keyboard_is_near_and_another_word_is_not() {
        let known = ["train", "valid", "loss"];
        for (word, meant) in
            [("trian", Some("train")), ("los", Some("loss")), ("vald", Some("valid")), ("losses", Some("loss"))]
        {
            assert_eq!(near(word, known), meant, "{word}");
        }
        assert_eq!(near("test", known), None);
        assert_eq!(near("z", ["a", "b"]), None, "any letter is near to any other");
        assert_eq!(near("", []), None);
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_see_more_in_it() {
        assert_eq!(shell_quoted("/a/b-c.py"), "/a/b-c.py");
        assert_eq!(shell_quoted("--lr=0.1"), "--lr=0.1");
        assert_eq!(shell_quoted(""), "''");
        assert_eq!(shell_quoted("it's two"), r"'it'\''s two'");
        assert_eq!(shell_quoted("$HOME"), "'$HOME'");
    }
}
