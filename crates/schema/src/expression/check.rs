//! What can be known of an expression before it runs: that its names, fields and functions exist, and that what it yields is
//! what is wanted, as far as types show.

use kube_cel::cel::common::ast::operators as op;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, StructExpr,
};

use super::types::{self, LIBRARIES, NAMESPACE, REQUEST, Ty, USER};
use super::{Names, Scope, Wants};
use crate::cel::TYPES;

/// Deeper trees than this are not evaluated.
const MOST_DEPTH: usize = 150;

pub(super) fn check(source: &str, program: &IdedExpr, names: &Names<'_>, wants: Wants) -> Result<(), String> {
    let mut walk = Walk { source, names, locals: Vec::new(), depth: 0 };
    let ty = walk.expression(program)?;
    let is_wanted = match wants {
        Wants::Anything => true,
        Wants::Bool => matches!(ty, Ty::Dyn | Ty::Bool),
        Wants::String => matches!(ty, Ty::Dyn | Ty::String),
        Wants::StringOrNull => matches!(ty, Ty::Dyn | Ty::String | Ty::Null),
        Wants::Object => matches!(ty, Ty::Dyn | Ty::Object),
        Wants::JsonPatch => matches!(ty, Ty::Dyn | Ty::List | Ty::Patches),
    };
    if is_wanted {
        return Ok(());
    }
    Err(match wants {
        Wants::StringOrNull => "must evaluate to one of [string null_type]".to_owned(),
        Wants::String => "must evaluate to string".to_owned(),
        Wants::Object => "must evaluate to Object".to_owned(),
        Wants::JsonPatch => "must evaluate to list(JSONPatch)".to_owned(),
        Wants::Bool | Wants::Anything => "must evaluate to bool".to_owned(),
    })
}

struct Walk<'a> {
    source: &'a str,
    names: &'a Names<'a>,
    locals: Vec<(String, Ty)>,
    depth: usize,
}

impl Walk<'_> {
    fn expression(&mut self, expression: &IdedExpr) -> Result<Ty, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("compilation failed: expression is nested more than {MOST_DEPTH} deep"));
        }
        let ty = match &expression.expr {
            Expr::Literal(literal) => Ok(literal_type(literal)),
            Expr::Ident(name) => self.identifier(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items = list.elements.iter().map(|item| self.expression(item)).collect::<Result<Vec<_>, _>>()?;
                let is_patches = !items.is_empty() && items.iter().all(|ty| *ty == Ty::JsonPatch);
                Ok(if is_patches { Ty::Patches } else { Ty::List })
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.expression(&entry.key)?;
                        self.expression(&entry.value)?;
                    }
                }
                Ok(Ty::Map)
            }
            Expr::Struct(made) => self.structure(made),
            Expr::Comprehension(walk) => self.comprehension(walk),
            Expr::Unspecified => Err(self.refusal("Syntax error: empty expression", 0)),
        };
        self.depth -= 1;
        ty
    }

    fn identifier(&self, name: &str) -> Result<Ty, String> {
        if let Some((_, ty)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return Ok(*ty);
        }
        Ok(match (self.names.scope, name) {
            (Scope::Claims, "claims") => Ty::Map,
            (Scope::User, "user") => USER,
            (Scope::Request, _) => self.request_name(name)?,
            (_, name) if TYPES.contains(&name) => Ty::Type,
            (_, name) => return Err(self.undeclared(name, self.place_of(name))),
        })
    }

    fn request_name(&self, name: &str) -> Result<Ty, String> {
        Ok(match name {
            "object" | "oldObject" => Ty::Dyn,
            "request" => REQUEST,
            "namespaceObject" => NAMESPACE,
            "params" if self.names.has_params => Ty::Dyn,
            "authorizer" if self.names.has_authorizer => Ty::Authorizer,
            "variables" if self.names.variables.is_some() => Ty::Variables,
            name if TYPES.contains(&name) => Ty::Type,
            name => return Err(self.undeclared(name, self.place_of(name))),
        })
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Ty, String> {
        let operand = self.expression(&select.operand)?;
        let field = select.field.as_str();
        let found = match operand {
            Ty::Fields(known) => known.fields.iter().find(|(name, _)| *name == field).map(|(_, ty)| *ty),
            Ty::Variables => {
                let is_known = self.names.variables.is_some_and(|names| names.contains(&field));
                is_known.then_some(Ty::Dyn)
            }
            Ty::Authorizer => (field == "requestResource").then_some(Ty::ResourceCheck),
            ty if ty.is_plain() || ty.is_authorizer() => {
                let what = format!("type '{}' does not support field selection", ty.name());
                return Err(self.refusal(&what, self.place_of(&format!(".{field}"))));
            }
            Ty::Optional => Some(Ty::Optional),
            _ => Some(Ty::Dyn),
        };
        let ty = found
            .ok_or_else(|| self.refusal(&format!("undefined field '{field}'"), self.place_of(&format!(".{field}"))))?;
        Ok(if select.test { Ty::Bool } else { ty })
    }

    fn structure(&mut self, made: &StructExpr) -> Result<Ty, String> {
        let name = made.type_name.as_str();
        let is_object = name == "Object" || name.starts_with("Object.");
        if !self.names.has_patches || !(is_object || name == "JSONPatch") {
            return Err(self.undeclared(name, self.place_of(name)));
        }
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            if !is_object && !matches!(field.field.as_str(), "op" | "path" | "from" | "value") {
                let what = format!("undefined field '{}'", field.field);
                return Err(self.refusal(&what, self.place_of(&field.field)));
            }
            self.expression(&field.value)?;
        }
        Ok(match name {
            "JSONPatch" => Ty::JsonPatch,
            "Object" => Ty::Object,
            _ => Ty::Part,
        })
    }

    fn comprehension(&mut self, walk: &ComprehensionExpr) -> Result<Ty, String> {
        let range = self.expression(&walk.iter_range)?;
        if range.is_plain() {
            let what = format!(
                "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                range.name()
            );
            return Err(self.refusal(&what, 0));
        }
        let init = self.expression(&walk.accu_init)?;
        let known = self.locals.len();
        self.locals.extend([(walk.iter_var.clone(), Ty::Dyn), (walk.accu_var.clone(), init)]);
        self.expression(&walk.loop_cond)?;
        self.expression(&walk.loop_step)?;
        let ty = self.expression(&walk.result);
        self.locals.truncate(known);
        // A list of patches may well be made by a loop.
        ty.map(|ty| if ty == Ty::Patches { Ty::List } else { ty })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Ty, String> {
        let name = call.func_name.as_str();
        if let Some(ty) = self.operator(call)? {
            return Ok(ty);
        }
        let Some(target) = call.target.as_deref() else {
            self.arguments(&call.args)?;
            return types::function(name).ok_or_else(|| self.undeclared(name, self.place_after(name)));
        };
        if let Expr::Ident(library) = &target.expr
            && LIBRARIES.contains(&library.as_str())
            && !self.locals.iter().any(|(local, _)| local == library)
        {
            return self.library(library, call);
        }
        let this = self.expression(target)?;
        let names = match (name, call.args.len()) {
            ("optMap" | "optFlatMap", 2) => 1,
            ("all" | "exists" | "existsOne" | "exists_one", 3) | ("transformList" | "transformMap", 3 | 4) => 2,
            _ => 0,
        };
        self.named_arguments(&call.args, names)?;
        if this.is_authorizer() {
            return this.authorizer_method(name).ok_or_else(|| self.no_overload(name, &format!("{}.()", this.name())));
        }
        types::method(name).ok_or_else(|| self.undeclared(name, self.place_after(name)))
    }

    /// `cel.bind(…)`, `math.least(…)`.
    fn library(&mut self, library: &str, call: &CallExpr) -> Result<Ty, String> {
        let name = call.func_name.as_str();
        if let ("cel", "bind", [variable, value, body]) = (library, name, call.args.as_slice()) {
            let Expr::Ident(variable) = &variable.expr else {
                return Err(self.refusal("cel.bind() variable names must be simple identifiers", 0));
            };
            let ty = self.expression(value)?;
            self.locals.push((variable.clone(), ty));
            let ty = self.expression(body);
            self.locals.pop();
            return ty;
        }
        self.arguments(&call.args)?;
        types::library_function(library, name).ok_or_else(|| self.undeclared(name, self.place_after(name)))
    }

    fn arguments(&mut self, args: &[IdedExpr]) -> Result<(), String> {
        args.iter().try_for_each(|argument| self.expression(argument).map(drop))
    }

    /// The first so many are names of what the rest uses.
    fn named_arguments(&mut self, args: &[IdedExpr], names: usize) -> Result<(), String> {
        let known = self.locals.len();
        for name in args.iter().take(names) {
            let Expr::Ident(name) = &name.expr else { return Err(self.refusal("argument must be a simple name", 0)) };
            self.locals.push((name.clone(), Ty::Dyn));
        }
        let result = self.arguments(args.get(names..).unwrap_or_default());
        self.locals.truncate(known);
        result
    }

    /// The type of an operator's result; `None` if the call is of something else.
    fn operator(&mut self, call: &CallExpr) -> Result<Option<Ty>, String> {
        let name = call.func_name.as_str();
        let is_symbol = name.contains('_') && !name.chars().any(char::is_alphanumeric);
        let is_operator = is_symbol || name.starts_with('@');
        if !is_operator {
            return Ok(None);
        }
        let types = call.args.iter().map(|argument| self.expression(argument)).collect::<Result<Vec<_>, _>>()?;
        let fits = match (name, types.as_slice()) {
            (op::LOGICAL_AND | op::LOGICAL_OR | op::LOGICAL_NOT, types) => {
                types.iter().all(|ty| !ty.is_plain() || *ty == Ty::Bool)
            }
            (op::EQUALS | op::NOT_EQUALS, [left, right]) => left.compares_with(*right, false),
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [left, right]) => {
                left.compares_with(*right, true)
            }
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [left, right]) => {
                left.compares_with(*right, false) && !(*left == Ty::Bool && *right == Ty::Bool)
            }
            (op::CONDITIONAL, [condition, ..]) => !condition.is_plain() || *condition == Ty::Bool,
            _ => true,
        };
        if !fits {
            let applied: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
            return Err(self.no_overload(name, &applied.join(", ")));
        }
        Ok(Some(match (name, types.as_slice()) {
            (op::CONDITIONAL, [_, then, other]) => {
                if then == other {
                    *then
                } else {
                    Ty::Dyn
                }
            }
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [left, right]) => {
                if left == right && left.is_plain() {
                    *left
                } else if *left == Ty::List {
                    Ty::List
                } else {
                    Ty::Dyn
                }
            }
            (op::NEGATE, [ty]) => *ty,
            (op::INDEX, _) => Ty::Dyn,
            (op::OPT_INDEX | op::OPT_SELECT, _) => Ty::Optional,
            _ => Ty::Bool,
        }))
    }

    fn undeclared(&self, name: &str, at: usize) -> String {
        self.refusal(&format!("undeclared reference to '{name}' (in container '')"), at)
    }

    fn no_overload(&self, name: &str, applied: &str) -> String {
        let applied = if applied.ends_with("()") { applied.to_owned() } else { format!("({applied})") };
        let symbol = name.trim_matches('_');
        let what = format!("found no matching overload for '{name}' applied to '{applied}'");
        self.refusal(&what, self.place_of(symbol))
    }

    /// Where a text first stands. The parser does not say where a part of an expression is.
    fn place_of(&self, text: &str) -> usize {
        self.source.find(text).unwrap_or(0)
    }

    fn place_after(&self, name: &str) -> usize {
        self.source.find(&format!("{name}(")).map_or(0, |at| at + name.len())
    }

    /// cel-go's form of a compile error.
    fn refusal(&self, what: &str, at: usize) -> String {
        let before = self.source.get(..at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count());
        let shown = self.source.lines().nth(line).unwrap_or_default();
        let dots = ".".repeat(column);
        format!("compilation failed: ERROR: <input>:{}:{}: {what}\n | {shown}\n | {dots}^", line + 1, column + 1)
    }
}

fn literal_type(literal: &LiteralValue) -> Ty {
    match literal {
        LiteralValue::Boolean(_) => Ty::Bool,
        LiteralValue::Bytes(_) => Ty::Bytes,
        LiteralValue::Double(_) => Ty::Double,
        LiteralValue::Int(_) => Ty::Int,
        LiteralValue::Null => Ty::Null,
        LiteralValue::String(_) => Ty::String,
        LiteralValue::UInt(_) => Ty::Uint,
    }
}
