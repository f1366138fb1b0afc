//! From coefficients to samples: libjpeg's accurate integer transform, bit for bit.
//!
//! Both passes are written once, over eight lanes at a time: numbers in an array, or a register of AVX2.

use super::scan::Block;

pub(super) type Quantisation = [i32; 64];

const FRACTION: i32 = 13;
/// Bits that are kept between the two passes.
const KEPT: i32 = 2;

const C0_298: i32 = 2446;
const C0_390: i32 = 3196;
const C0_541: i32 = 4433;
const C0_765: i32 = 6270;
const C0_899: i32 = 7373;
const C1_175: i32 = 9633;
const C1_501: i32 = 12299;
const C1_847: i32 = 15137;
const C1_961: i32 = 16069;
const C2_053: i32 = 16819;
const C2_562: i32 = 20995;
const C3_072: i32 = 25172;

/// One pass over eight columns at once; `$bits` are taken off in the end. It is given what adds, subtracts, multiplies by a
/// constant and takes bits off, since a function of a trait could not be compiled for other instructions than its own.
macro_rules! pass {
    ($from:expr, $bits:expr, $add:ident, $sub:ident, $times:ident, $scaled:ident) => {{
        let from = $from;
        let middle = $times($add(from[2], from[6]), C0_541);
        let even2 = $sub(middle, $times(from[6], C1_847));
        let even3 = $add(middle, $times(from[2], C0_765));
        let even0 = $times($add(from[0], from[4]), 1 << FRACTION);
        let even1 = $times($sub(from[0], from[4]), 1 << FRACTION);
        let outer = [$add(even0, even3), $add(even1, even2), $sub(even1, even2), $sub(even0, even3)];

        let (odd73, odd51) = ($add(from[7], from[3]), $add(from[5], from[1]));
        let both = $times($add(odd73, odd51), C1_175);
        let z1 = $times($add(from[7], from[1]), -C0_899);
        let z2 = $times($add(from[5], from[3]), -C2_562);
        let z3 = $add($times(odd73, -C1_961), both);
        let z4 = $add($times(odd51, -C0_390), both);
        let inner = [
            $add($times(from[1], C1_501), $add(z1, z4)),
            $add($times(from[3], C3_072), $add(z2, z3)),
            $add($times(from[5], C2_053), $add(z2, z4)),
            $add($times(from[7], C0_298), $add(z1, z3)),
        ];
        [
            $scaled::<$bits>($add(outer[0], inner[0])),
            $scaled::<$bits>($add(outer[1], inner[1])),
            $scaled::<$bits>($add(outer[2], inner[2])),
            $scaled::<$bits>($add(outer[3], inner[3])),
            $scaled::<$bits>($sub(outer[3], inner[3])),
            $scaled::<$bits>($sub(outer[2], inner[2])),
            $scaled::<$bits>($sub(outer[1], inner[1])),
            $scaled::<$bits>($sub(outer[0], inner[0])),
        ]
    }};
}

/// For every processor.
mod plain {
    use super::*;

    type Lanes = [i32; 8];

    fn each(mut left: Lanes, right: Lanes, run: impl Fn(i32, i32) -> i32) -> Lanes {
        for lane in 0..8 {
            left[lane] = run(left[lane], right[lane]);
        }
        left
    }

    fn add(left: Lanes, right: Lanes) -> Lanes {
        each(left, right, i32::wrapping_add)
    }

    fn sub(left: Lanes, right: Lanes) -> Lanes {
        each(left, right, i32::wrapping_sub)
    }

    fn times(left: Lanes, factor: i32) -> Lanes {
        each(left, [factor; 8], i32::wrapping_mul)
    }

    fn scaled<const BITS: i32>(value: Lanes) -> Lanes {
        each(value, [1 << (BITS - 1); 8], |value, half| value.wrapping_add(half) >> BITS)
    }

    fn transposed(from: [Lanes; 8]) -> [Lanes; 8] {
        let mut to = from;
        for (row, line) in from.iter().enumerate() {
            for (column, value) in line.iter().enumerate() {
                to[column][row] = *value;
            }
        }
        to
    }

    pub fn samples(block: &Block, by: &Quantisation, to: &mut [u8], stride: usize) {
        let mut values = [[0; 8]; 8];
        for (place, (value, step)) in block.iter().zip(by).enumerate() {
            values[place / 8][place % 8] = i32::from(*value).wrapping_mul(*step);
        }
        let columns = transposed(pass!(values, { FRACTION - KEPT }, add, sub, times, scaled));
        let rows = transposed(pass!(columns, { FRACTION + KEPT + 3 }, add, sub, times, scaled));
        for (number, row) in rows.into_iter().enumerate() {
            let row = row.map(|sample| sample.wrapping_add(128).clamp(0, 255) as u8);
            to[number * stride..number * stride + 8].copy_from_slice(&row);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::*;

    type Lanes = __m256i;

    #[target_feature(enable = "avx2")]
    fn add(left: Lanes, right: Lanes) -> Lanes {
        _mm256_add_epi32(left, right)
    }

    #[target_feature(enable = "avx2")]
    fn sub(left: Lanes, right: Lanes) -> Lanes {
        _mm256_sub_epi32(left, right)
    }

    #[target_feature(enable = "avx2")]
    fn times(left: Lanes, factor: i32) -> Lanes {
        _mm256_mullo_epi32(left, _mm256_set1_epi32(factor))
    }

    #[target_feature(enable = "avx2")]
    fn scaled<const BITS: i32>(value: Lanes) -> Lanes {
        _mm256_srai_epi32::<BITS>(_mm256_add_epi32(value, _mm256_set1_epi32(1 << (BITS - 1))))
    }

    #[target_feature(enable = "avx2")]
    fn transposed(from: [Lanes; 8]) -> [Lanes; 8] {
        let [a, b, c, d, e, f, g, h] = from;
        let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        let (ef0, ef1) = (_mm256_unpacklo_epi32(e, f), _mm256_unpackhi_epi32(e, f));
        let (gh0, gh1) = (_mm256_unpacklo_epi32(g, h), _mm256_unpackhi_epi32(g, h));
        let (first0, first1) = (_mm256_unpacklo_epi64(ab0, cd0), _mm256_unpackhi_epi64(ab0, cd0));
        let (first2, first3) = (_mm256_unpacklo_epi64(ab1, cd1), _mm256_unpackhi_epi64(ab1, cd1));
        let (last0, last1) = (_mm256_unpacklo_epi64(ef0, gh0), _mm256_unpackhi_epi64(ef0, gh0));
        let (last2, last3) = (_mm256_unpacklo_epi64(ef1, gh1), _mm256_unpackhi_epi64(ef1, gh1));
        [
            _mm256_permute2x128_si256::<0x20>(first0, last0),
            _mm256_permute2x128_si256::<0x20>(first1, last1),
            _mm256_permute2x128_si256::<0x20>(first2, last2),
            _mm256_permute2x128_si256::<0x20>(first3, last3),
            _mm256_permute2x128_si256::<0x31>(first0, last0),
            _mm256_permute2x128_si256::<0x31>(first1, last1),
            _mm256_permute2x128_si256::<0x31>(first2, last2),
            _mm256_permute2x128_si256::<0x31>(first3, last3),
        ]
    }

    /// Eight coefficients, each times its step.
    #[target_feature(enable = "avx2")]
    fn row(block: &Block, by: &Quantisation, row: usize) -> Lanes {
        let (values, steps) = (&block[row * 8..row * 8 + 8], &by[row * 8..row * 8 + 8]);
        // SAFETY: eight of each are there.
        let (values, steps) =
            unsafe { (_mm_loadu_si128(values.as_ptr().cast()), _mm256_loadu_si256(steps.as_ptr().cast())) };
        _mm256_mullo_epi32(_mm256_cvtepi16_epi32(values), steps)
    }

    #[target_feature(enable = "avx2")]
    pub fn samples(block: &Block, by: &Quantisation, to: &mut [u8], stride: usize) {
        let values = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| row(block, by, number));
        let columns = transposed(pass!(values, { FRACTION - KEPT }, add, sub, times, scaled));
        let rows = transposed(pass!(columns, { FRACTION + KEPT + 3 }, add, sub, times, scaled));
        let middle = _mm_set1_epi16(128);
        for (number, row) in rows.into_iter().enumerate() {
            let (low, high) = (_mm256_castsi256_si128(row), _mm256_extracti128_si256::<1>(row));
            let sixteen = _mm_adds_epi16(_mm_packs_epi32(low, high), middle);
            let eight = _mm_packus_epi16(sixteen, sixteen);
            let to = &mut to[number * stride..number * stride + 8];
            to.copy_from_slice(&_mm_cvtsi128_si64(eight).to_le_bytes());
        }
    }
}

/// Writes the 8 by 8 samples of a block to the beginning of rows that are `stride` apart.
#[inline]
pub(super) fn samples(block: &Block, by: &Quantisation, to: &mut [u8], stride: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::is_wide() {
        // SAFETY: the processor has these instructions.
        return unsafe { avx2::samples(block, by, to, stride) };
    }
    plain::samples(block, by, to, stride);
}

/// The same for a block that has nothing but its mean.
#[inline]
pub(super) fn flat(block: &Block, by: &Quantisation, to: &mut [u8], stride: usize) {
    let mean = i32::from(block[0]).wrapping_mul(by[0]);
    let sample = ((mean.wrapping_add(4) >> 3).wrapping_add(128)).clamp(0, 255) as u8;
    for row in 0..8 {
        to[row * stride..row * stride + 8].fill(sample);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_give_the_same(values in prop::collection::vec(-1024i16..1024, 64), step in 1i32..64) {
            let block: Block = values.try_into().unwrap();
            let (mut plainly, mut widely) = ([0; 64], [0; 64]);
            plain::samples(&block, &[step; 64], &mut plainly, 8);
            samples(&block, &[step; 64], &mut widely, 8);
            prop_assert_eq!(plainly, widely);
        }

        #[test]
        fn a_mean_alone_is_a_shortcut(mean in -2048i16..2048, step in 1i32..16) {
            let mut block = [0; 64];
            block[0] = mean;
            let (mut shortly, mut wholly) = ([0; 64], [0; 64]);
            flat(&block, &[step; 64], &mut shortly, 8);
            samples(&block, &[step; 64], &mut wholly, 8);
            prop_assert_eq!(shortly, wholly);
        }
    }
}
