use super::*;

fn changed(collection: &Collection, revision: u64, size: usize) {
    let value = format!(r#"{{"metadata":{{"name":"a"}},"data":"{}"}}"#, "x".repeat(size));
    let stored = Stored { id: "a", revision: Revision(revision), value: Some(value.as_bytes()) };
    collection.apply([stored], false);
}

fn kept(collection: &Collection) -> usize {
    collection.state.read().history.len()
}

#[test]
fn history_is_bounded_by_count_and_by_bytes() {
    let of = |count: u64, size| {
        let collection = Collection::new(Revision::ZERO);
        (1..=count).for_each(|n| changed(&collection, n, size));
        kept(&collection)
    };
    assert_eq!(of(9_000, 10), HISTORY_MAX);
    assert_eq!(of(200, 100_000), HISTORY_MIN);
    let large = of(60, 2 << 20);
    assert!((10..=16).contains(&large), "{large}");
}

#[test]
fn starting_over_tells_every_watcher() {
    let collection = Collection::new(Revision::ZERO);
    changed(&collection, 1, 1);
    let mut at_the_end = collection.cursor_after(Revision(1)).unwrap();
    collection.start_over(Revision(5), |_| false);
    assert!(collection.get("a").is_none());
    assert_eq!(collection.changed_at(), Revision(5));
    let lost = collection.read(&mut at_the_end, usize::MAX, &mut Vec::new()).unwrap_err();
    assert_eq!(lost.oldest, Revision(5));
    let mut fresh = collection.cursor_after(Revision(5)).unwrap();
    changed(&collection, 6, 1);
    let mut seen = Vec::new();
    assert!(collection.read(&mut fresh, usize::MAX, &mut seen).unwrap());
    assert_eq!(seen.len(), 1);
    assert!(seen[0].previous.is_none());
}

#[test]
fn what_is_newer_than_asked_for_is_not_given() {
    let collection = Collection::new(Revision::ZERO);
    changed(&collection, 5, 1);
    let count = |of| {
        let mut count = 0;
        let scanned = collection.scan("", None, of, |_| {
            count += 1;
            true
        });
        scanned.map(|at| (at.0, count))
    };
    assert_eq!(count(Some(Revision(5))), Ok((5, 1)));
    assert_eq!(count(None), Ok((5, 1)));
    assert_eq!(count(Some(Revision(4))), Err(Newer));
    assert!(collection.get_of("a", Some(Revision(5))).unwrap().is_some());
    assert!(matches!(collection.get_of("a", Some(Revision(4))), Err(Newer)));
}

/// Something may have been deleted before the history starts.
#[test]
fn nothing_is_known_of_moments_before_the_history() {
    let collection = Collection::new(Revision::ZERO);
    let value: &[u8] = br#"{"metadata":{"name":"a"}}"#;
    collection.apply([Stored { id: "a", revision: Revision(3), value: Some(value) }], true);
    collection.start_history(Revision(7));
    assert_eq!(collection.scan("", None, Some(Revision(6)), |_| true), Err(Newer));
    assert_eq!(collection.scan("", None, Some(Revision(7)), |_| true), Ok(Revision(7)));
    let empty = Collection::new(Revision(7));
    assert_eq!(empty.scan("", None, Some(Revision(6)), |_| true), Err(Newer));
}
