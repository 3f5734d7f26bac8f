//! Pools and volumes on this host's disks.
