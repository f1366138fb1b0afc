//! Patterns of paths: `*`, `?`, `[a-z]`, `[!a-z]` within a name, `**` over directories.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    No,
    /// A directory below which something may match.
    Leads,
    /// The path matches, or a directory above it does.
    Whole,
}

pub(super) fn is_glob(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

/// Whether a name without directories is what a pattern means.
pub(crate) fn is_like(pattern: &str, name: &str) -> bool {
    match_name(pattern.as_bytes(), name)
}

pub(super) fn match_path(pattern: &[&str], parts: &[&str]) -> Match {
    let hidden = |part: &&str| part.starts_with(['.', '_']);
    match (pattern, parts) {
        ([], rest) => match rest.iter().any(hidden) {
            true => Match::No,
            false => Match::Whole,
        },
        (_, []) => Match::Leads,
        (["**", after @ ..], [first, rest @ ..]) => {
            let here = match_path(after, parts);
            let below = if hidden(first) { Match::No } else { match_path(pattern, rest) };
            here.max(below)
        }
        ([name, after @ ..], [first, rest @ ..]) => {
            let meant = !hidden(first) || name.chars().next() == first.chars().next();
            match meant && match_name(name.as_bytes(), first) {
                true => match_path(after, rest),
                false => Match::No,
            }
        }
    }
}

fn match_name(pattern: &[u8], name: &str) -> bool {
    let Some(first) = pattern.first() else { return name.is_empty() };
    let next = name.chars().next();
    let rest = || &name[next.map_or(0, char::len_utf8)..];
    match first {
        b'*' => match_name(&pattern[1..], name) || (next.is_some() && match_name(pattern, rest())),
        b'?' => next.is_some() && match_name(&pattern[1..], rest()),
        b'[' => match (next, class(&pattern[1..])) {
            (Some(next), Some((accepts, after))) => accepts(next) && match_name(after, rest()),
            // A bracket that is never closed is a bracket.
            (Some('['), None) => match_name(&pattern[1..], rest()),
            _ => false,
        },
        _ => name.as_bytes().first() == Some(first) && match_bytes(pattern, name),
    }
}

/// A character that is not special, which may be several bytes long.
fn match_bytes(pattern: &[u8], name: &str) -> bool {
    let length = name.chars().next().map_or(1, char::len_utf8);
    pattern.len() >= length
        && pattern[..length] == name.as_bytes()[..length]
        && match_name(&pattern[length..], &name[length..])
}

/// What is between brackets, and what follows them.
fn class(pattern: &[u8]) -> Option<(impl Fn(char) -> bool, &[u8])> {
    let negated = pattern.first().is_some_and(|first| *first == b'!' || *first == b'^');
    let begin = usize::from(negated);
    // A bracket that comes first is one of the characters.
    let end = begin + 1 + pattern.get(begin + 1..)?.iter().position(|byte| *byte == b']')?;
    let inside: Vec<char> = std::str::from_utf8(&pattern[begin..end]).ok()?.chars().collect();
    let accepts = move |wanted: char| {
        let mut at = 0;
        let mut found = false;
        while at < inside.len() {
            if at + 2 < inside.len() && inside[at + 1] == '-' {
                found |= (inside[at]..=inside[at + 2]).contains(&wanted);
                at += 3;
            } else {
                found |= inside[at] == wanted;
                at += 1;
            }
        }
        found != negated
    };
    Some((accepts, &pattern[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, path: &str) -> Match {
        match_path(&pattern.split('/').collect::<Vec<_>>(), &path.split('/').collect::<Vec<_>>())
    }

    #[test]
    fn names_and_directories_match() {
        for (pattern, path) in [
            ("*.csv", "a.csv"),
            ("a?c", "aöc"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]x]", "]"),
            ("part-*", "part-1/below/a.csv"),
            ("**/*.csv", "a.csv"),
            ("**/*.csv", "x/y/a.csv"),
            ("x/**", "x/y/a.csv"),
            ("_*", "_a"),
            ("[x", "[x"),
        ] {
            assert_eq!(matched(pattern, path), Match::Whole, "{pattern} {path}");
        }
        for (pattern, path) in
            [("*.csv", ".a.csv"), ("*", "x/_SUCCESS"), ("**/*.csv", ".x/a.csv"), ("[a-c]x", "dx"), ("*.csv", "a.csv2")]
        {
            assert_eq!(matched(pattern, path), Match::No, "{pattern} {path}");
        }
        assert_eq!(matched("a/*/c", "a/b"), Match::Leads);
        assert_eq!(matched("**/c.csv", "a/b"), Match::Leads);
    }
}
