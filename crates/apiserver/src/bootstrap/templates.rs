//! The templates in `harvester-public` that people make their first machines from: an image or a CD to choose, Linux or
//! Windows, and a size.

use serde_json::{Value, json};

use super::Wanted;

const NAMESPACE: &str = "harvester-public";
/// A CD with the drivers that Windows lacks; a user may choose another.
const WINDOWS_DRIVERS: &str = "registry.suse.com/suse/vmdp/vmdp:2.5.5";
const CLOUD_CONFIG: &str = "#cloud-config
package_update: true
packages:
  - qemu-guest-agent
runcmd:
  - [systemctl, enable, --now, qemu-guest-agent.service]
";

/// What a machine starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// An image that is its first disk.
    Disk,
    /// An image in its drive, beside an empty disk.
    Drive,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    Linux,
    Windows,
    /// Wants Secure Boot and a TPM.
    Windows11,
}

struct Template {
    /// Without `-template` and `-version`.
    name: &'static str,
    description: &'static str,
    source: Source,
    system: System,
    cores: u32,
    memory: &'static str,
    disk: &'static str,
}

const TEMPLATES: [Template; 8] = [
    template("iso-image-base", "A machine that is installed from a CD", Source::Drive, System::Linux, SMALL),
    template("raw-image-base", "A machine that starts from an image", Source::Disk, System::Linux, SMALL),
    template("windows-raw-image-base", "Windows from an image", Source::Disk, System::Windows, MEDIUM),
    template("windows-iso-image-base", "Windows, installed from a CD", Source::Drive, System::Windows, MEDIUM),
    template("windows-iso-small", "Windows, installed from a CD: small", Source::Drive, System::Windows, MEDIUM),
    template("windows-iso-medium", "Windows, installed from a CD: medium", Source::Drive, System::Windows, LARGE),
    template("windows-iso-large", "Windows, installed from a CD: large", Source::Drive, System::Windows, HUGE),
    template("windows-w11-iso", "Windows 11, installed from a CD", Source::Drive, System::Windows11, LARGE),
];

/// Cores, memory, disk.
type Size = (u32, &'static str, &'static str);
const SMALL: Size = (1, "2Gi", "10Gi");
const MEDIUM: Size = (2, "4Gi", "64Gi");
const LARGE: Size = (4, "8Gi", "64Gi");
const HUGE: Size = (8, "16Gi", "128Gi");

const fn template(
    name: &'static str,
    description: &'static str,
    source: Source,
    system: System,
    (cores, memory, disk): Size,
) -> Template {
    Template { name, description, source, system, cores, memory, disk }
}

/// The templates, and what their machines say to cloud-init.
pub(super) fn objects() -> impl Iterator<Item = Wanted> {
    let secrets = ["iso-image", "raw-image"].into_iter().map(user_data);
    secrets.chain(TEMPLATES.iter().map(Template::object)).map(Wanted::kept)
}

/// One for each template; they are written once these are there.
pub(super) fn versions() -> Vec<Wanted> {
    TEMPLATES.iter().map(|template| Wanted::kept(template.version())).collect()
}

fn user_data(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": format!("{name}-template-userdata"), "namespace": NAMESPACE },
        "stringData": { "userdata": CLOUD_CONFIG, "networkdata": "" },
    })
}

impl Template {
    fn object(&self) -> Value {
        json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
            "metadata": { "name": format!("{}-template", self.name), "namespace": NAMESPACE },
            "spec": { "description": self.description },
        })
    }

    fn version(&self) -> Value {
        let mut annotations = json!({ "harvesterhci.io/volumeClaimTemplates": self.claims().to_string() });
        if self.system != System::Linux {
            annotations["harvesterhci.io/reservedMemory"] = json!("256Mi");
        }
        json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion",
            "metadata": { "name": format!("{}-version", self.name), "namespace": NAMESPACE },
            "spec": {
                "templateId": format!("{NAMESPACE}/{}-template", self.name),
                "description": self.description,
                "vm": { "metadata": { "annotations": annotations }, "spec": self.machine() },
            },
        })
    }

    /// The image is still to be chosen.
    fn claims(&self) -> Value {
        let claim = |name: &str, size: &str, image: Option<&str>| {
            let mut claim = json!({
                "metadata": { "name": name },
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "volumeMode": "Block",
                    "resources": { "requests": { "storage": size } },
                },
            });
            match image {
                Some(image) => claim["metadata"]["annotations"] = json!({ "harvesterhci.io/imageId": image }),
                None => claim["spec"]["storageClassName"] = json!("harvester-longhorn"),
            }
            claim
        };
        match self.source {
            Source::Disk => json!([claim("pvc-rootdisk", self.disk, Some(""))]),
            Source::Drive => {
                json!([claim("pvc-cdrom-disk", "10Gi", Some("")), claim("pvc-rootdisk", self.disk, None)])
            }
        }
    }

    fn machine(&self) -> Value {
        let (disks, volumes) = self.disks();
        let limits = json!({ "cpu": self.cores.to_string(), "memory": self.memory });
        let mut domain = json!({
            "machine": { "type": "q35" },
            "cpu": { "cores": self.cores, "sockets": 1, "threads": 1 },
            "features": { "acpi": { "enabled": true } },
            "resources": { "limits": limits },
            "devices": {
                "disks": disks,
                "inputs": [{ "bus": "usb", "name": "tablet", "type": "tablet" }],
                "interfaces": [{ "name": "default", "model": self.network_card(), "masquerade": {} }],
            },
        });
        if self.system != System::Linux {
            domain["clock"] = json!({ "timezone": "UTC", "timer": { "hyperv": { "present": true } } });
            domain["features"]["hyperv"] = json!({
                "relaxed": { "enabled": true },
                "vapic": { "enabled": true },
                "spinlocks": { "enabled": true, "spinlocks": 8191 },
            });
        }
        if self.system == System::Windows11 {
            domain["features"]["smm"] = json!({ "enabled": true });
            domain["firmware"] = json!({ "bootloader": { "efi": { "secureBoot": true, "persistent": true } } });
            domain["devices"]["tpm"] = json!({ "persistent": true });
        }
        json!({
            "runStrategy": "RerunOnFailure",
            "template": { "spec": {
                "evictionStrategy": "LiveMigrateIfPossible",
                "domain": domain,
                "networks": [{ "name": "default", "pod": {} }],
                "volumes": volumes,
            }},
        })
    }

    /// Windows has no driver for virtio before it is given one.
    fn network_card(&self) -> &'static str {
        if self.system == System::Linux { "virtio" } else { "e1000" }
    }

    fn disks(&self) -> (Vec<Value>, Vec<Value>) {
        let mut disks = Vec::new();
        let mut volumes = Vec::new();
        let mut add = |name: &str, mut disk: Value, volume: Value| {
            disk["name"] = json!(name);
            disks.push(disk);
            let mut volume = volume;
            volume["name"] = json!(name);
            volumes.push(volume);
        };
        let claim = |name: &str| json!({ "persistentVolumeClaim": { "claimName": name } });
        let bus = if self.system == System::Linux { "virtio" } else { "sata" };
        let is_installed = self.source == Source::Drive;
        if is_installed {
            add("cdrom-disk", json!({ "cdrom": { "bus": "sata" }, "bootOrder": 1 }), claim("pvc-cdrom-disk"));
        }
        let order = if is_installed { 2 } else { 1 };
        add("rootdisk", json!({ "disk": { "bus": bus }, "bootOrder": order }), claim("pvc-rootdisk"));
        match self.system {
            System::Linux => {
                let secret = if is_installed { "iso-image" } else { "raw-image" };
                let secret = json!({ "name": format!("{secret}-template-userdata") });
                let source = json!({ "cloudInitNoCloud": { "secretRef": secret, "networkDataSecretRef": secret } });
                add("cloudinitdisk", json!({ "disk": { "bus": "virtio" } }), source);
            }
            System::Windows | System::Windows11 => {
                let source =
                    json!({ "containerDisk": { "image": WINDOWS_DRIVERS, "imagePullPolicy": "IfNotPresent" } });
                add("virtio-container-disk", json!({ "cdrom": { "bus": "sata" } }), source);
            }
        }
        (disks, volumes)
    }
}
