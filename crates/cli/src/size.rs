//! Sizes on the command line, refused there when they are none.

use croft_meta::Quantity;

/// The text as it was given, for the server to read the same way.
pub(crate) fn size(text: &str) -> Result<String, String> {
    match Quantity::parse(text) {
        Ok(size) if size.value() > 0 => Ok(text.to_owned()),
        _ => Err("a size is a number with a unit, such as 512Mi or 20Gi".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_quantities_above_nothing() {
        for text in ["1", "64Mi", "1.5Gi", "20G"] {
            assert_eq!(size(text).as_deref(), Ok(text));
        }
        for text in ["", "lots", "0", "-1Gi", "1GiB", "1 Gi"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
