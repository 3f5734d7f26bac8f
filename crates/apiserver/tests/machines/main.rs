//! Virtual machines through the API: KubeVirt's subresources, uploads and images' transfers, with a real server, a real
//! TLS agent and WebSockets as virtctl speaks them.

mod agent;
mod bodies;
mod cluster;
mod lifecycle;
mod streams;
