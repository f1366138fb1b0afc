//! Small parts of sentences that many messages need: numbers with their nouns and verbs, and words as a shell takes them.

/// `1 line`, `3 lines`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The verb that goes with so many things: `was` or `were`.
pub fn verb<'a>(number: u64, one: &'a str, many: &'a str) -> &'a str {
    if number == 1 { one } else { many }
}

/// A word as one would type it: quoted where a shell would see more in it.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_and_verbs_go_with_their_number() {
        let sentence = |number| format!("{} {} left out", count(number, "line"), verb(number, "was", "were"));
        assert_eq!(sentence(1), "1 line was left out");
        assert_eq!(sentence(0), "0 lines were left out");
        assert_eq!(sentence(2), "2 lines were left out");
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
