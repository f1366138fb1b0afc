//! A space as those see it who learn from results: a list of parameters, each a place in the unit interval or an option.
//!
//! SPACE-4: a parameter of an option that was not chosen is absent, and nothing is learnt about it.
//!
//! Parameters are numbered in the order of a walk through the tree, all options of a choice included.

use carril_types::{Metrics, Value};
use serde::{Deserialize, Serialize};

use super::node::{config_of, unresolved_value};
use super::{Domain, Node, SpaceError};
use crate::tune::random::Rng;

/// One parameter in one config.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Coordinate {
    Absent,
    /// Between 0 and 1.
    Number(#[serde(with = "carril_types::exact")] f64),
    Option(usize),
}

/// A config: one coordinate for each parameter.
pub(crate) type Point = Vec<Coordinate>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Number,
    /// Of so many options.
    Choice(usize),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parameters {
    space: Node,
    kinds: Vec<Kind>,
}

impl Parameters {
    pub(crate) fn new(space: Node) -> Result<Self, SpaceError> {
        if !matches!(space, Node::Map(_)) {
            return Err(SpaceError::NotAMap);
        }
        if let Some(path) = space.path_of_grid() {
            return Err(SpaceError::Grid { path });
        }
        let mut kinds = Vec::new();
        collect(&space, &mut kinds);
        Ok(Self { space, kinds })
    }

    pub(crate) fn space(&self) -> &Node {
        &self.space
    }

    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// A config made of coordinates that `choose` gives for each parameter that is present, and the same coordinates as the
    /// config has them: a number that is rounded lies in the middle of what is rounded to it.
    pub(crate) fn make(&self, mut choose: impl FnMut(usize, Kind) -> Coordinate) -> (Point, Metrics) {
        let mut point = vec![Coordinate::Absent; self.kinds.len()];
        let value = make(&self.space, &mut 0, &mut point, &mut choose);
        (point, config_of(value))
    }

    /// Every parameter drawn as the user asked.
    pub(crate) fn draw(&self, rng: &mut Rng) -> (Point, Metrics) {
        self.make(|_, kind| kind.draw(rng))
    }

    /// The coordinates of a config, as far as it has the space's shape.
    pub(crate) fn read(&self, config: &Metrics) -> Point {
        let mut point = vec![Coordinate::Absent; self.kinds.len()];
        read(&self.space, &Value::Map(config.clone()), &mut 0, &mut point);
        point
    }
}

impl Kind {
    /// As the user asked: the unit interval is made so that this is uniform there.
    pub(crate) fn draw(self, rng: &mut Rng) -> Coordinate {
        match self {
            Kind::Number => Coordinate::Number(rng.f64()),
            Kind::Choice(options) => Coordinate::Option(rng.index(options)),
        }
    }
}

fn collect(node: &Node, kinds: &mut Vec<Kind>) {
    match node {
        Node::Domain(Domain::Choice(options)) => {
            kinds.push(Kind::Choice(options.len()));
            options.iter().for_each(|option| collect(option, kinds));
        }
        Node::Domain(_) => kinds.push(Kind::Number),
        Node::Map(items) => items.iter().for_each(|(_, node)| collect(node, kinds)),
        Node::List(items) => items.iter().for_each(|node| collect(node, kinds)),
        Node::Constant(_) | Node::Grid(_) | Node::Unresolved(_) => {}
    }
}

fn count(node: &Node) -> usize {
    let mut kinds = Vec::new();
    collect(node, &mut kinds);
    kinds.len()
}

fn make(node: &Node, next: &mut usize, point: &mut Point, choose: &mut impl FnMut(usize, Kind) -> Coordinate) -> Value {
    match node {
        Node::Constant(value) => value.clone(),
        Node::Unresolved(index) => unresolved_value(*index),
        Node::Grid(_) => unreachable!("grids are refused when the parameters are listed"),
        Node::Map(items) => {
            let items = items.iter().map(|(key, node)| (key.clone(), make(node, next, point, choose)));
            Value::Map(Metrics(items.collect()))
        }
        Node::List(items) => Value::List(items.iter().map(|node| make(node, next, point, choose)).collect()),
        Node::Domain(Domain::Choice(options)) => {
            let index = take(next);
            let chosen = match choose(index, Kind::Choice(options.len())) {
                Coordinate::Option(chosen) => chosen.min(options.len() - 1),
                _ => 0,
            };
            point[index] = Coordinate::Option(chosen);
            let before: usize = options[..chosen].iter().map(count).sum();
            let after: usize = options[chosen + 1..].iter().map(count).sum();
            *next += before;
            let value = make(&options[chosen], next, point, choose);
            *next += after;
            value
        }
        Node::Domain(domain) => {
            let index = take(next);
            let unit = match choose(index, Kind::Number) {
                Coordinate::Number(unit) => unit,
                _ => 0.5,
            };
            let (value, position) = number_at(domain, unit);
            point[index] = Coordinate::Number(position);
            value
        }
    }
}

fn number_at(domain: &Domain, unit: f64) -> (Value, f64) {
    match domain {
        Domain::Real(real) => {
            let value = real.at(unit);
            (Value::Float(value), real.position(value))
        }
        Domain::Integer(integer) => {
            let value = integer.at(unit);
            (Value::Int(value), integer.position(value as f64))
        }
        Domain::Choice(_) => unreachable!("a choice is not a number"),
    }
}

fn read(node: &Node, value: &Value, next: &mut usize, point: &mut Point) {
    let start = *next;
    match (node, value) {
        (Node::Map(nodes), Value::Map(items)) => {
            for (key, node) in nodes {
                read(node, items.get(key).unwrap_or(&Value::None), next, point);
            }
        }
        (Node::List(nodes), Value::List(items)) => {
            for (index, node) in nodes.iter().enumerate() {
                read(node, items.get(index).unwrap_or(&Value::None), next, point);
            }
        }
        (Node::Domain(Domain::Choice(options)), value) => {
            let index = take(next);
            let chosen = options.iter().position(|option| option.matches(value));
            for (number, option) in options.iter().enumerate() {
                if chosen == Some(number) {
                    point[index] = Coordinate::Option(number);
                    let mut inside = *next;
                    read(option, value, &mut inside, point);
                }
                *next += count(option);
            }
        }
        (Node::Domain(domain), value) => {
            let index = take(next);
            let position = value.as_f64().filter(|number| !number.is_nan()).map(|number| match domain {
                Domain::Real(real) => real.position(number),
                Domain::Integer(integer) => integer.position(number),
                Domain::Choice(_) => unreachable!("a choice is not a number"),
            });
            point[index] = position.map_or(Coordinate::Absent, Coordinate::Number);
        }
        // A constant, or a value of another shape: nothing to learn from.
        _ => {}
    }
    *next = start + count(node);
}

fn take(next: &mut usize) -> usize {
    *next += 1;
    *next - 1
}
