//! The numbers that can be sent, and how two of them become one.
//!
//! The loops are plain, over slices of one length: the compiler makes vector code of them. They run on pieces that lie in
//! the first-level cache.

/// How the values of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Sum,
    /// The sum, divided by the number of ranks. Not for integers.
    Mean,
    /// The greatest; where one is not a number, the result is none either.
    Max,
    /// The sum of all values times `1 / world size`, each multiplied before it is added: the average as PyTorch's
    /// DistributedDataParallel takes it, which does not overflow and rounds differently from [`Op::Mean`]. Not for integers.
    ScaledSum,
}

impl Op {
    pub(crate) const ALL: [Op; 4] = [Op::Sum, Op::Mean, Op::Max, Op::ScaledSum];

    /// Its name in errors and in Python.
    pub fn name(self) -> &'static str {
        match self {
            Op::Sum => "sum",
            Op::Mean => "mean",
            Op::Max => "max",
            Op::ScaledSum => "scaled sum",
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A number that collectives carry: `f32`, `f64` or `i64`.
pub trait Element: Copy + PartialOrd + Send + Sync + sealed::Sealed + 'static {
    /// Its name in errors.
    const NAME: &'static str;
    /// Whether it can be divided.
    const IS_FLOAT: bool;
    #[doc(hidden)]
    const CODE: u8;
    #[doc(hidden)]
    fn from_f64(value: f64) -> Self;
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;
    #[doc(hidden)]
    fn times(self, other: Self) -> Self;
    #[doc(hidden)]
    fn divided_by(self, other: Self) -> Self;
}

pub(crate) const NAMES: [&str; 3] = [f32::NAME, f64::NAME, i64::NAME];

macro_rules! element {
    ($kind:ident, $code:literal, $is_float:literal, $plus:expr, $times:expr, $divided:expr) => {
        impl sealed::Sealed for $kind {}
        impl Element for $kind {
            const NAME: &'static str = stringify!($kind);
            const IS_FLOAT: bool = $is_float;
            const CODE: u8 = $code;
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $kind
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                $times(self, other)
            }
            #[inline(always)]
            fn divided_by(self, other: Self) -> Self {
                $divided(self, other)
            }
        }
    };
}

element!(f32, 0, true, |a, b| a + b, |a, b| a * b, |a, b| a / b);
element!(f64, 1, true, |a, b| a + b, |a, b| a * b, |a, b| a / b);
// Integers wrap, as they do in numpy and torch.
element!(i64, 2, false, i64::wrapping_add, i64::wrapping_mul, i64::wrapping_div);

/// `into[i] = first[i] op second[i]`.
fn pairs<T: Element>(into: &mut [T], first: &[T], second: &[T], join: impl Fn(T, T) -> T) {
    for ((into, first), second) in into.iter_mut().zip(first).zip(second) {
        *into = join(*first, *second);
    }
}

/// `into[i] = into[i] op next[i]`.
fn onto<T: Element>(into: &mut [T], next: &[T], join: impl Fn(T, T) -> T) {
    for (into, next) in into.iter_mut().zip(next) {
        *into = join(*into, *next);
    }
}

fn joined<'a, T: Element>(
    into: &mut [T],
    count: usize,
    part: impl Fn(usize) -> &'a [T],
    join: impl Fn(T, T) -> T + Copy,
    first: impl Fn(T) -> T,
) {
    if count == 1 {
        into.iter_mut().zip(part(0)).for_each(|(into, only)| *into = first(*only));
        return;
    }
    pairs(into, part(0), part(1), |a, b| join(first(a), b));
    (2..count).for_each(|rank| onto(into, part(rank), join));
}

#[inline(always)]
fn greater<T: Element>(a: T, b: T) -> T {
    // `a != a`: it is not a number, and stays.
    #[allow(clippy::eq_op)]
    if a > b || a != a { a } else { b }
}

/// Joins what `count` ranks gave, in their order, into `into`. All parts are as long as it.
pub(crate) fn reduce<'a, T: Element>(into: &mut [T], count: usize, part: impl Fn(usize) -> &'a [T], op: Op) {
    match op {
        Op::Sum => joined(into, count, part, T::plus, |a| a),
        Op::Max => joined(into, count, part, greater, |a| a),
        Op::Mean => {
            joined(into, count, part, T::plus, |a| a);
            let count = T::from_f64(count as f64);
            into.iter_mut().for_each(|value| *value = value.divided_by(count));
        }
        Op::ScaledSum => {
            let scale = T::from_f64(1.0 / count as f64);
            joined(into, count, part, |a, b| a.plus(b.times(scale)), |a| a.times(scale));
        }
    }
}
