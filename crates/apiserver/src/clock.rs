//! What time it is, in the forms that objects and tables need.

use croft_meta::time;
use jiff::Timestamp;

/// Seconds since the epoch.
pub(crate) fn now_seconds() -> i64 {
    Timestamp::now().as_second()
}

/// As metadata has it: RFC 3339, UTC, whole seconds.
pub(crate) fn now_rfc3339() -> String {
    time::format_seconds(Timestamp::now())
}
