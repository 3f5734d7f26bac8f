//! SHA-512 of several messages side by side.
//!
//! One message is a chain of steps that each wait for the one before, so that a processor is mostly idle while it hashes. With
//! AVX-512, eight messages go through the same steps together, and take little longer than two one after the other.

#[cfg(target_arch = "x86_64")]
mod avx512;

/// As many messages at most are hashed together.
pub const LANES: usize = 8;
/// Fewer are quicker one by one.
#[cfg(target_arch = "x86_64")]
const FEWEST: usize = 3;

pub type Digest = [u8; 64];

/// One digest for each message, in their order. Only messages of the same length are hashed together.
pub fn digests(messages: &[&[u8]]) -> Vec<Digest> {
    messages.chunks(LANES).flat_map(|together| side_by_side(together).unwrap_or_else(|| one_by_one(together))).collect()
}

fn one_by_one(messages: &[&[u8]]) -> Vec<Digest> {
    let digest = |message: &&[u8]| {
        let mut digest = [0; 64];
        digest.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, message).as_ref());
        digest
    };
    messages.iter().map(digest).collect()
}

/// None if this processor cannot, or these messages are not for it.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn side_by_side(messages: &[&[u8]]) -> Option<Vec<Digest>> {
    let length = messages.first()?.len();
    let is_fit = messages.len() >= FEWEST && messages.iter().all(|message| message.len() == length);
    if !is_fit || !std::arch::is_x86_feature_detected!("avx512f") {
        return None;
    }
    // Lanes without a message repeat the first one.
    let lanes = std::array::from_fn(|lane| *messages.get(lane).unwrap_or(&messages[0]));
    // SAFETY: the processor has just been asked whether it can.
    let digests = unsafe { avx512::digests(lanes) };
    Some(digests[..messages.len()].to_vec())
}

#[cfg(not(target_arch = "x86_64"))]
fn side_by_side(_: &[&[u8]]) -> Option<Vec<Digest>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Different from its neighbours in every byte.
    fn message(number: usize, length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from((at * 31 + number * 17 + at / 251) % 256).unwrap()).collect()
    }

    #[test]
    fn the_digests_are_those_of_the_messages_one_by_one() {
        for length in [0, 1, 111, 112, 119, 120, 127, 128, 129, 239, 240, 255, 256, 1000, 4096, 100_001] {
            for count in 0..=2 * LANES + 1 {
                let messages: Vec<_> = (0..count).map(|number| message(number, length)).collect();
                let messages: Vec<_> = messages.iter().map(Vec::as_slice).collect();
                assert!(digests(&messages) == one_by_one(&messages), "{count} of {length} bytes");
            }
        }
    }

    #[test]
    fn messages_of_different_lengths_are_taken_too() {
        let messages: Vec<_> = (0..LANES).map(|number| message(number, 300 + number)).collect();
        let messages: Vec<_> = messages.iter().map(Vec::as_slice).collect();
        assert!(digests(&messages) == one_by_one(&messages));
    }

    #[test]
    fn a_known_digest() {
        let digest = digests(&[b"abc".as_slice(); LANES])[LANES - 1];
        assert_eq!(digest[..8], [0xdd, 0xaf, 0x35, 0xa1, 0x93, 0x61, 0x7a, 0xba]);
    }
}
