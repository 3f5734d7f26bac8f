//! `all`, `exists`, `map`, `filter` and their kin, over lists and the keys of maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::operators::{ADD, CONDITIONAL};
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr};

use super::Fault;
use super::evaluate::{Evaluated, Evaluation};
use super::value::{Key, Map, Text, Val};

type Turns<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

/// What one turn of a loop that makes a list does: maybe adds an item.
struct Append<'a> {
    condition: Option<&'a IdedExpr>,
    item: &'a IdedExpr,
}

impl<'a> Evaluation<'a> {
    #[inline(never)]
    pub(super) fn comprehension(&self, walk: &'a ComprehensionExpr) -> Evaluated<'a> {
        let items = self.items(&self.evaluate(&walk.iter_range)?)?;
        if let Some(append) = append_of(walk) {
            return self.made_list(walk, &append, items);
        }
        let init = self.evaluate(&walk.accu_init)?;
        let base = self.locals.borrow().len();
        self.locals.borrow_mut().extend([(walk.accu_var.as_str(), Ok(init)), (walk.iter_var.as_str(), Ok(Val::Null))]);
        let result = self.turns(walk, items, base);
        self.locals.borrow_mut().truncate(base);
        result
    }

    fn turns(&self, walk: &'a ComprehensionExpr, items: Turns<'a, Val<'a>>, base: usize) -> Evaluated<'a> {
        for item in items {
            if self.evaluate(&walk.loop_cond)?.truth() != Some(true) {
                break;
            }
            self.locals.borrow_mut()[base + 1].1 = Ok(item);
            let next = self.evaluate(&walk.loop_step);
            if let Err(fault) = &next
                && fault.is_final()
            {
                return next;
            }
            self.locals.borrow_mut()[base].1 = next;
        }
        self.evaluate(&walk.result)
    }

    /// `map` and `filter`, without copying what there is at every turn.
    fn made_list(&self, walk: &'a ComprehensionExpr, append: &Append<'a>, items: Turns<'a, Val<'a>>) -> Evaluated<'a> {
        let mut made = Vec::new();
        for item in items {
            self.spend(1)?;
            self.locals.borrow_mut().push((walk.iter_var.as_str(), Ok(item)));
            let added = self.appended(append);
            self.locals.borrow_mut().pop();
            made.extend(added?);
        }
        Ok(Val::list(made))
    }

    fn appended(&self, append: &Append<'a>) -> Result<Option<Val<'a>>, Fault> {
        if let Some(condition) = append.condition {
            match self.evaluate(condition)?.truth() {
                Some(true) => {}
                Some(false) => return Ok(None),
                None => return Err(Fault::no_overload()),
            }
        }
        self.evaluate(append.item).map(Some)
    }

    /// Macros with two names: `all(key, value, …)`, `transformList(index, item, …)`.
    #[inline(never)]
    pub(super) fn pairs(&self, call: &'a CallExpr) -> Evaluated<'a> {
        let (Some(target), [first, second, rest @ ..]) = (call.target.as_deref(), call.args.as_slice()) else {
            return Err(Fault::no_overload());
        };
        let (Expr::Ident(first), Expr::Ident(second)) = (&first.expr, &second.expr) else {
            return Err(Fault::failed("argument must be a simple name"));
        };
        let pairs = self.pairs_of(&self.evaluate(target)?)?;
        let mut made = Results::default();
        for (key, value) in pairs {
            self.spend(1)?;
            let base = self.locals.borrow().len();
            let at = key.clone().into_val();
            self.locals.borrow_mut().extend([(first.as_str(), Ok(at)), (second.as_str(), Ok(value))]);
            let turn = self.pair_turn(&call.func_name, rest, key, &mut made);
            self.locals.borrow_mut().truncate(base);
            if turn? {
                break;
            }
        }
        match (call.func_name.as_str(), made.fault) {
            ("all", _) if made.failed > 0 => Ok(Val::Bool(false)),
            ("exists", _) if made.held > 0 => Ok(Val::Bool(true)),
            (_, Some(fault)) => Err(fault),
            ("all", None) => Ok(Val::Bool(true)),
            ("exists", None) => Ok(Val::Bool(false)),
            ("transformList", None) => Ok(Val::list(made.list)),
            ("transformMap", None) => Ok(Val::map(made.map)),
            (_, None) => Ok(Val::Bool(made.held == 1)),
        }
    }

    /// Is the loop decided?
    fn pair_turn(&self, name: &str, rest: &'a [IdedExpr], key: Key, made: &mut Results<'a>) -> Result<bool, Fault> {
        let (condition, body) = match rest {
            [body] => (None, body),
            [condition, body] => (Some(condition), body),
            _ => return Err(Fault::no_overload()),
        };
        if name.starts_with("transform") {
            if let Some(value) = self.appended(&Append { condition, item: body })? {
                if name == "transformList" {
                    made.list.push(value);
                } else {
                    made.map.insert(key, value);
                }
            }
            return Ok(false);
        }
        match self.evaluate(body) {
            Ok(Val::Bool(true)) => made.held += 1,
            Ok(Val::Bool(false)) => made.failed += 1,
            Ok(_) => return Err(Fault::no_overload()),
            Err(fault) if fault.is_final() || !matches!(name, "all" | "exists") => return Err(fault),
            Err(fault) => made.fault = Some(fault),
        }
        Ok((name == "all" && made.failed > 0) || (name == "exists" && made.held > 0))
    }

    /// What a loop goes over. It may end at the first, so that nothing is copied before.
    fn items(&self, range: &Val<'a>) -> Result<Turns<'a, Val<'a>>, Fault> {
        Ok(match range {
            Val::List(list) => {
                let list = list.clone();
                Box::new((0..list.len()).filter_map(move |index| list.get(index)))
            }
            Val::Map(Map::Json(map)) => Box::new(map.keys().map(|key| Val::Text(Text::Borrowed(key)))),
            Val::Map(map) => Box::new(self.made_keys(map)?.into_iter().map(Key::into_val)),
            _ => return Err(Fault::no_overload()),
        })
    }

    fn pairs_of(&self, range: &Val<'a>) -> Result<Turns<'a, (Key, Val<'a>)>, Fault> {
        Ok(match range {
            Val::List(list) => {
                let (list, key) = (list.clone(), |at: usize| Key::Int(i64::try_from(at).unwrap_or(i64::MAX)));
                Box::new((0..list.len()).filter_map(move |at| list.get(at).map(|item| (key(at), item))))
            }
            Val::Map(Map::Json(map)) => {
                Box::new(map.iter().map(|(key, value)| (Key::Text(Arc::from(key.as_str())), Val::of(value))))
            }
            Val::Map(map) => {
                let (keys, map) = (self.made_keys(map)?, map.clone());
                Box::new(keys.into_iter().filter_map(move |key| map.get(&key).map(|value| (key, value))))
            }
            _ => return Err(Fault::no_overload()),
        })
    }

    fn made_keys(&self, map: &Map<'a>) -> Result<Vec<Key>, Fault> {
        self.spend(u64::try_from(map.len() / 10).unwrap_or(u64::MAX))?;
        Ok(map.keys())
    }
}

#[derive(Default)]
struct Results<'a> {
    list: Vec<Val<'a>>,
    map: BTreeMap<Key, Val<'a>>,
    held: usize,
    failed: usize,
    fault: Option<Fault>,
}

/// Recognises what the parser makes of `map` and `filter`: `accumulated + [item]`, maybe under a condition.
fn append_of(walk: &ComprehensionExpr) -> Option<Append<'_>> {
    let is_accumulated =
        |expression: &IdedExpr| matches!(&expression.expr, Expr::Ident(name) if *name == walk.accu_var);
    if !is_accumulated(&walk.result) {
        return None;
    }
    if let Some(item) = added_item(&walk.loop_step, &walk.accu_var) {
        return Some(Append { condition: None, item });
    }
    let Expr::Call(choice) = &walk.loop_step.expr else { return None };
    match choice.args.as_slice() {
        [condition, then, other] if choice.func_name == CONDITIONAL && is_accumulated(other) => {
            Some(Append { condition: Some(condition), item: added_item(then, &walk.accu_var)? })
        }
        _ => None,
    }
}

/// The item of `accumulated + [item]`.
fn added_item<'a>(expression: &'a IdedExpr, accumulated: &str) -> Option<&'a IdedExpr> {
    let Expr::Call(call) = &expression.expr else { return None };
    let [left, right] = call.args.as_slice() else { return None };
    match (&left.expr, &right.expr) {
        (Expr::Ident(name), Expr::List(list)) if call.func_name == ADD && name == accumulated => {
            list.elements.first().filter(|_| list.elements.len() == 1)
        }
        _ => None,
    }
}
