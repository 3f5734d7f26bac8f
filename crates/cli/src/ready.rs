//! What is said once the server is ready: where it is, how to get in, what to do next.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use croft_pki::Secret;

pub(crate) fn message(addresses: &[SocketAddr], kubeconfig: &Path, password: Option<&Secret>, host: IpAddr) -> String {
    // It is read in another terminal, which may be in another directory. Failing means that there is no current one.
    let kubeconfig = &std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    let mut out = String::from("\nCroft is ready.\n\n");
    let mut line = |label: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "  {label:<12}{value}");
    };
    if let Some(url) = web_address(addresses, host) {
        line("web", &url);
    }
    line("kubeconfig", &kubeconfig.display().to_string());
    if let Some(password) = password {
        line("user", "admin");
        line("password", &format!("{}  (shown only this once)", password.reveal()));
    }
    let kubeconfig = quoted(kubeconfig);
    let _ = writeln!(out, "\nNext: {} demo --kubeconfig {kubeconfig}", own_name());
    let _ = writeln!(out, "  or: kubectl --kubeconfig {kubeconfig} get virtualmachines,nodes\n");
    out
}

/// How to call this program again: by its name where the PATH finds it, else by its path.
fn own_name() -> String {
    let own = std::env::current_exe().unwrap_or_else(|_| "croft".into());
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&dirs).any(|dir| dir.join("croft") == own);
    if is_found { "croft".to_owned() } else { quoted(&own) }
}

/// The path as one word of a shell.
fn quoted(path: &Path) -> String {
    crate::shell_word(&path.display().to_string())
}

/// The address to type into a browser: on the usual port if there is a listener on it.
fn web_address(addresses: &[SocketAddr], host: IpAddr) -> Option<String> {
    let address = addresses.iter().find(|address| address.port() == 443).or(addresses.first())?;
    let ip = if address.ip().is_unspecified() { host } else { address.ip() };
    Some(match address.port() {
        443 if ip.is_ipv6() => format!("https://[{ip}]"),
        443 => format!("https://{ip}"),
        port => format!("https://{}", SocketAddr::new(ip, port)),
    })
}

/// The address of this machine that other machines most likely reach it by.
pub(crate) fn own_address() -> IpAddr {
    // Connecting a datagram socket sends nothing: it only asks the kernel which way packets would leave. The address is
    // one reserved for documentation, so it takes the default route.
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).and_then(|()| socket.local_addr()));
    asked.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> IpAddr {
        "192.0.2.7".parse().unwrap()
    }

    #[test]
    fn web_address_prefers_the_usual_port() {
        for (addresses, expected) in [
            (&["0.0.0.0:6443", "0.0.0.0:443"][..], "https://192.0.2.7"),
            (&["0.0.0.0:6443"], "https://192.0.2.7:6443"),
            (&["127.0.0.1:6443"], "https://127.0.0.1:6443"),
            (&["[::1]:443"], "https://[::1]"),
            (&["[::1]:6443"], "https://[::1]:6443"),
        ] {
            let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(web_address(&addresses, host()).as_deref(), Some(expected));
        }
    }

    #[test]
    fn next_command_works_from_anywhere() {
        let here = std::env::current_dir().unwrap();
        for (path, expected) in [
            ("/data/kubeconfig", "--kubeconfig /data/kubeconfig get".to_owned()),
            ("/my data/kubeconfig", "--kubeconfig '/my data/kubeconfig' get".to_owned()),
            ("/it's/kubeconfig", r"--kubeconfig '/it'\''s/kubeconfig' get".to_owned()),
            ("data/kubeconfig", format!("--kubeconfig {} get", quoted(&here.join("data/kubeconfig")))),
        ] {
            let message = message(&["0.0.0.0:6443".parse().unwrap()], Path::new(path), None, host());
            assert!(message.contains(&expected), "{path}: {message}");
        }
    }

    #[test]
    fn password_is_shown_only_when_new() {
        let addresses = ["0.0.0.0:6443".parse().unwrap()];
        let path = Path::new("/data/kubeconfig");
        let first = message(&addresses, path, Some(&Secret::new("abc-def")), host());
        assert!(first.contains("abc-def") && first.contains("/data/kubeconfig"), "{first}");
        assert!(first.contains("https://192.0.2.7:6443") && first.contains("Next: "), "{first}");
        assert!(!message(&addresses, path, None, host()).contains("password"));
    }
}
