//! Label and field selectors.

use croft_meta::selector::{FieldSelector, LabelSelector};

use crate::text;

/// What a selector prints is a selector, and it selects the same.
pub(crate) fn label_selector(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(selector) = LabelSelector::parse(text) else { return };
    let printed = selector.to_string();
    let again = LabelSelector::parse(&printed).unwrap_or_else(|error| panic!("{printed:?} from {text:?}: {error}"));
    assert_eq!(again.to_string(), printed, "{text:?}");
    let keys: Vec<&str> = selector.requirements().iter().map(|requirement| requirement.key.as_str()).collect();
    let values = selector.requirements().iter().flat_map(|requirement| requirement.values.iter());
    for value in values.map(String::as_str).chain(["", "1", "x"]) {
        // Every key has the value; then one key alone.
        assert_eq!(selector.matches(|_| Some(value)), again.matches(|_| Some(value)), "{text:?} {value:?}");
        for key in keys.iter().take(4) {
            let label = |asked: &str| (asked == *key).then_some(value);
            assert_eq!(selector.matches(label), again.matches(label), "{text:?} {key:?}={value:?}");
        }
    }
    assert_eq!(selector.matches(|_| None), again.matches(|_| None), "{text:?}");
}

/// The same for fields; and the one name that it asks for, by which requests are authorized, is all that it can select.
pub(crate) fn field_selector(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let selected = croft_apiserver::fuzzing::selected_name(text);
    let Ok(selector) = FieldSelector::parse(text) else {
        assert_eq!(selected, "", "a name out of a selector that is none: {text:?}");
        return;
    };
    let printed = selector.to_string();
    let again = FieldSelector::parse(&printed).unwrap_or_else(|error| panic!("{printed:?} from {text:?}: {error}"));
    let sorted = |selector: &FieldSelector| {
        let mut all = selector.requirements().to_vec();
        all.sort_by(|a, b| (&a.field, &a.value, a.negated).cmp(&(&b.field, &b.value, b.negated)));
        all
    };
    assert_eq!(sorted(&again), sorted(&selector), "{text:?}");
    if !selected.is_empty() {
        let other = format!("{selected}-other");
        for value in ["", "x", other.as_str()] {
            let matches = selector.matches(|field| Some(if field == "metadata.name" { value } else { "x" }));
            assert!(!matches, "{text:?} is authorized for {selected:?} and selects {value:?}");
        }
    }
}
