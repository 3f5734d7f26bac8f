//! Backups on real targets: a directory, an S3 server and an NFS server, each with everything that a target is used for, and
//! with what goes wrong on it. Servers are processes of their own; `make test` installs them.

mod clusters;
mod damage;
mod directory;
mod golden;
mod kill;
mod memory;
mod nfs;
mod relay;
mod s3;
mod stage;
mod whole;
