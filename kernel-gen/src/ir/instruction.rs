//! The instructions of a GPU in one table: each one's text form, which is also the list of its operands and of what it does
//! with them. Printing, parsing, and all that visits or rewrites operands follow from it.

use super::{BufferId, Expr, Gpu, Group, LaneOp, MbarrierOp, Operand, Slot, Tile, Unit};

/// Declares [`Part`] with references of a kind, so that one table serves readers and writers.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident, $($mutable:tt)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name<'a> {
            /// A word or a sign, the same in all instructions of the form.
            Word(&'static str),
            /// A tile that is written.
            Write(&'a $($mutable)? Tile),
            /// A tile that is read and written.
            Update(&'a $($mutable)? Tile),
            /// A tile that is read.
            Read(&'a $($mutable)? Tile),
            /// A matrix that is read, with `transposed` behind it or not.
            Matrix(&'a $($mutable)? Operand),
            /// An expression.
            Expr(&'a $($mutable)? Expr),
            /// Expressions with commas between them, one at least.
            Exprs(&'a $($mutable)? Vec<Expr>),
            /// A word and an expression, or neither.
            Optional(&'static str, &'a $($mutable)? Option<Expr>),
            /// A word and a list of numbers, or neither where the list is empty.
            List(&'static str, &'a $($mutable)? Vec<i64>),
            /// An mbarrier.
            Slot(&'a $($mutable)? Slot),
            /// A group of asynchronous operations.
            Group(&'a $($mutable)? Group),
            /// A number of at most 32 bits.
            Count(&'a $($mutable)? u32),
            /// A number.
            Int(&'a $($mutable)? i64),
        }
    };
}

part!(
    /// A piece of an instruction's text form.
    Part,
);
part!(
    /// A [`Part`] that can be replaced.
    PartMut, mut
);

/// The table: the parts of each instruction in the order of its text.
macro_rules! parts {
    ($part:ident, $instruction:expr) => {{
        use $part::*;
        match $instruction {
            Gpu::Fill { dst, value } => vec![Word("fill"), Write(dst), Word("="), Expr(value)],
            Gpu::Move { dst, src } => vec![Word("move"), Write(dst), Word("="), Read(src)],
            Gpu::MoveRows { dst, src } => vec![Word("move_rows"), Write(dst), Word("="), Read(src)],
            Gpu::Split { dst, src } => vec![Word("split"), Write(dst), Word("="), Matrix(src)],
            Gpu::Mma { unit, acc, a, b } => {
                let word = if *unit == Unit::Warp { "mma.warp" } else { "mma.warpgroup" };
                vec![Word(word), Update(acc), Word("+="), Matrix(a), Word("*"), Matrix(b)]
            }
            Gpu::Lanes { op, dst, value } => vec![Word(op.name), Write(dst), Word("="), Expr(value)],
            Gpu::CopyAsync { dst, src, guard } => {
                vec![Word("copy_async"), Write(dst), Word("="), Read(src), Optional("if", guard)]
            }
            Gpu::Commit(group) => vec![Word("commit"), Group(group)],
            Gpu::Wait(group, pending) => vec![Word("wait"), Group(group), Count(pending)],
            Gpu::TensorLoad { dst, src, steps, on, multicast } => {
                let copy = vec![Word("tensor_load"), Write(dst), Word("="), Read(src), List("step", steps)];
                copy.into_iter().chain([Word("on"), Slot(on), Optional("multicast", multicast)]).collect()
            }
            Gpu::TensorStore { dst, src } => vec![Word("tensor_store"), Write(dst), Word("="), Read(src)],
            Gpu::StoreAt { dst, values, rank, on } => {
                let store = vec![Word("store_at"), Write(dst), Word("="), Exprs(values)];
                store.into_iter().chain([Word("rank"), Expr(rank), Word("on"), Slot(on)]).collect()
            }
            Gpu::Mbarrier(on, MbarrierOp::Init(count)) => {
                vec![Word("mbarrier"), Word("init"), Slot(on), Word("count"), Int(count)]
            }
            Gpu::Mbarrier(on, MbarrierOp::Arrive(rank)) => {
                vec![Word("mbarrier"), Word("arrive"), Slot(on), Optional("rank", rank)]
            }
            Gpu::Mbarrier(on, MbarrierOp::Expect(bytes)) => {
                vec![Word("mbarrier"), Word("expect"), Slot(on), Word("bytes"), Int(bytes)]
            }
            Gpu::Mbarrier(on, MbarrierOp::Wait(parity)) => {
                vec![Word("mbarrier"), Word("wait"), Slot(on), Word("parity"), Expr(parity)]
            }
            Gpu::FenceAsync => vec![Word("fence"), Word("async")],
            Gpu::NamedBarrier { id, threads } => {
                vec![Word("barrier"), Word("named"), Count(id), Word("threads"), Int(threads)]
            }
            Gpu::ClusterBarrier => vec![Word("barrier"), Word("cluster")],
            Gpu::SetMaxRegisters(n) => vec![Word("set_max_registers"), Count(n)],
            Gpu::Prefetch { src } => vec![Word("prefetch"), Read(src)],
            Gpu::DependencyWait => vec![Word("dependency"), Word("wait")],
            Gpu::DependencyLaunch => vec![Word("dependency"), Word("launch")],
        }
    }};
}

impl Gpu {
    /// One instruction of each form, with operands that stand for others: what a parser fills in.
    pub(super) fn forms() -> Vec<Gpu> {
        let tile = || Tile { buffer: BufferId(0), origin: vec![], extents: vec![] };
        let matrix = || Operand { tile: tile(), transposed: false };
        let on = || super::Slot { buffer: BufferId(0), index: super::Expr::Int(0) };
        let value = || super::Expr::Int(0);
        let mma = |unit| Gpu::Mma { unit, acc: tile(), a: matrix(), b: matrix() };
        let mut forms = vec![
            Gpu::Fill { dst: tile(), value: value() },
            Gpu::Move { dst: tile(), src: tile() },
            Gpu::MoveRows { dst: tile(), src: tile() },
            Gpu::Split { dst: tile(), src: matrix() },
            mma(Unit::Warp),
            mma(Unit::Warpgroup),
            Gpu::CopyAsync { dst: tile(), src: tile(), guard: None },
            Gpu::Commit(super::Group::Copy),
            Gpu::Wait(super::Group::Copy, 0),
            Gpu::TensorLoad { dst: tile(), src: tile(), steps: vec![], on: on(), multicast: None },
            Gpu::TensorStore { dst: tile(), src: tile() },
            Gpu::StoreAt { dst: tile(), values: vec![], rank: value(), on: on() },
            Gpu::Mbarrier(on(), MbarrierOp::Init(0)),
            Gpu::Mbarrier(on(), MbarrierOp::Arrive(None)),
            Gpu::Mbarrier(on(), MbarrierOp::Expect(0)),
            Gpu::Mbarrier(on(), MbarrierOp::Wait(value())),
            Gpu::FenceAsync,
            Gpu::NamedBarrier { id: 0, threads: 0 },
            Gpu::ClusterBarrier,
            Gpu::SetMaxRegisters(0),
            Gpu::Prefetch { src: tile() },
            Gpu::DependencyWait,
            Gpu::DependencyLaunch,
        ];
        forms.extend(LaneOp::ALL.iter().map(|op| Gpu::Lanes { op, dst: tile(), value: value() }));
        forms
    }

    /// The parts of its text form.
    pub fn parts(&self) -> Vec<Part<'_>> {
        parts!(Part, self)
    }

    /// The same, to be replaced.
    pub fn parts_mut(&mut self) -> Vec<PartMut<'_>> {
        parts!(PartMut, self)
    }

    /// The tiles that it reads and writes; an accumulator is both.
    pub fn tiles(&self) -> GpuTiles<'_> {
        let mut tiles = GpuTiles { read: vec![], written: None };
        for part in self.parts() {
            match part {
                Part::Write(tile) => tiles.written = Some(tile),
                Part::Read(tile) | Part::Matrix(Operand { tile, .. }) => tiles.read.push(tile),
                Part::Update(tile) => {
                    tiles.written = Some(tile);
                    tiles.read.push(tile);
                }
                _ => {}
            }
        }
        tiles
    }

    /// All tiles that it names, each once.
    pub fn all_tiles(&self) -> Vec<&Tile> {
        let tile = |part| match part {
            Part::Write(tile) | Part::Read(tile) | Part::Update(tile) | Part::Matrix(Operand { tile, .. }) => {
                Some(tile)
            }
            _ => None,
        };
        self.parts().into_iter().filter_map(tile).collect()
    }

    /// The mbarrier that it uses.
    pub fn slot(&self) -> Option<&Slot> {
        self.parts().into_iter().find_map(|part| if let Part::Slot(slot) = part { Some(slot) } else { None })
    }

    /// Calls `f` on its expressions; the origins of its tiles count.
    pub fn exprs<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        for part in self.parts() {
            match part {
                Part::Write(t) | Part::Read(t) | Part::Update(t) => t.origin.iter().for_each(&mut *f),
                Part::Matrix(o) => o.tile.origin.iter().for_each(&mut *f),
                Part::Expr(e) => f(e),
                Part::Exprs(all) => all.iter().for_each(&mut *f),
                Part::Optional(_, e) => e.iter().for_each(&mut *f),
                Part::Slot(slot) => f(&slot.index),
                Part::Word(_) | Part::List(..) | Part::Group(_) | Part::Count(_) | Part::Int(_) => {}
            }
        }
    }

    /// Rewrites its tiles; the written one is passed with `true`.
    pub fn map_tiles(mut self, f: &mut dyn FnMut(Tile, bool) -> Tile) -> Gpu {
        for part in self.parts_mut() {
            let (tile, written) = match part {
                PartMut::Write(tile) | PartMut::Update(tile) => (tile, true),
                PartMut::Read(tile) | PartMut::Matrix(Operand { tile, .. }) => (tile, false),
                _ => continue,
            };
            let taken = Tile {
                buffer: tile.buffer,
                origin: std::mem::take(&mut tile.origin),
                extents: std::mem::take(&mut tile.extents),
            };
            *tile = f(taken, written);
        }
        self
    }

    /// Rewrites the buffers that it names: those of its tiles and of its mbarriers.
    pub fn map_buffers(mut self, f: &mut dyn FnMut(BufferId) -> BufferId) -> Gpu {
        for part in self.parts_mut() {
            match part {
                PartMut::Write(tile) | PartMut::Update(tile) | PartMut::Read(tile) => tile.buffer = f(tile.buffer),
                PartMut::Matrix(operand) => operand.tile.buffer = f(operand.tile.buffer),
                PartMut::Slot(slot) => slot.buffer = f(slot.buffer),
                _ => {}
            }
        }
        self
    }

    /// Rewrites its expressions.
    pub fn map_exprs(mut self, f: &mut dyn FnMut(Expr) -> Expr) -> Gpu {
        let mut map = |e: &mut Expr| *e = f(std::mem::replace(e, super::Expr::Int(0)));
        for part in self.parts_mut() {
            match part {
                PartMut::Write(t) | PartMut::Read(t) | PartMut::Update(t) => t.origin.iter_mut().for_each(&mut map),
                PartMut::Matrix(o) => o.tile.origin.iter_mut().for_each(&mut map),
                PartMut::Expr(e) => map(e),
                PartMut::Exprs(all) => all.iter_mut().for_each(&mut map),
                PartMut::Optional(_, e) => e.iter_mut().for_each(&mut map),
                PartMut::Slot(slot) => map(&mut slot.index),
                PartMut::Word(_) | PartMut::List(..) | PartMut::Group(_) | PartMut::Count(_) | PartMut::Int(_) => {}
            }
        }
        self
    }

    /// The threads that run it together, if it is collective; `fragment` gives the unit of a buffer that is a fragment.
    pub fn unit(&self, fragment: impl Fn(BufferId) -> Option<Unit>) -> Option<Unit> {
        match self {
            Gpu::Fill { .. } | Gpu::Split { .. } | Gpu::Move { .. } => {
                Some(self.all_tiles().into_iter().find_map(|tile| fragment(tile.buffer)).unwrap_or(Unit::Warp))
            }
            Gpu::MoveRows { .. } | Gpu::Lanes { .. } => Some(Unit::Warp),
            Gpu::Mma { unit, .. } => Some(*unit),
            Gpu::Commit(Group::Mma) | Gpu::Wait(Group::Mma, _) => Some(Unit::Warpgroup),
            _ => None,
        }
    }
}

/// See [`Gpu::tiles`].
#[derive(Clone, PartialEq, Debug)]
pub struct GpuTiles<'a> {
    /// Tiles that are read.
    pub read: Vec<&'a Tile>,
    /// The tile that is written.
    pub written: Option<&'a Tile>,
}
