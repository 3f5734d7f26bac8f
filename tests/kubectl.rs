//! kubectl as people use it, on both stores. Works with Debian's kubectl (1.20) and newer ones.

use croft_e2e::on_every_server;

on_every_server!(
    objects_live_and_die,
    output_formats,
    watching,
    applying,
    server_side_apply,
    patching,
    editing,
    scaling_and_waiting,
    cascades,
    discovery_and_help,
    permissions,
    identities,
);

mod body {
    use std::os::unix::fs::PermissionsExt as _;

    use croft_testkit::{Kubectl, Server, eventually};
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: one, image: 'one:1', ports: [{containerPort: 80}]}
";

    fn config_map(name: &str, value: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  k: {value}\n")
    }

    fn kubectl(server: &Server) -> Kubectl {
        server.kubectl().expect("kubectl is installed")
    }

    pub(crate) async fn objects_live_and_die(server: &Server) {
        let k = kubectl(server);
        k.ok(&["create", "namespace", "play"]).await;
        k.ok(&["-n", "play", "create", "configmap", "a", "--from-literal=k=v"]).await;
        k.ok(&["-n", "play", "create", "secret", "generic", "s", "--from-literal=p=w"]).await;
        k.ok(&["-n", "play", "create", "serviceaccount", "robot"]).await;
        k.ok(&["-n", "play", "create", "deployment", "d", "--image=nginx"]).await;
        k.ok(&["-n", "play", "expose", "deployment", "d", "--port=80"]).await;
        let again = k.fails(&["-n", "play", "create", "configmap", "a"], "").await;
        assert!(again.stderr.contains("already exists"), "{}", again.stderr);

        let described = k.ok(&["-n", "play", "describe", "configmap", "a"]).await.stdout;
        assert!(described.contains("Name:") && described.contains("k:"), "{described}");
        let described = k.ok(&["-n", "play", "describe", "deployment", "d"]).await.stdout;
        assert!(described.contains("nginx"), "{described}");
        k.ok(&["describe", "namespace", "play"]).await;
        k.ok(&["-n", "play", "describe", "service", "d"]).await;
        k.ok(&["-n", "play", "describe", "serviceaccount", "robot"]).await;

        k.ok(&["-n", "play", "label", "configmap", "a", "tier=front"]).await;
        let taken = k.fails(&["-n", "play", "label", "configmap", "a", "tier=back"], "").await;
        assert!(taken.stderr.contains("overwrite"), "{}", taken.stderr);
        k.ok(&["-n", "play", "label", "configmap", "a", "tier=back", "--overwrite"]).await;
        k.ok(&["-n", "play", "annotate", "configmap", "a", "note=hello"]).await;
        let a = k.ok(&["-n", "play", "get", "configmap", "a", "-o", "json"]).await.json();
        assert_eq!(a["metadata"]["labels"]["tier"], "back");
        assert_eq!(a["metadata"]["annotations"]["note"], "hello");
        k.ok(&["-n", "play", "label", "configmap", "a", "tier-"]).await;

        let changed = config_map("a", "replaced");
        k.ok_with(&["-n", "play", "replace", "-f", "-"], &changed).await;
        let a = k.ok(&["-n", "play", "get", "configmap", "a", "-o", "jsonpath={.data.k}"]).await;
        assert_eq!(a.stdout, "replaced");
        k.ok_with(&["-n", "play", "replace", "--force", "-f", "-"], &changed).await;
        let missing = k.fails(&["-n", "play", "replace", "-f", "-"], &config_map("none", "x")).await;
        assert!(missing.stderr.contains("NotFound"), "{}", missing.stderr);

        k.ok(&["-n", "play", "delete", "configmap", "a"]).await;
        let gone = k.fails(&["-n", "play", "get", "configmap", "a"], "").await;
        assert!(gone.stderr.contains("NotFound"), "{}", gone.stderr);
        k.ok(&["-n", "play", "delete", "configmap", "a", "--ignore-not-found"]).await;
        k.ok(&["-n", "play", "delete", "deployment,service", "--all"]).await;
        if server.has_controllers() {
            k.ok(&["delete", "namespace", "play", "--timeout=60s"]).await;
        }
    }

    pub(crate) async fn output_formats(server: &Server) {
        let k = kubectl(server);
        k.ok_with(&["create", "-f", "-"], DEPLOYMENT).await;
        for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
            k.ok(&["create", "configmap", name]).await;
            k.ok(&["label", "configmap", name, &format!("pick={label}")]).await;
        }
        let table = k.ok(&["get", "deployments"]).await.stdout;
        assert!(table.starts_with("NAME"), "{table}");
        for column in ["READY", "UP-TO-DATE", "AVAILABLE", "AGE"] {
            assert!(table.contains(column), "{table}");
        }
        let wide = k.ok(&["get", "deployments", "-o", "wide"]).await.stdout;
        assert!(wide.contains("CONTAINERS") && wide.contains("SELECTOR") && wide.contains("app=web"), "{wide}");
        let yaml = k.ok(&["get", "deployment", "web", "-o", "yaml"]).await.stdout;
        assert!(yaml.contains("kind: Deployment") && yaml.contains("replicas: 2"), "{yaml}");
        let names = k.ok(&["get", "configmaps", "-l", "pick=x", "-o", "name"]).await.stdout;
        assert_eq!(names, "configmap/a\nconfigmap/c\n");
        let names = k.ok(&["get", "cm", "-l", "pick in (x,y),pick!=y", "-o", "name"]).await.stdout;
        assert_eq!(names, "configmap/a\nconfigmap/c\n");
        let names = k.ok(&["get", "cm", "--field-selector", "metadata.name=b", "-o", "name"]).await.stdout;
        assert_eq!(names, "configmap/b\n");
        let columns = k.ok(&["get", "cm", "-l", "pick", "-o", "custom-columns=N:.metadata.name", "--no-headers"]).await;
        assert_eq!(columns.stdout, "a\nb\nc\n");
        let labels = k.ok(&["get", "cm", "b", "--show-labels"]).await.stdout;
        assert!(labels.contains("pick=y"), "{labels}");
        let chunked = k.ok(&["get", "cm", "-l", "pick", "--chunk-size=1", "-o", "name"]).await.stdout;
        assert_eq!(chunked.lines().count(), 3, "{chunked}");
        let sorted = k.ok(&["get", "cm", "-l", "pick", "--sort-by=.metadata.name", "-o", "name"]).await.stdout;
        assert_eq!(sorted.lines().count(), 3);
        let everywhere = k.ok(&["get", "deployments", "--all-namespaces"]).await.stdout;
        assert!(everywhere.starts_with("NAMESPACE"), "{everywhere}");
        k.ok(&["get", "all"]).await;
        let none = k.ok(&["get", "jobs"]).await;
        assert!(none.stderr.contains("No resources found"), "{}", none.stderr);
        let raw = k.ok(&["get", "--raw", "/api/v1/namespaces/default/configmaps/a"]).await.json();
        assert_eq!(raw["kind"], "ConfigMap");
        assert_eq!(k.ok(&["get", "--raw", "/healthz"]).await.stdout, "ok");
        let unknown = k.fails(&["get", "nonsense"], "").await;
        assert!(unknown.stderr.contains("doesn't have a resource type"), "{}", unknown.stderr);
    }

    pub(crate) async fn watching(server: &Server) {
        let k = kubectl(server);
        k.ok(&["create", "configmap", "seen"]).await;
        let mut child = k.start(&["get", "configmaps", "--watch", "-o", "name"]).expect("kubectl starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let mut next_about = async |name: &str| {
            let wanted = format!("configmap/{name}");
            let found = async {
                while let Some(line) = lines.next_line().await.expect("reads") {
                    if line == wanted {
                        return;
                    }
                }
                panic!("the watch ended before {name} was seen");
            };
            tokio::time::timeout(croft_testkit::patience(), found).await.expect("seen in time");
        };
        next_about("seen").await;
        k.ok(&["create", "configmap", "later"]).await;
        next_about("later").await;
        k.ok(&["label", "configmap", "seen", "changed=yes"]).await;
        next_about("seen").await;
        k.ok(&["delete", "configmap", "later"]).await;
        next_about("later").await;
        child.kill().await.expect("kubectl can be killed");
    }

    pub(crate) async fn applying(server: &Server) {
        let k = kubectl(server);
        let first = k.ok_with(&["apply", "-f", "-"], DEPLOYMENT).await.stdout;
        assert!(first.contains("created"), "{first}");
        let same = k.ok_with(&["apply", "-f", "-"], DEPLOYMENT).await.stdout;
        assert!(same.contains("unchanged"), "{same}");
        let changed = DEPLOYMENT.replace("one:1", "one:2").replace(", ports: [{containerPort: 80}]", "");
        let diff = k.run_with(&["diff", "-f", "-"], &changed).await.expect("kubectl runs");
        assert!(!diff.success && diff.stdout.contains('+') && diff.stdout.contains("one:2"), "{diff:?}");
        let configured = k.ok_with(&["apply", "-f", "-"], &changed).await.stdout;
        assert!(configured.contains("configured"), "{configured}");
        let spec = k.ok(&["get", "deployment", "web", "-o", "json"]).await.json();
        let container = &spec["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "one:2");
        assert!(container["ports"].is_null(), "apply removes what left the file: {container}");
        let same = k.run_with(&["diff", "-f", "-"], &changed).await.expect("kubectl runs");
        assert!(same.success, "nothing to change: {same:?}");
        let dry = k.ok_with(&["apply", "--dry-run=server", "-f", "-"], &config_map("dry", "x")).await.stdout;
        assert!(dry.contains("server dry run"), "{dry}");
        k.fails(&["get", "configmap", "dry"], "").await;
        let set = k.ok(&["apply", "view-last-applied", "deployment", "web"]).await.stdout;
        assert!(set.contains("one:2"), "{set}");
        // A custom resource takes another road: merge patches and the schema from the server.
        k.ok_with(&["apply", "-f", "-"], CRD).await;
        k.ok(&["wait", "--for=condition=Established", "crd/toys.kubectl.example.com", "--timeout=30s"]).await;
        let toy = "apiVersion: kubectl.example.com/v1\nkind: Toy\nmetadata: {name: t}\nspec: {size: 1}\n";
        eventually("the toy can be applied", async || {
            let out = k.run_with(&["apply", "-f", "-"], toy).await.map_err(|e| e.to_string())?;
            if out.success { Ok(()) } else { Err(out.stderr) }
        })
        .await;
        k.ok_with(&["apply", "-f", "-"], &toy.replace("size: 1", "size: 2")).await;
        let table = k.ok(&["get", "toys"]).await.stdout;
        assert!(table.contains("SIZE") && table.lines().any(|l| l.starts_with('t') && l.contains('2')), "{table}");
        let wrong = k.fails(&["apply", "-f", "-"], &toy.replace("size: 1", "size: big")).await;
        assert!(wrong.stderr.contains("size"), "{}", wrong.stderr);
        k.ok(&["delete", "crd", "toys.kubectl.example.com"]).await;
    }

    const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.kubectl.example.com}
spec:
  group: kubectl.example.com
  scope: Namespaced
  names: {plural: toys, singular: toy, kind: Toy, shortNames: [ty]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        description: A thing to play with.
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large the toy is.}
";

    pub(crate) async fn server_side_apply(server: &Server) {
        let k = kubectl(server);
        k.ok_with(&["apply", "--server-side", "--field-manager=one", "-f", "-"], &config_map("a", "one")).await;
        let conflict = ["apply", "--server-side", "--field-manager=two", "-f", "-"];
        let refused = k.fails(&conflict, &config_map("a", "two")).await;
        assert!(refused.stderr.contains("conflict with \"one\"") && refused.stderr.contains(".data.k"), "{refused:?}");
        let forced = ["apply", "--server-side", "--field-manager=two", "--force-conflicts", "-f", "-"];
        k.ok_with(&forced, &config_map("a", "two")).await;
        assert_eq!(k.ok(&["get", "cm", "a", "-o", "jsonpath={.data.k}"]).await.stdout, "two");
        let managed = k.ok(&["get", "--raw", "/api/v1/namespaces/default/configmaps/a"]).await.json();
        assert_eq!(managed["metadata"]["managedFields"][0]["manager"], "two");
        // A client-side apply moves to server-side apply without a conflict with itself.
        k.ok_with(&["apply", "-f", "-"], &config_map("b", "one")).await;
        k.ok_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &config_map("b", "two")).await;
    }

    pub(crate) async fn patching(server: &Server) {
        let k = kubectl(server);
        k.ok_with(&["create", "-f", "-"], DEPLOYMENT).await;
        let target = ["patch", "deployment", "web"];
        let patch = |kind: &'static str, body: &'static str| [&target[..], &["--type", kind, "-p", body]].concat();
        k.ok(&patch("strategic", r#"{"spec":{"template":{"spec":{"containers":[{"name":"two","image":"two:1"}]}}}}"#))
            .await;
        k.ok(&patch("merge", r#"{"spec":{"replicas":5}}"#)).await;
        k.ok(&patch("json", r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"new:1"}]"#))
            .await;
        let got = k.ok(&["get", "deployment", "web", "-o", "json"]).await.json();
        assert_eq!(got["spec"]["replicas"], 5);
        let images = got["spec"]["template"]["spec"]["containers"].as_array().expect("a list");
        let images: Vec<&str> = images.iter().filter_map(|c| c["image"].as_str()).collect();
        assert!(images.contains(&"new:1") && images.len() == 2, "{images:?}");
        let bad = k.fails(&patch("json", r#"[{"op":"test","path":"/spec/replicas","value":1}]"#), "").await;
        let words = ["the server rejected our request", "The request is invalid"];
        assert!(words.iter().any(|words| bad.stderr.contains(words)), "{}", bad.stderr);
        k.fails(&patch("merge", r#"{"spec":{"replicas":"many"}}"#), "").await;
        let unchanged = k.ok(&patch("merge", r#"{"spec":{"replicas":5}}"#)).await.stdout;
        assert!(unchanged.contains("no change"), "{unchanged}");
    }

    pub(crate) async fn editing(server: &Server) {
        let mut k = kubectl(server);
        k.ok_with(&["create", "-f", "-"], &config_map("a", "before")).await;
        let dir = tempfile::tempdir().expect("a directory");
        let editor = dir.path().join("editor");
        std::fs::write(&editor, "#!/bin/sh\nsed -i s/before/after/ \"$1\"\n").expect("writes");
        std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).expect("executable");
        k.env("KUBE_EDITOR", editor.to_str().expect("UTF-8"));
        let edited = k.ok(&["edit", "configmap", "a"]).await.stdout;
        assert!(edited.contains("edited"), "{edited}");
        assert_eq!(k.ok(&["get", "cm", "a", "-o", "jsonpath={.data.k}"]).await.stdout, "after");
        let cancelled = k.ok(&["edit", "configmap", "a"]).await;
        assert!(format!("{cancelled:?}").contains("no changes"), "{cancelled:?}");
    }

    pub(crate) async fn scaling_and_waiting(server: &Server) {
        let k = kubectl(server);
        let client = server.client().expect("a client");
        k.ok_with(&["create", "-f", "-"], DEPLOYMENT).await;
        k.ok(&["scale", "deployment", "web", "--replicas=7"]).await;
        assert_eq!(k.ok(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]).await.stdout, "7");
        let refused = k.fails(&["scale", "deployment", "web", "--current-replicas=1", "--replicas=2"], "").await;
        assert!(refused.stderr.contains("replicas"), "{}", refused.stderr);

        let waiting = ["wait", "--for=condition=Available", "deployment/web", "--timeout=30s"];
        let path = "/apis/apps/v1/namespaces/default/deployments/web/status";
        let status = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}});
        let (waited, patched) = tokio::join!(k.run(&waiting), client.patch(path, "merge-patch", &status));
        patched.expect("an answer").ok().expect("the status is written");
        let waited = waited.expect("kubectl runs");
        assert!(waited.success && waited.stdout.contains("condition met"), "{waited:?}");
        let late = k.fails(&["wait", "--for=condition=Never", "deployment/web", "--timeout=1s"], "").await;
        assert!(late.stderr.contains("timed out"), "{}", late.stderr);
        let deletion = ["wait", "--for=delete", "deployment/web", "--timeout=30s"];
        let (waited, deleted) = tokio::join!(k.run(&deletion), k.run(&["delete", "deployment", "web"]));
        assert!(deleted.expect("kubectl runs").success);
        let waited = waited.expect("kubectl runs");
        let too_late = ["NotFound", "no matching resources found"].iter().any(|text| waited.stderr.contains(text));
        assert!(waited.success || too_late, "{waited:?}");
    }

    pub(crate) async fn cascades(server: &Server) {
        if !server.has_controllers() {
            return;
        }
        let k = kubectl(server);
        let old = k.minor_version().await.expect("a version") < 20;
        let modes: &[(&str, bool)] = if old {
            &[("true", false), ("false", true)]
        } else {
            &[("background", false), ("foreground", false), ("orphan", true)]
        };
        for (mode, survives) in modes {
            k.ok(&["create", "configmap", "owner"]).await;
            let uid = k.ok(&["get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}"]).await.stdout;
            let dependant = config_map("dependant", "x");
            let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": true}]);
            let dependant =
                dependant.replace("  name: dependant\n", &format!("  name: dependant\n  ownerReferences: {owner}\n"));
            k.ok_with(&["create", "-f", "-"], &dependant).await;
            k.ok(&["delete", "configmap", "owner", &format!("--cascade={mode}")]).await;
            if *survives {
                eventually("the dependant loses its owner", async || {
                    let left = k.run(&["get", "cm", "dependant", "-o", "jsonpath={.metadata.ownerReferences}"]).await;
                    match left.map_err(|e| e.to_string())? {
                        left if left.success && left.stdout.is_empty() => Ok(()),
                        left => Err(format!("{left:?}")),
                    }
                })
                .await;
                k.ok(&["delete", "configmap", "dependant"]).await;
            } else {
                eventually("the dependant is collected", async || {
                    let left = k.run(&["get", "configmap", "dependant"]).await.map_err(|e| e.to_string())?;
                    if left.success { Err("still there".to_owned()) } else { Ok(()) }
                })
                .await;
            }
        }
    }

    pub(crate) async fn discovery_and_help(server: &Server) {
        let k = kubectl(server);
        let resources = k.ok(&["api-resources"]).await.stdout;
        for (name, short) in [("configmaps", "cm"), ("deployments", "deploy"), ("customresourcedefinitions", "crd")] {
            let row =
                resources.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name}:\n{resources}"));
            assert!(row.contains(short), "{row}");
        }
        let verbs = k.ok(&["api-resources", "--verbs=list,watch", "--namespaced", "-o", "name"]).await.stdout;
        assert!(verbs.lines().any(|l| l == "configmaps") && verbs.lines().any(|l| l == "deployments.apps"), "{verbs}");
        let versions = k.ok(&["api-versions"]).await.stdout;
        for version in ["v1", "apps/v1", "rbac.authorization.k8s.io/v1", "apiextensions.k8s.io/v1"] {
            assert!(versions.lines().any(|l| l == version), "{version} is not in\n{versions}");
        }
        let version = k.ok(&["version", "-o", "json"]).await.json();
        assert_eq!(version["serverVersion"]["major"], "1");
        let explained = k.ok(&["explain", "deployment"]).await.stdout;
        assert!(explained.contains("Deployment") && explained.contains("spec"), "{explained}");
        let explained = k.ok(&["explain", "deployment.spec.template.spec.containers"]).await.stdout;
        assert!(explained.contains("imagePullPolicy"), "{explained}");
        k.ok_with(&["apply", "-f", "-"], CRD).await;
        k.ok(&["wait", "--for=condition=Established", "crd/toys.kubectl.example.com", "--timeout=30s"]).await;
        eventually("the new kind is explained", async || {
            let out = k.run(&["explain", "toys.spec"]).await.map_err(|e| e.to_string())?;
            if out.success && out.stdout.contains("How large") { Ok(()) } else { Err(format!("{out:?}")) }
        })
        .await;
        let by_short_name = k.ok(&["get", "ty"]).await;
        assert!(by_short_name.stderr.contains("No resources"), "{by_short_name:?}");
        k.ok(&["cluster-info"]).await;
    }

    pub(crate) async fn permissions(server: &Server) {
        let k = kubectl(server);
        assert_eq!(k.ok(&["auth", "can-i", "delete", "pods"]).await.stdout.trim(), "yes");
        let no = k.fails(&["auth", "can-i", "delete", "pods", "--as=jane"], "").await;
        assert_eq!(no.stdout.trim().split(' ').next(), Some("no"));
        k.ok(&["create", "role", "reader", "--verb=get,list", "--resource=configmaps"]).await;
        k.ok(&["create", "rolebinding", "jane", "--role=reader", "--user=jane"]).await;
        k.ok(&["create", "clusterrole", "nodes", "--verb=get", "--resource=nodes"]).await;
        k.ok(&["create", "clusterrolebinding", "jane", "--clusterrole=nodes", "--user=jane"]).await;
        eventually("jane may list", async || {
            let out = k.run(&["get", "configmaps", "--as=jane"]).await.map_err(|e| e.to_string())?;
            if out.success { Ok(()) } else { Err(out.stderr) }
        })
        .await;
        let list = k.ok(&["auth", "can-i", "--list", "--as=jane"]).await.stdout;
        assert!(list.contains("configmaps"), "{list}");
        let refused = k.fails(&["get", "secrets", "--as=jane"], "").await;
        let wanted = r#"secrets is forbidden: User "jane" cannot list resource "secrets" in API group """#;
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
        let refused = k.fails(&["delete", "configmap", "x", "--as=jane"], "").await;
        assert!(refused.stderr.contains("Forbidden"), "{}", refused.stderr);
        k.ok(&["auth", "reconcile", "--help"]).await;
    }

    pub(crate) async fn identities(server: &Server) {
        let k = kubectl(server);
        let minor = k.minor_version().await.expect("a version");
        if minor >= 28 {
            let me = k.ok(&["auth", "whoami"]).await.stdout;
            assert!(me.contains("system:masters"), "{me}");
        }
        k.ok(&["create", "serviceaccount", "robot"]).await;
        k.ok(&["create", "clusterrolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot"]).await;
        let token = if minor >= 24 {
            k.ok(&["create", "token", "robot"]).await.stdout.trim().to_owned()
        } else {
            let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
            let made = server.client().expect("a client").post(path, &json!({"spec": {}})).await.expect("an answer");
            made.ok().expect("a token")["status"]["token"].as_str().expect("text").to_owned()
        };
        // A kubeconfig with the token and no certificate.
        let dir = tempfile::tempdir().expect("a directory");
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, &server.ca_pem).expect("writes");
        let with = |name: &str| Kubectl::new(&dir.path().join(name)).expect("kubectl is installed");
        let robot = with("robot");
        let cluster = format!("--server={}", server.url);
        let authority = format!("--certificate-authority={}", ca.display());
        robot.ok(&["config", "set-cluster", "c", &cluster, &authority, "--embed-certs"]).await;
        set_credentials(&robot, minor, "robot", &[("token", &token)]).await;
        robot.ok(&["config", "set-context", "c", "--cluster=c", "--user=robot"]).await;
        robot.ok(&["config", "use-context", "c"]).await;
        eventually("the robot may look", async || {
            let out = robot.run(&["get", "configmaps"]).await.map_err(|e| e.to_string())?;
            if out.success { Ok(()) } else { Err(out.stderr) }
        })
        .await;
        let refused = robot.fails(&["create", "configmap", "x"], "").await;
        assert!(refused.stderr.contains("system:serviceaccount:default:robot"), "{}", refused.stderr);

        // The same server with a certificate given as files.
        let (cert, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        std::fs::write(&cert, &server.admin.cert_pem).expect("writes");
        std::fs::write(&key, &server.admin.key_pem).expect("writes");
        let by_certificate = with("certificate");
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        by_certificate.ok(&["config", "set-cluster", "c", &cluster, &authority]).await;
        let files = [("client-certificate", cert.as_str()), ("client-key", key.as_str())];
        set_credentials(&by_certificate, minor, "admin", &files).await;
        by_certificate.ok(&["config", "set-context", "c", "--cluster=c", "--user=admin"]).await;
        by_certificate.ok(&["--context=c", "get", "secrets", "-A"]).await;

        // Without credentials, and with a token that is none.
        let nobody = with("nobody");
        nobody.ok(&["config", "set-cluster", "c", &cluster, &authority]).await;
        nobody.ok(&["config", "set-context", "c", "--cluster=c"]).await;
        nobody.fails(&["--context=c", "get", "--raw", "/api/v1/secrets"], "").await;
        let refused = server.anonymous().expect("a client").get("/api/v1/secrets").await.expect("an answer");
        assert!([401, 403].contains(&refused.status), "{}", refused.status);
        let refused = nobody.fails(&["--context=c", "--token=garbage", "get", "secrets"], "").await;
        assert!(refused.stderr.contains("Unauthorized") || refused.stderr.contains("logged in"), "{}", refused.stderr);
    }

    /// `config set-credentials`, which crashes in Debian's kubectl whatever it is told: there, one field at a time.
    async fn set_credentials(kubectl: &Kubectl, minor: u32, user: &str, fields: &[(&str, &str)]) {
        if minor >= 24 {
            let flags: Vec<String> = fields.iter().map(|(name, value)| format!("--{name}={value}")).collect();
            let mut args = vec!["config", "set-credentials", user];
            args.extend(flags.iter().map(String::as_str));
            kubectl.ok(&args).await;
            return;
        }
        let config = std::fs::read_to_string(kubectl.kubeconfig()).expect("a kubeconfig");
        let user = json!({"name": user, "user": fields.iter().copied().collect::<std::collections::BTreeMap<_, _>>()});
        let config = config.replace("users: null", &format!("users: [{user}]"));
        std::fs::write(kubectl.kubeconfig(), config).expect("writes");
    }
}
