//! Reads expressions.

use super::lex::Token;
use super::parse::{Name, ParseError, Parsed, Parser};
use super::{BinOp, DType, Expr, UnOp};

/// Deepest nesting of operators in an expression.
const MAX_DEPTH: u32 = 200;

impl Parser<'_> {
    /// A whole expression.
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        Ok(self.binary(1)?.0)
    }

    /// An expression of operators that bind at least as strongly as `min`, and the depth of its tree.
    pub(super) fn binary(&mut self, min: u8) -> Parsed<(Expr, u32)> {
        self.depth += 1;
        let (mut left, mut depth) = self.primary()?;
        loop {
            let (op, strength) = match self.lexer.peek() {
                Token::Sign("||") => (BinOp::Or, 1),
                Token::Sign("&&") => (BinOp::And, 2),
                Token::Sign("<") => (BinOp::Lt, 3),
                Token::Sign("<=") => (BinOp::Le, 3),
                Token::Sign("==") => (BinOp::Eq, 3),
                Token::Sign("!=") => (BinOp::Ne, 3),
                Token::Sign("+") => (BinOp::Add, 4),
                Token::Sign("-") => (BinOp::Sub, 4),
                Token::Sign("*") => (BinOp::Mul, 5),
                Token::Sign("/") => (BinOp::Div, 5),
                Token::Sign("%") => (BinOp::Mod, 5),
                Token::Sign(s @ (">" | ">=")) => {
                    return Err(self.lexer.error(format!("there is no `{s}`; swap the sides and use `<` or `<=`")));
                }
                _ => break,
            };
            if strength < min {
                break;
            }
            self.lexer.next();
            let (right, d) = self.binary(strength + 1)?;
            depth = depth.max(d) + 1;
            self.check_depth(depth)?;
            left = Expr::Binary(op, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok((left, depth))
    }

    fn check_depth(&self, depth: u32) -> Parsed<()> {
        if depth.max(self.depth) <= MAX_DEPTH {
            return Ok(());
        }
        Err(self.lexer.error(format!("the expression nests deeper than {MAX_DEPTH} levels")))
    }

    fn primary(&mut self) -> Parsed<(Expr, u32)> {
        self.check_depth(self.depth)?;
        match self.lexer.peek() {
            Token::Int(_) => Ok((Expr::Int(self.int()?), 1)),
            Token::Float(v, d) => {
                self.lexer.next();
                Ok((Expr::Float(v, d), 1))
            }
            Token::Sign("(") => {
                self.lexer.next();
                let e = self.binary(1)?;
                self.sign(")")?;
                Ok(e)
            }
            Token::Sign("-") => match self.lexer.peek2() {
                Token::Int(_) => Ok((Expr::Int(self.int()?), 1)),
                Token::Float(v, d) => {
                    self.lexer.next();
                    self.lexer.next();
                    Ok((Expr::Float(-v, d), 1))
                }
                _ => self.unary(UnOp::Neg),
            },
            Token::Sign("!") => self.unary(UnOp::Not),
            Token::Word(word) => match self.lexer.peek2() {
                Token::Sign("(") => self.call(word),
                Token::Sign("[") => {
                    let buffer = self.buffer()?;
                    let (indices, depth) = self.indices(buffer)?;
                    self.check_depth(depth + 1)?;
                    Ok((Expr::Load(buffer, indices), depth + 1))
                }
                _ => {
                    self.lexer.next();
                    match self.names.get(word) {
                        Some(Name::Var(v)) => Ok((Expr::Var(*v), 1)),
                        Some(Name::Buffer(_)) => {
                            Err(self.lexer.error_before(format!("the buffer {word} needs indices")))
                        }
                        None => Err(self.lexer.error_before(format!("there is no variable {word}"))),
                    }
                }
            },
            other => Err(self.lexer.error(format!("expected an expression, found {other}"))),
        }
    }

    fn unary(&mut self, op: UnOp) -> Parsed<(Expr, u32)> {
        self.lexer.next();
        self.depth += 1;
        let (a, d) = self.primary()?;
        self.depth -= 1;
        self.check_depth(d + 1)?;
        Ok((Expr::Unary(op, Box::new(a)), d + 1))
    }

    fn call(&mut self, name: &str) -> Parsed<(Expr, u32)> {
        let at = self.lexer.position();
        self.lexer.next();
        self.sign("(")?;
        let (a, da) = self.binary(1)?;
        let (e, depth) = match name {
            "min" | "max" | "pow" | "fmod" | "dot" | "push" => {
                self.sign(",")?;
                let (b, db) = self.binary(1)?;
                let op = match name {
                    "min" => BinOp::Min,
                    "max" => BinOp::Max,
                    "fmod" => BinOp::Fmod,
                    "dot" => BinOp::Dot,
                    "push" => BinOp::Push,
                    _ => BinOp::Pow,
                };
                (Expr::Binary(op, Box::new(a), Box::new(b)), da.max(db))
            }
            "select" => {
                self.sign(",")?;
                let (b, db) = self.binary(1)?;
                self.sign(",")?;
                let (c, dc) = self.binary(1)?;
                (Expr::Select(Box::new(a), Box::new(b), Box::new(c)), da.max(db).max(dc))
            }
            "ramp" => {
                self.sign(",")?;
                let stride = self.int()?;
                self.sign(",")?;
                (Expr::Ramp { base: Box::new(a), stride, lanes: self.lanes()? }, da)
            }
            "broadcast" => {
                self.sign(",")?;
                (Expr::Broadcast(Box::new(a), self.lanes()?), da)
            }
            _ => {
                if let Some(op) = UnOp::ALL.into_iter().find(|op| op.name() == name) {
                    (Expr::Unary(op, Box::new(a)), da)
                } else if let Some(d) = DType::from_name(name) {
                    (Expr::Cast(d, Box::new(a)), da)
                } else {
                    let (line, col) = at;
                    return Err(ParseError { line, col, cause: format!("there is no function or type {name}") });
                }
            }
        };
        self.sign(")")?;
        self.check_depth(depth + 1)?;
        Ok((e, depth + 1))
    }

    fn lanes(&mut self) -> Parsed<u16> {
        let n = self.int()?;
        match u16::try_from(n) {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(self.lexer.error_before(format!("{n} is no number of lanes (1 to {})", u16::MAX))),
        }
    }
}
