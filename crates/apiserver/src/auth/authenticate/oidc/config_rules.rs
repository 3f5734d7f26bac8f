//! The part of the file about claims: which must be there, and what they make of a user.

use std::collections::BTreeSet;

use croft_meta::{FieldError, FieldPath, names};
use croft_schema::expression::{Expression, Names, Scope, Wants};
use serde_json::{Map, Value, json};

use super::config::{Rule, Source};
use super::config_file::Checker;

/// What the claims of a token are turned into.
pub(super) struct Mappings {
    pub(super) username: Option<Source>,
    pub(super) groups: Option<Source>,
    pub(super) uid: Option<Source>,
    pub(super) extra: Vec<(String, Expression)>,
}

impl Checker {
    /// The values that are required, and the expressions.
    pub(super) fn claim_rules(
        &mut self,
        path: &FieldPath,
        value: Option<&Value>,
    ) -> (Vec<(String, String)>, Vec<Rule>) {
        let (mut required, mut rules) = (Vec::<(String, String)>::new(), Vec::<Rule>::new());
        let mut expressions = BTreeSet::new();
        for (at, one) in self.read.list(path, value).iter().enumerate() {
            let path = path.index(at);
            let known = ["claim", "requiredValue", "expression", "message"];
            let Some(fields) = self.read.fields(&path, one, &known) else { continue };
            let text = |checker: &mut Self, name: &str| checker.read.text(&path.child(name), fields.get(name));
            let (claim, value) = (text(self, "claim"), text(self, "requiredValue"));
            let (expression, message) = (text(self, "expression"), text(self, "message"));
            match (claim.is_empty(), expression.is_empty()) {
                (false, false) => self.invalid(&path, claim, "claim and expression can't both be set"),
                (true, true) => {
                    self.read.errors.push(FieldError::required(&path, "claim or expression is required"));
                }
                (false, true) => {
                    if !message.is_empty() {
                        self.invalid(&path.child("message"), message, "may not be specified when claim is set");
                    }
                    if required.iter().any(|(known, _)| *known == claim) {
                        self.read.errors.push(FieldError::duplicate(&path.child("claim"), claim.as_str()));
                    }
                    required.push((claim, value));
                }
                (true, false) => {
                    if !value.is_empty() {
                        let why = "may not be specified when expression is set";
                        self.invalid(&path.child("requiredValue"), value, why);
                    }
                    let at = path.child("expression");
                    if !expressions.insert(expression.clone()) {
                        self.read.errors.push(FieldError::duplicate(&at, expression));
                        continue;
                    }
                    let compiled = self.compile(&at, &expression, Scope::Claims, Wants::Bool);
                    rules.extend(compiled.map(|expression| Rule { expression, message }));
                }
            }
        }
        (required, rules)
    }

    pub(super) fn user_rules(&mut self, path: &FieldPath, value: Option<&Value>) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut expressions = BTreeSet::new();
        for (at, one) in self.read.list(path, value).iter().enumerate() {
            let path = path.index(at);
            let Some(fields) = self.read.fields(&path, one, &["expression", "message"]) else { continue };
            let at = path.child("expression");
            let expression = self.read.text(&at, fields.get("expression"));
            let message = self.read.text(&path.child("message"), fields.get("message"));
            if expression.is_empty() {
                self.read.errors.push(FieldError::required(&at, ""));
                continue;
            }
            if !expressions.insert(expression.clone()) {
                self.read.errors.push(FieldError::duplicate(&at, expression));
                continue;
            }
            let compiled = self.compile(&at, &expression, Scope::User, Wants::Bool);
            rules.extend(compiled.map(|expression| Rule { expression, message }));
        }
        rules
    }

    pub(super) fn mappings(&mut self, path: &FieldPath, value: &Value, rules: &[Rule]) -> Option<Mappings> {
        let fields = self.read.fields(path, value, &["username", "groups", "uid", "extra"])?;
        let nothing = json!({});
        let part = |name: &str| fields.get(name).filter(|value| !value.is_null()).unwrap_or(&nothing);
        let username = self.source(&path.child("username"), part("username"), Mapped::Username);
        let groups = self.source(&path.child("groups"), part("groups"), Mapped::Groups);
        let uid = self.source(&path.child("uid"), part("uid"), Mapped::Uid);
        let extra = self.extra(&path.child("extra"), fields.get("extra"));
        if let Some(Source::Expression(name)) = &username
            && name.selects("claims", "email")
        {
            let others = rules.iter().map(|rule| &rule.expression).chain(extra.iter().map(|(_, value)| value));
            let is_verified = others.chain([name]).any(|expression| expression.selects("claims", "email_verified"));
            if !is_verified {
                let why = "claims.email_verified must be used in claimMappings.username.expression or \
                           claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when \
                           claims.email is used in claimMappings.username.expression";
                let source = name.source().to_owned();
                self.invalid(&path.child("username").child("expression"), source, why);
            }
        }
        Some(Mappings { username, groups, uid, extra })
    }

    fn source(&mut self, path: &FieldPath, value: &Value, of: Mapped) -> Option<Source> {
        let known = if of == Mapped::Uid { &["claim", "expression"][..] } else { &["claim", "prefix", "expression"] };
        let fields = self.read.fields(path, value, known)?;
        let text = |checker: &mut Self, name: &str| checker.read.text(&path.child(name), fields.get(name));
        let (claim, expression) = (text(self, "claim"), text(self, "expression"));
        let prefix = fields.get("prefix").filter(|value| !value.is_null()).map(|_| text(self, "prefix"));
        match (claim.is_empty(), expression.is_empty()) {
            (false, false) => {
                self.invalid(path, String::new(), "claim and expression can't both be set");
                None
            }
            (true, true) => {
                if of == Mapped::Username {
                    self.read.errors.push(FieldError::required(path, "claim or expression is required"));
                }
                None
            }
            (true, false) => {
                if let Some(prefix) = prefix {
                    self.invalid(&path.child("prefix"), prefix, "may not be specified when expression is set");
                }
                let compiled = self.compile(&path.child("expression"), &expression, Scope::Claims, Wants::Anything);
                compiled.map(Source::Expression)
            }
            (false, true) => {
                if prefix.is_none() && of != Mapped::Uid {
                    let why = "prefix is required when claim is set. It can be set to an empty string to disable \
                               prefixing";
                    self.read.errors.push(FieldError::required(&path.child("prefix"), why));
                }
                Some(Source::Claim { name: claim, prefix: prefix.unwrap_or_default() })
            }
        }
    }

    fn extra(&mut self, path: &FieldPath, value: Option<&Value>) -> Vec<(String, Expression)> {
        let mut found: Vec<(String, Expression)> = Vec::new();
        let mut keys = BTreeSet::new();
        for (at, one) in self.read.list(path, value).iter().enumerate() {
            let path = path.index(at);
            let Some(fields) = self.read.fields(&path, one, &["key", "valueExpression"]) else { continue };
            let key = self.extra_key(&path.child("key"), fields);
            if !keys.insert(key.clone()) {
                self.read.errors.push(FieldError::duplicate(&path.child("key"), key));
                continue;
            }
            let at = path.child("valueExpression");
            let expression = self.read.text(&at, fields.get("valueExpression"));
            if expression.is_empty() {
                self.read.errors.push(FieldError::required(&at, ""));
                continue;
            }
            let compiled = self.compile(&at, &expression, Scope::Claims, Wants::Anything);
            found.extend(compiled.map(|expression| (key, expression)));
        }
        found
    }

    /// `example.org/foo`: keys belong to whoever uses them, and none of those is Kubernetes.
    fn extra_key(&mut self, path: &FieldPath, fields: &Map<String, Value>) -> String {
        let key = self.read.text(path, fields.get("key"));
        if key.is_empty() {
            self.read.errors.push(FieldError::required(path, ""));
            return key;
        }
        match key.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty()) {
            None => {
                self.invalid(path, key.clone(), "must be a domain-prefixed path (such as \"acme.io/foo\")");
            }
            Some((domain, rest)) => {
                for why in names::is_dns1123_subdomain(domain) {
                    self.invalid(path, domain.to_owned(), &why);
                }
                let is_known = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
                if !rest.chars().all(is_known) {
                    let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                    self.invalid(path, rest.to_owned(), why);
                }
                if key != key.to_lowercase() {
                    self.invalid(path, key.clone(), "must be lowercase");
                }
                let is_within =
                    |parent: &str| domain.strip_suffix(parent).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'));
                if is_within("kubernetes.io") || is_within("k8s.io") {
                    let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                    self.invalid(path, key.clone(), why);
                }
            }
        }
        key
    }

    fn compile(&mut self, path: &FieldPath, source: &str, scope: Scope, wants: Wants) -> Option<Expression> {
        match Expression::compile(source, &Names { scope, ..Names::default() }, wants) {
            Ok(expression) => Some(expression),
            Err(why) => {
                self.invalid(path, source.to_owned(), &why);
                None
            }
        }
    }

    fn invalid(&mut self, path: &FieldPath, value: String, why: &str) {
        self.read.errors.push(FieldError::invalid(path, value, why));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapped {
    Username,
    Groups,
    Uid,
}
