//! What can be done with an image. Files go in and out as streams, which are `harvester`'s.

use super::state::Look;

/// The actions that make sense for an image as it is.
pub(super) fn offered(image: &Look<'_>) -> Vec<&'static str> {
    let is_waiting = image.spec.source_type.as_deref() == Some("upload") && image.is_true("Initialized");
    if is_waiting && !image.is_true("Imported") { vec!["upload"] } else { Vec::new() }
}

/// Where else there is something about it.
pub(super) fn links(image: &Look<'_>) -> Vec<&'static str> {
    if image.is_true("Imported") { vec!["download"] } else { Vec::new() }
}
