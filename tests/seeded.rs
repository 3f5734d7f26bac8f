//! What is random, and the same for the same seed.

use std::time::Duration;

/// Numbers that follow from a seed.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The seed is printed, and can be given again with `CROFT_TEST_SEED`.
    pub fn seeded(seed: u64) -> Self {
        let seed = std::env::var("CROFT_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
        println!("seed {seed}");
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// What cannot be made smaller.
    pub fn noise(&mut self, length: usize) -> Vec<u8> {
        let mut noise = vec![0; length];
        for piece in noise.chunks_mut(8) {
            piece.copy_from_slice(&self.number().to_le_bytes()[..piece.len()]);
        }
        noise
    }

    /// Some moment within this time: that is when somebody is killed, and no condition says it.
    pub async fn moment(&mut self, within: Duration) {
        let micros = self.below(u64::try_from(within.as_micros()).unwrap_or(u64::MAX).max(1));
        println!("after {micros} µs");
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
}
