//! Admission policies (`admissionregistration.k8s.io`): what their expressions compile to.
//!
//! The rules of a policy are checked by compiling it, and the API server evaluates what was compiled: both see the same
//! names and the same limits.

use croft_meta::{FieldError, FieldErrors, FieldPath};
use croft_schema::expression::{Expression, Names, Wants};
use serde_json::Value;

use crate::view::{has, list, text};

/// The compiled expressions of a ValidatingAdmissionPolicy or MutatingAdmissionPolicy.
#[derive(Debug, Default)]
pub struct CompiledPolicy {
    pub match_conditions: Vec<Expression>,
    /// In order: each sees those before it.
    pub variables: Vec<(String, Expression)>,
    pub validations: Vec<Validation>,
    /// By key.
    pub audit_annotations: Vec<(String, Expression)>,
    pub mutations: Vec<Mutation>,
}

#[derive(Debug)]
pub struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    /// Empty if the policy does not say.
    pub reason: String,
}

#[derive(Debug)]
pub enum Mutation {
    /// Yields a part of the object, which is merged into it.
    ApplyConfiguration(Expression),
    /// Yields a list of operations.
    JsonPatch(Expression),
}

impl CompiledPolicy {
    /// What compiles, and what is wrong with the rest. Fields that are missing altogether are not this one's business.
    pub fn compile(policy: &Value) -> (Self, FieldErrors) {
        let is_mutating = text(policy, "kind").starts_with("Mutating");
        let mut compiler =
            Compiler { has_params: has(policy, "spec.paramKind"), is_mutating, names: Vec::new(), errors: Vec::new() };
        let spec = FieldPath::new("spec");
        let mut compiled = Self::default();
        for (index, condition) in list(policy, "spec.matchConditions").iter().enumerate() {
            let path = spec.child("matchConditions").index(index).child("expression");
            compiled.match_conditions.extend(compiler.condition(text(condition, "expression").trim(), &path));
        }
        for (index, variable) in list(policy, "spec.variables").iter().enumerate() {
            let path = spec.child("variables").index(index).child("expression");
            let (name, source) = (text(variable, "name"), text(variable, "expression"));
            if let Some(expression) = compiler.expression(source, &path, Wants::Anything, true) {
                compiled.variables.push((name.to_owned(), expression));
            }
            // What comes later may use it, whatever is wrong with it.
            compiler.names.push(name.to_owned());
        }
        for (index, validation) in list(policy, "spec.validations").iter().enumerate() {
            compiled.validations.extend(compiler.validation(validation, &spec.child("validations").index(index)));
        }
        for (index, annotation) in list(policy, "spec.auditAnnotations").iter().enumerate() {
            let path = spec.child("auditAnnotations").index(index).child("valueExpression");
            let source = text(annotation, "valueExpression").trim();
            let expression = compiler.expression(source, &path, Wants::StringOrNull, true);
            compiled.audit_annotations.extend(expression.map(|e| (text(annotation, "key").to_owned(), e)));
        }
        for (index, mutation) in list(policy, "spec.mutations").iter().enumerate() {
            compiled.mutations.extend(compiler.mutation(mutation, &spec.child("mutations").index(index)));
        }
        (compiled, compiler.errors)
    }
}

struct Compiler {
    has_params: bool,
    is_mutating: bool,
    /// The variables so far.
    names: Vec<String>,
    errors: FieldErrors,
}

impl Compiler {
    fn condition(&mut self, source: &str, path: &FieldPath) -> Option<Expression> {
        let names = Names { has_params: self.has_params, has_authorizer: true, ..Names::default() };
        self.compile(source, path, &names, Wants::Bool)
    }

    fn expression(&mut self, source: &str, path: &FieldPath, wants: Wants, has_authorizer: bool) -> Option<Expression> {
        let variables = std::mem::take(&mut self.names);
        let known: Vec<&str> = variables.iter().map(String::as_str).collect();
        let names = Names {
            has_params: self.has_params,
            has_authorizer,
            variables: Some(&known),
            has_patches: self.is_mutating,
            ..Names::default()
        };
        let compiled = self.compile(source, path, &names, wants);
        self.names = variables;
        compiled
    }

    fn compile(&mut self, source: &str, path: &FieldPath, names: &Names<'_>, wants: Wants) -> Option<Expression> {
        if source.trim().is_empty() {
            return None;
        }
        let failed = |why: String| self.errors.push(FieldError::invalid(path, source, why));
        Expression::compile(source, names, wants).map_err(failed).ok()
    }

    fn validation(&mut self, validation: &Value, path: &FieldPath) -> Option<Validation> {
        let source = text(validation, "expression");
        let expression = self.expression(source, &path.child("expression"), Wants::Bool, true);
        let source = text(validation, "messageExpression");
        let message_expression = self.expression(source, &path.child("messageExpression"), Wants::String, false);
        Some(Validation {
            expression: expression?,
            message: text(validation, "message").trim().to_owned(),
            message_expression,
            reason: text(validation, "reason").to_owned(),
        })
    }

    fn mutation(&mut self, mutation: &Value, path: &FieldPath) -> Option<Mutation> {
        let mut compile = |field: &str, wants: Wants| {
            let source = text(mutation, &format!("{field}.expression"));
            self.expression(source, &path.child(field).child("expression"), wants, true)
        };
        match text(mutation, "patchType") {
            "ApplyConfiguration" => compile("applyConfiguration", Wants::Object).map(Mutation::ApplyConfiguration),
            "JSONPatch" => compile("jsonPatch", Wants::JsonPatch).map(Mutation::JsonPatch),
            _ => None,
        }
    }
}
