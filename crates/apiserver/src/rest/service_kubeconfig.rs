//! `/v1/harvester/kubeconfig`: what a guest cluster's cloud provider and CSI driver need to reach this one.
//!
//! POST makes a service account with the two roles that Harvester ships for them, in the caller's name; GET reads what is
//! there. The answer is a kubeconfig as a JSON text, or cloud-init user data that puts it where RKE2 looks.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use croft_meta::ApiError;
use croft_pki::kubeconfig::Credentials;
use croft_pki::{Kubeconfig, Secret};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::acting::name;
use super::reply::{self, invalid};
use super::resource::{Sent, kubernetes};
use super::schema::Schema;
use crate::answer::{self, Answer};
use crate::call::Call;
use crate::pipeline::not_allowed;

const PROVIDER_ROLE: &str = "harvesterhci.io:cloudprovider";
const CSI_ROLE: &str = "harvesterhci.io:csi-driver";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Where RKE2 and its charts look for it.
const FILES: [&str; 2] =
    ["/etc/kubernetes/cloud-config", "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"];

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    namespace: String,
    service_account_name: String,
    cluster_role_name: String,
    /// Harvester's own spelling.
    #[serde(rename = "csiclusterRoleName", alias = "csiClusterRoleName")]
    csi_cluster_role_name: String,
    output_format: String,
}

impl Asked {
    fn of(call: &Call) -> Result<Self, ApiError> {
        if call.info.verb == "post" {
            return reply::body(call);
        }
        let text = |key: &str| call.query.get(key).unwrap_or_default().to_owned();
        Ok(Self {
            namespace: text("namespace"),
            service_account_name: text("serviceAccountName"),
            cluster_role_name: text("clusterRoleName"),
            csi_cluster_role_name: text("csiclusterRoleName"),
            output_format: text("outputFormat"),
        })
    }
}

pub(super) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    if !matches!(call.info.verb, "get" | "post") {
        return Err(not_allowed());
    }
    let asked = Asked::of(call)?;
    let namespace = name("namespace", &asked.namespace)?;
    let account = name("serviceAccountName", &asked.service_account_name)?;
    for (field, role, known) in [
        ("clusterRoleName", &asked.cluster_role_name, PROVIDER_ROLE),
        ("csiclusterRoleName", &asked.csi_cluster_role_name, CSI_ROLE),
    ] {
        if !role.is_empty() && role != known {
            return Err(invalid("InvalidBodyContent", format!("{field} {role:?} is not supported; only {known} is")));
        }
    }
    let is_yaml = match asked.output_format.as_str() {
        "" => false,
        "yaml" => true,
        other => return Err(invalid("InvalidBodyContent", format!("outputFormat {other:?} is not known"))),
    };
    let secret = if call.info.verb == "post" {
        make(call, namespace, account).await?
    } else {
        one(call, "secrets", Method::GET, (namespace, &secret_name(account)), Sent::NOTHING).await?
    };
    let config = kubeconfig(call, namespace, &token_of(&secret)?)?;
    Ok(answer::json(200, &json!(if is_yaml { user_data(&config) } else { config })))
}

fn secret_name(account: &str) -> String {
    format!("{account}-token")
}

/// The account, its token and its roles; what is there stays.
async fn make(call: &Call, namespace: &str, account: &str) -> Result<Value, ApiError> {
    let subject = json!({ "kind": "ServiceAccount", "name": account, "namespace": namespace });
    let role = |name: &str| json!({ "apiGroup": RBAC, "kind": "ClusterRole", "name": name });
    let binding = format!("{namespace}-{account}");
    let metadata = json!({ "name": binding });
    ensure(call, "serviceaccounts", namespace, json!({ "metadata": { "name": account } })).await?;
    let bound = json!({ "metadata": metadata, "roleRef": role(PROVIDER_ROLE), "subjects": [subject] });
    ensure(call, &format!("{RBAC}.rolebindings"), namespace, bound).await?;
    let bound = json!({ "metadata": metadata, "roleRef": role(CSI_ROLE), "subjects": [subject] });
    ensure(call, &format!("{RBAC}.clusterrolebindings"), "", bound).await?;
    let token = json!({
        "metadata": {
            "name": secret_name(account), "annotations": { "kubernetes.io/service-account.name": account },
        },
        "type": "kubernetes.io/service-account-token",
    });
    ensure(call, "secrets", namespace, token).await
}

/// Creates the object, or finds the one of its name.
async fn ensure(call: &Call, id: &str, namespace: &str, object: Value) -> Result<Value, ApiError> {
    let own = croft_meta::object::name(&object).to_owned();
    let schema = Schema::find(&call.catalog, id).ok_or_else(|| reply::no_schema(id))?;
    let sent = Sent::json(&schema, object)?;
    match kubernetes(call, &schema, Method::POST, (namespace, ""), sent).await {
        Err(error) if error.reason() == "AlreadyExists" => {
            kubernetes(call, &schema, Method::GET, (namespace, &own), Sent::NOTHING).await
        }
        result => result,
    }
}

async fn one(call: &Call, id: &str, method: Method, place: (&str, &str), sent: Sent<'_>) -> Result<Value, ApiError> {
    let schema = Schema::find(&call.catalog, id).ok_or_else(|| reply::no_schema(id))?;
    kubernetes(call, &schema, method, place, sent).await
}

fn token_of(secret: &Value) -> Result<Secret, ApiError> {
    let is_token = secret["type"] == "kubernetes.io/service-account-token";
    let data = secret["data"]["token"].as_str().unwrap_or_default();
    let token = BASE64_STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match token.filter(|token| is_token && !token.is_empty()) {
        Some(token) => Ok(Secret::new(token)),
        None => Err(invalid("InvalidState", "the secret of that name holds no token of a service account")),
    }
}

fn kubeconfig(call: &Call, namespace: &str, token: &Secret) -> Result<String, ApiError> {
    let config = Kubeconfig {
        server: reply::base(call),
        ca_pem: call.server.ca.cert_pem().to_owned(),
        cluster: "default".to_owned(),
        user: "default".to_owned(),
        credentials: Credentials::Token(token.clone()),
    };
    let text = config.to_yaml().map_err(ApiError::internal)?;
    // The cloud provider works in the namespace of its machines.
    let mut document: Value = serde_saphyr::from_str(&text).map_err(ApiError::internal)?;
    document["contexts"][0]["context"]["namespace"] = json!(namespace);
    serde_saphyr::to_string(&document).map_err(ApiError::internal)
}

fn user_data(config: &str) -> String {
    let content = BASE64_STANDARD.encode(config);
    let entries = FILES.map(|file| {
        format!("- encoding: b64\n  content: {content}\n  owner: root:root\n  path: {file}\n  permissions: '0644'\n")
    });
    format!("########## cloud config ############\nwrite_files:\n{}", entries.concat())
}
