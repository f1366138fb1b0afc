//! Pillow's bilinear resize, bit for bit: each new sample is a weighted mean, along rows and then along columns, with weights
//! of 22 bits, rounded to 8 bits after each of the two. Other resizers work with fewer bits; what they are off by is
//! little, until a transparent colour is divided by its alpha.

#[cfg(target_arch = "x86_64")]
use super::wide::is_wide;
use super::wide::wide;

const FRACTION: u32 = 22;
const HALF: i32 = 1 << (FRACTION - 1);

/// For each new sample the first old one that it is made of, and their weights.
struct Weights {
    begins: Vec<usize>,
    /// An even number for each new sample, filled up with zeros.
    weights: Vec<i32>,
    counts: Vec<usize>,
    most: usize,
}

impl Weights {
    fn new(from: usize, to: usize) -> Self {
        let scale = from as f64 / to as f64;
        let support = scale.max(1.0);
        let most = (support.ceil() as usize * 2 + 1).next_multiple_of(2);
        let mut made = Self { begins: Vec::new(), weights: vec![0; most * to], counts: Vec::new(), most };
        for (number, weights) in made.weights.chunks_exact_mut(most).enumerate() {
            let centre = (number as f64 + 0.5) * scale;
            let begin = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(from);
            // Step by step as Pillow computes it: a difference in the last bit can turn a half.
            let near = |old: usize| (1.0 - ((old as f64 - centre + 0.5) * (1.0 / support)).abs()).max(0.0);
            let sum: f64 = (begin..end).map(near).sum();
            for (weight, old) in weights.iter_mut().zip(begin..end) {
                *weight = (near(old) / sum * f64::from(1 << FRACTION) + 0.5) as i32;
            }
            made.begins.push(begin);
            made.counts.push(end - begin);
        }
        made
    }

    fn of(&self, number: usize) -> (usize, &[i32]) {
        let begin = number * self.most;
        (self.begins[number], &self.weights[begin..begin + self.counts[number]])
    }
}

#[inline(always)]
fn rounded(sum: i32) -> u8 {
    (sum >> FRACTION).clamp(0, 255) as u8
}

/// Height and width of what is there, and of what is wanted.
pub(super) fn resize(data: &[u8], channels: usize, from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    let rows = |data: &[u8]| {
        let weights = Weights::new(from.1, to.1);
        match channels {
            1 => wide(|| along_rows::<1>(data, from.1, &weights)),
            2 => wide(|| along_rows::<2>(data, from.1, &weights)),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has these instructions.
            3 if is_wide() => unsafe { avx2::along_rows::<3>(data, from.1, &weights) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has these instructions.
            4 if is_wide() => unsafe { avx2::along_rows::<4>(data, from.1, &weights) },
            3 => along_rows::<3>(data, from.1, &weights),
            _ => along_rows::<4>(data, from.1, &weights),
        }
    };
    let columns = |data: &[u8], width: usize| {
        let weights = Weights::new(from.0, to.0);
        #[cfg(target_arch = "x86_64")]
        if is_wide() {
            // SAFETY: the processor has these instructions.
            return unsafe { avx2::along_columns(data, width * channels, &weights) };
        }
        along_columns(data, width * channels, &weights)
    };
    match (from.0 != to.0, from.1 != to.1) {
        (false, false) => data.to_vec(),
        (false, true) => rows(data),
        (true, false) => columns(data, to.1),
        (true, true) if is_columns_first(from, to) => rows(&columns(data, from.1)),
        (true, true) => columns(&rows(data), to.1),
    }
}

/// Pillow does so since its version 13, where much more height than width goes. Since there is rounding in between, the
/// order is seen.
fn is_columns_first(from: (usize, usize), to: (usize, usize)) -> bool {
    let less = |from: usize, to: usize| from as i64 - to as i64;
    to.0 < from.0 && less(from.0, to.0) > 2 * less(from.1, to.1)
}

#[inline(always)]
fn along_rows<const CHANNELS: usize>(data: &[u8], width: usize, weights: &Weights) -> Vec<u8> {
    let new = weights.begins.len();
    let mut made = vec![0; data.len() / width * new];
    let rows = data.chunks_exact(width * CHANNELS).zip(made.chunks_exact_mut(new * CHANNELS));
    for (from, to) in rows {
        for (number, pixel) in to.chunks_exact_mut(CHANNELS).enumerate() {
            let (begin, weights) = weights.of(number);
            let mut sums = [HALF; CHANNELS];
            let old = from[begin * CHANNELS..].chunks_exact(CHANNELS);
            for (weight, old) in weights.iter().zip(old) {
                for channel in 0..CHANNELS {
                    sums[channel] += weight * i32::from(old[channel]);
                }
            }
            for channel in 0..CHANNELS {
                pixel[channel] = rounded(sums[channel]);
            }
        }
    }
    made
}

#[inline(always)]
fn along_columns(data: &[u8], length: usize, weights: &Weights) -> Vec<u8> {
    let mut made = vec![0; weights.begins.len() * length];
    let mut sums = vec![0; length];
    for (number, to) in made.chunks_exact_mut(length).enumerate() {
        let (begin, weights) = weights.of(number);
        sums.fill(HALF);
        for (weight, from) in weights.iter().zip(data[begin * length..].chunks_exact(length)) {
            for (sum, old) in sums.iter_mut().zip(from) {
                *sum += weight * i32::from(*old);
            }
        }
        for (to, sum) in to.iter_mut().zip(&sums) {
            *to = rounded(*sum);
        }
    }
    made
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::*;

    /// Weights are multiplied in two halves, which fit into the instruction that multiplies and adds pairs.
    const HALF_OF_THE_BITS: i32 = FRACTION as i32 / 2;

    struct Pair {
        low: i32,
        high: i32,
    }

    fn pairs(weights: &Weights) -> Vec<Pair> {
        let low = |weight: i32| weight & ((1 << HALF_OF_THE_BITS) - 1);
        let high = |weight: i32| weight >> HALF_OF_THE_BITS;
        let pair = |two: &[i32]| Pair { low: low(two[0]) | low(two[1]) << 16, high: high(two[0]) | high(two[1]) << 16 };
        weights.weights.chunks_exact(2).map(pair).collect()
    }

    #[target_feature(enable = "avx2")]
    pub fn along_columns(data: &[u8], length: usize, weights: &Weights) -> Vec<u8> {
        super::along_columns(data, length, weights)
    }

    /// Two rows at once, and two old pixels of each.
    #[target_feature(enable = "avx2")]
    pub fn along_rows<const CHANNELS: usize>(data: &[u8], width: usize, weights: &Weights) -> Vec<u8> {
        let (new, length) = (weights.begins.len(), width * CHANNELS);
        let pairs = pairs(weights);
        let mut made = vec![0; data.len() / width * new];
        // Each channel of the first pixel, as sixteen bits, before that of the second.
        let mut order = [-1; 32];
        for channel in 0..CHANNELS {
            for lane in [0, 16] {
                order[lane + channel * 4] = channel as i8;
                order[lane + channel * 4 + 2] = (channel + CHANNELS) as i8;
            }
        }
        // SAFETY: 32 bytes are there.
        let order = unsafe { _mm256_loadu_si256(order.as_ptr().cast()) };
        // What is read behind the last pixels of a row counts nothing, but has to be there.
        let beyond = (weights.most + 3) * CHANNELS + 8;
        let (mut upper, mut lower) = (vec![0; length + beyond], vec![0; length + beyond]);
        for (from, to) in data.chunks(2 * length).zip(made.chunks_mut(2 * new * CHANNELS)) {
            upper[..length].copy_from_slice(&from[..length]);
            lower[..length].copy_from_slice(&from[from.len() - length..]);
            let (to_upper, to_lower) = to.split_at_mut(new * CHANNELS);
            for number in 0..new {
                let first = number * weights.most / 2;
                let count = weights.counts[number].div_ceil(2);
                let (mut lows, mut highs) = (_mm256_setzero_si256(), _mm256_setzero_si256());
                let mut at = weights.begins[number] * CHANNELS;
                for pair in &pairs[first..first + count] {
                    let (upper, lower) = (&upper[at..at + 8], &lower[at..at + 8]);
                    // SAFETY: eight bytes of each are there.
                    let (upper, lower) =
                        unsafe { (_mm_loadl_epi64(upper.as_ptr().cast()), _mm_loadl_epi64(lower.as_ptr().cast())) };
                    let old = _mm256_shuffle_epi8(_mm256_set_m128i(lower, upper), order);
                    lows = _mm256_add_epi32(lows, _mm256_madd_epi16(old, _mm256_set1_epi32(pair.low)));
                    highs = _mm256_add_epi32(highs, _mm256_madd_epi16(old, _mm256_set1_epi32(pair.high)));
                    at += 2 * CHANNELS;
                }
                let sums = _mm256_add_epi32(_mm256_slli_epi32::<HALF_OF_THE_BITS>(highs), lows);
                let rounded = _mm256_srai_epi32::<{ FRACTION as i32 }>(_mm256_add_epi32(sums, _mm256_set1_epi32(HALF)));
                let bytes = _mm256_packus_epi16(_mm256_packs_epi32(rounded, rounded), rounded);
                let (upper, lower) = (_mm256_extract_epi32::<0>(bytes), _mm256_extract_epi32::<4>(bytes));
                let at = number * CHANNELS;
                to_upper[at..at + CHANNELS].copy_from_slice(&upper.to_le_bytes()[..CHANNELS]);
                // The last row of an odd number has no partner.
                if let Some(to) = to_lower.get_mut(at..at + CHANNELS) {
                    to.copy_from_slice(&lower.to_le_bytes()[..CHANNELS]);
                }
            }
        }
        made
    }
}
