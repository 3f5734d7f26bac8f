//! For `croft-fuzz`: how the audit log is read.

use super::filter::Filter;
use super::reader::Cursor;
use crate::request::Query;

/// A line is judged the same whenever it is asked about; a cursor is written as it was read.
pub(crate) fn judge(query: &Query, line: &[u8]) {
    if let Ok(filter) = Filter::parse(query) {
        assert_eq!(filter.judge(line), filter.judge(line));
    }
    if let Some(text) = query.get("before")
        && let Ok(cursor) = text.parse::<Cursor>()
    {
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
}
