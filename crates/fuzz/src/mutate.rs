//! A small mutator, for runs without instrumentation: the same seed gives the same inputs.

/// Random numbers that are the same everywhere (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % (end.max(1) as u64)).unwrap_or_default()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

/// What often matters to a parser.
const WORDS: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b":",
    b",",
    b"=",
    b"/",
    b"..",
    b"-1",
    b"null",
    b"true",
    b"1e400",
    b"9223372036854775808",
    b"\r\n",
    b"\n\n",
    b"%2f",
    b"\\u0000",
    b"\xf0\x9f\x92\xa9",
    b"\xed\xa0\x80",
    b"*",
    b"$",
    b"~1",
    b"!",
];

/// One input made of those that there are.
pub fn mutated(corpus: &[Vec<u8>], random: &mut Random, longest: usize) -> Vec<u8> {
    let mut data = random.pick(corpus).cloned().unwrap_or_default();
    for _ in 0..=random.below(4) {
        step(&mut data, corpus, random);
    }
    data.truncate(longest);
    data
}

fn step(data: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(data.len() + 1);
    let end = at + random.below((data.len() - at).min(64) + 1);
    // The lowest byte of a number is as random as the rest of it.
    let byte = random.number().to_le_bytes()[0];
    match random.below(8) {
        0 if at < data.len() => data[at] ^= 1 << random.below(8),
        1 if at < data.len() => data[at] = byte,
        2 => drop(data.drain(at..end)),
        3 => {
            let piece = data[at..end].to_vec();
            data.splice(at..at, piece);
        }
        4 => data.truncate(at),
        5 => {
            let other = random.pick(corpus).cloned().unwrap_or_default();
            let from = random.below(other.len() + 1);
            let to = from + random.below(other.len() - from + 1);
            data.splice(at..end, other[from..to].iter().copied());
        }
        _ => {
            let word = random.pick(WORDS).copied().unwrap_or_default();
            data.splice(at..at, word.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs() {
        let corpus = vec![b"hello".to_vec(), b"{\"a\":1}".to_vec()];
        let inputs = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| mutated(&corpus, &mut random, 100)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
    }
}
