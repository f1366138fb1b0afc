//! The run's metrics out of every rank's: rank 0's, with the chosen keys aggregated over the ranks.

use std::collections::BTreeMap;

use carril_types::{Metrics, Reduce, Value};

/// `None` where rank 0 made no such report. A key that is not a number on some rank is left as rank 0 has it.
pub fn reduce(by_rank: &[Option<&Metrics>], rules: &BTreeMap<String, Reduce>) -> Option<Metrics> {
    let mut metrics = (*by_rank.first()?)?.clone();
    for (key, rule) in rules {
        let values: Option<Vec<f64>> =
            by_rank.iter().flatten().filter_map(|of_rank| of_rank.get(key)).map(Value::as_f64).collect();
        let Some(values) = values.filter(|values| !values.is_empty()) else { continue };
        let sum: f64 = values.iter().sum();
        let reduced = match rule {
            Reduce::Mean => sum / values.len() as f64,
            Reduce::Sum => sum,
            Reduce::Min => extreme(&values, f64::min),
            Reduce::Max => extreme(&values, f64::max),
        };
        metrics.set(key, Value::Float(reduced));
    }
    Some(metrics)
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
