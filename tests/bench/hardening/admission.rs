//! Twenty policies in force: those that are asked about every object, and those that are about another kind.

use anyhow::{Result, ensure};
use croft_e2e::policy_objects::{binding, path, policy, rule};
use croft_testkit::{Client, Croft, Protocol, StoreKind};
use serde_json::{Value, json};

use crate::Size;
use crate::compare::compare;
use crate::load::{Creates, MAPS};
use crate::report::Report;

const POLICIES: usize = 20;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let creates = |server: &Croft| server.client_over(Protocol::Http2).map(Creates);
    for (what, about, times) in [
        ("that match", rule("configmaps", ""), 1.5),
        ("about another kind", rule("virtualmachines", "kubevirt.io"), 1.05),
    ] {
        let ruled = Croft::start(StoreKind::Embedded).await?;
        let client = ruled.client()?;
        put_in_force(&client, &about).await?;
        let is_asked = about["resources"] == json!(["configmaps"]);
        are_in_force(&client, is_asked).await?;
        let free = Croft::start(StoreKind::Embedded).await?;
        let compared = compare(size, || creates(&ruled), || creates(&free)).await?;
        compared.tell(report, &format!("create with {POLICIES} policies {what} (rival: none)"), times);
    }
    Ok(())
}

/// Each looks at two fields, as policies of people do.
async fn put_in_force(client: &Client, about: &Value) -> Result<()> {
    for number in 0..POLICIES {
        let name = format!("bench-{number}");
        let mut rules = policy(&name, "!variables.forbidden || object.metadata.name.startsWith('let-')");
        let expression = format!("has(object.data) && 'forbidden-{number}' in object.data");
        rules["spec"]["variables"] = json!([{"name": "forbidden", "expression": expression}]);
        rules["spec"]["matchConstraints"]["resourceRules"] = json!([about]);
        for object in [rules, binding(&name, &["Deny"])] {
            client.post(&path(&object), &object).await?.ok()?;
        }
    }
    Ok(())
}

/// Every one of them, or none.
async fn are_in_force(client: &Client, are_asked: bool) -> Result<()> {
    for number in 0..POLICIES {
        let map = json!({"metadata": {"name": format!("probe-{number}")}, "data": {format!("forbidden-{number}"): ""}});
        let answer = client.post(MAPS, &map).await?;
        let expected = if are_asked { 422 } else { 201 };
        ensure!(answer.status == expected, "policy {number}: {}: {}", answer.status, answer.text());
    }
    Ok(())
}
