//! Logarithm, exponential and the normal distribution from additions, multiplications and divisions alone, which every
//! machine rounds alike (RANDOM-1). Good to a few units of the last digit, the normal distribution to 1e-13.

const LN_2: f64 = std::f64::consts::LN_2;

/// Of 0 to 14. Most of a Gaussian process's time goes into `exp`: a division for each term would double it.
const INVERSE_FACTORIALS: [f64; 15] = {
    let mut inverse = [1.0; 15];
    let mut factorial = 1.0;
    let mut number = 1;
    while number < 15 {
        factorial *= number as f64;
        inverse[number] = 1.0 / factorial;
        number += 1;
    }
    inverse
};

/// The natural logarithm of a number above zero.
pub(crate) fn ln(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_infinite() {
        return x;
    }
    if x < f64::MIN_POSITIVE {
        return ln(x * (1_u64 << 54) as f64) - 54.0 * LN_2;
    }
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh s, and |s| is at most 0.172: the twelfth term is below the last digit.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..12).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    exponent as f64 * LN_2 + 2.0 * s * series
}

pub(crate) fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    if x < -700.0 {
        return 0.0;
    }
    // x = n ln 2 + rest with |rest| at most 0.347: 14 terms reach the last digit.
    let n = (x / LN_2).round();
    // ln 2 in two parts, so that the rest keeps its last digits.
    let rest = (x - n * 0.693_147_180_369_123_8) - n * 1.908_214_929_270_587_7e-10;
    let series = INVERSE_FACTORIALS.iter().rev().fold(0.0, |sum, inverse| sum * rest + inverse);
    series * f64::from_bits(((n as i64 + 1023) as u64) << 52)
}

pub(crate) fn normal_density(x: f64) -> f64 {
    exp(-0.5 * x * x) * 0.398_942_280_401_432_7
}

/// How much of the standard normal distribution lies below `x`: a series about zero (Marsaglia 2004), a continued
/// fraction in the tails, where the series would lose its digits.
pub(crate) fn normal_below(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x > 4.0 {
        return 1.0 - normal_below(-x);
    }
    if x < -4.0 {
        let fraction = (1..60).rev().fold(-x, |rest, term| -x + f64::from(term) / rest);
        return normal_density(x) / fraction;
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-17 {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 + sum * normal_density(x)
}

/// The number that this much of the standard normal distribution lies below, by halving; within ±8.
pub(crate) fn normal_quantile(below: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if normal_below(middle) < below {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(ours: f64, other: f64) -> bool {
        (ours - other).abs() <= 4e-15 * other.abs().max(1e-300)
    }

    #[test]
    fn they_agree_with_the_systems_own_functions() {
        for step in -600..=600 {
            let x = f64::from(step) * 1.037;
            assert!(close(exp(x), x.exp()), "exp({x}) is {} and not {}", exp(x), x.exp());
            let positive = x.exp();
            assert!((ln(positive) - positive.ln()).abs() <= 4e-15 * x.abs().max(1.0), "ln({positive})");
        }
        assert_eq!((ln(1.0), ln(0.0), exp(0.0), exp(f64::NEG_INFINITY)), (0.0, f64::NEG_INFINITY, 1.0, 0.0));
        assert!(close(ln(5e-324), -744.440_071_921_381_3));
    }

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        let table = [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-2.0, 0.022_750_131_948_179_21),
            (-3.9, 4.809_634_401_760_274e-5),
            (-5.0, 2.866_515_718_791_939e-7),
        ];
        for (x, below) in table {
            assert!((normal_below(x) / below - 1.0).abs() < 1e-9, "{x}: {} and not {below}", normal_below(x));
        }
        for below in [1e-6, 0.01, 0.3, 0.5, 0.9, 0.999] {
            assert!((normal_below(normal_quantile(below)) / below - 1.0).abs() < 1e-9, "{below}");
        }
    }
}
