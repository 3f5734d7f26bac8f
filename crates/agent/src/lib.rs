//! What runs on every node: virtual machines, their networks, volumes and images.
