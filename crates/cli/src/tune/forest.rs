//! How much of a metric's variance each parameter explains: functional ANOVA over a random forest.
//!
//! After Hutter, Hoos and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance" (ICML 2014). A regression tree
//! cuts the space into boxes, each with one value. So the mean over everything but one parameter is a step function of that
//! parameter, exactly; its variance, divided by the variance of the whole tree, is the parameter's share (its main effect). What
//! the shares leave of 1 is interactions. Each tree gives one answer, from a sample of the trials: their spread tells how sure it is.
//! FOREST-1: the same table and seed give the same shares.
//! FOREST-2: shares of a tree are at least 0, and their sum is at most 1.

const TREES: usize = 64;
/// So many trials grow a tree, however many there are: time is bounded, and more would hardly change the shares.
const MOST_SAMPLES: usize = 1000;
/// A leaf holds at least so many: one that holds a single trial has learnt its noise by heart.
const LEAF: usize = 3;
/// How many of the parameters are tried for a cut: trees that differ average to a better forest.
const TRIED: f64 = 0.67;

/// One parameter on its scale: where each trial stands, and how far the scale reaches.
pub struct Column {
    pub positions: Vec<f64>,
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub median: f64,
    /// A tenth of the trees say less.
    pub low: f64,
    /// A tenth say more.
    pub high: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    /// In the order of the columns.
    pub shares: Vec<Share>,
    /// How much of the variance of trials that a tree has not seen the forest explains (R²); below 0, it is worse than the mean.
    pub fit: f64,
}

struct Node {
    column: usize,
    cut: f64,
    /// Left is below the cut, right is above; 0 on a leaf.
    children: [usize; 2],
    value: f64,
}

struct Leaf {
    bounds: Vec<(f64, f64)>,
    value: f64,
}

#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
}

/// The share of each column in the variance of `target`. `None` where there is no variance to share.
pub fn importance(columns: &[Column], target: &[f64], seed: u64) -> Option<Importance> {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = target.len();
    let mean = target.iter().sum::<f64>() / count as f64;
    // Around 0, so that a small variance far from 0 is not lost in rounding.
    let target: Vec<f64> = target.iter().map(|value| value - mean).collect();
    let spread: f64 = target.iter().map(|value| value.powi(2)).sum();
    if columns.is_empty() || !spread.is_finite() || spread <= 0.0 {
        return None;
    }
    let mut shares: Vec<Vec<f64>> = vec![Vec::new(); columns.len()];
    let (mut foretold, mut unseen) = (vec![0.0; count], vec![0_u32; count]);
    for _ in 0..TREES {
        let mut samples: Vec<usize> = (0..count.min(MOST_SAMPLES)).map(|_| random.usize(0..count)).collect();
        let mut is_seen = vec![false; count];
        samples.iter().for_each(|at| is_seen[*at] = true);
        let bounds = columns.iter().map(|column| (column.low, column.high)).collect();
        let mut grower =
            Grower { columns, target: &target, random: &mut random, tree: Tree::default(), pairs: Vec::new() };
        grower.grow(&mut samples, bounds);
        let tree = grower.tree;
        for at in (0..count).filter(|at| !is_seen[*at]) {
            foretold[at] += tree.foretell(columns, at);
            unseen[at] += 1;
        }
        // A tree of one leaf knows nothing of any parameter.
        let of_tree = tree.shares(columns).unwrap_or_else(|| vec![0.0; columns.len()]);
        for (all, share) in shares.iter_mut().zip(of_tree) {
            all.push(share);
        }
    }
    let tested: Vec<usize> = (0..count).filter(|at| unseen[*at] > 0).collect();
    let error: f64 = tested.iter().map(|at| (target[*at] - foretold[*at] / f64::from(unseen[*at])).powi(2)).sum();
    let total: f64 = tested.iter().map(|at| target[*at].powi(2)).sum();
    let fit = if total > 0.0 { 1.0 - error / total } else { 0.0 };
    Some(Importance { shares: shares.into_iter().map(summary).collect(), fit })
}

fn summary(mut shares: Vec<f64>) -> Share {
    shares.sort_by(f64::total_cmp);
    let at = |part: f64| shares[((shares.len() - 1) as f64 * part).round() as usize];
    // A few trees that explain nothing would pull the mean out of the range of nearly all of them.
    Share { median: at(0.5), low: at(0.1), high: at(0.9) }
}

struct Grower<'a> {
    columns: &'a [Column],
    target: &'a [f64],
    random: &'a mut fastrand::Rng,
    tree: Tree,
    /// Position and value of the samples of a node, in order; kept for its memory.
    pairs: Vec<(f64, f64)>,
}

impl Grower<'_> {
    /// Grows the node of these samples and everything below it; the index of the node.
    fn grow(&mut self, samples: &mut [usize], bounds: Vec<(f64, f64)>) -> usize {
        let value = samples.iter().map(|at| self.target[*at]).sum::<f64>() / samples.len() as f64;
        let index = self.tree.nodes.len();
        self.tree.nodes.push(Node { column: 0, cut: 0.0, children: [0, 0], value });
        let Some((column, cut)) = self.best_cut(samples) else {
            self.tree.leaves.push(Leaf { bounds, value });
            return index;
        };
        let positions = &self.columns[column].positions;
        samples.sort_unstable_by(|one, other| positions[*one].total_cmp(&positions[*other]));
        let middle = samples.partition_point(|at| positions[*at] < cut);
        let (left, right) = samples.split_at_mut(middle);
        let (mut below, mut above) = (bounds.clone(), bounds);
        below[column].1 = cut;
        above[column].0 = cut;
        let children = [self.grow(left, below), self.grow(right, above)];
        let node = &mut self.tree.nodes[index];
        (node.column, node.cut, node.children) = (column, cut, children);
        index
    }

    /// The cut that leaves the least variance on both sides, among some of the columns.
    fn best_cut(&mut self, samples: &[usize]) -> Option<(usize, f64)> {
        if samples.len() < 2 * LEAF {
            return None;
        }
        let mut order: Vec<usize> = (0..self.columns.len()).collect();
        self.random.shuffle(&mut order);
        let tried = ((self.columns.len() as f64 * TRIED).ceil() as usize).max(1);
        let mut best: Option<(usize, f64, f64)> = None;
        for (count, column) in order.into_iter().enumerate() {
            // Columns that cannot be cut do not use up the tries.
            if count >= tried && best.is_some() {
                break;
            }
            if let Some((cut, gain)) = self.best_cut_of(column, samples)
                && best.is_none_or(|(_, _, known)| gain > known)
            {
                best = Some((column, cut, gain));
            }
        }
        best.map(|(column, cut, _)| (column, cut))
    }

    fn best_cut_of(&mut self, column: usize, samples: &[usize]) -> Option<(f64, f64)> {
        let positions = &self.columns[column].positions;
        self.pairs.clear();
        self.pairs.extend(samples.iter().map(|at| (positions[*at], self.target[*at])));
        self.pairs.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let count = self.pairs.len();
        let total: f64 = self.pairs.iter().map(|pair| pair.1).sum();
        let base = total * total / count as f64;
        let (mut below, mut best) = (0.0, None);
        for at in 1..count {
            below += self.pairs[at - 1].1;
            let (left, right) = (self.pairs[at - 1].0, self.pairs[at].0);
            if at < LEAF || count - at < LEAF || left >= right {
                continue;
            }
            let gain = below * below / at as f64 + (total - below).powi(2) / (count - at) as f64 - base;
            if gain > 0.0 && best.is_none_or(|(_, known)| gain > known) {
                best = Some((f64::midpoint(left, right), gain));
            }
        }
        best
    }
}

impl Tree {
    fn foretell(&self, columns: &[Column], at: usize) -> f64 {
        let mut node = &self.nodes[0];
        while node.children != [0, 0] {
            let is_above = columns[node.column].positions[at] >= node.cut;
            node = &self.nodes[node.children[usize::from(is_above)]];
        }
        node.value
    }

    /// The share of each column's main effect in the variance of the tree over the whole space.
    fn shares(&self, columns: &[Column]) -> Option<Vec<f64>> {
        let part = |bounds: (f64, f64), column: &Column| (bounds.1 - bounds.0) / (column.high - column.low);
        let volumes: Vec<f64> = self
            .leaves
            .iter()
            .map(|leaf| leaf.bounds.iter().zip(columns).map(|(bounds, column)| part(*bounds, column)).product())
            .collect();
        let mean: f64 = self.leaves.iter().zip(&volumes).map(|(leaf, volume)| leaf.value * volume).sum();
        let variance: f64 =
            self.leaves.iter().zip(&volumes).map(|(leaf, volume)| (leaf.value - mean).powi(2) * volume).sum();
        if variance <= 0.0 {
            return None;
        }
        let share = |(at, column): (usize, &Column)| {
            // Each leaf adds its value to the marginal over its own stretch, weighed by its part of the other parameters.
            let mut steps: Vec<(f64, f64)> = Vec::with_capacity(2 * self.leaves.len());
            for (leaf, volume) in self.leaves.iter().zip(&volumes) {
                let (low, high) = leaf.bounds[at];
                let weighed = (leaf.value - mean) * volume / part((low, high), column);
                steps.extend([(low, weighed), (high, -weighed)]);
            }
            steps.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
            let (mut marginal, mut effect) = (0.0, 0.0);
            for pair in steps.windows(2) {
                marginal += pair[0].1;
                effect += marginal * marginal * part((pair[0].0, pair[1].0), column);
            }
            (effect / variance).clamp(0.0, 1.0)
        };
        Some(columns.iter().enumerate().map(share).collect())
    }
}

#[cfg(test)]
mod tests;
