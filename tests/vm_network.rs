//! What guests have of their networks, seen from inside and from outside.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use croft_e2e::machines::{
    BOOT, INSTANCES, MACHINES, Shell, becomes, condition, create, croft_ok, empty, guest_image, is_gone, node_name,
    node_with_image, subresource,
};
use croft_e2e::outside::{Bridge, Outside, ip, run};
use croft_testkit::{Client, Croft, StoreKind, eventually_within, patience};
use serde_json::{Value, json};

const FIXED_MAC: &str = "02:00:5e:10:00:07";

/// The small guest with a root disk from the image, an interface on the default network, and a page that names it.
fn guest(name: &str, network_data: &str) -> Value {
    let claim = json!([{
        "metadata": {"name": format!("{name}-root"), "annotations": {"harvesterhci.io/imageId": "default/tiny"}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "longhorn-tiny",
                 "resources": {"requests": {"storage": "256Mi"}}},
    }]);
    let user_data = format!("#cloud-config\nruncmd: ['echo this is {name} > /var/www/index.html']\n");
    let mut seed = json!({"userData": user_data});
    if !network_data.is_empty() {
        seed["networkData"] = json!(network_data);
    }
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "annotations": {"harvesterhci.io/volumeClaimTemplates": claim.to_string()}},
        "spec": {"runStrategy": "RerunOnFailure", "template": {"metadata": {}, "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "cpu": {"cores": 1}, "memory": {"guest": "160Mi"},
                "devices": {
                    "disks": [
                        {"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}},
                        {"name": "seed", "disk": {"bus": "virtio"}},
                    ],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": format!("{name}-root")}},
                {"name": "seed", "cloudInitNoCloud": seed},
            ],
        }}},
    })
}

/// The addresses of a guest's first interface, as its instance shows them: IPv4 and IPv6.
async fn addresses(client: &Client, name: &str) -> (String, String) {
    let path = format!("{INSTANCES}/{name}");
    let of = |instance: &Value| -> Option<(String, String)> {
        let interface = &instance["status"]["interfaces"][0];
        let all: Vec<IpAddr> =
            interface["ipAddresses"].as_array()?.iter().filter_map(|text| text.as_str()?.parse().ok()).collect();
        let v4 = all.iter().find(|address| address.is_ipv4())?;
        // Link-local addresses are no way to a guest, nor are those that it gave itself.
        let v6 = all
            .iter()
            .find(|one| matches!(one, IpAddr::V6(v6) if !v6.is_unicast_link_local() && v6.segments()[0] != 0xfd77))?;
        assert_eq!(interface["ipAddress"], all[0].to_string(), "{interface}");
        assert!(all[0].is_ipv4(), "IPv4 first: {interface}");
        Some((v4.to_string(), v6.to_string()))
    };
    let instance = becomes(client, &path, "with addresses of both families", BOOT, |it| of(it).is_some()).await;
    of(&instance).expect("addresses")
}

/// Looks again until the guest says what is expected.
async fn says(shell: &mut Shell, command: &str, expected: &str) -> String {
    let mut last = String::new();
    for _ in 0..30 {
        last = shell.run(command).await.unwrap_or_else(|err| panic!("{command}: {err:#}")).0;
        if last.contains(expected) {
            return last;
        }
        shell.ok("sleep 1").await;
    }
    panic!("{command} says {last}, not {expected}");
}

/// A command that must not succeed in the guest.
async fn fails(shell: &mut Shell, command: &str) {
    let (text, code) = shell.run(command).await.unwrap_or_else(|err| panic!("{command}: {err:#}"));
    assert_ne!(code, 0, "{command}: {text}");
}

fn page(host: &str) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("timeout 30 wget -qO- http://{host}/index.html 2>&1")
}

/// A world beyond the node, that knows no way to guests: addresses of the host and of itself.
struct World {
    outside: Outside,
    host4: IpAddr,
    there: [IpAddr; 2],
}

impl World {
    fn new() -> World {
        // Of the ranges for tests of network devices and for documentation, which nobody routes; one network a process.
        let id = std::process::id();
        let v4 = |last: u8| IpAddr::from([198, 18, u8::try_from(id % 256).expect("a byte"), last]);
        let v6 =
            |last: u16| IpAddr::from([0x2001, 0xdb8, u16::try_from(id % 65536).expect("16 bits"), 0, 0, 0, 0, last]);
        let outside = Outside::with_addresses(&[(v4(1), v4(2), 24), (v6(1), v6(2), 64)]).expect("a neighbour");
        for there in [v4(2), v6(2)] {
            outside.serve(SocketAddr::new(there, 80)).expect("a server");
        }
        World { outside, host4: v4(1), there: [v4(2), v6(2)] }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_guests_on_the_default_network() {
    let (mut server, client) = node_with_image().await;
    let world = World::new();
    let host_port = croft_testkit::free_port().expect("a port");
    let mut alpha = guest("alpha", "");
    let template = &mut alpha["spec"]["template"];
    template["metadata"]["annotations"] = json!({"croft.io/host-ports": format!("{host_port}:80")});
    template["spec"]["domain"]["devices"]["interfaces"][0]["ports"] = json!([{"port": 80}]);
    let mut beta = guest(
        "beta",
        &format!(
            "version: 2\nethernets:\n  first:\n    match: {{macaddress: '{FIXED_MAC}'}}\n    dhcp4: true\n    addresses: ['fd77::7/64']\n"
        ),
    );
    beta["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0] =
        json!({"name": "default", "bridge": {}, "model": "e1000", "macAddress": FIXED_MAC});
    tokio::join!(create(&client, &alpha), create(&client, &beta));
    let (in_alpha, in_beta) = tokio::join!(Shell::log_in(&server, "alpha", None), Shell::log_in(&server, "beta", None));
    let (mut in_alpha, mut in_beta) = (in_alpha.expect("a shell"), in_beta.expect("a shell"));
    let (a, b) = (addresses(&client, "alpha").await, addresses(&client, "beta").await);

    // What was asked for is what they have.
    assert_eq!(in_beta.ok("cat /sys/class/net/eth0/address").await, FIXED_MAC);
    assert!(in_beta.ok("readlink /sys/class/net/eth0/device/driver").await.ends_with("/e1000"));
    let inside = in_beta.ok("ip -o addr show dev eth0").await;
    for address in [&b.0, &b.1, "fd77::7"] {
        assert!(inside.contains(address), "{address} is not in {inside}");
    }

    names_and_pages(&mut in_alpha, "beta", &b).await;
    names_and_pages(&mut in_beta, "alpha", &a).await;
    outwards(&world, &mut in_alpha).await;
    ports(&world, &mut in_alpha, &mut in_beta, &a, &b, host_port).await;
    spoofing(&client, &mut in_alpha, &a, &b).await;
    figures(&client, &mut in_alpha).await;

    // Guests go on without the server, and have the same addresses when it is back.
    server.kill().expect("killed");
    drop((in_alpha, in_beta));
    server.restart().await.expect("it starts again");
    let client = server.client().expect("a client");
    let (mut in_alpha, mut in_beta) = (back(&server, "alpha").await, back(&server, "beta").await);
    assert_eq!((addresses(&client, "alpha").await, addresses(&client, "beta").await), (a.clone(), b.clone()));
    says(&mut in_beta, &page("alpha"), "this is alpha").await;
    let lease = in_beta.ok("udhcpc -f -q -n -i eth0 -s /bin/true 2>&1").await;
    assert!(lease.contains(&b.0), "{lease}");

    // A machine that is deleted gives its name and its address back.
    let records = || files(server.data_dir().join("network/interfaces"));
    assert_eq!(records().len(), 2);
    client.delete(&format!("{MACHINES}/beta")).await.expect("an answer").ok().expect("deleted");
    is_gone(&client, &format!("{INSTANCES}/beta")).await;
    assert_eq!(records().len(), 1, "{:?}", records());
    says(&mut in_alpha, "nslookup beta.default.vm.croft.internal 2>&1", "NXDOMAIN").await;
}

/// Bridges of the host: models, fixed addresses, a VLAN, and what is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_on_bridges_of_the_host() {
    let (server, client) = node_with_image().await;
    let name = format!("ctb{}", std::process::id());
    // Not every kernel can keep the VLANs of a bridge apart.
    let filtering = Bridge::new(&name, "vlan_filtering 1");
    let has_vlans = filtering.is_ok();
    let bridge = filtering.or_else(|_| Bridge::new(&name, "")).expect("a bridge");
    let peer = Outside::new().expect("a neighbour");
    ip(&format!("link set {} master {name}", peer.link)).expect("on the bridge");
    peer.ip("addr add 192.0.2.1/24 dev wire").expect("an address");
    peer.serve("192.0.2.1:80".parse().expect("an address")).expect("a server");
    if has_vlans {
        run("bridge", &format!("vlan add dev {} vid 7", peer.link)).expect("a VLAN");
        peer.ip("link add link wire name tagged type vlan id 7").expect("a VLAN");
        peer.ip("addr add 198.51.100.1/24 dev tagged").expect("an address");
        peer.ip("link set tagged up").expect("up");
        peer.serve("198.51.100.1:80".parse().expect("an address")).expect("a server");
    }

    network(&client, "lan", &json!({"type": "bridge", "bridge": name, "macspoofchk": true, "ipam": {}})).await;
    network(&client, "tagged", &json!({"type": "bridge", "bridge": name, "vlan": 7})).await;
    network(&client, "nowhere", &json!({"type": "bridge", "bridge": format!("{name}x")})).await;
    network(&client, "odd", &json!({"type": "macvlan"})).await;
    refused_networks(&client, &name, has_vlans).await;

    // In the order of their places in the machine: the first by cloud-init's version 1, the others by hand.
    let config = "version: 1\nconfig:\n- type: physical\n  name: eth0\n  mac_address: '02:00:5e:20:00:00'\n  \
        subnets: [{type: static, address: 192.0.2.10/24}]\n";
    let mut machine = guest("many", config);
    let spec = &mut machine["spec"]["template"]["spec"];
    let third = if has_vlans { "tagged" } else { "lan" };
    let models = [("virtio", "lan"), ("e1000", "lan"), ("e1000e", third), ("rtl8139", "lan")];
    let mac = |n: usize| format!("02:00:5e:20:00:{n:02x}");
    let interface = |(n, (model, _)): (usize, &(&str, &str))| json!({"name": format!("nic{n}"), "bridge": {}, "model": model, "macAddress": mac(n), "bootOrder": n + 2});
    let attached = |(n, (_, network)): (usize, &(&str, &str))| json!({"name": format!("nic{n}"), "multus": {"networkName": format!("default/{network}")}});
    spec["domain"]["devices"]["interfaces"] = models.iter().enumerate().map(interface).collect();
    spec["networks"] = models.iter().enumerate().map(attached).collect();
    spec["domain"]["devices"]["interfaces"][3]["state"] = json!("down");
    create(&client, &machine).await;
    let mut shell = Shell::log_in(&server, "many", None).await.expect("a shell");
    let by_mac = async |shell: &mut Shell, n: usize| {
        let name = shell.ok(&format!("cd /sys/class/net && grep -l '{}' */address | cut -d/ -f1", mac(n))).await;
        assert!(!name.is_empty(), "interface {n}");
        name
    };
    let mut names = Vec::new();
    for (n, (model, _)) in models.iter().enumerate() {
        let name = by_mac(&mut shell, n).await;
        let driver = shell.ok(&format!("basename $(readlink /sys/class/net/{name}/device/driver)")).await;
        let expected = match *model {
            "virtio" => "virtio_net",
            "rtl8139" => "8139cp",
            other => other,
        };
        assert_eq!(driver, expected, "{model}");
        names.push(name);
    }

    // The address that it was told, traffic with a neighbour, and the status that knows it.
    says(&mut shell, &format!("ip -4 -o addr show dev {}", names[0]), "192.0.2.10/24").await;
    says(&mut shell, &page("192.0.2.1"), "you are 192.0.2.10").await;
    let path = format!("{INSTANCES}/many");
    let shown = becomes(&client, &path, "with the guest's own address", BOOT, |instance| {
        let interfaces = instance["status"]["interfaces"].as_array().cloned().unwrap_or_default();
        interfaces.iter().any(|one| one["name"] == "nic0" && one["ipAddress"] == "192.0.2.10")
    });
    shown.await;
    if has_vlans {
        // Its own VLAN, and no other.
        let own = "198.51.100.10/24";
        shell.ok(&format!("ip addr add {own} dev {}", names[2])).await;
        says(&mut shell, &page("198.51.100.1"), "you are 198.51.100.10").await;
        shell.ok(&format!("ip addr del {own} dev {} && ip addr add {own} dev {}", names[2], names[1])).await;
        fails(&mut shell, "ping -c 2 -W 2 198.51.100.1 >/dev/null 2>&1").await;
    }
    // A hardware address that it was not given is not heard where that is checked.
    shell
        .ok(&format!("ip link set {0} down; ip link set {0} address 02:00:5e:20:00:77; ip link set {0} up", names[0]))
        .await;
    fails(&mut shell, "ping -c 2 -W 2 192.0.2.1 >/dev/null 2>&1").await;

    // A cable that is out, then in, then the whole interface gone.
    says(&mut shell, &format!("cat /sys/class/net/{}/carrier", names[3]), "0").await;
    set_state(&client, 3, "up").await;
    says(&mut shell, &format!("cat /sys/class/net/{}/carrier", names[3]), "1").await;
    set_state(&client, 0, "absent").await;
    says(&mut shell, &format!("test -e /sys/class/net/{} || echo gone", names[0]), "gone").await;
    drop(bridge);
}

fn files(dir: PathBuf) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// A shell in a guest that was logged in to before.
async fn back(server: &Croft, name: &str) -> Shell {
    let path = subresource("virtualmachineinstances", name, "console");
    let stream = eventually_within(BOOT, async || match server.websocket(&path).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(refused)) => Err(refused.status.to_string()),
        Err(err) => Err(format!("{err:#}")),
    });
    Shell::resume(stream.await.expect("a console")).await.expect("a shell")
}

async fn set_state(client: &Client, nth: usize, state: &str) {
    let path = format!("/spec/template/spec/domain/devices/interfaces/{nth}/state");
    let patch = json!([{"op": "add", "path": path, "value": state}]);
    client.patch(&format!("{MACHINES}/many"), "json-patch", &patch).await.expect("an answer").ok().expect("patched");
}

async fn network(client: &Client, name: &str, config: &Value) {
    let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name}, "spec": {"config": config.to_string()}});
    let path = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
    client.post(path, &definition).await.expect("an answer").ok().expect("a network");
}

/// A machine without an operating system on one network.
fn attached(name: &str, network: &str) -> Value {
    let mut machine = empty(name);
    // One that fails is not started again, so that it can be looked at.
    machine["spec"]["runStrategy"] = json!("Once");
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"] = json!({"interfaces": [{"name": "nic", "bridge": {}}]});
    spec["networks"] = json!([{"name": "nic", "multus": {"networkName": network}}]);
    machine
}

/// What is missing is waited for, what cannot be is refused; both are said.
async fn refused_networks(client: &Client, bridge: &str, has_vlans: bool) {
    let missing = client.post(MACHINES, &attached("missing", "missing")).await.expect("an answer");
    assert!(missing.status == 404 && missing.text().contains("missing"), "{}", missing.text());
    let names = ["nowhere", "odd", "tagged"];
    for name in names {
        create(client, &attached(name, name)).await;
    }
    let says = async |name: &str, expected: &str| {
        becomes(client, &format!("{INSTANCES}/{name}"), expected, patience(), |instance| {
            let condition = condition(instance, "Synchronized").or(condition(instance, "PodScheduled"));
            condition.is_some_and(|it| it["status"] == "False" && it["message"].to_string().contains(expected))
        })
        .await
    };
    says("nowhere", &format!("{bridge}x")).await;
    let odd = says("odd", "macvlan").await;
    assert_eq!(odd["status"]["phase"], "Failed", "{}", odd["status"]);
    if !has_vlans {
        let tagged = says("tagged", "VLAN filtering").await;
        assert_eq!(tagged["status"]["phase"], "Failed", "{}", tagged["status"]);
    }
    // The bridge comes, and the machine that waited for it runs.
    let late = Bridge::new(&format!("{bridge}x"), "").expect("a bridge");
    let path = format!("{INSTANCES}/nowhere");
    becomes(client, &path, "running", patience(), |instance| instance["status"]["phase"] == "Running").await;
    for name in names {
        client.delete(&format!("{MACHINES}/{name}")).await.expect("an answer").ok().expect("deleted");
        is_gone(client, &format!("{INSTANCES}/{name}")).await;
    }
    drop(late);
}

/// Without the rights for taps there is QEMU's own network, and everybody is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rights_guests_have_qemus_own_network() {
    let wrapper = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
    let server = Croft::start_node_under(StoreKind::Embedded, &wrapper, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let image = guest_image().expect("the guest is built");
    croft_ok(&server, &["image", "upload", "tiny", image.to_str().expect("a path")]).await.expect("uploaded");
    let node = node_name(&client).await;
    let path = format!("/api/v1/nodes/{node}");
    let is_without = |node: &Value| condition(node, "Networking").is_some_and(|it| it["status"] == "False");
    let node = becomes(&client, &path, "without taps", BOOT, is_without).await;
    let networking = condition(&node, "Networking").expect("a condition");
    assert_eq!(networking["reason"], "UserMode", "{networking}");
    assert!(networking["message"].to_string().contains("permitted"), "{networking}");

    network(&client, "lan", &json!({"type": "bridge", "bridge": "br0"})).await;
    create(&client, &attached("bridged", "lan")).await;
    create(&client, &guest("alone", "")).await;
    let mut shell = Shell::log_in(&server, "alone", None).await.expect("the console works");
    says(&mut shell, "ip -4 -o addr show dev eth0", "10.0.2.15").await;
    let mut stream = server
        .websocket(&subresource("virtualmachines", "alone", "portforward/80/tcp"))
        .await
        .expect("an answer")
        .expect("a port");
    stream.send(b"GET /index.html HTTP/1.0\r\n\r\n").await.expect("sent");
    stream.expect("this is alone", BOOT).await.expect("the page");
    let path = format!("{INSTANCES}/bridged");
    let refused = becomes(&client, &path, "refused", BOOT, |instance| instance["status"]["phase"] == "Failed").await;
    let why = condition(&refused, "Synchronized").expect("a reason");
    assert!(why["message"].to_string().contains("needs a tap"), "{why}");
    let events = client.get("/api/v1/namespaces/default/events").await.expect("an answer").json();
    let is_told = |event: &Value| {
        event["involvedObject"]["name"] == "alone" && event["message"].to_string().contains("QEMU's own network")
    };
    assert!(events["items"].as_array().is_some_and(|all| all.iter().any(is_told)), "an event says so: {events}");
}

/// Each knows the other by name, in both families, and is reached.
async fn names_and_pages(shell: &mut Shell, other: &str, addresses: &(String, String)) {
    for address in [&addresses.0, &addresses.1] {
        says(shell, &format!("nslookup {other} 2>&1"), address).await;
        says(shell, &page(address), &format!("this is {other}")).await;
        says(shell, &format!("nslookup {address} 2>&1"), &format!("{other}.default.vm.croft.internal")).await;
    }
    says(shell, &page(&format!("{other}.default")), &format!("this is {other}")).await;
}

/// The world sees the host, not the guest.
async fn outwards(world: &World, shell: &mut Shell) {
    let host = world.host4.to_string();
    says(shell, &page(&world.there[0].to_string()), &format!("you are {host}")).await;
    says(shell, &page(&world.there[1].to_string()), "you are 2001:db8:").await;
}

/// Alpha lists a port, and is reached on that alone; the node's port leads to it.
async fn ports(
    world: &World,
    in_alpha: &mut Shell,
    in_beta: &mut Shell,
    a: &(String, String),
    b: &(String, String),
    host_port: u16,
) {
    for address in [&a.0, &a.1] {
        says(in_beta, &format!("nc -w 5 {address} 80 </dev/null && echo open"), "open").await;
        fails(in_beta, &format!("nc -w 5 {address} 22 </dev/null")).await;
    }
    // Beta lists none, so all are open.
    says(in_alpha, &format!("nc -w 5 {} 22 </dev/null", b.0), "SSH").await;
    let address = SocketAddr::new(world.host4, host_port);
    let outside = &world.outside;
    let said = eventually_within(BOOT, async || outside.visit(address)).await.expect("the node's port");
    assert!(said.contains("HTTP/1"), "{said}");
    // Not through the front door: nobody out there has a way in that was not asked for.
    outside.ip(&format!("route add {}/32 via {}", a.0, world.host4)).expect("a route");
    let refused = outside.visit(SocketAddr::new(a.0.parse().expect("an address"), 80));
    assert!(refused.is_err(), "{refused:?}");
}

/// A guest that says it is somebody else is not heard.
async fn spoofing(client: &Client, shell: &mut Shell, own: &(String, String), other: &(String, String)) {
    let gateway = shell.ok("ip route | awk '/^default/ { print $3; exit }'").await;
    let ping = |from: &str, to: &str| format!("ping -c 2 -W 3 -I {from} {to} >/dev/null 2>&1");
    let is_heard = |from: &str, to: &str| format!("{} && echo heard", ping(from, to));
    says(shell, &is_heard(&own.0, &gateway), "heard").await;
    // An address that nobody has, and that of a neighbour; of either family.
    let unused = format!("{}.250", own.0.rsplit_once('.').expect("dots").0);
    for address in [&unused, &other.0] {
        shell.ok(&format!("ip addr add {address}/32 dev eth0")).await;
        fails(shell, &ping(address, &gateway)).await;
        shell.ok(&format!("ip addr del {address}/32 dev eth0")).await;
    }
    shell.ok("echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad").await;
    says(shell, &is_heard(&own.1, "fe80::1%eth0"), "heard").await;
    shell.ok(&format!("ip -6 addr add {}/128 dev eth0", other.1)).await;
    fails(shell, &ping(&other.1, "fe80::1%eth0")).await;
    shell.ok(&format!("ip -6 addr del {}/128 dev eth0", other.1)).await;
    // Another hardware address.
    let mac = shell.ok("cat /sys/class/net/eth0/address").await;
    shell.ok("ip link set eth0 down && ip link set eth0 address 02:00:5e:10:00:66 && ip link set eth0 up").await;
    shell.ok(&format!("ip route replace default via {gateway} dev eth0")).await;
    fails(shell, &ping(&own.0, &gateway)).await;
    shell.ok(&format!("ip link set eth0 down && ip link set eth0 address {mac} && ip link set eth0 up")).await;
    shell.ok(&format!("ip route replace default via {gateway} dev eth0")).await;
    says(shell, &format!("ping -c 1 -W 3 {gateway}"), "1 packets received").await;
    // What it called itself does not come before what it is known to be.
    assert_eq!(addresses(client, "alpha").await, *own);
}

/// Everything that dashboards for KubeVirt ask for is there with its labels, and moves when the guest does something.
async fn figures(client: &Client, shell: &mut Shell) {
    let node = node_name(client).await;
    let path = format!("/api/v1/nodes/{node}/proxy/metrics");
    let scrape = async || {
        let answer = client.get(&path).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        Page::read(&answer.text())
    };
    let before = scrape().await;
    let own = format!("node=\"{node}\",namespace=\"default\",name=\"alpha\"");
    let root = format!("{own},drive=\"root\"");
    let nic = format!("{own},interface=\"default\"");
    let vcpu = format!("{own},id=\"0\",state=\"RUNNING\"");
    let idle: [(&str, &str); 13] = [
        ("memory_available_bytes", &own),
        ("memory_unused_bytes", &own),
        ("memory_usable_bytes", &own),
        ("memory_resident_bytes", &own),
        ("memory_domain_bytes", &own),
        ("memory_swap_in_traffic_bytes", &own),
        ("memory_swap_out_traffic_bytes", &own),
        ("memory_actual_balloon_bytes", &own),
        ("network_receive_packets_dropped_total", &nic),
        ("network_receive_errors_total", &nic),
        ("network_transmit_errors_total", &nic),
        ("network_transmit_packets_dropped_total", &nic),
        ("storage_flush_requests_total", &root),
    ];
    for (name, labels) in idle {
        before.value(&format!("kubevirt_vmi_{name}"), labels);
    }
    let domain = before.value("kubevirt_vmi_memory_domain_bytes", &own);
    assert!((domain - f64::from(160 << 20)).abs() < 1.0, "{domain}");
    shell.ok("dd if=/dev/zero of=/var/written bs=64k count=32 conv=fsync 2>/dev/null").await;
    shell.ok("echo 3 >/proc/sys/vm/drop_caches; cat /var/written >/dev/null").await;
    says(shell, &page("beta"), "this is beta").await;
    let after = scrape().await;
    let moving: [(&str, &str, f64); 12] = [
        ("storage_read_traffic_bytes_total", &root, f64::from(2 << 20)),
        ("storage_write_traffic_bytes_total", &root, f64::from(2 << 20)),
        ("storage_iops_read_total", &root, 1.0),
        ("storage_iops_write_total", &root, 1.0),
        ("storage_read_times_seconds_total", &root, f64::MIN_POSITIVE),
        ("storage_write_times_seconds_total", &root, f64::MIN_POSITIVE),
        ("network_receive_bytes_total", &nic, 100.0),
        ("network_transmit_bytes_total", &nic, 100.0),
        ("network_receive_packets_total", &nic, 4.0),
        ("network_transmit_packets_total", &nic, 4.0),
        ("cpu_usage_seconds_total", &own, f64::MIN_POSITIVE),
        ("vcpu_seconds_total", &vcpu, f64::MIN_POSITIVE),
    ];
    for (name, labels, least) in moving {
        let name = format!("kubevirt_vmi_{name}");
        let (old, new) = (before.value(&name, labels), after.value(&name, labels));
        assert!(new - old >= least, "{name}: {old} and then {new}");
    }
    let is_info = |sample: &str| sample.starts_with("kubevirt_vmi_info{") && sample.contains("name=\"alpha\"");
    assert!(after.samples.keys().any(|sample| is_info(sample) && sample.contains("phase=\"running\"")), "info");
    assert!(after.samples.iter().any(|(sample, count)| {
        sample.starts_with("kubevirt_vmi_phase_count{") && sample.contains("phase=\"running\"") && *count >= 1.0
    }));
    let from_creation = "kubevirt_vmi_phase_transition_time_from_creation_seconds";
    let running = format!("node=\"{node}\",phase=\"Running\"");
    assert!(after.value(&format!("{from_creation}_count"), &running) >= 2.0);
    assert!(after.value(&format!("{from_creation}_bucket"), &format!("{running},le=\"+Inf\"")) >= 2.0);
    assert!(after.value("croft_pool_used_bytes", &format!("node=\"{node}\",pool=\"default\"")) > 0.0);
    assert!(after.value("node_memory_MemAvailable_bytes", &format!("node=\"{node}\"")) > 0.0);

    // The cluster's side: since when each machine is as it is.
    let answer = client.get("/metrics").await.expect("an answer").text();
    let since = "kubevirt_vm_running_status_last_transition_timestamp_seconds{name=\"alpha\",namespace=\"default\"} ";
    let value = answer.lines().find_map(|line| line.strip_prefix(since)).expect("since when it runs");
    assert!(value.parse::<u64>().is_ok_and(|second| second > 1_700_000_000), "{value}");
    assert!(answer.ends_with("# EOF\n"), "OpenMetrics end so");
}

/// A page in Prometheus' text format, read strictly.
struct Page {
    /// By name with labels.
    samples: BTreeMap<String, f64>,
}

impl Page {
    fn read(text: &str) -> Page {
        let mut samples = BTreeMap::new();
        let mut families: BTreeMap<&str, &str> = BTreeMap::new();
        let mut family = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
                assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
                assert!(families.insert(name, kind).is_none(), "{name} comes twice");
                family = name;
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            let of_family = match families[family] {
                "histogram" => {
                    name.strip_suffix("_bucket").or(name.strip_suffix("_sum")).or(name.strip_suffix("_count"))
                }
                _ => Some(name),
            };
            assert_eq!(of_family, Some(family), "{line} stands with others");
            assert!(families[family] != "counter" || name.ends_with("_total"), "{name} is a counter");
            check_labels(labels.strip_suffix('}').unwrap_or_else(|| panic!("no end of labels: {line}")));
            assert!(samples.insert(sample.to_owned(), value).is_none(), "{sample} comes twice");
        }
        assert!(text.ends_with('\n') && !samples.is_empty(), "{text}");
        Page { samples }
    }

    fn value(&self, name: &str, labels: &str) -> f64 {
        let sample = format!("{name}{{{labels}}}");
        let like = || self.samples.keys().filter(|other| other.starts_with(name)).collect::<Vec<_>>();
        *self.samples.get(&sample).unwrap_or_else(|| panic!("no {sample}; there are {:?}", like()))
    }
}

/// `name="value",…`, where a value may have quotes that are escaped.
fn check_labels(mut labels: &str) {
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").unwrap_or_else(|| panic!("no label: {labels}"));
        assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
        let mut is_escaped = false;
        let end = rest.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            ends
        });
        let (end, _) = end.unwrap_or_else(|| panic!("no end of a value: {labels}"));
        labels = rest[end + 1..].strip_prefix(',').unwrap_or(&rest[end + 1..]);
    }
}
