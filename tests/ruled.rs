//! What Croft's rules refuse, wherever they are asked: in the server, or as webhooks.

use serde_json::{Value, json};

use crate::flows::{BALANCERS, NADS, POOLS};

/// Settings, values that they must not have, and what is said to them.
pub const BAD_SETTINGS: &[(&str, &str, &str)] = &[
    ("overcommit-config", r#"{"cpu":10}"#, "Cannot undercommit"),
    ("http-proxy", "nonsense", "Invalid JSON"),
    ("ntp-servers", r#"{"ntpServers":["https://a.b"]}"#, "should not start with http:// or https://"),
    ("vm-force-reset-policy", r#"{"enable":true,"period":-1}"#, "period value should be greater than 0"),
    ("auto-rotate-rke2-certs", r#"{"enable":true,"expiringInHours":9000}"#, "can't be large than 8759"),
    ("kubeconfig-default-token-ttl-minutes", "-1", "can't be negative"),
    ("support-bundle-timeout", "-1", "can't be negative"),
    ("support-bundle-image", r#"{"repository":"","tag":""}"#, "image field can't be blank"),
    ("ssl-parameters", r#"{"protocols":"TLSv4"}"#, "unsupported SSL protocol: TLSv4"),
    ("ssl-parameters", r#"{"protocols":"TLSv1.2","ciphers":"NULL"}"#, "protocols and ciphers cannot be used"),
    ("max-hotplug-ratio", "0", "out of range"),
    ("log-level", "loud", "invalid log level"),
    ("backup-target", r#"{"type":"s3"}"#, "S3 backup target should have access key and access key id"),
    ("storage-network", r#"{"vlan":5000,"clusterNetwork":"mgmt","range":"192.0.2.0/24"}"#, "0 to 4094"),
    ("additional-ca", "not a certificate", "failed to parse PEM certificates"),
];

/// What is written, where, and the refusal.
pub fn refusals() -> Vec<(&'static str, Value, &'static str)> {
    let balancer = |spec: Value| json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "metadata": {"name": "x"}, "spec": spec});
    let pool = |spec: Value| json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool", "metadata": {"name": "x"}, "spec": spec});
    let config = |network: &str, mtu: u32| {
        json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "VlanConfig", "metadata": {"name": "x"},
            "spec": {"clusterNetwork": network, "uplink": {"nics": ["ens4"], "linkAttributes": {"mtu": mtu}}}})
    };
    let nad = |config: &str| json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "x"}, "spec": {"config": config}});
    let schedule = |cron: &str, failures: u32| {
        json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "ScheduleVMBackup", "metadata": {"name": "x"},
            "spec": {"cron": cron, "retain": 4, "maxFailure": failures, "vmbackup": {"type": "snapshot", "source": {"kind": "VirtualMachine", "name": "vm"}}}})
    };
    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": "x"},
        "spec": {"type": "backup", "source": {"kind": "VirtualMachine", "name": "nobody"}}});
    let restore = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": {"name": "x"},
        "spec": {"newVM": true, "target": {"kind": "VirtualMachine", "name": "new"}, "virtualMachineBackupName": "none", "virtualMachineBackupNamespace": "default"}});
    let schedules = "/apis/harvesterhci.io/v1beta1/namespaces/default/schedulevmbackups";
    let configs = "/apis/network.harvesterhci.io/v1beta1/vlanconfigs";
    vec![
        (BALANCERS, balancer(json!({"workloadType": "vm"})), "needs to have at least one listener"),
        (
            BALANCERS,
            balancer(json!({"listeners": [{"name": "a", "port": 70000, "protocol": "TCP", "backendPort": 1}]})),
            "must be in 1..65535",
        ),
        (POOLS, pool(json!({"ranges": []})), "range can't be empty"),
        (
            POOLS,
            pool(json!({"ranges": [{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]})),
            "there are overlaps between range",
        ),
        (configs, config("mgmt", 0), "users can't create vlanConfig for mgmt cluster network"),
        (configs, config("nowhere", 0), "the cluster network \"nowhere\" does not exist"),
        (configs, config("data", 100), "the MTU 100 is out of range"),
        (NADS, nad(""), "config is empty"),
        (NADS, nad(r#"{"type":"bridge","bridge":"none-br"}"#), "nad refers to a none-existing cluster network none"),
        (NADS, nad(r#"{"type":"kube-ovn"}"#), "kubeovn is not yet enabled"),
        (NADS, nad(r#"{"type":"bridge","bridge":"mgmt-br","mtu":9000}"#), "is different from the MTU 1500"),
        (
            "/apis/network.harvesterhci.io/v1beta1/hostnetworkconfigs",
            json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "HostNetworkConfig", "metadata": {"name": "x"},
                "spec": {"clusterNetwork": "nowhere", "vlanID": 5, "mode": "dhcp"}}),
            "the cluster network \"nowhere\" does not exist",
        ),
        (
            "/apis/devices.harvesterhci.io/v1beta1/usbdeviceclaims",
            json!({"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "USBDeviceClaim", "metadata": {"name": "x"},
                "spec": {"userName": "admin"}}),
            "usbdevice x not found",
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "driver.longhorn.io",
                "metadata": {"name": "x", "annotations": {"cdi.harvesterhci.io/storageProfileCloneStrategy": "copy"}}}),
            "longhorn v1 does not support CDI annotations",
        ),
        (schedules, schedule("often", 2), "invalid cron format"),
        (schedules, schedule("0 1 * * *", 4), "max failure should be less than retain"),
        ("/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups", backup, "\"nobody\" not found"),
        ("/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores", restore, "\"none\" not found"),
    ]
}
