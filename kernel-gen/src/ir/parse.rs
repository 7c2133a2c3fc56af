//! Reads the text form of [`super::print`].
//!
//! `parse(print(kernel))` prints the same and is equal up to ids, which count in the order of appearance. `;` begins
//! a comment. Malformed text gives an error with its position; nothing here panics, and nesting is limited so that
//! no later recursion over the tree can exhaust the stack.

pub use super::lex::ParseError;
use super::lex::{Lexer, Token};
use super::{
    Access, Barrier, Buffer, BufferId, DType, Expr, First, For, Kernel, LoopKind, Pragma, ReduceOp, Scope, Size, Stmt,
    Tile, Var, VarId, row_major,
};
use std::collections::BTreeMap;

/// Deepest nesting of statements.
const MAX_STMT_DEPTH: u32 = 100;
/// Elements that a buffer may have, so that later code may multiply shapes freely.
const MAX_ELEMENTS: i64 = 1 << 40;

/// Reads one kernel.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let mut p = Parser { lexer: Lexer::new(text)?, kernel: Kernel::new(""), names: BTreeMap::new(), depth: 0 };
    p.kernel()?;
    Ok(p.kernel)
}

/// What a name stands for.
#[derive(Clone, Copy)]
pub(super) enum Name {
    Var(VarId),
    Buffer(BufferId),
}

pub(super) struct Parser<'t> {
    pub(super) lexer: Lexer<'t>,
    pub(super) kernel: Kernel,
    pub(super) names: BTreeMap<&'t str, Name>,
    /// Open expressions around the current one.
    pub(super) depth: u32,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

impl<'t> Parser<'t> {
    fn kernel(&mut self) -> Parsed<()> {
        self.word("kernel")?;
        self.kernel.name = self.lexer.name("the kernel's name")?.to_string();
        self.sign("{")?;
        while self.lexer.peek() == Token::Word("param") && matches!(self.lexer.peek2(), Token::Word(_)) {
            self.lexer.next();
            let b = self.declaration(true)?;
            self.kernel.params.push(b);
        }
        if self.lexer.peek() == Token::Word("size") && matches!(self.lexer.peek2(), Token::Word(_)) {
            self.size()?;
        }
        self.kernel.body = self.statements(0)?;
        match self.lexer.peek() {
            Token::End => Ok(()),
            other => Err(self.lexer.error(format!("expected the end of the text after the kernel, found {other}"))),
        }
    }

    /// Statements up to and including the closing brace.
    fn statements(&mut self, depth: u32) -> Parsed<Vec<Stmt>> {
        if depth > MAX_STMT_DEPTH {
            return Err(self.lexer.error(format!("statements nest deeper than {MAX_STMT_DEPTH} levels")));
        }
        let mut out = vec![];
        while !self.accept("}") {
            if self.lexer.peek() == Token::End {
                return Err(self.lexer.error("expected a statement or `}`, found the end of the text"));
            }
            out.push(self.statement(depth)?);
        }
        Ok(out)
    }

    fn statement(&mut self, depth: u32) -> Parsed<Stmt> {
        let Token::Word(word) = self.lexer.peek() else {
            return Err(self.lexer.error(format!("expected a statement, found {}", self.lexer.peek())));
        };
        // A buffer may be called like a keyword; an index then follows.
        if self.lexer.peek2() != Token::Sign("[") {
            match word {
                "for" => return self.for_loop(depth),
                "if" => return self.if_else(depth),
                "let" => return self.let_value(),
                "alloc" => {
                    self.lexer.next();
                    return Ok(Stmt::Alloc(self.declaration(false)?));
                }
                "barrier" => return self.barrier(),
                "transpose" => return self.transpose(),
                "param" => return Err(self.lexer.error("parameters stand before all statements")),
                _ => {
                    if let Some(instruction) = self.gpu(word)? {
                        return Ok(instruction);
                    }
                }
            }
        }
        self.assignment()
    }

    fn for_loop(&mut self, depth: u32) -> Parsed<Stmt> {
        self.lexer.next();
        let var = self.new_var(DType::I64)?;
        self.word("in")?;
        let from = self.int()?;
        if from != 0 {
            return Err(self.lexer.error(format!("loops run from 0, not from {from}")));
        }
        self.sign("..")?;
        let extent = self.int()?;
        let (mut kind, mut pragmas) = (LoopKind::Serial, vec![]);
        while !self.accept("{") {
            let Token::Word(word) = self.lexer.peek() else {
                return Err(self.lexer.error(format!("expected `{{`, found {}", self.lexer.peek())));
            };
            if let Some(k) = LoopKind::ALL.into_iter().find(|k| k.name() == word) {
                self.lexer.next();
                kind = k;
                continue;
            }
            match word {
                "auto_unroll_max_step" => pragmas.push(Pragma::AutoUnrollMaxStep(self.pragma_value()?)),
                "unroll_explicit" => pragmas.push(Pragma::UnrollExplicit(self.pragma_value()? != 0)),
                "fetch_ahead" => pragmas.push(Pragma::FetchAhead(self.pragma_value()?)),
                "hold_vectors" => pragmas.push(Pragma::HoldVectors(self.pragma_value()? != 0)),
                "first" => self.first(var)?,
                other => {
                    let kinds: Vec<&str> = LoopKind::ALL.iter().map(|k| k.name()).collect();
                    return Err(self.lexer.error(format!(
                        "`{other}` is neither a loop kind ({}) nor a pragma (auto_unroll_max_step, unroll_explicit, \
                         fetch_ahead, hold_vectors)",
                        kinds.join(", ")
                    )));
                }
            }
        }
        let body = self.statements(depth + 1)?;
        Ok(Stmt::For(For { var, extent, kind, pragmas, body }))
    }

    /// `size n most 64 of x, y`.
    fn size(&mut self) -> Parsed<()> {
        self.lexer.next();
        let var = self.new_var(DType::I64)?;
        self.word("most")?;
        let most = self.positive()?;
        self.word("of")?;
        let mut varying = vec![];
        loop {
            let name = self.lexer.name("the name of a parameter")?;
            match self.names.get(name) {
                Some(Name::Buffer(b)) if self.kernel.buffer(*b).shape.first().is_some_and(|n| n % most == 0) => {
                    varying.push(*b);
                }
                _ => {
                    let why = format!("`{name}` is no parameter of {most} units");
                    return Err(self.lexer.error_before(why));
                }
            }
            if !self.accept(",") {
                break;
            }
        }
        self.kernel.size = Some(Size { var, most, varying, first: vec![] });
        Ok(())
    }

    /// How many iterations of a loop run, where the kernel has a size: `first 49 of 16 times 4`, `.. by 132`.
    fn first(&mut self, var: VarId) -> Parsed<()> {
        let at = self.lexer.error("only a kernel with a `size` says how many iterations run");
        self.lexer.next();
        let per = self.positive()?;
        self.word("of")?;
        let of = self.positive()?;
        self.word("times")?;
        let times = self.positive()?;
        let by = match self.lexer.peek() {
            Token::Word("by") => {
                self.lexer.next();
                self.positive()?
            }
            _ => 1,
        };
        self.kernel.size.as_mut().ok_or(at)?.first.push((var, First { per, of, times, by }));
        Ok(())
    }

    /// A number from 1 to what buffers may have of elements.
    fn positive(&mut self) -> Parsed<i64> {
        match self.int()? {
            n @ 1..=MAX_ELEMENTS => Ok(n),
            n => Err(self.lexer.error_before(format!("{n} is no number of units or iterations"))),
        }
    }

    fn pragma_value(&mut self) -> Parsed<i64> {
        self.lexer.next();
        self.sign("(")?;
        let v = self.int()?;
        self.sign(")")?;
        Ok(v)
    }

    fn if_else(&mut self, depth: u32) -> Parsed<Stmt> {
        self.lexer.next();
        let cond = self.expr()?;
        self.sign("{")?;
        let then = self.statements(depth + 1)?;
        let otherwise = if self.lexer.peek() == Token::Word("else") && self.lexer.peek2() == Token::Sign("{") {
            self.lexer.next();
            self.lexer.next();
            self.statements(depth + 1)?
        } else {
            vec![]
        };
        Ok(Stmt::If { cond, then, otherwise })
    }

    fn let_value(&mut self) -> Parsed<Stmt> {
        self.lexer.next();
        let at = self.lexer.position();
        let name = self.lexer.name("the variable's name")?;
        self.sign(":")?;
        let dtype = self.dtype()?;
        self.sign("=")?;
        // The name is bound behind its own value.
        let value = self.expr()?;
        let var = self.bind_var(name, dtype, at)?;
        Ok(Stmt::Let { var, value })
    }

    fn barrier(&mut self) -> Parsed<Stmt> {
        match self.lexer.peek2() {
            Token::Word("block") => {
                self.lexer.next();
                self.lexer.next();
                Ok(Stmt::Barrier(Barrier::Block))
            }
            Token::Word("warp") => {
                self.lexer.next();
                self.lexer.next();
                Ok(Stmt::Barrier(Barrier::Warp))
            }
            Token::Word("named" | "cluster") => {
                let instruction = self.gpu("barrier")?;
                Ok(instruction.expect("both words begin an instruction"))
            }
            other => {
                self.lexer.next();
                Err(self.lexer.error(format!("expected `block`, `warp`, `named` or `cluster`, found {other}")))
            }
        }
    }

    fn transpose(&mut self) -> Parsed<Stmt> {
        self.lexer.next();
        let dst = self.tile()?;
        self.sign("=")?;
        let src = self.tile()?;
        Ok(Stmt::Transpose { dst, src })
    }

    pub(super) fn tile(&mut self) -> Parsed<Tile> {
        let buffer = self.buffer()?;
        self.sign("[")?;
        let (mut origin, mut extents) = (vec![], vec![]);
        while !self.accept("]") {
            if !origin.is_empty() {
                self.sign(",")?;
            }
            origin.push(self.expr()?);
            self.sign(":")?;
            extents.push(self.int()?);
        }
        self.check_rank(buffer, origin.len())?;
        Ok(Tile { buffer, origin, extents })
    }

    /// `b[..] = e` and the reductions.
    fn assignment(&mut self) -> Parsed<Stmt> {
        let buffer = self.buffer()?;
        let (indices, _) = self.indices(buffer)?;
        let op = match self.lexer.peek() {
            Token::Sign("=") => None,
            Token::Sign("+=") => Some(ReduceOp::Add),
            Token::Sign("*=") => Some(ReduceOp::Mul),
            Token::Word("max") => Some(ReduceOp::Max),
            Token::Word("min") => Some(ReduceOp::Min),
            other => {
                return Err(self.lexer.error(format!("expected `=`, `+=`, `*=`, `max=` or `min=`, found {other}")));
            }
        };
        self.lexer.next();
        if matches!(op, Some(ReduceOp::Max | ReduceOp::Min)) {
            self.sign("=")?;
        }
        let value = self.expr()?;
        let Some(op) = op else {
            return Ok(Stmt::Store { buffer, indices, value });
        };
        self.word("init")?;
        let init = self.expr()?;
        self.word("over")?;
        self.sign("(")?;
        let mut over = vec![];
        while !self.accept(")") {
            if !over.is_empty() {
                self.sign(",")?;
            }
            let name = self.lexer.name("a reduce loop")?;
            match self.names.get(name) {
                Some(Name::Var(v)) => over.push(*v),
                _ => return Err(self.lexer.error_before(format!("{name} is not a loop"))),
            }
        }
        Ok(Stmt::Reduce { buffer, indices, op, init, value, over })
    }

    /// `name: type[shape] scope`, then the strides if they are not row-major and, for parameters, the access.
    fn declaration(&mut self, param: bool) -> Parsed<BufferId> {
        let at = self.lexer.position();
        let name = self.lexer.name("the buffer's name")?;
        self.sign(":")?;
        let dtype = self.dtype()?;
        let shape = self.ints()?;
        let Token::Word(word) = self.lexer.peek() else {
            return Err(self.lexer.error(format!("expected a scope, found {}", self.lexer.peek())));
        };
        let Some(scope) = Scope::ALL.into_iter().find(|s| s.name() == word) else {
            let all: Vec<&str> = Scope::ALL.iter().map(|s| s.name()).collect();
            return Err(self.lexer.error(format!("`{word}` is not a scope ({})", all.join(", "))));
        };
        self.lexer.next();
        let mut strides = None;
        if self.lexer.peek() == Token::Word("strides") && self.lexer.peek2() == Token::Sign("[") {
            self.lexer.next();
            let s = self.ints()?;
            if s.len() != shape.len() {
                return Err(self.lexer.error_before(format!("{} strides for {} dimensions", s.len(), shape.len())));
            }
            strides = Some(s);
        }
        let mut offset = 0;
        if self.lexer.peek() == Token::Word("from") {
            self.lexer.next();
            offset = self.int()?;
            if !(0..=MAX_ELEMENTS).contains(&offset) {
                return Err(self.lexer.error_before(format!("{offset} is no place of a buffer's first element")));
            }
        }
        let mut swizzle = 0;
        if self.lexer.peek() == Token::Word("swizzle") {
            self.lexer.next();
            swizzle = match self.int()? {
                n @ (32 | 64 | 128) => n as u32,
                n => return Err(self.lexer.error_before(format!("{n} is not a swizzle (32, 64, 128)"))),
            };
        }
        let mut elements = 1i64;
        for n in shape.iter().chain(strides.iter().flatten()) {
            if *n < 0 || *n > MAX_ELEMENTS {
                return Err(self.lexer.error_before(format!("{n} is no extent or stride of a buffer")));
            }
        }
        for n in &shape {
            elements = elements.saturating_mul((*n).max(1));
        }
        if elements > MAX_ELEMENTS {
            return Err(self.lexer.error_before(format!("{name} has more than {MAX_ELEMENTS} elements")));
        }
        let access = if param {
            let Token::Word(word) = self.lexer.peek() else {
                return Err(self
                    .lexer
                    .error(format!("expected read, write or readwrite, found {}", self.lexer.peek())));
            };
            let access = match word {
                "read" => Access::Read,
                "write" => Access::Write,
                "readwrite" => Access::ReadWrite,
                other => return Err(self.lexer.error(format!("`{other}` is not an access (read, write, readwrite)"))),
            };
            self.lexer.next();
            access
        } else {
            Access::ReadWrite
        };
        let strides = strides.unwrap_or_else(|| row_major(&shape));
        let id = BufferId(self.kernel.buffers.len() as u32);
        self.define(name, Name::Buffer(id), at)?;
        self.kernel.buffers.push(Buffer {
            name: name.to_string(),
            dtype,
            shape,
            strides,
            offset,
            scope,
            access,
            swizzle,
        });
        Ok(id)
    }

    fn new_var(&mut self, dtype: DType) -> Parsed<VarId> {
        let at = self.lexer.position();
        let name = self.lexer.name("the variable's name")?;
        self.bind_var(name, dtype, at)
    }

    fn bind_var(&mut self, name: &'t str, dtype: DType, at: (u32, u32)) -> Parsed<VarId> {
        let id = VarId(self.kernel.vars.len() as u32);
        self.define(name, Name::Var(id), at)?;
        self.kernel.vars.push(Var { name: name.to_string(), dtype });
        Ok(id)
    }

    fn define(&mut self, name: &'t str, what: Name, at: (u32, u32)) -> Parsed<()> {
        if self.names.insert(name, what).is_some() {
            let (line, col) = at;
            return Err(ParseError { line, col, cause: format!("{name} is already defined; names are unique") });
        }
        Ok(())
    }

    pub(super) fn buffer(&mut self) -> Parsed<BufferId> {
        let name = self.lexer.name("a buffer")?;
        match self.names.get(name) {
            Some(Name::Buffer(b)) => Ok(*b),
            Some(Name::Var(_)) => Err(self.lexer.error_before(format!("{name} is a variable, not a buffer"))),
            None => Err(self.lexer.error_before(format!("there is no buffer {name}"))),
        }
    }

    /// One expression a dimension, and the depth of the deepest.
    pub(super) fn indices(&mut self, buffer: BufferId) -> Parsed<(Vec<Expr>, u32)> {
        self.sign("[")?;
        let (mut out, mut depth) = (vec![], 0);
        while !self.accept("]") {
            if !out.is_empty() {
                self.sign(",")?;
            }
            let (e, d) = self.binary(1)?;
            out.push(e);
            depth = depth.max(d);
        }
        self.check_rank(buffer, out.len())?;
        Ok((out, depth))
    }

    fn check_rank(&self, buffer: BufferId, n: usize) -> Parsed<()> {
        let b = self.kernel.buffer(buffer);
        if b.shape.len() == n {
            return Ok(());
        }
        Err(self.lexer.error_before(format!("{} has {} dimensions, here are {n} indices", b.name, b.shape.len())))
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let name = self.lexer.name("a type")?;
        DType::from_name(name).ok_or_else(|| {
            let all: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
            self.lexer.error_before(format!("`{name}` is not a type ({})", all.join(", ")))
        })
    }

    /// `[1, 2, 3]`.
    pub(super) fn ints(&mut self) -> Parsed<Vec<i64>> {
        self.sign("[")?;
        let mut out = vec![];
        while !self.accept("]") {
            if !out.is_empty() {
                self.sign(",")?;
            }
            out.push(self.int()?);
        }
        Ok(out)
    }

    pub(super) fn int(&mut self) -> Parsed<i64> {
        let negative = self.accept("-");
        match self.lexer.peek() {
            Token::Int(magnitude) => {
                let v = if negative { -i128::from(magnitude) } else { i128::from(magnitude) };
                let v = i64::try_from(v).map_err(|_| self.lexer.error(format!("{v} does not fit an i64")))?;
                self.lexer.next();
                Ok(v)
            }
            other => Err(self.lexer.error(format!("expected an integer, found {other}"))),
        }
    }

    pub(super) fn accept(&mut self, sign: &'static str) -> bool {
        let hit = self.lexer.peek() == Token::Sign(sign);
        if hit {
            self.lexer.next();
        }
        hit
    }

    pub(super) fn sign(&mut self, sign: &'static str) -> Parsed<()> {
        if self.accept(sign) {
            return Ok(());
        }
        Err(self.lexer.error(format!("expected `{sign}`, found {}", self.lexer.peek())))
    }

    pub(super) fn word(&mut self, word: &'static str) -> Parsed<()> {
        if self.lexer.peek() == Token::Word(word) {
            self.lexer.next();
            return Ok(());
        }
        Err(self.lexer.error(format!("expected `{word}`, found {}", self.lexer.peek())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text).expect_err("the text is wrong").to_string()
    }

    #[test]
    fn what_is_printed_parses_back() {
        let text = "\
kernel k {
  param x: f32[4, 8] global read
  param y: f16[4, 8] global strides [9, 1] from 3 write
  alloc t: bf16[8] local
  for i in 0..4 grid.x {
    for j in 0..8 serial auto_unroll_max_step(16) unroll_explicit(1) {
      let a: i64 = (i + j) * 2 - (-3) / 4 % 5
      if i < 3 && (j == 1 || !(a <= 2)) {
        y[i, j] = max(x[i, j], -0.5f32) + f32(a) * inff32
      } else {
        y[i, j] += select(i != j, exp(x[i, j]), -(1e-7f64)) init 0.0f32 over (j)
      }
      t[ramp(a, 1, 8)] = broadcast(x[i, j], 8)
    }
    barrier block
    transpose y[i: 1, 0: 8] = x[0: 8, 0: 1]
  }
  for c in 0..2 cluster.x {
    alloc s: f16[2, 64, 64] shared swizzle 128
    alloc f: f32[64, 64] fragment.warpgroup
    alloc g: f16[16, 16] fragment.warp
    alloc full: i64[2] mbarrier
    mbarrier init full[0] count 1
    mbarrier expect full[1] bytes 8192
    mbarrier arrive full[c]
    mbarrier arrive full[c] rank 1
    mbarrier wait full[0] parity c % 2
    fill f[0: 64, 0: 64] = 0.0f32
    tensor_load s[0: 1, 0: 64, 0: 64] = y[0 - 1: 64, 0: 64] step [1, 2] on full[0] multicast 3
    tensor_load s[1: 1, 0: 64, 0: 64] = y[0: 64, 0: 64] on full[1]
    tensor_store y[0: 64, 0: 64] = s[0: 1, 0: 64, 0: 64]
    mma.warpgroup f[0: 64, 0: 64] += s[0: 1, 0: 64, 0: 64] * s[1: 1, 0: 64, 0: 64] transposed
    mma.warp g[0: 16, 0: 16] += g[0: 16, 0: 16] transposed * g[0: 16, 0: 16]
    move g[0: 16, 0: 16] = s[c: 1, 0: 16, 0: 16]
    copy_async s[0: 1, c: 1, 0: 8] = y[c: 1, 0: 8] if c < 1
    copy_async s[0: 1, c: 1, 0: 8] = y[c: 1, 0: 8]
    commit copy
    wait copy 1
    fence async
    barrier named 1 threads 128
    barrier cluster
    set_max_registers 232
    dependency wait
    dependency launch
    for r in 0..64 fragment.row {
      for q in 0..64 fragment.col {
        y[r, q] = f[r, q]
      }
    }
  }
}
";
        let k = parse(text).unwrap();
        assert_eq!(k.to_string(), text.replace(" serial", ""));
        assert_eq!(parse(&k.to_string()).unwrap(), k);
    }

    #[test]
    fn errors_name_line_column_and_cause() {
        assert_eq!(error("kernel k {\n  x[0] = 1\n}"), "2:3: there is no buffer x");
        assert_eq!(
            error("kernel k { ; comment\n  for i in 0..4 fast {\n"),
            "2:17: `fast` is neither a loop kind \
            (serial, unrolled, vectorized, parallel, grid.x, grid.y, grid.z, thread.x, thread.y, thread.z, vthread, \
            cluster.x, cluster.y, cluster.z, fragment.row, fragment.col) \
            nor a pragma (auto_unroll_max_step, unroll_explicit, fetch_ahead, hold_vectors)"
        );
        assert_eq!(
            error("kernel k {\n  param x: f32[2] global read\n  let a: f32 = x[0, 1]\n}"),
            "3:22: x has 1 dimensions, here are 2 indices"
        );
        assert_eq!(error("kernel k {"), "1:11: expected a statement or `}`, found the end of the text");
        assert_eq!(
            error("kernel k {\n  let a: i64 = 1 > 2\n}"),
            "2:18: there is no `>`; swap the sides and use `<` or `<=`"
        );
        assert_eq!(error("kernel k {\n  let a: i64 = 99999999999999999999\n}"), "2:16: the number is too large");
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = format!("kernel k {{ let a: i64 = {}1{} }}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(error(&nested).contains("nests deeper"));
        let chain = format!("kernel k {{ let a: i64 = 1{} }}", " + 1".repeat(100_000));
        assert!(error(&chain).contains("nests deeper"));
        let negated = format!("kernel k {{ let a: i64 = {}1 }}", "- ".repeat(100_000));
        assert!(error(&negated).contains("nests deeper"));
        let blocks = format!("kernel k {{ {}", "if 0 == 0 { ".repeat(100_000));
        assert!(error(&blocks).contains("nest deeper"));
    }
}
