//! The host's side of virtual networks.
