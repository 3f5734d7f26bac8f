//! The grammar of paths.

use serde_json::{Number, Value};

use super::{Node, Operator, PathError, Slice};

/// Paths nest only through filters and unions; deeper ones than this are mischief.
const MAX_DEPTH: usize = 16;

pub(super) fn nodes(text: &str) -> Result<Vec<Node>, PathError> {
    Parser { rest: text, nodes: Vec::new(), depth: 0 }.run()
}

struct Parser<'a> {
    rest: &'a str,
    nodes: Vec<Node>,
    depth: usize,
}

fn fail<T>(message: impl Into<String>) -> Result<T, PathError> {
    Err(PathError(message.into()))
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Result<Vec<Node>, PathError> {
        if self.depth > MAX_DEPTH {
            return fail("nested too deeply");
        }
        while let Some(c) = self.rest.chars().next() {
            if self.rest.starts_with("[?(") {
                self.filter()?;
            } else if let Some(rest) = self.rest.strip_prefix("..") {
                self.rest = rest;
                self.recursive()?;
            } else {
                self.plain(c)?;
            }
        }
        Ok(self.nodes)
    }

    fn plain(&mut self, c: char) -> Result<(), PathError> {
        match c {
            ' ' | '@' | '$' => self.rest = &self.rest[1..],
            '\r' | '\n' => return fail("unclosed action"),
            '[' => self.brackets()?,
            '"' | '\'' => self.quoted(c)?,
            '.' => {
                self.rest = &self.rest[1..];
                self.field();
            }
            '+' | '-' | '0'..='9' => self.number()?,
            c if is_word(c) => self.word(),
            c => return fail(format!("unrecognized character in action: {c:?}")),
        }
        Ok(())
    }

    fn sub(&self, text: &str) -> Result<Vec<Node>, PathError> {
        Parser { rest: text, nodes: Vec::new(), depth: self.depth + 1 }.run()
    }

    /// Cuts the rest at a byte position, which is that of a character.
    fn cut(&mut self, at: usize) -> &'a str {
        let (head, tail) = self.rest.split_at(at);
        self.rest = tail;
        head
    }

    /// A name up to the next separator that no backslash escapes.
    fn field(&mut self) {
        let mut escaped = false;
        let end = self.rest.find(|c: char| {
            let is_end = !escaped && is_terminator(c);
            escaped = !escaped && c == '\\';
            is_end
        });
        let name = self.cut(end.unwrap_or(self.rest.len()));
        let node = if name == "*" { Node::Wildcard } else { Node::Field(name.replace('\\', "")) };
        self.nodes.push(node);
    }

    fn recursive(&mut self) -> Result<(), PathError> {
        if self.nodes.last() == Some(&Node::Recursive) {
            return fail("invalid multiple recursive descent");
        }
        self.nodes.push(Node::Recursive);
        if self.rest.starts_with(is_word) {
            self.field();
        }
        Ok(())
    }

    fn word(&mut self) {
        let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        let node = match self.cut(end) {
            "true" => Node::Constant(Value::Bool(true)),
            "false" => Node::Constant(Value::Bool(false)),
            _ => Node::Word,
        };
        self.nodes.push(node);
    }

    fn number(&mut self) -> Result<(), PathError> {
        let digits = self.rest[1..].find(|c: char| c != '.' && !c.is_ascii_digit());
        let text = self.cut(digits.map_or(self.rest.len(), |at| at + 1));
        let plain = text.strip_prefix('+').unwrap_or(text);
        let number = match plain.parse::<i64>() {
            Ok(integer) => Some(Number::from(integer)),
            Err(_) => plain.parse().ok().and_then(Number::from_f64),
        };
        match number {
            Some(number) => self.nodes.push(Node::Constant(Value::Number(number))),
            None => return fail(format!("cannot parse number {text}")),
        }
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), PathError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\n' => break,
                '\\' => match chars.next().and_then(|(_, c)| unescape(c)) {
                    Some(c) => text.push(c),
                    None => return fail("invalid syntax in a quoted string"),
                },
                c if c == quote => {
                    self.cut(at + 1);
                    self.nodes.push(Node::Constant(Value::String(text)));
                    return Ok(());
                }
                c => text.push(c),
            }
        }
        fail("unterminated quoted string")
    }

    /// `[0]`, `[1:3]`, `[*]`, `['key']`, `[0,2]`.
    fn brackets(&mut self) -> Result<(), PathError> {
        let Some(end) = self.rest.find([']', '\n']).filter(|at| self.rest[*at..].starts_with(']')) else {
            return fail("unterminated array");
        };
        let whole = self.cut(end + 1);
        let inner = &whole[1..end];
        if inner.contains(',') {
            let branch = |part: &str| self.sub(&format!("[{}]", part.trim_matches(' ')));
            let branches = inner.split(',').map(branch).collect::<Result<_, _>>()?;
            self.nodes.push(Node::Union(branches));
            return Ok(());
        }
        if let Some(key) = inner.strip_prefix('\'').and_then(|k| k.strip_suffix('\'')).filter(|k| !k.contains('\'')) {
            let key = self.sub(&format!(".{key}"))?;
            self.nodes.extend(key);
            return Ok(());
        }
        self.nodes.push(Node::Slice(slice(if inner == "*" { ":" } else { inner })?));
        Ok(())
    }

    /// `[?(@.type=="Ready")]`, or `[?(@.name)]` for "has one".
    fn filter(&mut self) -> Result<(), PathError> {
        self.rest = &self.rest["[?(".len()..];
        let end = self.filter_end()?;
        let text = self.cut(end);
        match self.rest.strip_prefix(")]") {
            Some(rest) => self.rest = rest,
            None => return fail("unclosed array expect ]"),
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let split = text.find(is_operator).filter(|at| *at > 0);
        let node = match split {
            None => Node::Filter { left: self.sub(text)?, compare: None },
            Some(at) => {
                let (left, rest) = text.split_at(at);
                let right = rest.trim_start_matches(is_operator);
                let operator = operator(&rest[..rest.len() - right.len()])?;
                Node::Filter { left: self.sub(left)?, compare: Some((operator, self.sub(right)?)) }
            }
        };
        self.nodes.push(node);
        Ok(())
    }

    /// Where the closing bracket is; one inside of quotes does not count.
    fn filter_end(&self) -> Result<usize, PathError> {
        let mut open: Option<char> = None;
        let mut previous = ' ';
        for (at, c) in self.rest.char_indices() {
            match (c, open) {
                ('\n', _) => break,
                (')', None) => return Ok(at),
                ('"' | '\'', None) => open = Some(c),
                (c, Some(quote)) if c == quote && previous != '\\' => open = None,
                _ => {}
            }
            previous = c;
        }
        fail("unterminated filter")
    }
}

fn unescape(c: char) -> Option<char> {
    Some(match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '\\' | '\'' | '"' => c,
        _ => return None,
    })
}

fn operator(text: &str) -> Result<Operator, PathError> {
    Ok(match text {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        other => return fail(format!("unrecognized filter operator {other}")),
    })
}

fn slice(text: &str) -> Result<Slice, PathError> {
    let invalid = || PathError(format!("invalid array index {text}"));
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > 3 {
        return Err(invalid());
    }
    let bound = |index: usize| -> Result<Option<i64>, PathError> {
        match parts.get(index).copied().unwrap_or_default() {
            "" => Ok(None),
            digits if digits.starts_with('+') => Err(invalid()),
            digits => digits.parse().map(Some).map_err(|_| invalid()),
        }
    };
    let (start, end, step) = (bound(0)?, bound(1)?, bound(2)?);
    if parts.len() > 1 {
        return Ok(Slice { start, end, step, is_index: false });
    }
    Ok(Slice { start, end: Some(start.unwrap_or(0).saturating_add(1)), step: None, is_index: true })
}
