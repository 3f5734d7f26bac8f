//! What the suites about virtual machines share: machines to create, what to wait for, and the small guest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use croft_testkit::{Client, Croft, StoreKind, WebSocket, eventually, eventually_within, patience};
use serde_json::{Value, json};

pub const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
pub const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

/// How long the small guest may take to boot: it is emulated, on a machine that does other things too.
pub const BOOT: Duration = Duration::from_mins(4);

/// How long a password may take to be checked before it is given again.
const LOGIN: Duration = Duration::from_secs(70);

/// What the small guest is told by cloud-init; its root has the password `turnip-7`.
pub const USER_DATA: &str = "#cloud-config\n\
    password: turnip-7\n\
    chpasswd: {expire: false}\n\
    ssh_pwauth: true\n\
    write_files: [{path: /srv/told, content: hello}]\n\
    runcmd: ['echo ran > /srv/ran', 'echo welcome > /var/www/index.html']\n";

/// A machine without an operating system: it starts at once and does nothing.
pub fn empty(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "memory": {"guest": "64Mi"},
                // It does nothing, so it reserves nothing: many fit.
                "resources": {"requests": {"cpu": "1m"}, "overcommitGuestOverhead": true},
                "devices": {"autoattachPodInterface": false},
            },
        }}},
    })
}

/// The small guest's image, built by `make guest`.
pub fn guest_image() -> Result<PathBuf> {
    let target = croft_testkit::binary()?;
    let target = target.ancestors().nth(2).context("the binary is in the target directory")?;
    let image = std::env::var_os("CROFT_GUEST").map_or_else(|| target.join("guest/tiny.qcow2"), PathBuf::from);
    if !image.is_file() {
        bail!("no guest at {}: build it (`make guest`) or set CROFT_GUEST", image.display());
    }
    Ok(image)
}

/// A server that runs machines.
pub async fn node() -> (Croft, Client) {
    let server = Croft::start_node(StoreKind::Embedded, &[]).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

/// What the only node is called.
pub async fn node_name(client: &Client) -> String {
    let nodes = client.get("/api/v1/nodes").await.expect("an answer").ok().expect("nodes");
    nodes["items"][0]["metadata"]["name"].as_str().unwrap_or_else(|| panic!("no node: {nodes}")).to_owned()
}

/// A node that has the small guest's image.
pub async fn node_with_image() -> (Croft, Client) {
    let (server, client) = node().await;
    let image = guest_image().expect("the guest is built");
    croft_ok(&server, &["image", "upload", "tiny", image.to_str().expect("a path")]).await.expect("uploaded");
    (server, client)
}

/// The small guest with a root disk from the image, cloud-init and an address.
pub fn guest(name: &str) -> Value {
    let claim = json!([{
        "metadata": {"name": format!("{name}-root"), "annotations": {"harvesterhci.io/imageId": "default/tiny"}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "longhorn-tiny",
                 "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "annotations": {"harvesterhci.io/volumeClaimTemplates": claim.to_string()}},
        "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {
            "terminationGracePeriodSeconds": 60,
            "domain": {
                "cpu": {"cores": 1}, "memory": {"guest": "192Mi"},
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
                {"name": "seed", "cloudInitNoCloud": {"userData": USER_DATA}},
            ],
        }}},
    })
}

/// The QEMU of each instance that runs on this server's node, by the instance's uid.
pub fn qemus(server: &Croft) -> BTreeMap<String, u32> {
    let vms = server.run_dir().map(|dir| dir.join("vms"));
    let mut found = BTreeMap::new();
    for entry in vms.and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path().join("process.json")).unwrap_or_default();
        let process: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(pid) = process["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()) else { continue };
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.starts_with("qemu") {
            found.insert(entry.file_name().to_string_lossy().into_owned(), pid);
        }
    }
    found
}

/// What an instance's QEMU was started with.
pub fn qemu_line(server: &Croft, instance: &Value) -> Vec<String> {
    let uid = instance["metadata"]["uid"].as_str().unwrap_or_default();
    let pid = qemus(server).get(uid).copied().expect("a QEMU");
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).expect("a command line");
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// What the events of an object say, machines and instances alike.
pub async fn events_of(client: &Client, name: &str) -> Vec<String> {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
    let events = client.get(&path).await.expect("an answer").json();
    let said = |event: &Value| format!("{}: {}", event["reason"], event["message"]);
    events["items"].as_array().into_iter().flatten().map(said).collect()
}

/// Changes fields of an object as a merge patch does.
pub fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

pub fn subresource(kind: &str, name: &str, sub: &str) -> String {
    format!("{SUBRESOURCES}/{kind}/{name}/{sub}")
}

/// Runs the croft command itself, as a user of this server.
pub async fn croft(server: &Croft, args: &[&str]) -> Result<std::process::Output> {
    let mut command = tokio::process::Command::new(croft_testkit::binary()?);
    command.args(args).env("KUBECONFIG", &server.kubeconfig).stdin(std::process::Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(BOOT, command.output())
        .await
        .with_context(|| format!("croft {args:?} did not end"))?
        .context("croft")
}

/// The same; anything but success is an error with all that it said.
pub async fn croft_ok(server: &Croft, args: &[&str]) -> Result<String> {
    let output = croft(server, args).await?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        bail!("croft {args:?}: {}\n{}\n{}", output.status, said(&output.stdout), said(&output.stderr));
    }
    Ok(said(&output.stdout))
}

pub async fn create(client: &Client, machine: &Value) -> Value {
    client.post(MACHINES, machine).await.expect("an answer").ok().expect("the machine is created")
}

/// The object once it satisfies `is_so`; the error shows how it was.
pub async fn becomes(
    client: &Client,
    path: &str,
    what: &str,
    limit: Duration,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    let last = eventually_within(limit, async || {
        let object = client.get(path).await.map_err(|err| err.to_string())?.json();
        if is_so(&object) { Ok(object) } else { Err(object["status"].to_string()) }
    });
    last.await.unwrap_or_else(|last| panic!("{path} is not {what}: {last}"))
}

pub async fn running(client: &Client, name: &str) -> Value {
    let path = format!("{INSTANCES}/{name}");
    becomes(client, &path, "running", patience(), |instance| instance["status"]["phase"] == "Running").await
}

pub async fn status_becomes(client: &Client, name: &str, status: &str) -> Value {
    let path = format!("{MACHINES}/{name}");
    becomes(client, &path, status, BOOT, |machine| machine["status"]["printableStatus"] == status).await
}

pub async fn is_gone(client: &Client, path: &str) {
    eventually(&format!("{path} goes"), async || match client.get(path).await.map_err(|err| err.to_string())? {
        answer if answer.status == 404 => Ok(()),
        answer => Err(answer.text()),
    })
    .await;
}

pub fn condition<'a>(object: &'a Value, ty: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == ty)
}

pub fn is_true(object: &Value, ty: &str) -> bool {
    condition(object, ty).is_some_and(|condition| condition["status"] == "True")
}

/// A serial console, however it is reached.
pub trait Terminal {
    fn send(&mut self, bytes: &[u8]) -> impl Future<Output = Result<()>> + Send;
    /// Reads until the text has been seen, and gives all that came up to there.
    fn expect(&mut self, text: &str, limit: Duration) -> impl Future<Output = Result<String>> + Send;
}

impl Terminal for WebSocket {
    async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        WebSocket::send(self, bytes).await
    }

    async fn expect(&mut self, text: &str, limit: Duration) -> Result<String> {
        WebSocket::expect(self, text, limit).await
    }
}

/// A root shell on the serial console of the small guest.
#[derive(Debug)]
pub struct Shell<T = WebSocket> {
    stream: T,
    count: u32,
}

impl Shell {
    /// Waits for the guest and logs in.
    pub async fn log_in(server: &Croft, name: &str, password: Option<&str>) -> Result<Self> {
        let path = subresource("virtualmachineinstances", name, "console");
        let stream = eventually_within(BOOT, async || match server.websocket(&path).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(refused)) => Err(format!("{}: {}", refused.code, refused.status)),
            Err(err) => Err(format!("{err:#}")),
        });
        Self::on(stream.await.map_err(anyhow::Error::msg)?, password).await
    }
}

impl<T: Terminal> Shell<T> {
    /// Logs in where a guest boots or waits.
    pub async fn on(stream: T, password: Option<&str>) -> Result<Self> {
        let mut shell = Self { stream, count: 0 };
        shell.authenticate(password).await?;
        Ok(shell)
    }

    /// Leaves, and logs in again with another password.
    pub async fn log_in_again(&mut self, password: &str) -> Result<()> {
        self.stream.send(b"exit\r").await?;
        self.authenticate(Some(password)).await
    }

    /// Answers the next prompts on the console.
    pub async fn authenticate(&mut self, password: Option<&str>) -> Result<()> {
        let stream = &mut self.stream;
        let deadline = Instant::now() + BOOT;
        // A guest that is emulated on a busy machine may be slower than its own patience with the password. Lines end with
        // line feeds: what comes before its terminal is set up has its returns made line feeds, and the guest then takes
        // those for the ends of lines and waits for one until that patience ends.
        loop {
            stream.expect("login:", BOOT).await?;
            stream.send(b"root\n").await?;
            if let Some(password) = password {
                stream.expect("assword:", BOOT).await?;
                stream.send(format!("{password}\n").as_bytes()).await?;
            }
            match stream.expect("# ", LOGIN).await {
                Ok(_) => return Ok(()),
                Err(err) if Instant::now() > deadline => return Err(err),
                Err(_) => stream.send(b"\n").await?,
            }
        }
    }

    /// The shell of somebody who has logged in on this console before.
    pub async fn resume(mut stream: T) -> Result<Self> {
        stream.send(b"\r").await?;
        stream.expect("# ", LOGIN).await?;
        Ok(Self { stream, count: 0 })
    }

    /// What a command prints, and its exit code.
    pub async fn run(&mut self, command: &str) -> Result<(String, i32)> {
        self.count += 1;
        // The markers are split where they are typed, so that the echo of the line is not taken for them.
        let (begin, done) = (format!("=begin-{}=", self.count), format!("=done-{}=", self.count));
        let line = format!("echo \"=be\"\"gin-{0}=\"; {command}; echo \"=do\"\"ne-{0}=$?=\"\r", self.count);
        self.stream.send(line.as_bytes()).await?;
        self.stream.expect(&begin, BOOT).await?;
        let seen = self.stream.expect(&done, BOOT).await?;
        let code = self.stream.expect("=", BOOT).await?;
        let code =
            code.trim_end_matches('=').trim().parse().with_context(|| format!("the exit code of {command}: {code}"))?;
        Ok((seen.replace('\r', "").trim_end_matches(&done).trim().to_owned(), code))
    }

    /// The output of a command that must succeed.
    pub async fn ok(&mut self, command: &str) -> String {
        let (text, code) = self.run(command).await.unwrap_or_else(|err| panic!("{command}: {err:#}"));
        assert_eq!(code, 0, "{command}: {text}");
        text
    }
}

/// Looks again until the guest has noticed.
pub async fn in_guest(shell: &mut Shell, command: &str, is_so: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let last = shell.run(command).await.unwrap_or_else(|err| panic!("{command}: {err:#}")).0;
        if is_so(&last) {
            return last;
        }
        assert!(start.elapsed() < BOOT, "{command} still says {last}");
        shell.ok("sleep 0.2").await;
    }
}
