//! From the claims of a token to a user, in upstream's order and with upstream's words.

use std::collections::BTreeMap;

use croft_schema::expression::{Budget, Evaluation, Expression, Inputs};
use serde_json::{Map, Number, Value, json};

use super::super::CREDENTIAL_ID;
use super::config::{JwtAuthenticator, Rule, Source};
use crate::user::UserInfo;

/// Users and groups of this prefix are the server's own. No issuer can make somebody one of them: not by a name that it lets
/// its users choose, nor by a group that somebody there made.
const RESERVED: &str = "system:";

type Claims = Map<String, Value>;

impl JwtAuthenticator {
    /// Who the owner of a token with these claims is. The token has been verified.
    pub(super) fn user(&self, claims: &Claims) -> Result<UserInfo, String> {
        let shown = if self.has_expressions() { with_doubles(claims) } else { Value::Null };
        let budget = Budget::default();
        let seen =
            Seen { claims, evaluation: Evaluation::new(Inputs { claims: &shown, ..Inputs::default() }, &[], &budget) };
        let user = UserInfo {
            name: seen.username(&self.username)?,
            groups: seen.groups(self.groups.as_ref())?,
            uid: seen.uid(self.uid.as_ref())?,
            extra: seen.extra(&self.extra)?,
        };
        seen.check_required(&self.required_claims)?;
        let failed = |what: &str| format!("oidc: error evaluating {what}");
        check_rules(&seen.evaluation, &self.claim_rules)
            .map_err(|why| format!("{}: {why}", failed("claim validation expression")))?;
        let info = json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
        let about_user = Evaluation::new(Inputs { user: &info, ..Inputs::default() }, &[], &budget);
        check_rules(&about_user, &self.user_rules)
            .map_err(|why| format!("{}: {why}", failed("user info validation rule")))?;
        check_reserved(&user)?;
        Ok(user)
    }

    fn has_expressions(&self) -> bool {
        let sources = [Some(&self.username), self.groups.as_ref(), self.uid.as_ref()];
        let is_expression = |source: &&Source| matches!(source, Source::Expression(_));
        sources.iter().flatten().any(is_expression) || !self.extra.is_empty() || !self.claim_rules.is_empty()
    }
}

struct Seen<'a> {
    claims: &'a Claims,
    evaluation: Evaluation<'a>,
}

impl<'a> Seen<'a> {
    fn username(&self, source: &'a Source) -> Result<String, String> {
        let (name, prefix) = match source {
            Source::Expression(expression) => {
                let what = "oidc: error evaluating username claim expression";
                return match self.value(expression).map_err(|why| format!("{what}: {why}"))? {
                    Value::String(name) if name.is_empty() => {
                        Err("oidc: empty username via CEL expression is not allowed".to_owned())
                    }
                    Value::String(name) => Ok(name),
                    _ => Err(format!("{what}: username claim expression must return a string")),
                };
            }
            Source::Claim { name, prefix } => (name, prefix),
        };
        let text = self.text(name).map_err(|why| format!("oidc: parse username claims {name:?}: {why}"))?;
        if text.is_empty() {
            return Err(format!("oidc: parse username claims {name:?}: claim is empty"));
        }
        if name == "email" {
            match self.claims.get("email_verified") {
                None | Some(Value::Bool(true)) => {}
                Some(Value::Bool(false)) => return Err("oidc: email not verified".to_owned()),
                Some(_) => return Err("oidc: parse 'email_verified' claim: it is neither true nor false".to_owned()),
            }
        }
        Ok(format!("{prefix}{text}"))
    }

    fn groups(&self, source: Option<&'a Source>) -> Result<Vec<String>, String> {
        let what = "oidc: error evaluating group claim expression";
        match source {
            None => Ok(Vec::new()),
            Some(Source::Expression(expression)) => {
                let value = self.value(expression).map_err(|why| format!("{what}: {why}"))?;
                string_list(value).map_err(|why| format!("{what}: {why}"))
            }
            Some(Source::Claim { name, prefix }) => {
                let Some(value) = self.claims.get(name) else {
                    return self.undistributed(name).map(|()| Vec::new());
                };
                let wrong =
                    || format!("oidc: parse groups claim {name:?}: it is neither a string nor a list of strings");
                let groups = match value {
                    Value::Null => Vec::new(),
                    // Some use a claim such as "role", which is one.
                    Value::String(one) => vec![one.as_str()],
                    Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?,
                    _ => return Err(wrong()),
                };
                Ok(groups.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
        }
    }

    /// Claims that the issuer keeps elsewhere would have to be fetched from where the token says.
    fn undistributed(&self, claim: &str) -> Result<(), String> {
        match self.claims.get("_claim_names") {
            Some(Value::Object(names)) if !names.contains_key(claim) => Ok(()),
            None => Ok(()),
            Some(_) => Err(format!(
                "oidc: could not expand distributed claims: they are not supported, and {claim:?} may be one"
            )),
        }
    }

    fn uid(&self, source: Option<&'a Source>) -> Result<String, String> {
        match source {
            None => Ok(String::new()),
            Some(Source::Claim { name, .. }) => {
                self.text(name).map(str::to_owned).map_err(|why| format!("oidc: parse uid claim {name:?}: {why}"))
            }
            Some(Source::Expression(expression)) => {
                let what = "oidc: error evaluating uid claim expression";
                match self.value(expression).map_err(|why| format!("{what}: {why}"))? {
                    Value::String(uid) => Ok(uid),
                    _ => Err(format!("{what}: uid claim expression must return a string")),
                }
            }
        }
    }

    fn extra(&self, mappings: &'a [(String, Expression)]) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(id) = self.claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in mappings {
            let what = "oidc: error evaluating extra claim expression";
            let value = self.value(expression).map_err(|why| format!("{what}: {why}"))?;
            let values = string_list(value).map_err(|why| format!("{what}: {}: {why}", expression.source()))?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }

    fn check_required(&self, required: &[(String, String)]) -> Result<(), String> {
        for (claim, wanted) in required {
            let found = match self.claims.get(claim) {
                None => return Err(format!("oidc: required claim {claim} not present in ID token")),
                Some(Value::String(found)) => found,
                Some(_) => return Err(format!("oidc: parse claim {claim}: it is no string")),
            };
            if found != wanted {
                return Err(format!(
                    "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
                ));
            }
        }
        Ok(())
    }

    fn text(&self, claim: &str) -> Result<&'a str, &'static str> {
        let value = self.claims.get(claim).ok_or("claim not present")?;
        value.as_str().ok_or("it is no string")
    }

    fn value(&self, expression: &'a Expression) -> Result<Value, String> {
        self.evaluation.json(expression).map_err(|fault| fault.of(expression))
    }
}

fn check_rules<'a>(evaluation: &Evaluation<'a>, rules: &'a [Rule]) -> Result<(), String> {
    for rule in rules {
        match evaluation.json(&rule.expression).map_err(|fault| fault.of(&rule.expression))? {
            Value::Bool(true) => {}
            Value::Bool(false) => {
                let (source, message) = (rule.expression.source(), &rule.message);
                return Err(format!("validation expression '{source}' failed: {message}"));
            }
            _ => return Err("validation expression must return a boolean".to_owned()),
        }
    }
    Ok(())
}

fn check_reserved(user: &UserInfo) -> Result<(), String> {
    let mut all = std::iter::once(&user.name).chain(&user.groups);
    match all.find(|name| name.starts_with(RESERVED)) {
        Some(name) => {
            Err(format!("oidc: {name:?} is reserved: no token of an issuer can stand for {RESERVED} users or groups"))
        }
        None => Ok(()),
    }
}

/// A string or a list of strings, without the empty ones.
fn string_list(value: Value) -> Result<Vec<String>, &'static str> {
    const WRONG: &str = "expression must return a string or a list of strings";
    let list = match value {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        Value::String(_) => vec![value],
        _ => return Err(WRONG),
    };
    let text = |value| match value {
        Value::String(text) => Ok(text),
        _ => Err(WRONG),
    };
    let mut texts = list.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

/// Upstream's expressions see every number of a token as a double.
fn with_doubles(claims: &Claims) -> Value {
    fn double(value: &Value) -> Value {
        match value {
            Value::Number(number) => number.as_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number),
            Value::Array(list) => list.iter().map(double).collect(),
            Value::Object(map) => Value::Object(map.iter().map(|(key, value)| (key.clone(), double(value))).collect()),
            other => other.clone(),
        }
    }
    Value::Object(claims.iter().map(|(key, value)| (key.clone(), double(value))).collect())
}

#[cfg(test)]
mod tests;
