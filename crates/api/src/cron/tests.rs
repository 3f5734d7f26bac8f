use super::*;

fn cron(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|| panic!("{text}"))
}

#[track_caller]
fn fires(text: &str, after: &str, times: &[&str]) {
    let mut time: Timestamp = after.parse().unwrap();
    for expected in times {
        let next = cron(text).next_after(time).unwrap();
        assert_eq!(next, expected.parse().unwrap(), "{text} after {time}");
        assert!(cron(text).fires_in(next), "{text} at {next}");
        time = next;
    }
}

#[test]
fn five_fields_or_a_name() {
    for text in ["0 1 * * *", "*/30 0-6 1,15 jan-mar mon", "@daily", " 5 4 * * ? ", "0 0/6 * * *", "0 0 * * FRI-sat"] {
        assert!(Cron::parse(text).is_some(), "{text}");
    }
    for text in [
        "",
        "0 1 * *",
        "0 0 1 * * *",
        "60 * * * *",
        "a * * * *",
        "*/0 * * * *",
        "5-2 * * * *",
        "0 0 0 * *",
        "@often",
        "0 24 * * *",
        "0 0 32 * *",
        "0 0 * 13 *",
        "0 0 * * 7",
        "1,,2 * * * *",
        "-5 * * * *",
        "+5 * * * *",
        "5- * * * *",
        "*/999 * * * *",
        "0 0 * * fri-mon",
        "TZ=UTC 0 0 * * *",
        "mon * * * *",
        "* * * * *\n* * * * *",
    ] {
        assert!(Cron::parse(text).is_none(), "{text}");
    }
    assert_eq!(Cron::parse("@daily"), Cron::parse("0 0 * * *"));
    assert_eq!(cron("0 0 * jan sun"), cron("0 0 * 1 0"));
}

#[test]
fn how_often_and_how_far_apart() {
    let gap = |text: &str| cron(text).gap();
    assert_eq!((gap("*/15 * * * *"), gap("0,50 * * * *"), gap("0 * * * *")), (Some(15), Some(50), None));
    let offset = |a: &str, b: &str| cron(a).offset(&cron(b));
    assert_eq!(offset("0 1 * * *", "5 1 * * *"), Some(5));
    assert_eq!(offset("55 * * * *", "0 * * * *"), Some(5));
    assert_eq!(offset("0 1 * * *", "0 2 * * *"), None);
}

#[test]
fn the_next_time_is_the_first_after() {
    fires("* * * * *", "2026-11-16T12:00:59.9Z", &["2026-11-16T12:01:00Z", "2026-11-16T12:02:00Z"]);
    fires(
        "*/20 * * * *",
        "2026-11-16T12:00:00Z",
        &["2026-11-16T12:20:00Z", "2026-11-16T12:40:00Z", "2026-11-16T13:00:00Z"],
    );
    fires("30 1 * * *", "2026-12-31T01:30:00Z", &["2027-01-01T01:30:00Z"]);
    fires("0 0 31 * *", "2026-01-31T00:00:00Z", &["2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]);
    fires("0 12 * jan,jul *", "2026-01-31T12:00:00Z", &["2026-07-01T12:00:00Z"]);
    // The sixteenth of November 2026 is a Monday.
    fires("0 9 * * mon-fri", "2026-11-20T09:00:00Z", &["2026-11-23T09:00:00Z"]);
    fires("@weekly", "2026-11-16T00:00:00Z", &["2026-11-22T00:00:00Z"]);
    fires(
        "5/25 23 * * *",
        "2026-11-16T00:00:00Z",
        &["2026-11-16T23:05:00Z", "2026-11-16T23:30:00Z", "2026-11-16T23:55:00Z"],
    );
}

#[test]
fn one_of_two_days_is_enough_if_both_are_said() {
    fires("0 0 13 * fri", "2026-11-07T00:00:00Z", &["2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"]);
    fires("0 0 13 * *", "2026-11-14T00:00:00Z", &["2026-12-13T00:00:00Z"]);
    fires("0 0 ? * fri", "2026-11-14T00:00:00Z", &["2026-11-20T00:00:00Z"]);
    // Every second day is said; `*/1` is not.
    fires("0 0 */2 * fri", "2026-11-19T00:00:00Z", &["2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"]);
    fires("0 0 */1 * fri", "2026-11-19T00:00:00Z", &["2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z"]);
}

#[test]
fn leap_days_come_and_others_do_not() {
    fires("0 0 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    fires("0 0 29 2 *", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]);
    assert_eq!(cron("0 0 30 2 *").next_after("2026-01-01T00:00:00Z".parse().unwrap()), None);
    assert_eq!(cron("* * * * *").next_after(Timestamp::MAX), None);
}

/// What fires is what is next, for every minute of a few days.
#[test]
fn the_next_time_and_the_times_agree() {
    let start: Timestamp = "2028-02-27T22:58:00Z".parse().unwrap();
    for text in ["7,31 */5 * * *", "0 0 29 * mon", "*/45 3-20/4 28-31 feb tue", "59 23 * * *"] {
        let cron = cron(text);
        let mut expected = cron.next_after(start).unwrap();
        for minute in 1..4 * 24 * 60 {
            let time = start + jiff::SignedDuration::from_mins(minute);
            assert_eq!(cron.fires_in(time), time == expected, "{text} at {time}");
            if time == expected {
                let Some(next) = cron.next_after(time) else { break };
                expected = next;
            }
        }
    }
}
