//! Eight messages, one in each lane of the processor's widest registers.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_extract_epi64, _mm512_add_epi64, _mm512_extracti64x4_epi64, _mm512_ror_epi64,
    _mm512_set_epi64, _mm512_set1_epi64, _mm512_srli_epi64, _mm512_ternarylogic_epi64,
};

use crate::{Digest, LANES};

/// In bytes: what is hashed in one go.
const BLOCK: usize = 128;

const START: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

const ROUNDS: [u64; 80] = [
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
];

/// Of messages of the same length.
#[target_feature(enable = "avx512f")]
pub(crate) fn digests(messages: [&[u8]; LANES]) -> [Digest; LANES] {
    let mut state = START.map(|word| _mm512_set1_epi64(word.cast_signed()));
    let blocks = messages.map(|message| message.as_chunks::<BLOCK>().0);
    for at in 0..blocks[0].len() {
        mix(&mut state, blocks.map(|blocks| &blocks[at]));
    }
    let ends = messages.map(end);
    let ends = ends.each_ref().map(|(end, blocks)| &end.as_chunks::<BLOCK>().0[..*blocks]);
    for at in 0..ends[0].len() {
        mix(&mut state, ends.map(|end| &end[at]));
    }
    let mut digests = [[0; 64]; LANES];
    for (word, lanes) in state.into_iter().enumerate() {
        for (digest, value) in digests.iter_mut().zip(values(lanes)) {
            digest[8 * word..][..8].copy_from_slice(&value.to_be_bytes());
        }
    }
    digests
}

/// What is left of a message after its whole blocks, with a one, zeros and the length behind it; and how many blocks that is.
fn end(message: &[u8]) -> ([u8; 2 * BLOCK], usize) {
    let rest = message.as_chunks::<BLOCK>().1;
    let mut end = [0; 2 * BLOCK];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let blocks = if rest.len() < BLOCK - 16 { 1 } else { 2 };
    let bits = 8 * message.len() as u128;
    end[blocks * BLOCK - 16..][..16].copy_from_slice(&bits.to_be_bytes());
    (end, blocks)
}

#[target_feature(enable = "avx512f")]
fn mix(state: &mut [__m512i; 8], blocks: [&[u8; BLOCK]; LANES]) {
    let mut words: [__m512i; 16] = std::array::from_fn(|at| word(blocks, at));
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (pass, constants) in ROUNDS.as_chunks::<16>().0.iter().enumerate() {
        for at in 0..16 {
            if pass > 0 {
                let (first, last) = (words[(at + 1) % 16], words[(at + 14) % 16]);
                let first =
                    xor(_mm512_ror_epi64::<1>(first), _mm512_ror_epi64::<8>(first), _mm512_srli_epi64::<7>(first));
                let last =
                    xor(_mm512_ror_epi64::<19>(last), _mm512_ror_epi64::<61>(last), _mm512_srli_epi64::<6>(last));
                words[at] = add(add(words[at], first), add(words[(at + 9) % 16], last));
            }
            let sum = xor(_mm512_ror_epi64::<14>(e), _mm512_ror_epi64::<18>(e), _mm512_ror_epi64::<41>(e));
            // Of each bit: f where e is one, else g.
            let choice = _mm512_ternarylogic_epi64::<0xca>(e, f, g);
            let constant = _mm512_set1_epi64(constants[at].cast_signed());
            let one = add(add(h, sum), add(choice, add(constant, words[at])));
            let sum = xor(_mm512_ror_epi64::<28>(a), _mm512_ror_epi64::<34>(a), _mm512_ror_epi64::<39>(a));
            // Of each bit: what most of the three have.
            let majority = _mm512_ternarylogic_epi64::<0xe8>(a, b, c);
            let two = add(sum, majority);
            (h, g, f, e, d, c, b, a) = (g, f, e, add(d, one), c, b, a, add(one, two));
        }
    }
    for (word, mixed) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = add(*word, mixed);
    }
}

/// The same word of each block.
#[target_feature(enable = "avx512f")]
fn word(blocks: [&[u8; BLOCK]; LANES], at: usize) -> __m512i {
    let of = |lane: usize| i64::from_be_bytes(blocks[lane].as_chunks::<8>().0[at]);
    _mm512_set_epi64(of(7), of(6), of(5), of(4), of(3), of(2), of(1), of(0))
}

#[target_feature(enable = "avx512f")]
fn add(one: __m512i, other: __m512i) -> __m512i {
    _mm512_add_epi64(one, other)
}

#[target_feature(enable = "avx512f")]
fn xor(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

/// What the lanes hold.
#[target_feature(enable = "avx512f")]
fn values(lanes: __m512i) -> [u64; LANES] {
    let halves = [_mm512_extracti64x4_epi64::<0>(lanes), _mm512_extracti64x4_epi64::<1>(lanes)];
    let of = |half: __m256i| {
        [
            _mm256_extract_epi64::<0>(half),
            _mm256_extract_epi64::<1>(half),
            _mm256_extract_epi64::<2>(half),
            _mm256_extract_epi64::<3>(half),
        ]
    };
    let ([a, b, c, d], [e, f, g, h]) = (of(halves[0]), of(halves[1]));
    [a, b, c, d, e, f, g, h].map(i64::cast_unsigned)
}
