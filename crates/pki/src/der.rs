//! As much of DER as it takes to change a part of a certificate or of a request for one.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const SEQUENCE: u8 = 0x30;

/// One DER element: tag, length, value.
pub(crate) fn tlv(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(value.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = value.len().to_be_bytes();
            let digits: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | u8::try_from(digits.len()).expect("a usize has at most 8 bytes"));
            out.extend(digits);
        }
    }
    out.extend_from_slice(value);
    out
}

/// The elements that follow each other in `der`.
pub(crate) fn elements(mut der: &[u8]) -> Result<Vec<&[u8]>, rcgen::Error> {
    let mut found = Vec::new();
    while !der.is_empty() {
        let (header, length) = measure(der)?;
        let (element, rest) = der.split_at_checked(header + length).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        found.push(element);
        der = rest;
    }
    Ok(found)
}

pub(crate) fn contents(der: &[u8]) -> Result<&[u8], rcgen::Error> {
    let (header, length) = measure(der)?;
    der.get(header..header + length).ok_or(rcgen::Error::CouldNotParseCertificate)
}

/// Lengths of the header and of the value of the element that `der` begins with.
fn measure(der: &[u8]) -> Result<(usize, usize), rcgen::Error> {
    let broken = || rcgen::Error::CouldNotParseCertificate;
    let first = usize::from(*der.get(1).ok_or_else(broken)?);
    if first < 0x80 {
        return Ok((2, first));
    }
    let digits = der.get(2..2 + (first & 0x7f)).filter(|digits| digits.len() <= 4).ok_or_else(broken)?;
    let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
    Ok((2 + digits.len(), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_every_size_survive() {
        for size in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let value = vec![7; size];
            let element = tlv(SEQUENCE, &value);
            assert_eq!(contents(&element).unwrap(), value, "{size}");
            assert_eq!(elements(&element).unwrap(), vec![&element[..]], "{size}");
        }
    }

    #[test]
    fn truncated_der_is_an_error() {
        for der in [&[0x30][..], &[0x30, 0x05, 1], &[0x30, 0x82, 1], &[0x30, 0x89, 1, 1, 1, 1, 1, 1, 1, 1, 1]] {
            assert!(elements(der).is_err(), "{der:?}");
        }
    }
}
