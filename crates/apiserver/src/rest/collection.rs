//! Lists of one kind.
//!
//! Whoever may not list everything gets what is in the namespaces where they may. A list that nothing but `limit` bounds
//! is a page of the Kubernetes API; `filter`, `sort` and `page` look at all objects and choose.

use std::sync::Arc;

use croft_meta::{ApiError, Revision};
use serde_json::{Value, json};

use super::dress::Dresser;
use super::filter::{Filter, Sort};
use super::list_stream::ListStream;
use super::reply::{self, invalid};
use super::schema::{Schema, own_namespaces};
use super::state::Look;
use crate::answer::{Answer, accepts_gzip};
use crate::answer_room::Reserved;
use crate::cache::Object;
use crate::call::{Call, Target};
use crate::conversion;
use crate::options::ListOptions;
use crate::request::Query;
use crate::verbs::list;
use crate::verbs::selection::Selection;
use crate::write::in_version;

const PROJECT_LABEL: &str = "field.cattle.io/projectId";

/// What is listed, and where the client is in it.
struct Found {
    objects: Vec<Arc<Object>>,
    revision: Revision,
    count: usize,
    pages: Option<usize>,
    next: String,
    room: Option<Reserved>,
}

pub(super) async fn list(call: &Call, root: &str, schema: &Schema, namespace: &str) -> Result<Answer, ApiError> {
    if !schema.served.resource.verbs.contains(&"list") {
        return Err(ApiError::method_not_allowed(schema.served.group(), schema.served.plural(), "list"));
    }
    let scopes = scopes(call, schema, namespace)?;
    let options = ListOptions::parse(&query(call), false)?;
    let choice = Choice::parse(call)?;
    let mut found = match scopes.as_slice() {
        [scope] if choice.is_everything() => page(call, &schema.target(scope, ""), &options).await?,
        _ => choose(call, schema, &scopes, &options, &choice).await?,
    };
    let dresser = Dresser::new(call, root, schema);
    let start = start(call, schema, &found)?;
    let accepts_gzip = accepts_gzip(&call.headers);
    let room = found.room.take();
    let answer = ListStream::new(start, dresser, found.objects).into_answer(accepts_gzip);
    match room {
        Some(room) => room.keep(answer).await,
        None => Ok(answer),
    }
}

/// The parameters that Steve and Kubernetes share.
fn query(call: &Call) -> Query {
    let shared = ["limit", "continue", "labelSelector", "fieldSelector"];
    Query::of(shared.into_iter().filter_map(|key| Some((key, call.query.get(key)?.to_owned()))))
}

/// Where to look: everywhere (`""`), or in some namespaces, in all of which the caller may.
fn scopes(call: &Call, schema: &Schema, namespace: &str) -> Result<Vec<String>, ApiError> {
    let asked = call.query.get("projectsornamespaces").unwrap_or_default();
    let asked: Vec<&str> = asked.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if !namespace.is_empty() || asked.is_empty() || !schema.is_namespaced() {
        let wanted = schema.attributes("list", namespace, "");
        let refused = match call.server.auth.authorize(&call.user, &wanted) {
            Ok(()) => return Ok(vec![namespace.to_owned()]),
            Err(refused) => refused,
        };
        if !namespace.is_empty() || !schema.is_namespaced() {
            return Err(refused);
        }
        let mut own = own_namespaces(call);
        own.retain(|namespace| schema.allows(call, "list", namespace, ""));
        return if own.is_empty() { Err(refused) } else { Ok(own) };
    }
    let mut scopes: Vec<String> = Vec::new();
    for name in asked {
        let of_project = project(call, name);
        let names = if of_project.is_empty() { vec![name.to_owned()] } else { of_project };
        scopes.extend(names.into_iter().filter(|name| schema.allows(call, "list", name, "")));
    }
    scopes.sort();
    scopes.dedup();
    Ok(scopes)
}

/// The namespaces of a project: those with its label.
fn project(call: &Call, name: &str) -> Vec<String> {
    let namespaces = call.server.cache.collection("core/namespaces").list("");
    let of_project = namespaces.iter().filter(|namespace| namespace.label(PROJECT_LABEL) == Some(name));
    of_project.map(|namespace| namespace.name().to_owned()).collect()
}

/// What needs all objects to be looked at.
struct Choice {
    filter: Filter,
    sort: Sort,
    page: usize,
    /// 0 for all.
    page_size: usize,
}

impl Choice {
    fn parse(call: &Call) -> Result<Self, ApiError> {
        let number = |key: &str| match call.query.get(key).filter(|text| !text.is_empty()) {
            None => Ok(0),
            Some(text) => {
                text.parse::<usize>().map_err(|_| invalid("InvalidFormat", format!("{key} {text:?} is not a number")))
            }
        };
        Ok(Self {
            filter: Filter::parse(call.query.all("filter"))?,
            sort: Sort::parse(call.query.get("sort").unwrap_or_default())?,
            page: number("page")?.max(1),
            page_size: number("pagesize")?,
        })
    }

    fn is_everything(&self) -> bool {
        self.filter.is_everything() && self.sort.is_none() && self.page_size == 0
    }
}

async fn page(call: &Call, target: &Target, options: &ListOptions) -> Result<Found, ApiError> {
    let selection = Selection::parse(target, options)?;
    let page = list::page(call, target, options, &selection).await?;
    let metadata = page.metadata();
    let next = metadata["continue"].as_str().unwrap_or_default().to_owned();
    let count = page.objects.len();
    Ok(Found { count, objects: page.objects, revision: page.revision, pages: None, next, room: page.room })
}

async fn choose(
    call: &Call,
    schema: &Schema,
    scopes: &[String],
    options: &ListOptions,
    choice: &Choice,
) -> Result<Found, ApiError> {
    if !options.continue_token.is_empty() {
        return Err(invalid("InvalidOption", "continue cannot be used with filter, sort, page or several namespaces"));
    }
    let revision = call.server.cache.fresh().await?;
    let collection = call.server.cache.collection(schema.target("", "").storage_key());
    let needs_object = !choice.filter.is_everything() || !choice.sort.is_none();
    let mut chosen = Vec::new();
    for scope in scopes {
        let target = schema.target(scope, "");
        let selection = Selection::parse(&target, options)?;
        let all = conversion::objects(&call.server, &target, collection.list(scope)).await?;
        for object in all.into_iter().filter(|object| selection.matches(object)) {
            if !needs_object {
                chosen.push((Vec::new(), object));
                continue;
            }
            let whole = with_state(&object, &target, schema);
            if choice.filter.matches(&whole) {
                chosen.push((choice.sort.key(&whole), object));
            }
        }
    }
    if !choice.sort.is_none() {
        chosen.sort_by(|(a, _), (b, _)| choice.sort.compare(a, b));
    }
    let count = chosen.len();
    let size = if choice.page_size > 0 { choice.page_size } else { options.limit };
    let pages = (choice.page_size > 0).then(|| count.div_ceil(choice.page_size));
    let skip = (choice.page - 1).saturating_mul(choice.page_size);
    let kept = chosen.into_iter().map(|(_, object)| object).skip(skip);
    let objects = kept.take(if size > 0 { size } else { usize::MAX }).collect();
    Ok(Found { objects, revision, count, pages, next: String::new(), room: None })
}

/// The object as filters see it: with what Steve adds that people filter and sort by.
fn with_state(object: &Object, target: &Target, schema: &Schema) -> Value {
    let mut whole = in_version(object, target);
    whole["metadata"]["state"] = Look::of(&object.bytes).state().to_json();
    whole["id"] = json!(object.id());
    if schema.is("", "secrets") {
        whole["_type"] = whole["type"].clone();
    }
    whole
}

/// The collection up to its data.
fn start(call: &Call, schema: &Schema, found: &Found) -> Result<String, ApiError> {
    let this = format!("{}{}", reply::base(call), call.info.path);
    let mut links = json!({ "self": this });
    let mut whole = json!({
        "type": "collection", "resourceType": schema.id, "createTypes": { &schema.id: this }, "actions": {},
        "revision": found.revision.to_string(), "count": found.count,
    });
    if let Some(pages) = found.pages {
        whole["pages"] = json!(pages);
    }
    if !found.next.is_empty() {
        whole["continue"] = json!(found.next);
        let limit = call.query.get("limit").unwrap_or_default();
        links["next"] = json!(format!("{this}?limit={limit}&continue={}", found.next));
    }
    whole["links"] = links;
    let text = serde_json::to_string(&whole).map_err(ApiError::internal)?;
    let open = text.strip_suffix('}').unwrap_or(&text);
    Ok(format!("{open},\"data\":["))
}
