//! The string grammar, with upstream's tokens because its error texts quote them.

use std::collections::BTreeSet;

use super::{Operator, Requirement, SelectorError, check_key};
use crate::field::FieldPath;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Error,
    End,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    Identifier,
}

fn keyword(text: &str) -> Option<Token> {
    Some(match text {
        "(" => Token::Open,
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "=" => Token::Equals,
        "==" => Token::DoubleEquals,
        "!=" => Token::NotEquals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => return None,
    })
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Splits the whole input; the last token is always [`Token::End`].
fn scan(text: &str) -> Vec<(Token, String)> {
    // Upstream reads a zero byte as the end of the text.
    let mut rest = text.split('\0').next().unwrap_or_default();
    let mut tokens = Vec::new();
    loop {
        rest = rest.trim_start_matches(is_space);
        if rest.is_empty() {
            tokens.push((Token::End, String::new()));
            return tokens;
        }
        let (token, literal, used) = if rest.starts_with(is_symbol) { scan_symbol(rest) } else { scan_word(rest) };
        tokens.push((token, literal));
        rest = &rest[used..];
    }
}

fn scan_word(text: &str) -> (Token, String, usize) {
    let end = text.find(|c| is_symbol(c) || is_space(c)).unwrap_or(text.len());
    let word = &text[..end];
    (keyword(word).unwrap_or(Token::Identifier), word.to_owned(), end)
}

/// The longest operator that the symbols begin with.
fn scan_symbol(text: &str) -> (Token, String, usize) {
    let run = text.find(|c| !is_symbol(c)).unwrap_or(text.len());
    let known = (1..=run).take_while(|end| keyword(&text[..*end]).is_some()).last();
    match known.and_then(|end| Some((keyword(&text[..end])?, end))) {
        Some((token, end)) => (token, text[..end].to_owned(), end),
        None => (Token::Error, format!("error expected: keyword found '{}'", &text[..run]), run),
    }
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    Parser { tokens: scan(text), at: 0 }.parse().map_err(SelectorError)
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

impl Parser {
    /// The current token; past the end it stays at the end.
    fn raw(&self) -> (Token, String) {
        self.tokens.get(self.at).or(self.tokens.last()).cloned().unwrap_or((Token::End, String::new()))
    }

    /// Where a value or key is expected, `in` and `notin` are ordinary words.
    fn peek(&self) -> (Token, String) {
        match self.raw() {
            (Token::In | Token::NotIn, literal) => (Token::Identifier, literal),
            other => other,
        }
    }

    fn take(&mut self) -> (Token, String) {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn parse(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {
                    let requirement = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(requirement);
                }
                (Token::End, _) => return Ok(requirements),
                (_, found) => return Err(format!("found '{found}', expected: !, identifier, or 'end of string'")),
            }
            match self.take() {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => {
                    let (next, found) = self.peek();
                    if !matches!(next, Token::Identifier | Token::Not) {
                        return Err(format!("found '{found}', expected: identifier after ','"));
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(error) = check_key(&key, &FieldPath::root()) {
            return Err(error.to_string());
        }
        let alone = matches!(self.peek().0, Token::End | Token::Comma);
        let (operator, values) = if negated {
            (Operator::DoesNotExist, BTreeSet::new())
        } else if alone {
            (Operator::Exists, BTreeSet::new())
        } else {
            let operator = self.operator()?;
            let set = matches!(operator, Operator::In | Operator::NotIn);
            (operator, if set { self.values()? } else { self.value()? })
        };
        Requirement::new(key, operator, values.into_iter().collect()).map_err(|e| e.to_string())
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, found) = self.raw();
        self.at += 1;
        Ok(match token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    /// `(x,y)`, where an empty place is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, found) = self.take();
        if token != Token::Open {
            return Err(format!("found '{found}' expected: '('"));
        }
        match self.peek() {
            (Token::Identifier | Token::Comma, found) => {
                let values = self.identifiers()?;
                if self.take().0 != Token::Close {
                    return Err(format!("found '{found}', expected: ')'"));
                }
                Ok(values)
            }
            (Token::Close, _) => {
                self.take();
                Ok(BTreeSet::from([String::new()]))
            }
            (_, found) => Err(format!("found '{found}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.take() {
                (Token::Identifier, value) => {
                    values.insert(value);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.take();
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
        }
    }

    fn value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.take() {
            (Token::Identifier, value) => Ok(BTreeSet::from([value])),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }
}
