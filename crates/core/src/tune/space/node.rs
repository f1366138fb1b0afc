//! The tree itself: how it is sampled, and how its grids are counted and resolved.

use std::ops::Deref;

use carril_types::{Metrics, Value};
use serde::{Deserialize, Serialize};

use super::Domain;
use super::error::SpaceError;
use crate::tune::random::Rng;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Node {
    Constant(Value),
    Domain(Domain),
    /// Every one of these, with every one of the other grids.
    Grid(Options),
    Map(Vec<(String, Node)>),
    List(Vec<Node>),
    /// A function of the user, known by its number: the driver calls it when the rest of the config is known.
    Unresolved(usize),
}

/// At least one tree to choose from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options(Vec<Node>);

impl Options {
    pub(super) fn new(domain: &'static str, options: Vec<Node>) -> Result<Self, SpaceError> {
        if options.is_empty() { Err(SpaceError::NoOptions { domain }) } else { Ok(Self(options)) }
    }
}

impl Deref for Options {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        &self.0
    }
}

/// The key of the map that stands in a config where a function of the user is still to be called.
const UNRESOLVED: &str = "__sample_from__";

/// What stands in a config for the function of this number until the driver has called it.
pub fn unresolved_value(index: usize) -> Value {
    Value::Map(Metrics(vec![(UNRESOLVED.to_owned(), Value::Int(index as i64))]))
}

/// The number of the function that this value stands for, if it does.
pub fn unresolved_index(value: &Value) -> Option<usize> {
    match value {
        Value::Map(Metrics(items)) => match items.as_slice() {
            [(key, Value::Int(index))] if key == UNRESOLVED => usize::try_from(*index).ok(),
            _ => None,
        },
        _ => None,
    }
}

impl Node {
    pub fn grid(options: Vec<Node>) -> Result<Self, SpaceError> {
        Options::new("grid_search", options).map(Node::Grid)
    }

    /// Draws every domain; of each grid the first option is taken.
    pub fn sample(&self, rng: &mut Rng) -> Value {
        match self {
            Node::Constant(value) => value.clone(),
            Node::Domain(domain) => domain.sample(rng),
            Node::Grid(options) => options[0].sample(rng),
            Node::Map(items) => {
                Value::Map(Metrics(items.iter().map(|(key, node)| (key.clone(), node.sample(rng))).collect()))
            }
            Node::List(items) => Value::List(items.iter().map(|node| node.sample(rng)).collect()),
            Node::Unresolved(index) => unresolved_value(*index),
        }
    }

    /// Whether this tree could have given the value.
    pub fn matches(&self, value: &Value) -> bool {
        match (self, value) {
            (Node::Constant(constant), value) => same(constant, value),
            (Node::Domain(domain), value) => domain.contains(value),
            (Node::Grid(options), value) => options.iter().any(|option| option.matches(value)),
            (Node::Map(nodes), Value::Map(Metrics(items))) => {
                nodes.len() == items.len()
                    && nodes
                        .iter()
                        .all(|(key, node)| items.iter().any(|(name, value)| name == key && node.matches(value)))
            }
            (Node::List(nodes), Value::List(items)) => {
                nodes.len() == items.len() && nodes.iter().zip(items).all(|(node, value)| node.matches(value))
            }
            // Whatever the user's function may return.
            (Node::Unresolved(_), _) => true,
            _ => false,
        }
    }

    /// How many combinations its grids have; 1 without a grid.
    pub(crate) fn combinations(&self) -> u64 {
        match self {
            Node::Grid(options) => options.iter().fold(0, |sum: u64, option| sum.saturating_add(option.combinations())),
            _ => self.children().fold(1, |product: u64, child| product.saturating_mul(child.combinations())),
        }
    }

    /// The tree with the grids' combination of this number. The first grid by name changes fastest, as in Ray.
    pub(crate) fn combination(&self, mut number: u64) -> Node {
        self.take_combination(&mut number)
    }

    fn take_combination(&self, number: &mut u64) -> Node {
        match self {
            Node::Grid(options) => {
                let mut rest = *number % self.combinations();
                *number /= self.combinations();
                for option in options.iter() {
                    match rest.checked_sub(option.combinations()) {
                        Some(further) => rest = further,
                        None => return option.combination(rest),
                    }
                }
                unreachable!("a remainder is below the sum of what was subtracted from it")
            }
            Node::Map(items) => {
                let mut by_name: Vec<usize> = (0..items.len()).collect();
                by_name.sort_by(|left, right| items[*left].0.cmp(&items[*right].0));
                let mut resolved = items.clone();
                for index in by_name {
                    resolved[index].1 = items[index].1.take_combination(number);
                }
                Node::Map(resolved)
            }
            Node::List(items) => Node::List(items.iter().map(|item| item.take_combination(number)).collect()),
            other => other.clone(),
        }
    }

    /// The tree with every domain drawn that is not below a grid.
    pub(crate) fn drawn(&self, rng: &mut Rng) -> Node {
        match self {
            Node::Domain(domain) => Node::Constant(domain.sample(rng)),
            Node::Map(items) => Node::Map(items.iter().map(|(key, node)| (key.clone(), node.drawn(rng))).collect()),
            Node::List(items) => Node::List(items.iter().map(|node| node.drawn(rng)).collect()),
            other => other.clone(),
        }
    }

    /// Where the first grid is, `a/b` for `{"a": {"b": …}}`.
    pub(crate) fn path_of_grid(&self) -> Option<String> {
        let below = |key: String, node: &Node| {
            let rest = node.path_of_grid()?;
            Some(if rest.is_empty() { key } else { format!("{key}/{rest}") })
        };
        match self {
            Node::Grid(_) => Some(String::new()),
            Node::Map(items) => items.iter().find_map(|(key, node)| below(key.clone(), node)),
            Node::List(items) => items.iter().enumerate().find_map(|(index, node)| below(index.to_string(), node)),
            // A choice is checked when it is made.
            _ => None,
        }
    }

    fn children(&self) -> Box<dyn Iterator<Item = &Node> + '_> {
        match self {
            Node::Map(items) => Box::new(items.iter().map(|(_, node)| node)),
            Node::List(items) => Box::new(items.iter()),
            _ => Box::new(std::iter::empty()),
        }
    }
}

/// Constants are compared as the user would: NaN is NaN, and 1 is 1.0.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => left == right || left.is_nan() && right.is_nan(),
        (Value::Int(left), Value::Float(right)) | (Value::Float(right), Value::Int(left)) => *left as f64 == *right,
        _ => left == right,
    }
}

/// The space with what the point says in place of what would be drawn there; `a/b` reaches into maps, as a map does.
pub(crate) fn merge(space: &Node, point: &Metrics) -> Result<Node, String> {
    let mut merged = space.clone();
    for (key, value) in &point.0 {
        put(&mut merged, key, value).map_err(|()| key.clone())?;
    }
    Ok(merged)
}

fn put(node: &mut Node, key: &str, value: &Value) -> Result<(), ()> {
    let Node::Map(items) = node else { return Err(()) };
    if let Some((_, child)) = items.iter_mut().find(|(name, _)| name == key) {
        return match value {
            Value::Map(inner) if matches!(child, Node::Map(_)) => {
                inner.0.iter().try_for_each(|(key, value)| put(child, key, value))
            }
            _ => {
                *child = Node::Constant(value.clone());
                Ok(())
            }
        };
    }
    let split = key.match_indices('/').find_map(|(at, _)| {
        let index = items.iter().position(|(name, _)| *name == key[..at])?;
        Some((index, at + 1))
    });
    let (index, rest) = split.ok_or(())?;
    put(&mut items[index].1, &key[rest..], value)
}

/// The config that a sample of a whole space is.
pub(crate) fn config_of(value: Value) -> Metrics {
    match value {
        Value::Map(config) => config,
        _ => unreachable!("every searcher refuses a space that is not a map"),
    }
}
