//! Numbers, values and times in the form for people.

use carril_store::{Experiment, Trial, TrialState, UNFINISHED};
use carril_types::Value;
pub use carril_types::significant;

/// A text longer than this is cut in a cell.
const LONGEST: usize = 28;

/// A value in a cell or a label.
pub fn short(value: &Value) -> String {
    match value {
        Value::None => "None".into(),
        Value::Bool(flag) => if *flag { "True" } else { "False" }.into(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => significant(*number),
        Value::BigInt(digits) => digits.clone(),
        Value::Text(text) => cut(text, LONGEST),
        Value::Object(object) => cut(&object.repr, LONGEST),
        Value::List(_) | Value::Map(_) => {
            let mut text = String::new();
            carril_store::write_csv_cell(&mut text, value);
            cut(&text, LONGEST)
        }
    }
}

/// The first line, and of that as much as fits.
pub fn cut(text: &str, longest: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= longest {
        return line.to_owned();
    }
    line.chars().take(longest - 1).chain(['…']).collect()
}

pub fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds as u64;
    match whole {
        0..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        3600..86400 => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {:02} h", whole / 86400, whole % 86400 / 3600),
    }
}

/// The state of a trial in a word; what has not ended when the experiment has is unfinished.
pub fn state_word(trial: &Trial, is_live: bool) -> &'static str {
    if is_live || trial.state.is_over() { trial.state.word() } else { UNFINISHED }
}

/// Why a trial is in its state. What it waited for when its experiment was cut off is not why it has not ended.
pub fn reason_of<'a>(experiment: &'a Experiment, trial: &'a Trial, is_live: bool) -> &'a str {
    match (is_live || trial.state.is_over(), experiment.summary.reason.as_str()) {
        (true, _) => &trial.reason,
        (false, "") => "its head was lost",
        (false, reason) => reason,
    }
}

/// The same in a sentence: `is running`, `failed`.
pub fn stands(trial: &Trial, is_live: bool) -> String {
    match trial.state {
        TrialState::Error => "failed".to_owned(),
        _ => format!("is {}", state_word(trial, is_live)),
    }
}

/// How many trials are in which state, the most first.
pub fn counts(experiment: &Experiment, is_live: bool) -> Vec<(&'static str, usize)> {
    let mut counts: Vec<(&'static str, usize)> = Vec::new();
    for trial in &experiment.trials {
        let word = state_word(trial, is_live);
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    counts.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), *word));
    counts
}

/// `17 terminated, 2 error`
pub fn counted(experiment: &Experiment, is_live: bool) -> String {
    let counts = counts(experiment, is_live);
    let parts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    if parts.is_empty() { "no trials".into() } else { parts.join(", ") }
}

pub fn trials(count: usize) -> String {
    if count == 1 { "1 trial".into() } else { format!("{count} trials") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_two_units() {
        for (seconds, text) in
            [(0.04, "0.0 s"), (59.94, "59.9 s"), (61.0, "1 min 01 s"), (7500.0, "2 h 05 min"), (90_000.0, "1 d 01 h")]
        {
            assert_eq!(duration(seconds), text);
        }
    }
}
