//! Calls: macros that the parser leaves, methods of optionals and of the authorizer, and functions.

use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};

use super::Fault;
use super::evaluate::{Evaluated, Evaluation};
use super::library;
use super::types::is_library;
use super::value::{Text, Val};

/// Looking through all roles.
const CHECK_WORK: u64 = 3_500;
/// More decimals than this nobody reads.
const MOST_DECIMALS: usize = 100;

impl<'a> Evaluation<'a> {
    #[inline(never)]
    pub(super) fn call(&self, call: &'a CallExpr) -> Evaluated<'a> {
        if let Some(result) = self.operator(call) {
            return result;
        }
        let Some(target) = call.target.as_deref() else {
            let args = self.arguments(&call.args)?;
            return self.function(&call.func_name, &args);
        };
        if let Expr::Ident(namespace) = &target.expr
            && is_library(namespace)
            && !self.is_local(namespace)
        {
            return self.library_function(namespace, call);
        }
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("optMap", [name, body]) => self.optional_map(target, name, body, true),
            ("optFlatMap", [name, body]) => self.optional_map(target, name, body, false),
            ("all" | "exists" | "existsOne" | "exists_one", [_, _, _])
            | ("transformList" | "transformMap", [_, _, _] | [_, _, _, _]) => self.pairs(call),
            (name, args) => {
                let this = self.evaluate(target)?;
                let args = self.arguments(args)?;
                self.method(name, &this, &args)
            }
        }
    }

    fn arguments(&self, args: &'a [IdedExpr]) -> Result<Vec<Val<'a>>, Fault> {
        args.iter().map(|argument| self.evaluate(argument)).collect()
    }

    /// `cel.bind(…)`, `optional.of(…)`, `math.least(…)`.
    #[inline(never)]
    fn library_function(&self, namespace: &'a str, call: &'a CallExpr) -> Evaluated<'a> {
        if let ("cel", "bind", [name, value, body]) = (namespace, call.func_name.as_str(), call.args.as_slice()) {
            let Expr::Ident(name) = &name.expr else { return Err(Fault::failed("argument must be a simple name")) };
            let value = self.evaluate(value)?;
            return self.with(name, value, body);
        }
        let args = self.arguments(&call.args)?;
        match (namespace, call.func_name.as_str(), args.as_slice()) {
            ("optional", "none", []) => Ok(Val::Optional(None)),
            ("optional", "of", [value]) => Ok(Val::some(value.clone())),
            ("optional", "ofNonZeroValue", [value]) => {
                Ok(if is_zero(value) { Val::Optional(None) } else { Val::some(value.clone()) })
            }
            (_, name, args) => {
                let sizes = args.iter().map(Val::size);
                // What is compared with what is the product of both.
                let all = if namespace == "sets" { u64::saturating_mul } else { u64::saturating_add };
                let work = sizes.fold(1, all);
                self.spend(work)?;
                library::call(name, Some(namespace), None, args)
            }
        }
    }

    fn optional_map(
        &self,
        target: &'a IdedExpr,
        name: &'a IdedExpr,
        body: &'a IdedExpr,
        is_wrapped: bool,
    ) -> Evaluated<'a> {
        let Expr::Ident(name) = &name.expr else { return Err(Fault::failed("argument must be a simple name")) };
        match self.evaluate(target)? {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(value)) => {
                let mapped = self.with(name, Arc::unwrap_or_clone(value), body)?;
                Ok(if is_wrapped { Val::some(mapped) } else { mapped })
            }
            _ => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn method(&self, name: &str, this: &Val<'a>, args: &[Val<'a>]) -> Evaluated<'a> {
        match (this, self.inputs.authorizer) {
            (Val::Authorizer(question), Some(authorizer)) => {
                self.spend(if name == "check" { CHECK_WORK } else { 1 })?;
                return question.call(name, args, authorizer);
            }
            (Val::Optional(value), _) => {
                if let Some(result) = optional_method(name, value.as_deref(), args) {
                    return result;
                }
            }
            (Val::Text(text), _) => {
                if let (Some(result), [Val::Text(other)]) = (text_test(name, text, args.first()), args) {
                    self.spend(this.size().saturating_add(Val::Text(other.clone()).size()))?;
                    return Ok(Val::Bool(result));
                }
            }
            _ => {}
        }
        if name == "size" && args.is_empty() {
            return self.size(this);
        }
        if let ("matches" | "find" | "findAll", Val::Text(text)) = (name, this) {
            return self.search(name, text, args);
        }
        if let Some(refused) = library::refused(name, args) {
            return refused;
        }
        self.spend(method_work(name, this, args)?)?;
        let result = library::call(name, None, Some(this), args)?;
        self.spend(result.size())?;
        Ok(result)
    }

    #[inline(never)]
    fn function(&self, name: &str, args: &[Val<'a>]) -> Evaluated<'a> {
        match (name, args) {
            ("size", [value]) => self.size(value),
            ("matches", [Val::Text(text), pattern]) => self.search("matches", text, std::slice::from_ref(pattern)),
            ("dyn", [value]) => Ok(value.clone()),
            ("type", [value]) => Ok(Val::Type(match value.type_name() {
                "google.protobuf.Timestamp" => "timestamp",
                "google.protobuf.Duration" => "duration",
                other => other,
            })),
            ("bool", [Val::Bool(truth)]) => Ok(Val::Bool(*truth)),
            ("bool", [Val::Text(text)]) => match &**text {
                "true" | "True" | "TRUE" | "t" | "1" => Ok(Val::Bool(true)),
                "false" | "False" | "FALSE" | "f" | "0" => Ok(Val::Bool(false)),
                _ => Err(Fault::failed("type conversion error from string to bool")),
            },
            ("string", [Val::Bool(truth)]) => Ok(Val::text(truth.to_string())),
            (_, []) => library::call(name, None, None, args),
            (_, [first, ..]) => {
                if let Some(refused) = library::refused(name, args) {
                    return refused;
                }
                self.spend(args.iter().map(Val::size).fold(first.size(), u64::saturating_add))?;
                library::call(name, None, None, args)
            }
        }
    }

    /// Texts are as long as they have characters.
    fn size(&self, value: &Val<'a>) -> Evaluated<'a> {
        let size = match value {
            Val::Text(text) => {
                self.spend(value.size())?;
                text.chars().count()
            }
            Val::Bytes(bytes) => bytes.len(),
            Val::List(list) => list.len(),
            Val::Map(map) => map.len(),
            _ => return Err(Fault::no_overload()),
        };
        Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    }
}

fn optional_method<'a>(name: &str, value: Option<&Val<'a>>, args: &[Val<'a>]) -> Option<Evaluated<'a>> {
    Some(match (name, args, value) {
        ("hasValue", [], value) => Ok(Val::Bool(value.is_some())),
        ("value", [], Some(value)) | ("orValue", [_], Some(value)) => Ok(value.clone()),
        ("value", [], None) => Err(Fault::failed("optional.none() dereference")),
        ("or", [_], Some(value)) => Ok(Val::some(value.clone())),
        ("orValue", [other], None) | ("or", [other @ Val::Optional(_)], None) => Ok(other.clone()),
        _ => return None,
    })
}

fn text_test(name: &str, text: &Text<'_>, other: Option<&Val<'_>>) -> Option<bool> {
    let Some(Val::Text(other)) = other else { return None };
    Some(match name {
        "startsWith" => text.starts_with(&**other),
        "endsWith" => text.ends_with(&**other),
        "contains" => text.contains(&**other),
        _ => return None,
    })
}

/// How much work a method is before it is known what it yields.
fn method_work(name: &str, this: &Val<'_>, args: &[Val<'_>]) -> Result<u64, Fault> {
    let all = args.iter().map(Val::size).fold(this.size(), u64::saturating_add);
    let product = args.iter().map(Val::size).fold(this.size(), u64::saturating_mul);
    Ok(match name {
        // The text may be found, and put in, at every place.
        "replace" => {
            let length = |value: Option<&Val<'_>>| match value {
                Some(Val::Text(text)) => u64::try_from(text.len()).unwrap_or(u64::MAX),
                _ => 1,
            };
            length(Some(this)).saturating_mul(length(args.get(1)).saturating_add(1)) / 10
        }
        "join" => product,
        // Every character may become an item.
        "split" => all.saturating_mul(10),
        "distinct" | "sort" | "sum" | "isSorted" | "flatten" => {
            this.size().saturating_mul(this.size()).min(all.saturating_mul(64))
        }
        "format" => {
            let Val::Text(text) = this else { return Err(Fault::no_overload()) };
            check_decimals(text)?;
            all
        }
        _ => all,
    })
}

/// `%.999999999f` is a gigabyte.
fn check_decimals(format: &str) -> Result<(), Fault> {
    for rest in format.split("%.").skip(1) {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if digits.parse::<usize>().map_or(!digits.is_empty(), |decimals| decimals > MOST_DECIMALS) {
            return Err(Fault::Failed(format!("precision of more than {MOST_DECIMALS} is not supported")));
        }
    }
    Ok(())
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(truth) => !truth,
        Val::Int(number) => *number == 0,
        Val::Uint(number) => *number == 0,
        Val::Double(number) => *number == 0.0,
        Val::Text(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.len() == 0,
        Val::Map(map) => map.len() == 0,
        _ => false,
    }
}
