//! What a run or a search that resumes was asked for before and is asked for now, and in what the two differ.
//!
//! The config is that of `params.json`, the rest stands in `run.json`. What Python alone understands is known by its `repr`, as the
//! file has it: the address in it says nothing, and the order of a set neither.

use std::collections::BTreeMap;
use std::path::Path;

use carril_types::{Metrics, Value, write_json};

use crate::experiment_record::ExperimentRecord;
use crate::python_json::parse_object;
use crate::regular;
use crate::run_directory::RunRecord;

/// So many are listed; of the others only the number is.
const LISTED: usize = 8;
const LONGEST: usize = 60;

/// In what two requests for one run or search differ, each in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Of the config that the function is given, or of the space that configs come from.
    pub config: Vec<String>,
    /// Of the number of workers and the data sets; of a search what it is about, and who searches.
    pub others: Vec<String>,
}

impl Differences {
    /// What is asked for now, beside what the record and `params.json` of a run's directory say.
    pub fn find(
        directory: &Path,
        before: &RunRecord,
        config: &Value,
        num_workers: u32,
        data: &BTreeMap<String, String>,
    ) -> Self {
        let mut others = Vec::new();
        if let Some(earlier) = before.num_workers.filter(|earlier| *earlier != num_workers) {
            others.push(format!("`num_workers` was {earlier} and is {num_workers}"));
        }
        if let Some(earlier) = &before.data {
            others.extend(differing(earlier, data, "the data set "));
        }
        Self { config: config_differences(directory, config).unwrap_or_default(), others }
    }

    /// Of two searches. More samples are no difference: the search has more trials.
    pub fn of_searches(before: &ExperimentRecord, now: &ExperimentRecord) -> Self {
        let config = match (&before.space, &now.space) {
            (Some(before), Some(now)) => {
                differing_by(before, now, "", |_, left, right| left == right || alike(left, right))
            }
            _ => Vec::new(),
        };
        let mut others = Vec::new();
        let mut compare = |name: &str, before: Option<&String>, now: Option<&String>| {
            if before != now {
                let words = |value: Option<&String>| value.map_or("not given".to_owned(), |value| format!("`{value}`"));
                others.push(format!("{name} was {} and is {}", words(before), words(now)));
            }
        };
        compare("the trainable", Some(&before.trainable), Some(&now.trainable));
        compare("`metric`", before.metric.as_ref(), now.metric.as_ref());
        compare("`mode`", before.mode.as_ref(), now.mode.as_ref());
        if before.searcher_kind.is_some() {
            compare("the searcher", before.searcher_kind.as_ref(), now.searcher_kind.as_ref());
        }
        compare("the scheduler", Some(&before.scheduler), Some(&now.scheduler));
        let fewer = now.num_samples.filter(|now| before.num_samples.is_none_or(|before| *now < before));
        if let Some(fewer) = fewer {
            let earlier = before.num_samples.map_or("without end".to_owned(), |samples| samples.to_string());
            others.push(format!("`num_samples` was {earlier} and is {fewer}"));
        }
        Self { config, others }
    }

    pub fn is_empty(&self) -> bool {
        self.config.is_empty() && self.others.is_empty()
    }

    /// All of them, in one line.
    pub fn describe(&self) -> String {
        listed(&[self.config.as_slice(), self.others.as_slice()].concat())
    }
}

fn listed(all: &[String]) -> String {
    let more = all.len().saturating_sub(LISTED);
    let shown = all[..all.len() - more].join("; ");
    if more > 0 { format!("{shown}; and {more} more") } else { shown }
}

/// `None` where the file is not there or cannot be read: what is not known is not compared.
fn config_differences(directory: &Path, config: &Value) -> Option<Vec<String>> {
    let before = parse_object(&regular::read_text(&directory.join("params.json")).ok()?)?;
    // Through the same text, so that a number is the same number.
    let mut text = String::new();
    write_params(&mut text, config);
    let now = parse_object(&text)?;
    let mut objects = Vec::new();
    if let Value::Map(metrics) = config {
        metrics.for_each_flat(&mut |name, value| objects.extend(contains_object(value).then(|| name.to_owned())));
    }
    let (before, now) = (flat(&before), flat(&now));
    let same = |name: &str, left: &str, right: &str| {
        left == right || (objects.iter().any(|object| object == name) && alike(left, right))
    };
    let differing = differing_by(&before, &now, "", same);
    Some(differing)
}

/// What `params.json` holds: an object, also where the config is none.
pub(crate) fn write_params(out: &mut String, config: &Value) {
    match config {
        Value::Map(metrics) => write_json(out, metrics),
        other => write_json(out, &Metrics(vec![("config".into(), other.clone())])),
    }
}

fn contains_object(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::List(items) => items.iter().any(contains_object),
        Value::Map(metrics) => metrics.0.iter().any(|(_, value)| contains_object(value)),
        _ => false,
    }
}

/// Each value under its flattened name, as JSON.
fn flat(metrics: &Metrics) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    metrics.for_each_flat(&mut |name, value| {
        let mut text = String::new();
        write_json(&mut text, &Metrics(vec![(String::new(), value.clone())]));
        // `{"": 1}` without what surrounds the value.
        values.insert(name.to_owned(), text[5..text.len() - 1].to_owned());
    });
    values
}

fn differing(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>, what: &str) -> Vec<String> {
    differing_by(before, now, what, |_, left, right| left == right)
}

fn differing_by(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    what: &str,
    same: impl Fn(&str, &str, &str) -> bool,
) -> Vec<String> {
    let mut all = Vec::new();
    for (name, earlier) in before {
        match now.get(name) {
            Some(value) if same(name, earlier, value) => {}
            Some(value) => {
                let (earlier, value) = shortened(earlier, value);
                all.push(format!("{what}`{name}` was {earlier} and is {value}"));
            }
            None => all.push(format!("{what}`{name}` was {} and is left out", clipped(earlier, 0))),
        }
    }
    for (name, value) in now.iter().filter(|(name, _)| !before.contains_key(*name)) {
        all.push(format!("{what}`{name}` is new: {}", clipped(value, 0)));
    }
    all
}

/// Both from a place at which they differ, so that the difference is in sight.
fn shortened(left: &str, right: &str) -> (String, String) {
    let common = left.chars().zip(right.chars()).take_while(|(left, right)| left == right).count();
    let begin = if left.chars().count().max(right.chars().count()) <= LONGEST { 0 } else { common.saturating_sub(10) };
    (clipped(left, begin), clipped(right, begin))
}

fn clipped(text: &str, begin: usize) -> String {
    let count = text.chars().count();
    let mut shown: String = text.chars().skip(begin).take(LONGEST).collect();
    if begin > 0 {
        shown.insert(0, '…');
    }
    if count > begin + LONGEST {
        shown.push('…');
    }
    shown
}

/// Whether two texts with a `repr` in them can be of equal objects in two processes.
fn alike(left: &str, right: &str) -> bool {
    let letters = |text: &str| {
        let mut letters: Vec<char> = without_addresses(text).chars().collect();
        letters.sort_unstable();
        letters
    };
    let is_set = |text: &str| text.contains("{") && !text.contains(": ");
    without_addresses(left) == without_addresses(right) || (is_set(left) && letters(left) == letters(right))
}

fn without_addresses(text: &str) -> String {
    let mut parts = text.split(" at 0x");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_hexdigit()));
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::fs;

    use carril_types::Object;

    use super::*;

    fn object(repr: &str) -> Value {
        Value::Object(Object { repr: repr.into(), pickle: Vec::new() })
    }

    fn config(entries: &[(&str, Value)]) -> Value {
        Value::Map(Metrics(entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()))
    }

    fn between(before: &Value, now: &Value) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let mut text = String::new();
        write_params(&mut text, before);
        fs::write(directory.path().join("params.json"), text).unwrap();
        config_differences(directory.path(), now).unwrap()
    }

    #[test]
    fn a_config_differs_by_what_was_changed_added_and_left_out() {
        let inner = |width| config(&[("width", Value::Int(width))]);
        let before = config(&[("lr", Value::Float(0.1)), ("model", inner(8)), ("old", Value::Bool(true))]);
        let now = config(&[("lr", Value::Float(0.2)), ("model", inner(16)), ("new", Value::None)]);
        let all = between(&before, &now);
        let expected = [
            "`lr` was 0.1 and is 0.2",
            "`model/width` was 8 and is 16",
            "`old` was true and is left out",
            "`new` is new: null",
        ];
        assert_eq!(all, expected);
        assert_eq!(between(&before, &before), [""; 0]);
    }

    #[test]
    fn every_value_equals_itself() {
        let all = config(&[
            ("nan", Value::Float(f64::NAN)),
            ("infinite", Value::Float(f64::INFINITY)),
            ("tenth", Value::Float(0.1 + 0.2)),
            ("big", Value::BigInt("123456789012345678901234567890".into())),
            ("text", Value::Text("a\n\"b\" \u{1}é".into())),
            ("list", Value::List(vec![Value::Int(1), object("<f at 0x7f00>")])),
            ("none", Value::None),
            ("empty", config(&[])),
        ]);
        assert_eq!(between(&all, &all), [""; 0]);
        assert_eq!(between(&Value::None, &Value::None), [""; 0]);
        assert_eq!(between(&Value::Int(3), &Value::Int(4)), ["`config` was 3 and is 4"]);
    }

    #[test]
    fn an_object_is_known_by_its_text_without_its_address() {
        let of = |repr: &str| config(&[("thing", object(repr))]);
        assert_eq!(between(&of("<function f at 0x7f01ab>"), &of("<function f at 0x55ff>")), [""; 0]);
        assert_eq!(between(&of("{'a', 'b', 'c'}"), &of("{'c', 'a', 'b'}")), [""; 0]);
        assert_eq!(between(&of("<function f at 0x1>"), &of("<function g at 0x1>")).len(), 1);
        assert_eq!(between(&of("{'a', 'b'}"), &of("{'a', 'd'}")).len(), 1);
        // A text of the user's is compared as it is.
        let text = |text: &str| config(&[("thing", Value::Text(text.into()))]);
        assert_eq!(between(&text("look at 0x1"), &text("look at 0x2")).len(), 1);
    }

    #[test]
    fn a_long_value_is_shown_where_it_differs() {
        let of = |end: &str| config(&[("text", Value::Text("x".repeat(500) + end))]);
        let all = between(&of("first"), &of("second"));
        assert!(all[0].contains("first") && all[0].contains("second") && all[0].len() < 200, "{all:?}");
        let many = (0..100).map(|at| (format!("k{at}"), Value::Int(0))).collect();
        let all = Differences { config: between(&config(&[]), &Value::Map(Metrics(many))), others: Vec::new() };
        assert!(all.describe().ends_with("; and 92 more"), "{}", all.describe());
    }

    #[test]
    fn what_cannot_be_read_is_not_compared() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(config_differences(directory.path(), &Value::None), None);
        fs::write(directory.path().join("params.json"), "{\"lr\": ").unwrap();
        assert_eq!(config_differences(directory.path(), &Value::None), None);
    }
}
