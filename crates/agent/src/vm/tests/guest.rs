//! The tiny guest.
