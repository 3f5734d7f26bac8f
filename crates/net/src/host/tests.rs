//! With real links, rules and clients, in network namespaces of their own. They need root, `nft`, `ip` and `busybox`.

mod bed;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use self::bed::{Bed, Guest, bed, eventually};
use super::*;
use crate::nic::{Attachment, HostPort, Port, Protocol};

fn nat(ports: &[u16], host_ports: &[(u16, u16)]) -> Attachment {
    let port = |&port: &u16| Port { protocol: Protocol::Tcp, port };
    let host_port = |&(host_port, guest_port): &(u16, u16)| HostPort { protocol: Protocol::Tcp, host_port, guest_port };
    Attachment::Nat { ports: ports.iter().map(port).collect(), host_ports: host_ports.iter().map(host_port).collect() }
}

fn open() -> Attachment {
    nat(&[], &[])
}

#[test]
fn guests_get_addresses_names_and_the_way_out() {
    bed(async |bed: Bed| {
        let host = bed.start().await;
        let web = Guest::plug(&host, "web", 1, open()).await;
        let db = Guest::plug(&host, "db", 2, open()).await;
        assert_eq!(host.addresses(web.nic.mac), Vec::<IpAddr>::new(), "nothing before the guest has asked");
        let mut changes = host.changes();
        changes.mark_unchanged();
        web.dhcp().await;
        db.dhcp().await;
        changes.changed().await.unwrap();
        let address = host.dial_address(&web.nic.vmi_uid, "default", 22).unwrap().ip();
        assert_eq!(host.addresses(web.nic.mac).first(), Some(&address));
        assert!(web.run("ip -4 addr show eth0").await.unwrap().contains(&format!("{address}/16")));
        let lease = web.lease();
        for expected in ["hostname=web", "domain=default.vm.croft.internal", "mtu=1500", "lease=86400"] {
            assert!(lease.contains(expected), "{expected} in {lease}");
        }

        // To the host, to each other, to the world; by address and by name.
        web.reaches(&host.subnet().gateway4().to_string()).await;
        web.reaches("db").await;
        db.reaches("web.default").await;
        db.reaches("web.default.vm.croft.internal").await;
        web.reaches("198.51.100.1").await;
        let answer = web.run("busybox nslookup upstream.test").await.unwrap();
        assert!(answer.contains("198.51.100.1"), "{answer}");
        let answer = web.run(&format!("busybox nslookup {address}")).await.unwrap();
        assert!(answer.contains("web.default.vm.croft.internal"), "{answer}");
        let absent = web.run("busybox nslookup nobody.default.vm.croft.internal").await.unwrap_err();
        assert!(absent.contains("NXDOMAIN"), "{absent}");
        assert!(bed.world.run("busybox ping -c1 -W1 10.52.0.1").await.is_err(), "the world sees only the host");

        // IPv6, with addresses of the guest's own making.
        for guest in [&web, &db] {
            let prefix = host.subnet().v6;
            eventually(async || {
                host.addresses(guest.nic.mac).iter().any(|address| match address {
                    IpAddr::V6(address) => prefix.contains(address),
                    IpAddr::V4(_) => false,
                })
            })
            .await;
        }
        web.reaches6("db").await;
        web.reaches6(&host.subnet().gateway6().to_string()).await;
        web.reaches6("2001:db8::1").await;
        host.remove_all().await.unwrap();
    });
}

#[test]
fn ports_that_are_not_listed_are_closed_and_host_ports_lead_in() {
    bed(async |bed: Bed| {
        let host = bed.start().await;
        let client = Guest::plug(&host, "client", 1, open()).await;
        let server = Guest::plug(&host, "server", 2, nat(&[80], &[(8080, 80), (8081, 81)])).await;
        client.dhcp().await;
        server.dhcp().await;
        server.serve(80).await;
        server.serve(81).await;
        client.serve(80).await;
        client.gets("http://server/").await.unwrap();
        let server_address = host.dial_address(&server.nic.vmi_uid, "default", 80).unwrap().ip();
        assert!(client.gets("http://server:81/").await.is_err(), "from a guest");
        bed.host.gets(&format!("http://{server_address}/")).await.unwrap();
        assert!(bed.host.gets(&format!("http://{server_address}:81/")).await.is_err(), "from the host");
        // What the guest itself begins is answered.
        server.gets("http://client/").await.unwrap();
        // Through the host, within the list.
        bed.world.gets("http://198.51.100.2:8080/").await.unwrap();
        assert!(bed.world.gets("http://198.51.100.2:8081/").await.is_err(), "beyond the list");
        bed.host.gets("http://198.51.100.2:8080/").await.unwrap();
        // Not around the host.
        bed.world.run(&format!("ip route add {} via 198.51.100.2", host.subnet().v4)).await.unwrap();
        assert!(bed.world.gets(&format!("http://{server_address}/")).await.is_err(), "from the world");

        // The same over IPv6.
        eventually(async || host.addresses(server.nic.mac).len() > 1).await;
        let IpAddr::V6(six) = host.addresses(server.nic.mac)[1] else { panic!("an IPv6 address") };
        eventually(async || client.gets(&format!("http://[{six}]/")).await.is_ok()).await;
        assert!(client.gets(&format!("http://[{six}]:81/")).await.is_err());

        // A list that changes while the guest runs.
        let mut nic = server.nic.clone();
        nic.attachment = nat(&[81], &[]);
        assert!(host.plug(&nic).await.unwrap().fds.is_empty(), "the guest has the tap");
        client.gets("http://server:81/").await.unwrap();
        assert!(client.gets("http://server/").await.is_err());
        assert!(bed.world.gets("http://198.51.100.2:8080/").await.is_err());
        host.remove_all().await.unwrap();
    });
}

#[test]
fn guests_cannot_speak_as_others() {
    bed(async |bed: Bed| {
        let host = bed.start().await;
        let thief = Guest::plug(&host, "thief", 1, open()).await;
        let victim = Guest::plug(&host, "victim", 2, open()).await;
        thief.dhcp().await;
        victim.dhcp().await;
        let stolen = host.dial_address(&victim.nic.vmi_uid, "default", 0).unwrap().ip();
        let own = host.dial_address(&thief.nic.vmi_uid, "default", 0).unwrap().ip();
        let gateway = host.subnet().gateway4();
        thief.reaches(&gateway.to_string()).await;

        // The other's address, as source and in ARP.
        thief.run(&format!("ip addr add {stolen}/16 dev eth0")).await.unwrap();
        assert!(thief.run(&format!("busybox ping -c1 -W1 -I {stolen} {gateway}")).await.is_err());
        let _ = thief.run(&format!("busybox arping -A -c2 -w2 -I eth0 {stolen}")).await;
        let neighbours = bed.host.run(&format!("ip neigh show {stolen}")).await.unwrap();
        assert!(neighbours.contains(&victim.nic.mac.to_string()) && neighbours.contains("PERMANENT"), "{neighbours}");
        bed.host.reaches(&stolen.to_string()).await;
        thief.run(&format!("ip addr del {stolen}/16 dev eth0")).await.unwrap();

        // The other's prefix.
        eventually(async || host.addresses(victim.nic.mac).len() > 1).await;
        let IpAddr::V6(six) = host.addresses(victim.nic.mac)[1] else { panic!("an IPv6 address") };
        thief.run(&format!("ip addr add {six}/128 dev eth0 nodad")).await.unwrap();
        let gateway6 = host.subnet().gateway6();
        assert!(thief.run(&format!("busybox ping6 -c1 -W1 -I {six} {gateway6}")).await.is_err());
        victim.reaches6(&gateway6.to_string()).await;
        let known = host.addresses(thief.nic.mac);
        assert!(!known.contains(&six.into()), "{known:?}");

        // Nobody hears it but the host: no rogue servers.
        let heard =
            victim.run_while("busybox timeout 4 tcpdump -n -c1 -i eth0 ether src 02:00:00:00:00:01", async || {
                let _ = thief.run("busybox arping -b -c2 -w2 -I eth0 10.52.0.1").await;
                let _ = thief.run("busybox ping -c2 -W1 -b 255.255.255.255").await;
                let _ = thief.run("busybox ping6 -c2 -W1 -I eth0 ff02::1").await;
            });
        let heard = heard.await.unwrap();
        assert!(heard.contains("\n0 packets captured"), "{heard}");

        // Another hardware address.
        thief.run("ip link set eth0 down").await.unwrap();
        thief.run("ip link set eth0 address 02:00:00:00:00:99").await.unwrap();
        thief.run("ip link set eth0 up").await.unwrap();
        thief.run(&format!("ip addr replace {own}/16 dev eth0")).await.unwrap();
        assert!(thief.run(&format!("busybox ping -c1 -W1 {gateway}")).await.is_err());
        assert!(thief.try_dhcp().await.is_err());
        host.remove_all().await.unwrap();
    });
}

#[test]
fn guests_do_not_notice_that_we_restart() {
    bed(async |bed: Bed| {
        let host = bed.start().await;
        let guest = Guest::plug(&host, "web", 1, open()).await;
        guest.dhcp().await;
        let addresses = host.addresses(guest.nic.mac);
        let subnet = host.subnet();
        drop(host);
        guest.reaches(&subnet.gateway4().to_string()).await;
        let host = bed.start().await;
        assert_eq!((host.subnet(), host.addresses(guest.nic.mac)[0]), (subnet, addresses[0]));
        guest.reaches(&subnet.gateway4().to_string()).await;
        let tap = host.plug(&guest.nic).await.unwrap();
        assert!(tap.fds.is_empty(), "the guest still holds it");
        guest.dhcp().await;
        guest.reaches("198.51.100.1").await;
        // A guest that died while we were away leaves a record, and nothing else.
        let links = bed.host.run("ip -o link").await.unwrap();
        drop((host, guest));
        eventually(async || bed.host.run("ip -o link").await.unwrap().lines().count() < links.lines().count()).await;
        let host = bed.start().await;
        assert_eq!(host.plugged().len(), 1);
        host.retain(|_| false).await.unwrap();
        assert_eq!(host.plugged().len(), 0);
        host.remove_all().await.unwrap();
    });
}

#[test]
fn what_somebody_removes_comes_back() {
    bed(async |bed: Bed| {
        let host = bed.start().await;
        let guest = Guest::plug(&host, "web", 1, open()).await;
        guest.dhcp().await;
        let bridge = host.bridge().to_owned();
        for damage in [
            format!("nft delete table inet {bridge}"),
            format!("nft delete table bridge {bridge}"),
            format!("ip link del {bridge}"),
            format!("ip link set {bridge} down"),
        ] {
            bed.host.run(&damage).await.unwrap();
            eventually(async || {
                guest.run("busybox ping -c1 -W1 198.51.100.1").await.is_ok() && guest.try_dhcp().await.is_ok()
            })
            .await;
            let tables = bed.host.run("nft list tables").await.unwrap();
            assert_eq!(tables.lines().count(), 3, "ours and the bystander after {damage}: {tables}");
        }
        host.remove_all().await.unwrap();
    });
}

#[test]
fn nothing_is_left_behind() {
    bed(async |bed: Bed| {
        let before = (bed.host.run("ip -o link").await.unwrap(), bed.host.run("nft list ruleset").await.unwrap());
        let host = bed.start().await;
        let count = async |what: &str| bed.host.run(what).await.unwrap().lines().count();
        let (links, neighbours, routes) =
            (count("ip -o link").await, count("ip neigh show nud permanent").await, count("ip -6 route").await);
        let rules = bed.host.run("nft list ruleset").await.unwrap();
        let guests =
            [Guest::plug(&host, "a", 1, nat(&[80], &[(8080, 80)])).await, Guest::plug(&host, "b", 2, open()).await];
        assert_eq!(count("ip -o link").await, links + 2);
        assert_ne!(bed.host.run("nft list ruleset").await.unwrap(), rules);
        for guest in &guests {
            host.unplug_all(&guest.nic.vmi_uid).await.unwrap();
            host.unplug_all(&guest.nic.vmi_uid).await.unwrap();
        }
        assert_eq!(count("ip -o link").await, links);
        assert_eq!(count("ip neigh show nud permanent").await, neighbours);
        assert_eq!(count("ip -6 route").await, routes);
        assert_eq!(bed.host.run("nft list ruleset").await.unwrap(), rules);
        drop(guests);
        let _last = Guest::plug(&host, "c", 3, open()).await;
        host.remove_all().await.unwrap();
        let after = (bed.host.run("ip -o link").await.unwrap(), bed.host.run("nft list ruleset").await.unwrap());
        assert_eq!(after, before);
        assert!(!bed.dir().exists());
        Host::remove(&bed.dir()).await.unwrap();
    });
}

#[test]
fn an_interface_is_plugged_in_within_milliseconds() {
    bed(async |bed: Bed| {
        let host = bed.start().await;
        let mut taps = Vec::new();
        let start = Instant::now();
        for number in 0..50 {
            taps.push(host.plug(&bed::nic(&format!("vm{number}"), number, nat(&[80], &[]))).await.unwrap());
        }
        let each = start.elapsed() / 50;
        println!("plug: {each:?}");
        assert!(each < Duration::from_millis(20), "{each:?}");
        host.remove_all().await.unwrap();
    });
}

#[test]
fn guests_join_a_bridge_of_the_host_and_their_addresses_are_learned() {
    bed(async |bed: Bed| {
        let host = bed.start().await;
        bed.host.run("ip link add lan0 type bridge").await.unwrap();
        bed.host.run("ip link set lan0 up").await.unwrap();
        bed.host.run("ip addr add 192.168.7.1/24 dev lan0").await.unwrap();
        let on = |bridge: &str, vlan| Attachment::Bridge { bridge: bridge.into(), vlan, checks_mac: true, mtu: None };
        let refusals = [
            ("lan9", None, "this host has no bridge lan9"),
            ("lo", None, "lo is no bridge"),
            ("lan0", Some(7), "bridge lan0 has no VLAN filtering, so an interface cannot be put into VLAN 7"),
        ];
        for (bridge, vlan, message) in refusals {
            let refused = host.plug(&bed::nic("x", 9, on(bridge, vlan))).await.unwrap_err();
            assert_eq!(refused.to_string(), message);
            assert_eq!(host.plugged().len(), 0, "nothing is left of it");
        }
        let guest = Guest::plug(&host, "a", 1, on("lan0", None)).await;
        let other = Guest::plug(&host, "b", 2, on("lan0", None)).await;
        guest.run("ip addr add 192.168.7.5/24 dev eth0").await.unwrap();
        guest.run("ip addr add 2001:db8:7::5/64 dev eth0").await.unwrap();
        other.run("ip addr add 192.168.7.6/24 dev eth0").await.unwrap();
        guest.reaches("192.168.7.1").await;
        guest.reaches("192.168.7.6").await;
        let expected: Vec<IpAddr> = vec!["192.168.7.5".parse().unwrap(), "2001:db8:7::5".parse().unwrap()];
        eventually(async || host.addresses(guest.nic.mac) == expected).await;
        let dial = host.dial_address(&guest.nic.vmi_uid, "default", 22).unwrap();
        assert_eq!(dial.to_string(), "192.168.7.5:22");
        host.remove_all().await.unwrap();
    });
}

#[test]
fn hosts_that_start_at_once_choose_different_subnets() {
    bed(async |bed: Bed| {
        let start = |name: &str| {
            let (dir, resolv_conf) = (bed.dir().with_file_name(name), bed.dir().with_file_name("resolv.conf"));
            Host::start(Config { dir, subnet: None, resolv_conf })
        };
        let (a, b, c) = tokio::join!(start("a"), start("b"), start("c"));
        let hosts = [a.unwrap(), b.unwrap(), c.unwrap()];
        let mut chosen: Vec<String> = hosts.iter().map(|host| host.subnet().v4.to_string()).collect();
        chosen.sort();
        chosen.dedup();
        assert_eq!(chosen.len(), 3, "{chosen:?}");
        for host in hosts {
            host.remove_all().await.unwrap();
        }
    });
}
