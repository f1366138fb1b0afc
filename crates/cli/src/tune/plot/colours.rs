//! The colours of the plots.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

pub const WHITE: Colour = Colour(255, 255, 255);
pub const INK: Colour = Colour(34, 34, 34);
pub const GREY: Colour = Colour(100, 100, 100);
pub const GRID: Colour = Colour(226, 226, 226);
pub const BLUE: Colour = Colour(76, 120, 168);
pub const RED: Colour = Colour(200, 55, 45);

/// From bad to good: viridis, from its green to its violet. It is even to the eye, survives a copier and colour blindness, and
/// without its yellow every part of it can be seen on white.
const RAMP: [Colour; 8] = [
    Colour(181, 222, 43),
    Colour(110, 206, 88),
    Colour(53, 183, 121),
    Colour(31, 158, 137),
    Colour(38, 130, 142),
    Colour(49, 104, 142),
    Colour(62, 73, 137),
    Colour(72, 30, 112),
];

/// The colour of a value between the worst, 0, and the best, 1.
pub fn ramp(good: f64) -> Colour {
    let place = good.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let at = (place.floor() as usize).min(RAMP.len() - 2);
    let (one, other, part) = (RAMP[at], RAMP[at + 1], place - at as f64);
    let mix = |one: u8, other: u8| (f64::from(one) + (f64::from(other) - f64::from(one)) * part).round() as u8;
    Colour(mix(one.0, other.0), mix(one.1, other.1), mix(one.2, other.2))
}
