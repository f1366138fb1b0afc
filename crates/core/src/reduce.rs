//! The run's metrics out of every rank's: rank 0's, with the chosen keys aggregated over the ranks.

use std::collections::BTreeMap;

use carril_types::{Metrics, Reduce, Value};

/// `None` where rank 0 made no such report. A key that is not a number on some rank is left as rank 0 has it.
pub fn reduce(by_rank: &[Option<&Metrics>], rules: &BTreeMap<String, Reduce>) -> Option<Metrics> {
    let mut metrics = (*by_rank.first()?)?.clone();
    for (key, rule) in rules {
        let values: Vec<&Value> = by_rank.iter().flatten().filter_map(|of_rank| of_rank.get(key)).collect();
        if let Some(reduced) = exactly(&values, *rule).or_else(|| approximately(&values, *rule)) {
            metrics.set(key, reduced);
        }
    }
    Some(metrics)
}

/// Whole numbers stay whole, however large: a count of rows is not a fraction.
fn exactly(values: &[&Value], rule: Reduce) -> Option<Value> {
    let whole = |value: &&Value| if let Value::Int(whole) = value { Some(*whole) } else { None };
    let values: Vec<i64> = values.iter().map(whole).collect::<Option<_>>()?;
    let reduced = match rule {
        Reduce::Mean => None,
        Reduce::Sum => values.into_iter().map(Some).reduce(|sum, value| sum?.checked_add(value?)).flatten(),
        Reduce::Min => values.into_iter().min(),
        Reduce::Max => values.into_iter().max(),
    };
    reduced.map(Value::Int)
}

fn approximately(values: &[&Value], rule: Reduce) -> Option<Value> {
    let values: Vec<f64> = values.iter().map(|value| value.as_f64()).collect::<Option<_>>()?;
    if values.is_empty() {
        return None;
    }
    let sum: f64 = values.iter().sum();
    Some(Value::Float(match rule {
        Reduce::Mean => sum / values.len() as f64,
        Reduce::Sum => sum,
        Reduce::Min => extreme(&values, f64::min),
        Reduce::Max => extreme(&values, f64::max),
    }))
}

/// NaN on one rank is news, not something to drop as `f64::min` would.
fn extreme(values: &[f64], pick: fn(f64, f64) -> f64) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    values.iter().copied().reduce(pick).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(value: f64) -> Metrics {
        Metrics(vec![("loss".into(), Value::Float(value)), ("epoch".into(), Value::Int(1))])
    }

    fn reduced(values: &[f64], rule: Reduce) -> f64 {
        let ranks: Vec<Metrics> = values.iter().copied().map(loss).collect();
        let by_rank: Vec<Option<&Metrics>> = ranks.iter().map(Some).collect();
        let metrics = reduce(&by_rank, &BTreeMap::from([("loss".to_owned(), rule)])).unwrap();
        assert_eq!(metrics.get("epoch"), Some(&Value::Int(1)), "what has no rule stays rank 0's");
        metrics.get("loss").unwrap().as_f64().unwrap()
    }

    #[test]
    fn each_rule_does_its_arithmetic() {
        assert_eq!(reduced(&[1.0, 2.0, 6.0], Reduce::Mean), 3.0);
        assert_eq!(reduced(&[1.0, 2.0, 6.0], Reduce::Sum), 9.0);
        assert_eq!(reduced(&[1.0, -2.0, 6.0], Reduce::Min), -2.0);
        assert_eq!(reduced(&[1.0, 2.0, 6.0], Reduce::Max), 6.0);
    }

    #[test]
    fn whole_numbers_stay_whole() {
        let whole = |values: &[i64], rule| {
            let ranks: Vec<Metrics> =
                values.iter().map(|value| Metrics(vec![("n".into(), Value::Int(*value))])).collect();
            let by_rank: Vec<Option<&Metrics>> = ranks.iter().map(Some).collect();
            reduce(&by_rank, &BTreeMap::from([("n".to_owned(), rule)])).unwrap().get("n").unwrap().clone()
        };
        assert_eq!(whole(&[3, 4], Reduce::Sum), Value::Int(7));
        assert_eq!(whole(&[1 << 60, (1 << 60) + 1], Reduce::Max), Value::Int((1 << 60) + 1));
        assert_eq!(whole(&[1 << 60, (1 << 60) + 1], Reduce::Min), Value::Int(1 << 60));
        assert_eq!(whole(&[3, 4], Reduce::Mean), Value::Float(3.5));
        assert_eq!(whole(&[i64::MAX, 1], Reduce::Sum), Value::Float(i64::MAX as f64 + 1.0));
    }

    #[test]
    fn nan_on_one_rank_is_not_hidden() {
        for rule in [Reduce::Mean, Reduce::Sum, Reduce::Min, Reduce::Max] {
            assert!(reduced(&[1.0, f64::NAN], rule).is_nan());
        }
    }

    #[test]
    fn without_rank_zero_there_is_no_value_of_the_run() {
        assert_eq!(reduce(&[None, Some(&loss(1.0))], &BTreeMap::new()), None);
    }
}
