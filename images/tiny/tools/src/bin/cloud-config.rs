//! Does inside the test guest what its seed says, one step per call (see `/etc/init.d/start`).

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use croft_guest_tools::network::{self, Method};
use croft_guest_tools::seed::{Seed, UserData};
use croft_guest_tools::{accounts, files, report};

const USAGE: &str = "usage: cloud-config instance|hostname|boot|once SEED
       cloud-config nic SEED INTERFACE

instance  prints the id of the instance
hostname  sets the name of the guest
nic       configures an interface, and prints `static`, or `dhcp` when its addresses come from there
boot      does what is done at every boot: bootcmd
once      does what is done once per instance: users, keys, passwords, files, commands";

/// Keys of a cloud-config that are acted on, or mean what this guest does anyway.
const KNOWN: [&str; 14] = [
    "bootcmd",
    "chpasswd",
    "disable_root",
    "fqdn",
    "hostname",
    "password",
    "preserve_hostname",
    "runcmd",
    "ssh_authorized_keys",
    "ssh_pwauth",
    "user",
    "users",
    "write_files",
    "growpart",
];

fn once(seed: &Seed) {
    let config = seed.config();
    for key in config.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
        eprintln!("cloud-config: {key} is not supported by this guest");
    }
    accounts::apply(&config, &seed.keys);
    files::write_all(config.get("write_files"));
    files::run_all(config.get("runcmd"));
    match &seed.user_data {
        UserData::Script(script) => files::run_script(script),
        UserData::Unknown(first) => {
            eprintln!("cloud-config: user data of this kind is not supported by this guest: {first}")
        }
        UserData::None | UserData::CloudConfig(_) => {}
    }
}

fn set_hostname(name: &str) {
    report("hostname", fs::write("/etc/hostname", format!("{name}\n")));
    report("hostname", fs::write("/proc/sys/kernel/hostname", name));
    let hosts = format!("127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n::1\tlocalhost ip6-localhost\n");
    report("hosts", fs::write("/etc/hosts", hosts));
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [step, directory, rest @ ..] = arguments.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let seed = Seed::read(Path::new(directory));
    match (*step, rest) {
        ("instance", []) => println!("{}", seed.instance),
        ("hostname", []) => seed.hostname.as_deref().into_iter().for_each(set_hostname),
        ("boot", []) => files::run_all(seed.config().get("bootcmd")),
        ("once", []) => once(&seed),
        ("nic", [name]) => println!(
            "{}",
            match network::configure(&seed.network, name) {
                Method::Static => "static",
                Method::Dhcp => "dhcp",
            }
        ),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
