//! What the server is to do, once flags, environment, file and defaults have been put together and checked.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use croft_agent::Listen as NodeListen;
use croft_agent::network::{Ipv4Net, parse_subnet};
use croft_apiserver::{AuditLog, AuthenticationConfig, Limits, LoginLimits};
use croft_pki::Secret;
use croft_store::sealed::SealOptions;

use crate::options::{ListenAddress, LogFormat, OwnRules, ServerArgs, ServerOptions, StoreKind};
use crate::state_settings::StateSettings;
use crate::{
    audit_settings, authentication_settings, config_file, kubeconfig_link, lifetime, limits, node_name, run_dir,
    state_settings,
};

const DATA_DIR: &str = "/var/lib/croft";
const ETC_DIR: &str = "/etc";
const ENCRYPTION_KEY: &str = "encryption.key";
const SECRETS: &str = "secrets";
/// Their status has the Secrets of the machine.
const COPIES_OF_SECRETS: &str = "virtualmachinebackups.harvesterhci.io";
/// Kubernetes' port; the server is of no use without it.
const API: &str = "0.0.0.0:6443";
/// For browsers and Rancher; often taken, or not allowed.
const WEB: &str = "0.0.0.0:443";
/// The kubelet's port, which the agent takes the place of; both families of addresses.
const NODE: &str = "[::]:10250";

#[derive(Debug)]
pub struct Settings {
    pub data_dir: PathBuf,
    /// Never empty.
    pub listen: Vec<Listen>,
    pub tls_san: Vec<String>,
    pub store: StoreSettings,
    pub encryption: SealOptions,
    /// None if the state is not saved on a schedule.
    pub saved_states: Option<StateSettings>,
    pub kubeconfig_link: Option<PathBuf>,
    pub admin_password: Option<Secret>,
    /// What to make the first machine of.
    pub first_image: Option<PathBuf>,
    /// None if no virtual machines are to run here.
    pub node: Option<NodeSettings>,
    pub audit: AuditLog,
    /// Whose tokens are good besides our own.
    pub authentication: AuthenticationConfig,
    pub limits: Limits,
    pub logins: LoginLimits,
    /// Whose word is taken for who a user is.
    pub front_proxies: Option<croft_apiserver::FrontProxies>,
    pub own_rules: OwnRules,
    pub log_format: Option<LogFormat>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// A DNS name.
    pub name: String,
    pub listen: NodeListen,
    pub run_dir: PathBuf,
    /// None for one that is free.
    pub vm_subnet: Option<Ipv4Net>,
    /// Where the host's daemons are configured; None if that is left alone.
    pub etc_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub address: std::net::SocketAddr,
    /// If it cannot be had, the server does not start; otherwise it warns and goes on.
    pub required: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum StoreSettings {
    Embedded,
    Etcd(EtcdSettings),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Never empty.
    pub endpoints: Vec<String>,
    pub ca_file: Option<PathBuf>,
    pub client: Option<EtcdClientCert>,
    pub login: Option<EtcdLogin>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct EtcdClientCert {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
pub struct EtcdLogin {
    pub username: String,
    pub password: Secret,
}

impl Settings {
    pub(crate) fn resolve(args: ServerArgs) -> anyhow::Result<Self> {
        let file = args.config.as_deref().map(config_file::read).transpose()?.unwrap_or_default();
        Self::from_options(args.options.or(file))
    }

    /// With etcd for the store, whichever the server has: for a command that needs to know where etcd is.
    pub(crate) fn resolve_with_etcd(args: ServerArgs) -> anyhow::Result<Self> {
        let file = args.config.as_deref().map(config_file::read).transpose()?.unwrap_or_default();
        Self::from_options(ServerOptions { store: Some(StoreKind::Etcd), ..args.options.or(file) })
    }

    fn from_options(options: ServerOptions) -> anyhow::Result<Self> {
        let data_dir = options.data_dir.clone().unwrap_or_else(|| DATA_DIR.into());
        Ok(Self {
            listen: listen(&options.listen),
            store: store(&options)?,
            encryption: encryption(&options, &data_dir)?,
            saved_states: state_settings::resolve(&options)?,
            admin_password: options
                .admin_password_file
                .as_deref()
                .map(|path| password(path, "--admin-password-file"))
                .transpose()?,
            node: node(&options, &data_dir)?,
            audit: audit_settings::resolve(&options, &data_dir)?,
            authentication: authentication_settings::resolve(&options)?,
            limits: limits::resolve(&options)?,
            logins: logins(&options)?,
            front_proxies: front_proxies(&options)?,
            own_rules: options.own_rules.unwrap_or_default(),
            first_image: options.first_image,
            kubeconfig_link: kubeconfig_link::place(options.kubeconfig_link, data_dir == Path::new(DATA_DIR)),
            data_dir,
            tls_san: options.tls_san,
            log_format: options.log_format,
        })
    }
}

/// Proxies that have authenticated their users.
fn front_proxies(options: &ServerOptions) -> anyhow::Result<Option<croft_apiserver::FrontProxies>> {
    let Some(path) = &options.requestheader_client_ca_file else {
        anyhow::ensure!(
            options.requestheader_allowed_names.is_empty(),
            "--requestheader-allowed-names needs --requestheader-client-ca-file"
        );
        return Ok(None);
    };
    let what = || format!("--requestheader-client-ca-file: {}", path.display());
    let pem = std::fs::read_to_string(path).with_context(what)?;
    let authority = croft_pki::front_proxy::ProxyAuthority::from_pem(&pem).with_context(what)?;
    Ok(Some(croft_apiserver::FrontProxies { authority, allowed_names: options.requestheader_allowed_names.clone() }))
}

fn node(options: &ServerOptions, data_dir: &Path) -> anyhow::Result<Option<NodeSettings>> {
    if options.no_node == Some(true) {
        return Ok(None);
    }
    let name = match &options.node_name {
        Some(name) => checked_node_name(name)?,
        None => node_name::of_host(),
    };
    let default = || NODE.parse().expect("the default address is well-formed");
    let listen = NodeListen {
        address: options.node_listen.map_or_else(default, |address| address.0),
        is_required: options.node_listen.is_some(),
    };
    let run_dir = options.run_dir.clone().unwrap_or_else(|| run_dir::of(data_dir));
    run_dir::check(&run_dir)?;
    let vm_subnet = options.vm_subnet.as_deref().map(parse_subnet).transpose();
    let vm_subnet = vm_subnet.map_err(|why| anyhow::anyhow!("--vm-subnet: {why}"))?;
    // Only the server that is installed on this machine changes the machine.
    let is_installed = data_dir == Path::new(DATA_DIR) && rustix::process::geteuid().is_root();
    let etc_dir = options.etc_dir.clone().or_else(|| is_installed.then(|| ETC_DIR.into()));
    Ok(Some(NodeSettings { name, listen, run_dir, vm_subnet, etc_dir }))
}

fn logins(options: &ServerOptions) -> anyhow::Result<LoginLimits> {
    let known = LoginLimits::default();
    let lock = options.login_lock.as_deref().map(lifetime::parse).transpose();
    let lock = lock.map_err(|why| anyhow::anyhow!("--login-lock: {why}"))?.unwrap_or(known.lock);
    if lock.is_zero() {
        bail!("--login-lock: to lock for no time at all is not to lock; say --login-attempts 0");
    }
    Ok(LoginLimits { attempts: options.login_attempts.unwrap_or(known.attempts), lock })
}

fn encryption(options: &ServerOptions, data_dir: &Path) -> anyhow::Result<SealOptions> {
    let key_file = options.encryption_key_file.clone().unwrap_or_else(|| data_dir.join(ENCRYPTION_KEY));
    let asked: Vec<&str> = options.encrypt_resources.iter().map(String::as_str).collect();
    let mut kinds = match asked[..] {
        [] => vec![SECRETS],
        ["none"] => Vec::new(),
        _ => asked,
    };
    // Otherwise what is encrypted in the one place would be plain in the other.
    if kinds.contains(&SECRETS) && !kinds.contains(&COPIES_OF_SECRETS) {
        kinds.push(COPIES_OF_SECRETS);
    }
    let prefixes: Result<Vec<String>, String> = kinds.into_iter().map(croft_apiserver::storage_prefix).collect();
    let prefixes = prefixes.map_err(|why| anyhow::anyhow!("--encrypt-resources: {why}"))?;
    Ok(SealOptions { key_file, prefixes })
}

fn checked_node_name(name: &str) -> anyhow::Result<String> {
    if !node_name::is_valid(name) {
        bail!("--node-name: {name:?} is not a name for a node: lower-case letters, digits, '-' and '.', 63 at most");
    }
    Ok(name.to_owned())
}

/// Asked-for addresses are required; of the defaults, only the API's is.
fn listen(asked: &[ListenAddress]) -> Vec<Listen> {
    if !asked.is_empty() {
        return asked.iter().map(|address| Listen { address: address.0, required: true }).collect();
    }
    let default = |address: &str, required| Listen {
        address: address.parse().expect("the default addresses are well-formed"),
        required,
    };
    vec![default(API, true), default(WEB, false)]
}

fn store(options: &ServerOptions) -> anyhow::Result<StoreSettings> {
    if options.store != Some(StoreKind::Etcd) {
        let etcd_only = [
            ("--etcd-endpoints", !options.etcd_endpoints.is_empty()),
            ("--etcd-cafile", options.etcd_cafile.is_some()),
            ("--etcd-certfile", options.etcd_certfile.is_some()),
            ("--etcd-keyfile", options.etcd_keyfile.is_some()),
            ("--etcd-username", options.etcd_username.is_some()),
            ("--etcd-password-file", options.etcd_password_file.is_some()),
        ];
        // Silently not using the etcd that somebody described would look as if all data were gone.
        if let Some((flag, _)) = etcd_only.into_iter().find(|(_, given)| *given) {
            bail!("{flag} needs --store etcd");
        }
        return Ok(StoreSettings::Embedded);
    }
    if options.etcd_endpoints.is_empty() {
        bail!("--store etcd needs --etcd-endpoints, for example https://10.0.0.1:2379,https://10.0.0.2:2379");
    }
    for endpoint in &options.etcd_endpoints {
        check_endpoint(endpoint)?;
        // Etcd's authority is hardly ever one that everybody trusts, so none is assumed.
        if endpoint.starts_with("https:") && options.etcd_cafile.is_none() {
            bail!("--etcd-endpoints: {endpoint} needs --etcd-cafile, with the authority that signed its certificate");
        }
    }
    let client = match (&options.etcd_certfile, &options.etcd_keyfile) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some(EtcdClientCert { cert_file: cert.clone(), key_file: key.clone() }),
        _ => bail!("--etcd-certfile and --etcd-keyfile need each other"),
    };
    let login = match (&options.etcd_username, &options.etcd_password_file) {
        (None, None) => None,
        (Some(username), Some(path)) => {
            Some(EtcdLogin { username: username.clone(), password: password(path, "--etcd-password-file")? })
        }
        _ => bail!("--etcd-username and --etcd-password-file need each other"),
    };
    Ok(StoreSettings::Etcd(EtcdSettings {
        endpoints: options.etcd_endpoints.clone(),
        ca_file: options.etcd_cafile.clone(),
        client,
        login,
    }))
}

fn check_endpoint(endpoint: &str) -> anyhow::Result<()> {
    let url: http::Uri = endpoint.parse().with_context(|| format!("--etcd-endpoints: {endpoint:?}"))?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    if !is_http || url.host().is_none_or(str::is_empty) || !matches!(url.path(), "" | "/") {
        bail!("--etcd-endpoints: {endpoint:?} is not an address such as https://10.0.0.1:2379");
    }
    Ok(())
}

/// The first line of the file; editors and `echo` end it with a newline, which is not part of the password.
fn password(path: &Path, flag: &str) -> anyhow::Result<Secret> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{flag}: cannot read {}", path.display()))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        bail!("{flag}: {} is empty", path.display());
    }
    if password.contains('\n') {
        bail!("{flag}: {} has more than one line", path.display());
    }
    Ok(Secret::new(password))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        args: ServerArgs,
    }

    fn resolve(args: &[&str]) -> anyhow::Result<Settings> {
        let cli = TestCli::try_parse_from(std::iter::once(&"server").chain(args))?;
        Settings::resolve(cli.args)
    }

    fn addresses(settings: &Settings) -> Vec<(String, bool)> {
        settings.listen.iter().map(|listen| (listen.address.to_string(), listen.required)).collect()
    }

    #[test]
    fn defaults() {
        let settings = resolve(&[]).unwrap();
        assert_eq!(settings.data_dir, Path::new("/var/lib/croft"));
        assert_eq!(addresses(&settings), [("0.0.0.0:6443".to_owned(), true), ("0.0.0.0:443".to_owned(), false)]);
        assert_eq!(settings.store, StoreSettings::Embedded);
        assert!(settings.admin_password.is_none());
        let node = settings.node.unwrap();
        assert_eq!((node.listen.address.port(), node.listen.is_required), (10250, false));
        assert!(node_name::is_valid(&node.name) && node.run_dir.is_absolute());
    }

    #[test]
    fn a_node_is_what_was_asked_for() {
        assert_eq!(resolve(&["--no-node"]).unwrap().node, None);
        assert!(resolve(&["--no-node=false"]).unwrap().node.is_some());
        let args = ["--node-name=n1", "--node-listen=127.0.0.1:0", "--run-dir=/r", "--vm-subnet=10.7.1.2/20"];
        // Another directory: this is not the server that is installed here.
        let node = resolve(&[&args[..], &["--data-dir=/d"]].concat()).unwrap().node.unwrap();
        let listen = NodeListen { address: "127.0.0.1:0".parse().unwrap(), is_required: true };
        let vm_subnet = Some("10.7.0.0/20".parse().unwrap());
        let name = "n1".to_owned();
        assert_eq!(node, NodeSettings { name, listen, run_dir: "/r".into(), vm_subnet, etc_dir: None });
        let node = resolve(&["--data-dir=/d", "--etc-dir=/e"]).unwrap().node.unwrap();
        assert_eq!(node.etc_dir, Some("/e".into()));
    }

    #[test]
    fn secrets_are_encrypted_unless_it_is_said() {
        let of = |args: &[&str]| resolve(args).unwrap().encryption;
        let default = of(&["--data-dir=/d"]);
        assert_eq!(
            (default.key_file, default.prefixes),
            (
                "/d/encryption.key".into(),
                vec!["registry/core/secrets/".into(), "registry/harvesterhci.io/virtualmachinebackups/".into()]
            )
        );
        let chosen = of(&["--encrypt-resources=secrets,settings.harvesterhci.io", "--encryption-key-file=/k"]);
        assert_eq!((chosen.key_file, chosen.prefixes.len()), ("/k".into(), 3));
        assert_eq!(of(&["--encrypt-resources=settings.harvesterhci.io"]).prefixes.len(), 1);
        assert_eq!(of(&["--encrypt-resources=none"]).prefixes, Vec::<String>::new());
        let error = resolve(&["--encrypt-resources=secret"]).unwrap_err().to_string();
        assert!(error.starts_with("--encrypt-resources: there is no kind \"secret\""), "{error}");
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("croft.yaml");
        std::fs::write(&file, "data-dir: /from-file\nlisten: 127.0.0.1:1\ntls-san: [a, b]\n").unwrap();
        let file = file.to_str().unwrap();

        let settings = resolve(&["--config", file]).unwrap();
        assert_eq!(settings.data_dir, Path::new("/from-file"));
        assert_eq!(addresses(&settings), [("127.0.0.1:1".to_owned(), true)]);

        let flags = ["--config", file, "--data-dir", "/flag", "--listen", ":2", "--listen", "[::1]:3"];
        let settings = resolve(&flags).unwrap();
        assert_eq!(settings.data_dir, Path::new("/flag"));
        assert_eq!(addresses(&settings), [("0.0.0.0:2".to_owned(), true), ("[::1]:3".to_owned(), true)]);
        assert_eq!(settings.tls_san, ["a", "b"]);
    }

    #[test]
    fn etcd_settings_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let password = dir.path().join("password");
        std::fs::write(&password, "secret\r\n").unwrap();
        let settings = resolve(&[
            "--store=etcd",
            "--etcd-endpoints=https://a:2379,https://b:2379",
            "--etcd-cafile=/ca",
            "--etcd-certfile=/cert",
            "--etcd-keyfile=/key",
            "--etcd-username=root",
            &format!("--etcd-password-file={}", password.display()),
        ])
        .unwrap();
        let StoreSettings::Etcd(etcd) = settings.store else { panic!("not etcd") };
        assert_eq!(etcd.endpoints, ["https://a:2379", "https://b:2379"]);
        assert_eq!(etcd.ca_file.as_deref(), Some(Path::new("/ca")));
        assert_eq!(etcd.client, Some(EtcdClientCert { cert_file: "/cert".into(), key_file: "/key".into() }));
        assert_eq!(etcd.login.unwrap().password.reveal(), "secret");
    }

    #[test]
    fn contradictions_are_explained() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "\n").unwrap();
        let empty = format!("--admin-password-file={}", empty.display());
        for (args, expected) in [
            (&["--store=etcd"][..], "--store etcd needs --etcd-endpoints"),
            (&["--etcd-endpoints=http://a:1"], "--etcd-endpoints needs --store etcd"),
            (&["--etcd-username=a"], "--etcd-username needs --store etcd"),
            (&["--store=etcd", "--etcd-endpoints=a:1"], "\"a:1\" is not an address such as"),
            (&["--store=etcd", "--etcd-endpoints=ftp://a:1"], "is not an address such as"),
            (&["--store=etcd", "--etcd-endpoints=https://a:1"], "https://a:1 needs --etcd-cafile"),
            (&["--store=etcd", "--etcd-endpoints=http://a:1", "--etcd-keyfile=k"], "need each other"),
            (&["--store=etcd", "--etcd-endpoints=http://a:1", "--etcd-username=k"], "need each other"),
            (&["--admin-password-file=/nonexistent/file"], "--admin-password-file: cannot read /nonexistent/file"),
            (&[&empty], "is empty"),
            (&["--config=/nonexistent/croft.yaml"], "cannot read /nonexistent/croft.yaml"),
            (&["--store=sqlite"], "invalid value 'sqlite'"),
            (&["--listen=6443"], "is not an address and a port"),
            (&["--login-lock=0s"], "to lock for no time at all"),
            (&["--login-lock=soon"], "is not a duration"),
            (&["--max-requests-inflight=0"], "nothing would ever be answered"),
            (&["--max-connections=0"], "nobody could ever connect"),
            (&["--node-name=My_Host"], "\"My_Host\" is not a name for a node"),
            (&["--vm-subnet=10.0.0.0/8"], "--vm-subnet: the subnet 10.0.0.0/8 is not usable"),
            (&["--vm-subnet=10.0.0.1"], "is not a subnet, such as"),
            (&["--run-dir=relative"], "--run-dir: relative is not an absolute path"),
            (&["--run-dir=/a-long-path-a-long-path-a-long-path-a-long-path-a-long-path"], "too long for the sockets"),
        ] {
            let err = format!("{:#}", resolve(args).map(|_| ()).unwrap_err());
            assert!(err.contains(expected), "{args:?}: {err}");
        }
    }
}
