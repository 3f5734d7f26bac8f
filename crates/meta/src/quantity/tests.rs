use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn canonical_texts_are_upstreams() {
    let cases = [
        ("0", "0"),
        ("0Ki", "0"),
        ("1.5", "1500m"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("1024Ki", "1Mi"),
        ("1000", "1k"),
        ("100", "100"),
        ("1e3", "1e3"),
        ("12e5", "1200e3"),
        ("0.1m", "100u"),
        ("0.1n", "1n"),
        ("100Ki", "100Ki"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("-1.5", "-1500m"),
        ("1.001", "1.001"),
        ("16Ei", "9223372036854775807"),
        ("5E", "5E"),
        ("1E3", "1E3"),
        ("+5", "+5"),
        ("05", "05"),
        (".", "0"),
        ("-", "0"),
        ("1.5Ei", "1536Pi"),
        ("0.1Ki", "102400m"),
        ("1e-3", "1e-3"),
        ("123456789012345678901", "123456789012345678901"),
        // Upstream prints "1" here, having no suffix for it; a wrong number is worse than a long one.
        ("1000E", "1000E"),
    ];
    for (text, want) in cases {
        assert_eq!(quantity(text).to_string(), want, "{text}");
    }
}

#[test]
fn bad_texts_are_refused_in_upstreams_words() {
    let format = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for text in ["", "abc", "1 Gi", "1.2.3", "1Gi ", "1,5"] {
        assert_eq!(Quantity::parse(text).expect_err(text).to_string(), format);
    }
    for text in ["1GB".replace('B', "i5"), "1KK".into(), "1i".into(), "1e".into(), "1e99999999999".into()] {
        assert_eq!(Quantity::parse(&text), Err(QuantityError::Suffix), "{text}");
    }
}

#[test]
fn comparison_is_by_value() {
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert_eq!(quantity("1000m"), quantity("1"));
    assert!(quantity("1Gi") > quantity("1G"));
    assert!(quantity("-1") < quantity("0"));
    assert!(quantity("1e100") > quantity("16Ei"));
    assert!(quantity("-1e100") < quantity("-16Ei"));
    assert!(quantity("1n") > quantity("0"));
}

#[test]
fn values_round_away_from_zero_and_saturate() {
    assert_eq!(quantity("1500m").value(), 2);
    assert_eq!(quantity("-1500m").value(), -2);
    assert_eq!(quantity("1500m").milli_value(), 1500);
    assert_eq!(quantity("1n").value(), 1);
    assert_eq!(quantity("2Ki").value(), 2048);
    assert_eq!(quantity("1e30").value(), i64::MAX);
    assert!((quantity("2.5Gi").as_f64() - 2.5 * 1024.0 * 1024.0 * 1024.0).abs() < f64::EPSILON);
}

#[test]
fn sums_keep_the_left_notation() {
    assert_eq!((&quantity("1Gi") + &quantity("512Mi")).to_string(), "1536Mi");
    assert_eq!((&quantity("0") + &quantity("1Gi")).to_string(), "1Gi");
    assert_eq!((&quantity("1") - &quantity("500m")).to_string(), "500m");
    assert_eq!((&quantity("1Gi") - &quantity("1Gi")).to_string(), "0");
}

proptest! {
    #[test]
    fn printing_keeps_the_value(text in "[+-]?[0-9]{1,12}(\\.[0-9]{1,6})?(n|u|m||k|M|G|T|Ki|Mi|Gi|e[0-9])") {
        let parsed = quantity(&text);
        prop_assert_eq!(&quantity(&parsed.to_string()), &parsed);
    }

    #[test]
    fn adding_then_subtracting_is_neutral(a in -1_000_000_000_i64..1_000_000_000, b in -1_000_000_000_i64..1_000_000_000) {
        let (a, b) = (Quantity::from_milli(a, Notation::Decimal), Quantity::from_i64(b, Notation::Binary));
        prop_assert_eq!(&(&a + &b) - &b, a);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[0-9.eEinumkKMGTP+-]*") {
        if let Ok(parsed) = Quantity::parse(&text) {
            let _ = (parsed.to_string().len(), parsed.value(), parsed.milli_value(), parsed.as_f64());
        }
    }
}
