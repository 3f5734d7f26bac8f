use serde_json::json;

use super::super::testing::{Objects, admitted, nothing, refusal, write};
use super::*;

#[track_caller]
fn refused(name: &str, value: &str, lookup: &dyn Lookup, message: &str) {
    let setting = json!({"metadata": {"name": name}, "value": value});
    let error = write(admit, setting, None, lookup, false).expect_err(name);
    assert!(error.message().contains(message), "{name}={value}: {error}");
    assert_eq!(error.details().unwrap().causes[0].field, "value");
}

#[test]
fn values_that_nobody_could_use_are_refused() {
    let cases = [
        ("overcommit-config", r#"{"cpu":99}"#, "Cannot undercommit. Should be greater than or equal to 100 but got 99"),
        ("overcommit-config", "x", "Invalid JSON"),
        ("max-hotplug-ratio", "21", "out of range"),
        ("additional-guest-memory-overhead-ratio", "0.5", "out of range"),
        ("default-vm-termination-grace-period-seconds", "-1", "can't be negative"),
        ("http-proxy", r#"{"httpProxy":"proxy:1"}"#, "should start with http://"),
        ("csi-online-expand-validation", r#"{"a":1}"#, "should be true or false"),
        ("additional-ca", "-----BEGIN PRIVATE KEY-----", "failed to parse PEM certificates"),
        ("additional-ca", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----", "failed to parse PEM"),
        ("log-level", "loud", "invalid log level"),
        ("ui-source", "cdn", "invalid ui source"),
        ("ntp-servers", r#"{"ntpServers":["http://a.b"]}"#, "should not start with http:// or https://"),
        ("ntp-servers", r#"{"ntpServers":["a b"]}"#, "invalid NTP server: a b"),
        ("ntp-servers", r#"{"ntpServers":["a.b","a.b"]}"#, "duplicate NTP server: [a.b]"),
        ("ntp-servers", "{}", "NTP servers can't be nil"),
        ("vm-force-reset-policy", r#"{"enable":true,"period":0}"#, "period value should be greater than 0"),
        ("auto-rotate-rke2-certs", r#"{"enable":true,"expiringInHours":0}"#, "can't be negative or zero"),
        ("auto-rotate-rke2-certs", r#"{"enable":true,"expiringInHours":8760}"#, "can't be large than 8759"),
        ("kubeconfig-default-token-ttl-minutes", "-1", "can't be negative"),
        ("kubeconfig-default-token-ttl-minutes", "99999999999", "out of range"),
        ("support-bundle-timeout", "-1", "can't be negative"),
        ("support-bundle-expiration", "soon", "not a whole number"),
        ("support-bundle-file-name", "A b", "RFC 1123"),
        ("support-bundle-image", r#"{"repository":""}"#, "image field can't be blank"),
        ("support-bundle-namespaces", "a,B", "invalid namespace"),
        ("ssl-parameters", r#"{"protocols":"TLSv9"}"#, "unsupported SSL protocol: TLSv9"),
        ("ssl-parameters", r#"{"protocols":"TLSv1"}"#, "unsupported SSL protocol: TLSv1"),
        ("ssl-certificates", r#"{"publicCertificate":"x"}"#, "are both required"),
        ("ssl-certificates", r#"{"publicCertificate":"x","privateKey":"y"}"#, "publicCertificate is not a PEM"),
        ("longhorn-v2-data-engine-memory-size", "0", ">0"),
        ("longhorn-v2-data-engine-memory-size", "3", "must be evenly divisible by two"),
        ("upgrade-checker-enabled", "yes", "true or false"),
        ("upgrade-checker-url", "ftp://x", "not an http or https address"),
        ("kubevirt-migration", r#"{"nodeDrainTaintKey":"x"}"#, "nodeDrainTaintKey field cannot be configured"),
        ("kubevirt-migration", r#"{"network":"x"}"#, "network field is configured by vm-migration-network setting"),
        (
            "upgrade-config",
            r#"{"imagePreloadOption":{"strategy":{"type":"x"}}}"#,
            "invalid image preload strategy type",
        ),
        ("csi-driver-config", "{}", "must contain the provisioner driver.longhorn.io"),
        ("cluster-registration-url", "rancher", "not an http or https address"),
        ("backup-target", "{", "Invalid JSON"),
        ("backup-target", r#"{"type":"ftp"}"#, "Invalid backup target type"),
        ("backup-target", r#"{"type":"s3"}"#, "S3 backup target should have access key and access key id"),
        ("backup-target", r#"{"type":"directory","endpoint":"/srv"}"#, "an endpoint file:///path"),
        ("backup-target", r#"{"type":"directory","endpoint":"file:///a/../b"}"#, "an endpoint file:///path"),
        ("backup-target", r#"{"type":"directory","endpoint":"file:///a","bucketName":"b"}"#, "nothing but an endpoint"),
        ("backup-target", r#"{"type":"nfs"}"#, "NFS backup target should have endpoint"),
        (
            "backup-target",
            r#"{"refreshIntervalInSeconds":-1}"#,
            "Refresh interval should be greater than or equal to 0",
        ),
    ];
    for (name, value, message) in cases {
        refused(name, value, &nothing(), message);
    }
}

#[test]
fn every_default_is_accepted() {
    for (name, default) in settings::ALL {
        admitted(admit, json!({"metadata": {"name": name}, "default": default}));
    }
}

#[test]
fn good_values_are_accepted() {
    let cases = [
        ("ntp-servers", r#"{"ntpServers":["0.pool.ntp.org","192.0.2.1"]}"#),
        ("ssl-parameters", r#"{"protocols":"TLSv1.2 TLSv1.3","ciphers":"ECDHE-ECDSA-AES128-GCM-SHA256"}"#),
        ("backup-target", r#"{"type":"nfs","endpoint":"nfs://192.0.2.1:/backup"}"#),
        ("backup-target", r#"{"type":"directory","endpoint":"file:///srv/backups","refreshIntervalInSeconds":60}"#),
        ("cluster-registration-url", "https://rancher.example/v3/import/x.yaml"),
        ("vm-force-reset-policy", r#"{"enable":false,"period":0}"#),
        ("anything-of-a-user", "whatever"),
    ];
    for (name, value) in cases {
        admitted(admit, json!({"metadata": {"name": name}, "value": value}));
    }
}

#[test]
fn keys_of_a_backup_target_are_given_once() {
    let value = r#"{"type":"s3","bucketName":"b","bucketRegion":"r"}"#;
    refused("backup-target", value, &nothing(), "S3 backup target should have access key");
    let name = json!({"namespace": "longhorn-system", "name": "harvester-backup-target-secret"});
    let kept = nothing().with("", "secrets", json!({"metadata": name}));
    write(admit, json!({"metadata": {"name": "backup-target"}, "value": value}), None, &kept, false).unwrap();
    let backup = json!({"metadata": {"name": "b"}, "status": {"readyToUse": false, "conditions": [{"type": "Ready"}]}});
    let busy = kept.with("harvesterhci.io", "virtualmachinebackups", backup);
    refused("backup-target", value, &busy, "There is VMBackup in creating or deleting progress");
}

#[test]
fn a_proxy_does_not_stand_between_nodes() {
    let node =
        json!({"metadata": {"name": "one"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}});
    let nodes = nothing().with("", "nodes", node);
    let value = |exceptions: &str| json!({"httpProxy": "http://p:1", "noProxy": exceptions}).to_string();
    refused("http-proxy", &value("192.0.3.0/24"), &nodes, "The node(s) one are not covered.");
    for exceptions in ["192.0.2.7", "localhost, 192.0.2.0/24"] {
        let setting = json!({"metadata": {"name": "http-proxy"}, "value": value(exceptions)});
        write(admit, setting, None, &nodes, false).unwrap();
    }
}

#[test]
fn networks_of_the_platform_are_checked() {
    let network = |change: Value| {
        let mut network = json!({"vlan": 100, "clusterNetwork": "mgmt", "range": "192.0.2.0/24"});
        network.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        network.to_string()
    };
    let cases = [
        (json!({"vlan": 4095}), "the valid value range for VLAN IDs is 0 to 4094"),
        (json!({"vlan": 1}), "network with vlan id 1 not allowed on mgmt cluster"),
        (json!({"clusterNetwork": "other"}), "cluster network other not found"),
        (json!({"range": "x"}), "range should be subnet CIDR"),
        (json!({"range": "192.0.2.1/24"}), "range should be subnet CIDR 192.0.2.0/24"),
        (json!({"range": "2001:db8::/64"}), "IPv6 ranges are not supported"),
        (json!({"range": "10.0.0.0/8"}), "min supported prefix length for network is 16"),
        (json!({"range": "192.0.2.0/30"}), "allocatable IP address range is < 16"),
        (json!({"exclude": ["192.0.2.0/25", "192.0.2.128/26", "192.0.2.192/27", "192.0.2.224/28"]}), "is < 16"),
        (json!({"exclude": ["192.0.3.0/32"]}), "is not part of 192.0.2.0/24"),
    ];
    for (change, message) in cases {
        refused("storage-network", &network(change), &nothing(), message);
    }
    let fine = json!({"metadata": {"name": "storage-network"}, "value": network(json!({"exclude": ["192.0.2.1/32"]}))});
    admitted(admit, fine.clone());
    let storage = nothing().with("harvesterhci.io", "settings", fine);
    let other = network(json!({"range": "192.0.2.128/25"}));
    refused("vm-migration-network", &other, &storage, "overlapped with storage-network");
    let machine = json!({"metadata": {"name": "vm"}, "status": {"created": true}});
    let running = nothing().with("kubevirt.io", "virtualmachines", machine);
    refused("storage-network", &network(json!({})), &running, "Please stop all VMs before configuring");
}

#[test]
fn a_network_of_the_platform_reaches_every_node_and_is_alone_if_it_wants() {
    const GROUP: &str = "network.harvesterhci.io";
    let value = |change: Value| {
        let mut network = json!({"vlan": 100, "clusterNetwork": "data", "range": "192.0.2.0/24"});
        network.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        network.to_string()
    };
    let status = |node: &str, ready: &str| {
        json!({"metadata": {"name": format!("data-{node}")}, "status": {"clusterNetwork": "data", "node": node,
            "conditions": [{"type": "ready", "status": ready}]}})
    };
    let known = || {
        let node = |name: &str| json!({"metadata": {"name": name}});
        let known = nothing().with(GROUP, "clusternetworks", json!({"metadata": {"name": "data"}}));
        known.with("", "nodes", node("one")).with("", "nodes", node("two"))
    };
    let alone = value(json!({}));
    refused("storage-network", &alone, &known(), "vlan status not present for cluster network data");
    let broken = known().with(GROUP, "vlanstatuses", status("one", "False"));
    refused("storage-network", &alone, &broken, "vs data-one status is not Ready");
    let half = known().with(GROUP, "vlanstatuses", status("one", "True"));
    refused("storage-network", &alone, &half, "vlanconfig does not span two");
    let whole = || with_statuses(known(), &[status("one", "True"), status("two", "True")]);
    let setting = |value: &str| json!({"metadata": {"name": "storage-network"}, "value": value});
    write(admit, setting(&alone), None, &whole(), false).unwrap();

    let nad =
        json!({"metadata": {"name": "n", "namespace": "a"}, "spec": {"config": r#"{"bridge":"data-br","vlan":100}"#}});
    let shared = whole().with("k8s.cni.cncf.io", "network-attachment-definitions", nad);
    write(admit, setting(&alone), None, &shared, false).unwrap();
    let exclusive = value(json!({"exclusiveVlan": true}));
    refused("storage-network", &exclusive, &shared, "storage network cannot use the same vlan 100");

    // It stays while others stand on it.
    let old = setting(&alone);
    write(admit, setting(""), Some(&old), &nothing(), false).unwrap();
    let user = json!({"metadata": {"name": "rwx-network"}, "value": r#"{"share-storage-network":true}"#});
    let error = write(admit, setting(""), Some(&old), &nothing().with("harvesterhci.io", "settings", user), false);
    assert!(error.unwrap_err().message().contains("cannot be disabled while rwx-network"));
}

fn with_statuses(mut objects: Objects, statuses: &[Value]) -> Objects {
    for status in statuses {
        objects = objects.with("network.harvesterhci.io", "vlanstatuses", status.clone());
    }
    objects
}

#[test]
fn known_settings_stay() {
    let error = admit_delete(&json!({"metadata": {"name": "http-proxy"}}), &nothing()).unwrap_err();
    assert_eq!((error.code(), error.reason()), (405, "MethodNotAllowed"));
    assert!(admit_delete(&json!({"metadata": {"name": "left-over"}}), &nothing()).is_ok());
    let version = refusal(admit, json!({"metadata": {"name": "server-version"}, "value": "v9"}));
    assert_eq!(version.code(), 405);
}
