//! A virtual machine from an image, in one line.

use std::path::PathBuf;

use anyhow::{Context, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::{Map, Value, json};

use super::{console, power};
use crate::api::segment;
use crate::client::{Client, MACHINES, SECRETS};
use crate::output::Format;
use crate::size::size;
use crate::{Failure, image, print};

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true).multiple(true))]
pub(crate) struct CreateArgs {
    /// What to call it
    name: String,
    /// The image to boot from: its name, its display name, or NAMESPACE/NAME (see "croft image list")
    #[arg(short, long, value_name = "IMAGE", group = "source", conflicts_with = "container_disk")]
    image: Option<String>,
    /// A container image to boot from, for example quay.io/containerdisks/fedora; changes are lost when it stops
    #[arg(long, value_name = "IMAGE", group = "source")]
    container_disk: Option<String>,
    /// An existing volume to boot from
    #[arg(long, value_name = "CLAIM", group = "source", conflicts_with_all = ["image", "container_disk"])]
    volume: Option<String>,
    /// An image to put into its CD drive
    #[arg(long, value_name = "IMAGE", group = "source")]
    cdrom: Option<String>,
    /// Processors
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    cpus: u32,
    /// Memory
    #[arg(short, long, default_value = "1Gi", value_name = "SIZE", value_parser = size)]
    memory: String,
    /// The size of the root disk [default: the image's, 10Gi at least]
    #[arg(short, long, value_name = "SIZE", value_parser = size)]
    disk: Option<String>,
    /// A further empty disk; may be repeated
    #[arg(long, value_name = "SIZE", value_parser = size)]
    data_disk: Vec<String>,
    /// The storage class of empty disks [default: the default class]
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// A network to join: "pod" for the default one, or a NetworkAttachmentDefinition; may be repeated
    #[arg(long, value_name = "NETWORK", default_value = "pod")]
    network: Vec<String>,
    /// A file with public SSH keys for its user; may be repeated
    #[arg(long, value_name = "FILE")]
    ssh_key: Vec<PathBuf>,
    /// The password of its user
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// The user to create [default: the image's own]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A file with cloud-init user data
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh_key", "password", "user"])]
    cloud_init: Option<PathBuf>,
    /// Boot by UEFI instead of BIOS
    #[arg(long)]
    uefi: bool,
    /// Boot by UEFI with Secure Boot
    #[arg(long)]
    secure_boot: bool,
    /// Give it a TPM that keeps its state
    #[arg(long)]
    tpm: bool,
    /// When it runs: Always, RerunOnFailure, Manual, Once or Halted
    #[arg(long, default_value = "RerunOnFailure", value_parser = ["Always", "RerunOnFailure", "Manual", "Once", "Halted"])]
    run_strategy: String,
    /// Do not start it
    #[arg(long, conflicts_with_all = ["wait", "console"])]
    no_start: bool,
    /// Return once it runs
    #[arg(short, long)]
    wait: bool,
    /// Open its console
    #[arg(long)]
    console: bool,
    /// Print what would be created instead
    #[arg(long)]
    dry_run: bool,
}

/// How its user logs in.
#[derive(Debug, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) keys: Vec<String>,
}

/// A machine that is to be made. Its disks are made with it, as Harvester's clients do.
#[derive(Debug)]
pub(crate) struct Creation {
    pub(crate) name: String,
    pub(crate) cpus: u32,
    pub(crate) memory: String,
    pub(crate) run_strategy: String,
    pub(crate) user_data: Option<String>,
    firmware: Option<Value>,
    has_tpm: bool,
    networks: Vec<String>,
    claims: Vec<Value>,
    disks: Vec<Value>,
    volumes: Vec<Value>,
}

impl Creation {
    pub(crate) fn new(name: &str, cpus: u32, memory: &str) -> Self {
        Self {
            name: name.to_owned(),
            cpus,
            memory: memory.to_owned(),
            run_strategy: "RerunOnFailure".to_owned(),
            user_data: None,
            firmware: None,
            has_tpm: false,
            networks: vec!["pod".to_owned()],
            claims: Vec::new(),
            disks: Vec::new(),
            volumes: Vec::new(),
        }
    }

    /// A disk that is a copy of an image.
    pub(crate) fn add_image_disk(&mut self, image: &image::Found, size: Option<&str>) -> anyhow::Result<()> {
        let size = match size {
            Some(size) => size.to_owned(),
            None => image.virtual_size.max(10 << 30).to_string(),
        };
        let claim = json!({
            "metadata": {
                "name": self.claim_name()?,
                "annotations": { "harvesterhci.io/imageId": format!("{}/{}", image.namespace, image.name) },
            },
            "spec": claim_spec(&size, Some(&image.storage_class)),
        });
        self.add_claim_template(claim, "disk");
        Ok(())
    }

    fn add_empty_disk(&mut self, size: &str, class: Option<&str>) -> anyhow::Result<()> {
        let claim = json!({ "metadata": { "name": self.claim_name()? }, "spec": claim_spec(size, class) });
        self.add_claim_template(claim, "disk");
        Ok(())
    }

    fn add_cdrom(&mut self, image: &image::Found) -> anyhow::Result<()> {
        let claim = json!({
            "metadata": {
                "name": self.claim_name()?,
                "annotations": { "harvesterhci.io/imageId": format!("{}/{}", image.namespace, image.name) },
            },
            "spec": claim_spec(&image.virtual_size.max(1 << 20).to_string(), Some(&image.storage_class)),
        });
        self.add_claim_template(claim, "cdrom");
        Ok(())
    }

    /// Harvester's way of naming the disks of a machine.
    fn claim_name(&self) -> anyhow::Result<String> {
        Ok(format!("{}-disk-{}-{}", self.name, self.claims.len(), random_suffix()?))
    }

    fn add_claim_template(&mut self, claim: Value, kind: &str) {
        let source = json!({ "persistentVolumeClaim": { "claimName": claim["metadata"]["name"] } });
        self.claims.push(claim);
        self.add_volume(source, kind);
    }

    fn add_volume(&mut self, source: Value, kind: &str) {
        let name = format!("disk-{}", self.disks.len());
        let bus = if kind == "cdrom" { "sata" } else { "virtio" };
        self.disks.push(json!({ "name": name, "bootOrder": self.disks.len() + 1, kind: { "bus": bus } }));
        let mut volume = source;
        volume["name"] = name.into();
        self.volumes.push(volume);
    }

    fn cloud_init_secret(&self) -> String {
        format!("{}-cloudinit", self.name)
    }

    /// The objects, the Secret that the machine refers to first.
    pub(crate) fn objects(&self) -> (Option<Value>, Value) {
        let (mut disks, mut volumes) = (self.disks.clone(), self.volumes.clone());
        let secret = self.user_data.as_ref().map(|user_data| {
            disks.push(json!({ "name": "cloudinitdisk", "disk": { "bus": "virtio" } }));
            let reference = json!({ "name": self.cloud_init_secret() });
            volumes.push(json!({ "name": "cloudinitdisk", "cloudInitNoCloud": { "secretRef": reference } }));
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {
                    "name": self.cloud_init_secret(),
                    "labels": { "harvesterhci.io/cloud-init-template": "harvester" },
                },
                "data": { "userdata": BASE64_STANDARD.encode(user_data) },
            })
        });
        let mut devices = json!({ "disks": disks, "rng": {} });
        let networks = self.networks(&mut devices);
        if self.has_tpm {
            devices["tpm"] = json!({ "persistent": true });
        }
        let mut domain = json!({
            "cpu": { "cores": self.cpus, "sockets": 1, "threads": 1 },
            "resources": { "limits": { "cpu": self.cpus.to_string(), "memory": self.memory } },
            "devices": devices,
        });
        if let Some(firmware) = &self.firmware {
            domain["firmware"] = firmware.clone();
            let is_secure = firmware["bootloader"]["efi"]["secureBoot"] == json!(true);
            if is_secure {
                domain["features"] = json!({ "smm": { "enabled": true } });
            }
        }
        let mut annotations = Map::new();
        if !self.claims.is_empty() {
            let claims = Value::Array(self.claims.clone()).to_string();
            annotations.insert("harvesterhci.io/volumeClaimTemplates".to_owned(), claims.into());
        }
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": { "name": self.name, "annotations": annotations, "labels": { "harvesterhci.io/creator": "croft" } },
            "spec": {
                "runStrategy": self.run_strategy,
                "template": {
                    "metadata": { "labels": { "harvesterhci.io/vmName": self.name } },
                    "spec": { "domain": domain, "networks": networks, "volumes": volumes },
                },
            },
        });
        (secret, machine)
    }

    fn networks(&self, devices: &mut Value) -> Vec<Value> {
        let mut interfaces = Vec::new();
        let mut networks = Vec::new();
        for (index, network) in self.networks.iter().enumerate() {
            let is_pod = network == "pod";
            let name = if is_pod { "default".to_owned() } else { format!("nic-{index}") };
            let binding = if is_pod { "masquerade" } else { "bridge" };
            interfaces.push(json!({ "name": name, "model": "virtio", binding: {} }));
            networks.push(if is_pod {
                json!({ "name": name, "pod": {} })
            } else {
                json!({ "name": name, "multus": { "networkName": network } })
            });
        }
        devices["interfaces"] = interfaces.into();
        networks
    }

    /// Creates the objects. The Secret goes when the machine goes.
    pub(crate) async fn submit(&self, client: &Client) -> anyhow::Result<Value> {
        let (secret, machine) = self.objects();
        let secrets = SECRETS.all(&client.namespace);
        if let Some(secret) = &secret {
            client.create(&secrets, secret).await.context("cannot create the Secret with the cloud-init data")?;
        }
        let made = client.create(&MACHINES.all(&client.namespace), &machine).await;
        let own = SECRETS.one(&client.namespace, &self.cloud_init_secret())?;
        match (made, secret) {
            (Ok(made), Some(_)) => {
                let owner = json!({
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                    "name": made["metadata"]["name"], "uid": made["metadata"]["uid"],
                });
                client.merge(&own, &json!({ "metadata": { "ownerReferences": [owner] } })).await?;
                Ok(made)
            }
            (Err(err), Some(_)) => {
                // What was refused leaves nothing behind; the refusal is what counts.
                let _ = client.delete(&own).await;
                Err(err)
            }
            (made, None) => made,
        }
    }
}

fn claim_spec(size: &str, class: Option<&str>) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block",
        "resources": { "requests": { "storage": size } },
    });
    if let Some(class) = class {
        spec["storageClassName"] = class.into();
    }
    spec
}

impl Login {
    /// As cloud-init reads it. None if there is nothing to say.
    pub(crate) fn user_data(&self) -> anyhow::Result<Option<String>> {
        if self.user.is_none() && self.password.is_none() && self.keys.is_empty() {
            return Ok(None);
        }
        let mut config = Map::new();
        if let Some(user) = &self.user {
            let mut entry =
                json!({ "name": user, "sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash", "lock_passwd": false });
            if !self.keys.is_empty() {
                entry["ssh_authorized_keys"] = json!(self.keys);
            }
            config.insert("users".to_owned(), json!(["default", entry]));
            if let Some(password) = &self.password {
                let entry = json!({ "name": user, "password": password, "type": "text" });
                config.insert("chpasswd".to_owned(), json!({ "expire": false, "users": [entry] }));
            }
        } else {
            if let Some(password) = &self.password {
                config.insert("password".to_owned(), json!(password));
                config.insert("chpasswd".to_owned(), json!({ "expire": false }));
            }
            if !self.keys.is_empty() {
                config.insert("ssh_authorized_keys".to_owned(), json!(self.keys));
            }
        }
        config.insert("ssh_pwauth".to_owned(), json!(self.password.is_some()));
        let yaml = serde_saphyr::to_string(&config).context("cannot write cloud-init data")?;
        Ok(Some(format!("#cloud-config\n{yaml}")))
    }
}

/// Five letters and digits, as Kubernetes adds them.
fn random_suffix() -> anyhow::Result<String> {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = [0; 5];
    getrandom::fill(&mut random).context("the system has no randomness")?;
    Ok(random.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect())
}

pub(crate) async fn run(client: &Client, args: CreateArgs) -> Result<(), Failure> {
    segment(&args.name).map_err(Failure::usage)?;
    let mut creation = Creation::new(&args.name, args.cpus, &args.memory);
    creation.networks.clone_from(&args.network);
    if args.no_start {
        "Halted".clone_into(&mut creation.run_strategy);
    } else {
        creation.run_strategy.clone_from(&args.run_strategy);
    }
    creation.has_tpm = args.tpm;
    if args.uefi || args.secure_boot {
        let efi = json!({ "secureBoot": args.secure_boot, "persistent": true });
        creation.firmware = Some(json!({ "bootloader": { "efi": efi } }));
    }
    creation.user_data = user_data(&args)?;
    add_disks(client, &mut creation, &args).await?;
    if args.dry_run {
        let (secret, machine) = creation.objects();
        for object in secret.into_iter().chain([machine]) {
            print(&format!("---\n{}", crate::output::document(Format::Yaml, &object)?))?;
        }
        return Ok(());
    }
    creation.submit(client).await?;
    print(&format!("{} is created\n", args.name))?;
    if args.wait {
        power::running(client, &args.name).await?;
        print(&format!("{} is running\n", args.name))?;
    }
    if args.console {
        return console::attach(client, &args.name).await;
    }
    if !args.wait && !args.no_start {
        eprintln!("next: croft vm console {0}, or croft vm show {0}", args.name);
    }
    Ok(())
}

async fn add_disks(client: &Client, creation: &mut Creation, args: &CreateArgs) -> anyhow::Result<()> {
    if let Some(image) = &args.image {
        let image = image::find_ready(client, image).await?;
        creation.add_image_disk(&image, args.disk.as_deref())?;
    } else if let Some(container) = &args.container_disk {
        if args.disk.is_some() {
            bail!("a container disk has its own size; add room with --data-disk");
        }
        creation.add_volume(json!({ "containerDisk": { "image": container } }), "disk");
    } else if let Some(claim) = &args.volume {
        creation.add_volume(json!({ "persistentVolumeClaim": { "claimName": segment(claim)? } }), "disk");
    } else if let Some(size) = &args.disk {
        creation.add_empty_disk(size, args.storage_class.as_deref())?;
    }
    if let Some(image) = &args.cdrom {
        let image = image::find_ready(client, image).await?;
        creation.add_cdrom(&image)?;
    }
    for size in &args.data_disk {
        creation.add_empty_disk(size, args.storage_class.as_deref())?;
    }
    Ok(())
}

fn user_data(args: &CreateArgs) -> anyhow::Result<Option<String>> {
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    if let Some(path) = &args.cloud_init {
        return read(path).map(Some);
    }
    let mut login = Login { user: args.user.clone(), password: args.password.clone(), keys: Vec::new() };
    for path in &args.ssh_key {
        let text = read(path)?;
        if text.contains("PRIVATE KEY") {
            bail!("{} is a private key; give the public one, which ends in .pub", path.display());
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        login.keys.extend(lines.map(str::to_owned));
    }
    login.user_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_from_an_image_is_what_harvesters_clients_post() {
        let mut creation = Creation::new("web", 2, "4Gi");
        let image = image::Found {
            namespace: "default".into(),
            name: "debian".into(),
            storage_class: "longhorn-debian".into(),
            virtual_size: 3 << 30,
        };
        creation.add_image_disk(&image, None).unwrap();
        creation.user_data = Some("#cloud-config\n".into());
        let (secret, machine) = creation.objects();
        assert_eq!(secret.unwrap()["metadata"]["name"], "web-cloudinit");
        let claims = machine["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap();
        let claims: Value = serde_json::from_str(claims).unwrap();
        assert_eq!(claims[0]["spec"]["storageClassName"], "longhorn-debian");
        assert_eq!(claims[0]["spec"]["resources"]["requests"]["storage"], (10_u64 << 30).to_string());
        assert_eq!(claims[0]["metadata"]["annotations"]["harvesterhci.io/imageId"], "default/debian");
        let spec = &machine["spec"]["template"]["spec"];
        assert_eq!(spec["volumes"][0]["persistentVolumeClaim"]["claimName"], claims[0]["metadata"]["name"]);
        assert_eq!(spec["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"], "web-cloudinit");
        assert_eq!(spec["domain"]["devices"]["disks"][0]["bootOrder"], 1);
        assert_eq!(spec["domain"]["resources"]["limits"]["memory"], "4Gi");
        assert_eq!(spec["networks"][0]["pod"], json!({}));
    }

    #[test]
    fn cloud_init_says_how_to_log_in() {
        assert_eq!(Login::default().user_data().unwrap(), None);
        let login = Login { password: Some("x: y".into()), keys: vec!["ssh-ed25519 AAAA me".into()], user: None };
        let text = login.user_data().unwrap().unwrap();
        assert!(text.starts_with("#cloud-config\n"), "{text}");
        let parsed: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(parsed["password"], "x: y");
        assert_eq!(parsed["ssh_authorized_keys"][0], "ssh-ed25519 AAAA me");
        assert_eq!(parsed["chpasswd"]["expire"], false);
        let login = Login { user: Some("jane".into()), ..login };
        let parsed: Value = serde_saphyr::from_str(&login.user_data().unwrap().unwrap()).unwrap();
        assert_eq!(parsed["users"][1]["name"], "jane");
        assert_eq!(parsed["chpasswd"]["users"][0]["password"], "x: y");
    }
}
