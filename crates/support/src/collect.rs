//! What goes into a bundle: all objects, the server's log, and what the nodes have to show.

use croft_api::harvester::SupportBundle;
use croft_meta::{Chain, redact};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use kube::core::ApiResource;
use kube::discovery::{Discovery, verbs};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::archive::{Archive, ArchiveError, Missing};
use crate::terms::Terms;
use crate::{Config, node};

/// How many objects are in memory at a time.
const PAGE: usize = 100;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error("the kinds of the server cannot be read")]
    Kinds(#[source] kube::Error),
    #[error("the nodes cannot be listed")]
    Nodes(#[source] kube::Error),
    #[error(transparent)]
    Write(#[from] ArchiveError),
}

/// The bundle's own words about itself.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct About<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(rename = "issueURL")]
    issue_url: &'a str,
    created: String,
    server_version: String,
    kinds: usize,
    nodes: &'a [String],
    secrets: &'static str,
    /// What did not fit, or could not be had.
    missing: &'a [Missing],
}

/// Fills the archive and ends it; its size. `progress` is told in hundredths.
pub(crate) async fn collect(
    config: &Config,
    bundle: &SupportBundle,
    terms: &Terms,
    mut archive: Archive,
    progress: &watch::Sender<u64>,
) -> Result<u64, CollectError> {
    let client = &config.client;
    let kinds = kinds(client).await.map_err(CollectError::Kinds)?;
    let nodes = node::names(client).await.map_err(CollectError::Nodes)?;
    // A node has many files, a kind has one.
    let node_steps = 20;
    let steps = kinds.len() + nodes.len() * node_steps + 1;
    let tell = |done: usize| _ = progress.send_replace(u64::try_from(done * 99 / steps).unwrap_or(99));

    // First what is wanted most, in case that there is no room for all.
    archive.add("logs/croft.log", redact::text(&String::from_utf8_lossy(&(config.log)()))).await;
    tell(1);
    for (index, node) in nodes.iter().enumerate() {
        node::collect(client, node, terms.node, &mut archive).await;
        tell(1 + (index + 1) * node_steps);
    }
    for (index, kind) in kinds.iter().enumerate() {
        add_objects(client, kind, &mut archive).await;
        tell(1 + nodes.len() * node_steps + index + 1);
    }
    let version = client.apiserver_version().await.map(|version| version.git_version).unwrap_or_default();
    let missing = archive.missing().to_vec();
    let about = About {
        name: bundle.metadata.name.as_deref().unwrap_or_default(),
        description: &bundle.spec.description,
        issue_url: bundle.spec.issue_url.as_deref().unwrap_or_default(),
        created: Timestamp::now().to_string(),
        server_version: version,
        kinds: kinds.len(),
        nodes: &nodes,
        secrets: "values are replaced with \"(redacted)\"",
        missing: &missing,
    };
    Ok(archive.finish("metadata.yaml", yaml(&about)).await?)
}

/// Everything that can be listed, each kind once.
async fn kinds(client: &Client) -> Result<Vec<ApiResource>, kube::Error> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let mut kinds: Vec<ApiResource> = discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::resources_by_stability)
        .filter(|(_, able)| able.supports_operation(verbs::LIST))
        .map(|(kind, _)| kind)
        // The same as those of the core group.
        .filter(|kind| !(kind.group == "events.k8s.io" && kind.plural == "events"))
        .collect();
    kinds.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
    Ok(kinds)
}

/// All objects of a kind, as a stream of YAML documents. Kinds without objects get no file.
async fn add_objects(client: &Client, kind: &ApiResource, archive: &mut Archive) {
    let group = if kind.group.is_empty() { "core" } else { &kind.group };
    let name = format!("objects/{group}/{}.yaml", kind.plural);
    let mut next = String::new();
    let mut is_begun = false;
    loop {
        let page = match page(client, kind, &next).await {
            Ok(page) => page,
            Err(error) => return archive.lacks(&name, &Chain(&error).to_string()),
        };
        for object in page.items {
            if !is_begun {
                if !archive.begin(&name).await {
                    return;
                }
                is_begun = true;
            }
            if !archive.write(document(kind, object)).await {
                return;
            }
        }
        next = page.metadata.next;
        if next.is_empty() {
            return;
        }
    }
}

fn document(kind: &ApiResource, mut object: Value) -> String {
    // Lists of built-in kinds leave both out.
    object["apiVersion"] = kind.api_version.clone().into();
    object["kind"] = kind.kind.clone().into();
    redact::object(&mut object);
    format!("---\n{}", yaml(&object))
}

#[derive(Debug, serde::Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Debug, Default, serde::Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

async fn page(client: &Client, kind: &ApiResource, next: &str) -> Result<Page, kube::Error> {
    let root = if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}", kind.api_version) };
    let next = if next.is_empty() { String::new() } else { format!("&continue={next}") };
    let request = Request::get(format!("{root}/{}?limit={PAGE}{next}", kind.plural)).body(Vec::new());
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// Whatever cannot be YAML can be JSON, which is YAML too.
fn yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| serde_json::to_string(value).unwrap_or_default() + "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_say_what_they_are_and_keep_no_secret() {
        let kind = ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            plural: "secrets".to_owned(),
        };
        let text = document(&kind, json!({"metadata": {"name": "a"}, "data": {"k": "dmFsdWU="}}));
        assert!(text.starts_with("---\n"), "{text}");
        let read: Value = serde_saphyr::from_str(text.trim_start_matches("---\n")).unwrap();
        assert_eq!((&read["kind"], &read["data"]["k"]), (&json!("Secret"), &json!("(redacted)")));
    }
}
