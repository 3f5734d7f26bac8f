//! Quantities of resources: `500m`, `1.5Gi`, `2e3`. Exact decimals, never floats.
//!
//! A value is `mantissa × 10^scale`. As upstream, nothing is finer than a billionth (rounded away
//! from zero) and binary quantities stop at 2^63-1. Mantissas keep 38 digits; upstream keeps all.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

const NANO: i32 = -9;
/// How many decimal digits upstream handles in an int64; only these keep the text as written.
const FAST_DIGITS: usize = 18;

/// Why a text is not a quantity, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Which family of suffixes a quantity was written with, and is printed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notation {
    /// `12e6`.
    DecimalExponent,
    /// `12Mi`.
    Binary,
    /// `12M`.
    #[default]
    Decimal,
}

/// An exact amount. Equality and order are by value: `1Ki == 1024`.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    notation: Notation,
    /// The text as written, when upstream would print it back unchanged.
    text: Option<Box<str>>,
}

impl Quantity {
    pub fn from_i64(value: i64, notation: Notation) -> Self {
        Self { mantissa: value.into(), scale: 0, notation, text: None }
    }

    pub fn from_milli(value: i64, notation: Notation) -> Self {
        Self { mantissa: value.into(), scale: -3, notation, text: None }
    }

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let (suffix, notation) = Suffix::parse(parts.suffix).ok_or(QuantityError::Suffix)?;
        let digits = parts.whole.len() + parts.fraction.len();
        let (mut mantissa, mut scale) = decimal(parts.whole, parts.fraction);
        let mut notation = notation;
        let keep;
        match suffix {
            Suffix::Power10(exponent) => {
                scale = scale.saturating_add(exponent);
                let shifted_ends_in_000 = {
                    let joined = format!("{}{}", parts.whole, parts.fraction);
                    joined.ends_with("000") || joined.starts_with('0')
                };
                keep = digits <= FAST_DIGITS && scale >= NANO && scale % 3 == 0 && !shifted_ends_in_000;
            }
            Suffix::Power2(exponent) => {
                let estimate = 14 - i64::from(exponent) * 3 / 10;
                let short = i64::try_from(digits).is_ok_and(|digits| digits <= estimate);
                keep = short && parts.fraction.is_empty() && mantissa & 7 != 0;
                (mantissa, scale) = multiply(mantissa, scale, 1 << exponent);
            }
        }
        (mantissa, scale) = round_away(mantissa, scale, NANO);
        let mut quantity = Self { mantissa, scale, notation, text: None };
        if notation == Notation::Binary {
            let largest = Self::from_i64(i64::MAX, notation);
            if quantity > largest {
                quantity = largest;
            }
            if !parts.fraction.is_empty() && mantissa != 0 && quantity < Self::from_i64(1, notation) {
                notation = Notation::Decimal;
            }
        }
        if parts.negative {
            quantity.mantissa = -quantity.mantissa;
        }
        quantity.notation = notation;
        quantity.text = keep.then(|| text.into());
        Ok(quantity)
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn notation(&self) -> Notation {
        self.notation
    }

    /// The amount in units, rounded away from zero; saturates.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded away from zero; saturates.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    fn scaled_value(&self, scale: i32) -> i64 {
        let (mantissa, own) = round_away(self.mantissa, self.scale, scale);
        let value = shift(mantissa, own.saturating_sub(scale));
        let limit = if mantissa < 0 { i64::MIN } else { i64::MAX };
        value.and_then(|value| i64::try_from(value).ok()).unwrap_or(limit)
    }

    /// The nearest float.
    pub fn as_f64(&self) -> f64 {
        format!("{}e{}", self.mantissa, self.scale).parse().unwrap_or(f64::NAN)
    }

    /// `left ± right`; a zero left side takes the right side's notation, as upstream does.
    fn sum(&self, other: &Self, sign: i128) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        let scale = self.scale.min(other.scale);
        let at = |quantity: &Self| shift(quantity.mantissa, quantity.scale.saturating_sub(scale));
        let exact = at(self).zip(at(other)).and_then(|(a, b)| a.checked_add(sign * b));
        let (mantissa, scale) = exact.map_or_else(
            // Too far apart for 38 digits: the smaller one does not count.
            || {
                if self.scale >= other.scale {
                    (self.mantissa, self.scale)
                } else {
                    (sign * other.mantissa, other.scale)
                }
            },
            |mantissa| (mantissa, scale),
        );
        Self { mantissa, scale, notation, text: None }
    }

    fn canonical(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        let kibi = Self::from_i64(1024, Notation::Binary);
        let minus_kibi = Self::from_i64(-1024, Notation::Binary);
        let small = *self > minus_kibi && *self < kibi;
        match self.whole() {
            Some(whole) if self.notation == Notation::Binary && !small => binary_text(whole),
            _ => decimal_text(self.mantissa, self.scale, self.notation == Notation::DecimalExponent),
        }
    }

    /// The value, if it is a whole number that 128 bits hold.
    fn whole(&self) -> Option<i128> {
        if self.scale >= 0 {
            return shift(self.mantissa, self.scale);
        }
        let divisor = 10_i128.checked_pow(self.scale.unsigned_abs())?;
        (self.mantissa % divisor == 0).then(|| self.mantissa / divisor)
    }
}

fn binary_text(mut whole: i128) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut step = 0;
    while whole % 1024 == 0 && step + 1 < SUFFIXES.len() {
        whole /= 1024;
        step += 1;
    }
    format!("{whole}{}", SUFFIXES[step])
}

fn decimal_text(mut mantissa: i128, mut scale: i32, exponent_form: bool) -> String {
    // A sum may leave a suffix notation with a power that only an exponent can write.
    let exponent_form = exponent_form || scale > 60;
    while mantissa % 10 == 0 && mantissa != 0 {
        mantissa /= 10;
        scale += 1;
    }
    // Exa is the largest suffix; larger powers go into the number.
    let largest = if exponent_form { scale } else { scale.min(18) };
    let target = largest - largest.rem_euclid(3);
    let number = format!("{mantissa}{}", "0".repeat(usize::try_from(scale - target).unwrap_or(0)));
    if exponent_form {
        return if target == 0 { number } else { format!("{number}e{target}") };
    }
    let suffix = match target {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    };
    format!("{number}{suffix}")
}

/// `mantissa × 10^by`, if it fits.
fn shift(mantissa: i128, by: i32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    let power = 10_i128.checked_pow(u32::try_from(by).ok()?)?;
    mantissa.checked_mul(power)
}

/// Raises the scale to at least `scale`, rounding away from zero.
fn round_away(mantissa: i128, scale: i32, least: i32) -> (i128, i32) {
    if scale >= least || mantissa == 0 {
        return (mantissa, scale.max(least));
    }
    let drop = least.saturating_sub(scale).unsigned_abs();
    let Some(divisor) = 10_i128.checked_pow(drop) else { return (mantissa.signum(), least) };
    let up = if mantissa % divisor == 0 { 0 } else { mantissa.signum() };
    (mantissa / divisor + up, least)
}

/// Multiplies, dropping low digits when 38 are not enough.
fn multiply(mut mantissa: i128, mut scale: i32, by: i128) -> (i128, i32) {
    loop {
        if let Some(product) = mantissa.checked_mul(by) {
            return (product, scale);
        }
        mantissa /= 10;
        scale += 1;
    }
}

/// The digits as a mantissa and a scale; digits past the 38th only count as zeros.
fn decimal(whole: &str, fraction: &str) -> (i128, i32) {
    let mut mantissa = 0_i128;
    let mut scale = 0_i32;
    for (index, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let in_fraction = index >= whole.len();
        let next = mantissa.checked_mul(10).and_then(|m| m.checked_add(i128::from(digit - b'0')));
        match next {
            Some(next) => {
                mantissa = next;
                scale -= i32::from(in_fraction);
            }
            None => scale += i32::from(!in_fraction),
        }
    }
    (mantissa, scale)
}

enum Suffix {
    Power2(u8),
    Power10(i32),
}

impl Suffix {
    fn parse(text: &str) -> Option<(Self, Notation)> {
        let decimal = |exponent| Some((Self::Power10(exponent), Notation::Decimal));
        let binary = |exponent| Some((Self::Power2(exponent), Notation::Binary));
        match text {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let exponent = text.strip_prefix(['e', 'E'])?.parse().ok()?;
                Some((Self::Power10(exponent), Notation::DecimalExponent))
            }
        }
    }
}

struct Parts<'a> {
    negative: bool,
    /// Without leading zeros, but never empty.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    /// Upstream's scanner, which is laxer than the pattern it quotes: `.` and `-` are zero.
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Self { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

/// The canonical form, or the text as written where upstream keeps it.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.mantissa.signum().cmp(&other.mantissa.signum());
        if by_sign != Ordering::Equal || self.mantissa == 0 {
            return by_sign;
        }
        let scale = self.scale.min(other.scale);
        let at = |quantity: &Self| shift(quantity.mantissa, quantity.scale.saturating_sub(scale));
        match (at(self), at(other)) {
            (Some(a), Some(b)) => a.cmp(&b),
            // The one that does not fit in 128 bits is the farther from zero.
            (None, _) if self.mantissa > 0 => Ordering::Greater,
            (None, _) => Ordering::Less,
            (_, None) if self.mantissa > 0 => Ordering::Less,
            (_, None) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl Add<&Quantity> for &Quantity {
    type Output = Quantity;

    fn add(self, other: &Quantity) -> Quantity {
        self.sum(other, 1)
    }
}

impl Sub<&Quantity> for &Quantity {
    type Output = Quantity;

    fn sub(self, other: &Quantity) -> Quantity {
        self.sum(other, -1)
    }
}

#[cfg(test)]
mod tests;
