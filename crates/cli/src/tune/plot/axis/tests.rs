use super::*;

fn random(count: usize, value: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(3);
    (0..count).map(|_| value(random.f64())).collect()
}

fn axis(values: &[Value]) -> Axis {
    let parameter = Parameter { name: "p".into(), values: values.iter().cloned().map(Some).collect() };
    Axis::of_parameter(&parameter, &(0..values.len()).collect::<Vec<_>>())
}

fn labels(axis: &Axis) -> Vec<&str> {
    axis.marks.iter().map(|mark| mark.label.as_str()).collect()
}

#[test]
fn a_scale_is_logarithmic_where_the_numbers_are_spread_so() {
    for count in [20, 100, 5000] {
        assert!(Scale::of(&random(count, |part| 10.0_f64.powf(-5.0 + 4.0 * part))).is_log(), "log-uniform");
        assert!(!Scale::of(&random(count, |part| part)).is_log(), "uniform");
        assert!(!Scale::of(&random(count, |part| (1.0 + 98.0 * part).floor())).is_log(), "integers to 99");
        // A search that has found the place where it is good, and has looked elsewhere before.
        let mut found = random(count, |part| 0.04 + 0.01 * part);
        found.extend(random(count / 8 + 8, |part| 10.0_f64.powf(-5.0 + 4.0 * part)));
        assert!(Scale::of(&found).is_log(), "found");
    }
    assert!(Scale::of(&[16.0, 32.0, 64.0, 128.0, 256.0]).is_log());
    assert!(!Scale::of(&[0.0, 1e-4, 1e-2]).is_log());
    assert!(!Scale::of(&[-5.0, 1000.0]).is_log());
}

#[test]
fn places_are_on_the_axis_and_in_order() {
    for values in
        [vec![3.0], vec![0.0, 0.0], random(50, |part| part * 7.0 - 3.0), random(50, |part| (9.0 * part).exp())]
    {
        for mode in [ScoreOrder::Min, ScoreOrder::Max] {
            let MetricAxis { axis, .. } = MetricAxis::of("loss", &values, mode);
            assert!(axis.places.iter().all(|place| (0.0..=1.0).contains(place)), "AXIS-1: {:?}", axis.places);
            assert!(!axis.marks.is_empty(), "{values:?}");
            for (at, other) in (0..values.len()).zip(1..values.len()) {
                let (values, places) = ((values[at], values[other]), (axis.places[at], axis.places[other]));
                assert!((values.0 < values.1) <= (places.0 <= places.1), "AXIS-2: {values:?} at {places:?}");
            }
        }
    }
}

#[test]
fn a_few_very_bad_values_do_not_squeeze_the_others() {
    let mut values = random(100, |part| part - 0.5);
    values.extend([1e6, 2e6]);
    let metric = MetricAxis::of("loss", &values, ScoreOrder::Min);
    assert!(metric.beyond >= 2 && metric.beyond < 15, "{}", metric.beyond);
    let places = &metric.axis.places;
    assert!(places[..100].iter().filter(|place| **place > 0.4).count() > 30, "they fill the axis");
    assert_eq!(places[101], places[100], "both stand at its end");
    values.iter_mut().for_each(|value| *value = -*value);
    assert_eq!(MetricAxis::of("gain", &values, ScoreOrder::Max).beyond, metric.beyond);
}

#[test]
fn categories_stand_side_by_side_in_the_order_of_their_values() {
    let texts = ["sgd", "adam", "lion", "adam"].map(|text| Value::Text(text.into()));
    let optimizers = axis(&texts);
    assert_eq!(labels(&optimizers), ["adam", "lion", "sgd"]);
    let cells: Vec<f64> = optimizers.places.iter().map(|place| (place * 3.0).floor()).collect();
    assert_eq!(cells, [2.0, 0.0, 1.0, 0.0]);
    assert_eq!(labels(&axis(&[Value::Bool(true), Value::Bool(false)])), ["False", "True"]);
    let few = axis(&[Value::Float(0.01), Value::Int(0), Value::Float(-1.0), Value::Float(1e-4)]);
    assert_eq!(labels(&few), ["-1", "0", "0.0001", "0.01"], "they would stand on each other");
    let many: Vec<Value> = (0..60).map(|at| Value::Text(format!("c{at:02}"))).collect();
    assert_eq!(axis(&many).marks.len(), 12);
}

#[test]
fn a_trial_without_the_parameter_stands_apart() {
    let numbers = (0..20).map(|at| (at % 2 == 0).then(|| Value::Float(f64::from(at)))).collect();
    let parameter = Parameter { name: "momentum".into(), values: numbers };
    let axis = Axis::of_parameter(&parameter, &(0..20).collect::<Vec<_>>());
    assert_eq!((axis.marks[0].label.as_str(), axis.places[1]), ("not set", 0.0));
    assert!(axis.places.iter().step_by(2).all(|place| *place >= ABSENT));
}

#[test]
fn a_fraction_is_linear_unless_it_spans_decades_near_zero() {
    let accuracy = [vec![0.04; 40], random(60, |part| 0.9 + 0.08 * part)].concat();
    assert!(Scale::of(&accuracy).is_log(), "by its spread alone it would be");
    assert!(!Scale::of_metric(&accuracy).is_log());
    assert!(Scale::of_metric(&random(50, |part| 10.0_f64.powf(-5.0 + 4.9 * part))).is_log(), "a loss near 0");
    assert!(Scale::of_metric(&random(50, |part| 10.0_f64.powf(4.0 * part))).is_log(), "no fraction");
}
