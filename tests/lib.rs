//! End-to-end suites; each lives in its own file beside this one.
