//! Disk images: fetched, checked, unpacked, converted.
