//! Chance, from a seed: xoshiro256++ (Blackman and Vigna 2019), whose state SplitMix64 fills from one number.
//!
//! RANDOM-1: a seed gives the same draws on every machine. So the functions that the draws go through are ours too
//!   (`elementary`): those of the system's library may differ in the last bit.
//! RANDOM-2: a generator that was saved goes on where it was.
//! RANDOM-3: the searcher and the scheduler of a search draw from streams of their own, also where their seeds are equal.

pub(crate) mod elementary;

use serde::{Deserialize, Serialize};

use self::elementary::ln;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// For schedulers: what they draw from a seed is not what a searcher draws from the same one.
    pub fn of_scheduler(seed: u64) -> Self {
        // Any number will do; this one is the first of SplitMix64 from 1.
        Self::new(seed ^ 0x910a_2dec_8902_5cc1)
    }

    pub fn new(seed: u64) -> Self {
        let mut fill = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut fill)) }
    }

    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let drawn = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        drawn
    }

    /// At least 0 and below 1, in steps of 2⁻⁵³.
    pub fn f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of the `n` numbers below `n`, each as likely as the others (Lemire 2019). There is none below 0: that panics.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below 0");
        // As many of the low halves would favour some numbers as 2⁶⁴ leaves when divided by `n`.
        let favoured = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= favoured {
                return (product >> 64) as u64;
            }
        }
    }

    /// An index into something of this length.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Of the standard normal distribution, by Marsaglia's polar method.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.f64() - 1.0, 2.0 * self.f64() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }

    /// Every order as likely as the others (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generators_draw_what_their_authors_publish() {
        let mut seed = 1_234_567;
        let mixed = [split_mix(&mut seed), split_mix(&mut seed), split_mix(&mut seed)];
        assert_eq!(mixed, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let drawn = [rng.next_u64(), rng.next_u64(), rng.next_u64(), rng.next_u64(), rng.next_u64()];
        let published =
            [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386, 9_228_616_714_210_784_205];
        assert_eq!(drawn, published);
    }

    #[test]
    fn every_number_below_is_as_likely_as_the_others() {
        let mut rng = Rng::new(1);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.index(7)] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }

    #[test]
    fn normal_draws_have_the_mean_spread_and_tails_of_the_distribution() {
        let mut rng = Rng::new(2);
        let draws: Vec<f64> = (0..100_000).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|draw| draw * draw).sum::<f64>() / 1e5;
        let beyond_two = draws.iter().filter(|draw| draw.abs() > 2.0).count();
        assert!(mean.abs() < 0.015 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
        assert!((4_300..4_800).contains(&beyond_two), "{beyond_two} of an expected 4,550");
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
