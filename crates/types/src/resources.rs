//! Amounts of resources by name (`CPU`, `GPU`, `memory`, or the user's own), exact to a ten-thousandth.
//!
//! Fixed point, because a group of ten workers at 0.1 CPU must fill one CPU exactly.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

const SCALE: f64 = 10_000.0;

#[derive(Clone, Debug, PartialEq)]
pub struct ResourceError {
    pub name: String,
    pub amount: f64,
}

impl fmt::Display for ResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the amount of `{}` is `{}`: it must be a finite number of at least 0", self.name, self.amount)
    }
}

impl std::error::Error for ResourceError {}

/// Amounts of zero are not kept: two sets are equal when they hold the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, f64>", into = "BTreeMap<String, f64>")]
pub struct Resources(BTreeMap<String, u64>);

impl Resources {
    pub fn from_amounts<'a>(amounts: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self, ResourceError> {
        let mut all = BTreeMap::new();
        for (name, amount) in amounts {
            if !amount.is_finite() || amount < 0.0 {
                return Err(ResourceError { name: name.to_owned(), amount });
            }
            let units = (amount * SCALE).round() as u64;
            if units > 0 {
                all.insert(name.to_owned(), units);
            }
        }
        Ok(Self(all))
    }

    pub fn amount(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0) as f64 / SCALE
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, units)| (name.as_str(), *units as f64 / SCALE))
    }

    pub fn contains(&self, other: &Resources) -> bool {
        other.0.iter().all(|(name, units)| self.0.get(name).copied().unwrap_or(0) >= *units)
    }

    pub fn add(&mut self, other: &Resources) {
        for (name, units) in &other.0 {
            *self.0.entry(name.clone()).or_default() += units;
        }
    }

    /// Takes away what `contains` has shown to be there.
    pub fn subtract(&mut self, other: &Resources) {
        for (name, units) in &other.0 {
            let left = self.0.get(name).copied().unwrap_or(0).saturating_sub(*units);
            if left == 0 {
                self.0.remove(name);
            } else {
                self.0.insert(name.clone(), left);
            }
        }
    }

    pub fn times(&self, count: u32) -> Resources {
        Self(self.0.iter().map(|(name, units)| (name.clone(), units * u64::from(count))).collect())
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (index, (name, amount)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            if name == "memory" {
                write!(f, "{comma}{:.1} GiB memory", amount / (1u64 << 30) as f64)?;
            } else {
                write!(f, "{comma}{amount} {name}")?;
            }
        }
        Ok(())
    }
}

impl TryFrom<BTreeMap<String, f64>> for Resources {
    type Error = ResourceError;

    fn try_from(amounts: BTreeMap<String, f64>) -> Result<Self, Self::Error> {
        Self::from_amounts(amounts.iter().map(|(name, amount)| (name.as_str(), *amount)))
    }
}

impl From<Resources> for BTreeMap<String, f64> {
    fn from(resources: Resources) -> Self {
        resources.iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(amount: f64) -> Resources {
        Resources::from_amounts([("CPU", amount)]).unwrap()
    }

    #[test]
    fn ten_tenths_fill_one_exactly() {
        let mut free = cpus(1.0);
        for _ in 0..10 {
            assert!(free.contains(&cpus(0.1)));
            free.subtract(&cpus(0.1));
        }
        assert_eq!(free, Resources::default());
        assert!(!free.contains(&cpus(0.1)));
    }

    #[test]
    fn amounts_that_are_no_amounts_are_refused() {
        for amount in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Resources::from_amounts([("CPU", amount)]).is_err());
        }
    }
}
