//! Turning activations from planes of pixels to rows of channels, and back, by way of shared memory.

use crate::ir::builder::KernelBuilder;
use crate::ir::{BufferId, DType, Expr, LoopKind, Scope, VarId};
use crate::templates::cuda::launch::{launch, unrolled};
use crate::templates::cuda::model::ceil_div;
use crate::workload::{Conv2d, ConvLayout, Role};

/// Pixels and channels of a block's tile, and its threads.
pub(super) const SIDE: i64 = 64;
const THREADS: i64 = 256;
/// Elements by which a tile's rows are longer: threads then meet in a bank by twos at most where they go down a column, and
/// pairs stay aligned.
const PAD: i64 = 2;
/// Bytes of neighbouring channels that a thread moves, and neighbouring pixels.
const CHANNEL_BYTES: i64 = 16;
const PIXELS: i64 = 2;

/// A tensor of pixels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Activations {
    /// NCHW or HWCN.
    pub(super) layout: ConvLayout,
    pub(super) images: i64,
    pub(super) channels: i64,
    pub(super) rows: i64,
    pub(super) columns: i64,
}

/// A pixel: its coordinates in the order of [`Activations::extents`].
type Pixel = [Expr; 3];

impl Activations {
    /// The tensor of a convolution that has this role, if it is turned: those with pixels are.
    pub(super) fn of(c: &Conv2d, role: Role) -> Option<Activations> {
        let (channels, rows, columns) = match role {
            Role::Input => (c.ci, c.h, c.w),
            Role::Residual | Role::Output => (c.co, c.oh(), c.ow()),
            _ => return None,
        };
        Some(Activations { layout: c.layout, images: c.n, channels, rows, columns })
    }

    /// Extents of the pixels' coordinates, as they lie in a plane, the fastest last.
    fn extents(&self) -> [i64; 3] {
        match self.layout {
            ConvLayout::Hwcn => [self.rows, self.columns, self.images],
            _ => [self.images, self.rows, self.columns],
        }
    }

    /// Whether channels lie side by side as it is.
    pub(super) fn are_rows(&self) -> bool {
        self.neighbours() == 1
    }

    /// Pixels that lie side by side in a plane.
    pub(super) fn neighbours(&self) -> i64 {
        match self.layout {
            ConvLayout::Hwcn => self.images,
            _ => self.rows * self.columns,
        }
    }

    /// Pixels of all images.
    fn pixels(&self) -> i64 {
        self.extents().iter().product()
    }

    /// Pixels that have to be tried to see that they are apart: where a tile is left over, and their order changes.
    pub(super) fn tried(&self) -> i64 {
        let tail = self.pixels() % SIDE != 0;
        if tail && self.layout == ConvLayout::Hwcn { self.pixels() } else { 0 }
    }

    /// Pixels that are moved at once in a plane: neighbours that never lie in different rows.
    fn run(&self) -> i64 {
        if self.extents()[2] % PIXELS == 0 { PIXELS } else { 1 }
    }

    /// The first pixel of run `number`, of `count` pixels, in the order of the planes. Its first coordinate says whether it
    /// exists: it is beyond the last one exactly where the number is.
    fn pixel(&self, b: &mut KernelBuilder, number: VarId, count: i64) -> Pixel {
        let [_, middle, inner] = self.extents();
        let rest = b.let_("rest", Expr::from(number).floor_div(inner / count));
        let outer = b.let_("outer", Expr::from(rest).floor_div(middle));
        let within = Expr::from(number).floor_mod(inner / count) * count;
        [outer.into(), Expr::from(rest).floor_mod(middle), within]
    }

    /// Where the `next`-th pixel behind one lies, for a channel.
    fn in_planes(&self, [first, second, third]: &Pixel, channel: Expr, next: VarId) -> Vec<Expr> {
        let (first, second, third) = (first.clone(), second.clone(), third.clone() + next);
        match self.layout {
            ConvLayout::Hwcn => vec![first, second, channel, third],
            _ => vec![first, channel, second, third],
        }
    }

    /// Where a channel of a pixel lies among rows of channels, whose coordinates are one number or three.
    fn in_rows(&self, pixel: &Pixel, channel: Expr, dimensions: usize) -> Vec<Expr> {
        let [first, second, third] = pixel.clone();
        let [image, row, column] = match self.layout {
            ConvLayout::Hwcn => [third, first, second],
            _ => [first, second, third],
        };
        match dimensions {
            2 => vec![(image * self.rows + row) * self.columns + column, channel],
            _ => vec![image, row, column, channel],
        }
    }
}

/// A tensor, in planes as the caller has it, and in rows.
pub(super) struct Turn {
    pub(super) activations: Activations,
    pub(super) planes: BufferId,
    pub(super) rows: BufferId,
    /// Dimensions of the rows: their pixels have one coordinate, or three.
    pub(super) dimensions: usize,
    pub(super) dtype: DType,
}

/// A thread of a block that turns a tile, `tile[channel][pixel]` in shared memory.
struct Thread<'a> {
    turn: &'a Turn,
    tile: BufferId,
    /// Tile of pixels, tile of channels, thread.
    at: [VarId; 3],
}

impl Turn {
    /// The launch that reads planes.
    pub(super) fn to_rows(&self, b: &mut KernelBuilder) {
        self.launch(b, |b, thread| {
            thread.planes(b, Way::ToTile);
            thread.rows(b, Way::FromTile);
        });
    }

    /// The launch that writes planes.
    pub(super) fn to_planes(&self, b: &mut KernelBuilder) {
        self.launch(b, |b, thread| {
            thread.rows(b, Way::ToTile);
            thread.planes(b, Way::FromTile);
        });
    }

    fn launch(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Thread<'_>)) {
        let Activations { channels, .. } = self.activations;
        let [channels, pixels] = [channels, self.activations.pixels()].map(|n| ceil_div(n, SIDE));
        let tiles = [("channel_tile", channels), ("pixel_tile", pixels)];
        launch(b, tiles, [("t", THREADS)], |b, [channel, pixel], [t]| {
            let tile = b.alloc("tile", self.dtype, &[SIDE, SIDE + PAD], Scope::Shared);
            body(b, Thread { turn: self, tile, at: [pixel, channel, t] });
        });
    }

    /// Channels that are moved at once in a row.
    fn run(&self) -> i64 {
        let most = CHANNEL_BYTES / self.dtype.bytes() as i64;
        [8, 4, 2].into_iter().find(|n| *n <= most && self.activations.channels % n == 0).unwrap_or(1)
    }
}

/// Neighbouring elements, of a row or of a plane: the first one's pixel and channel, and the condition that they exist.
struct Piece {
    pixel: Pixel,
    channel: Expr,
    exists: Option<Expr>,
}

/// Which way elements go.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    ToTile,
    FromTile,
}

/// How pieces of `count` elements are cut from a buffer: some side by side, for neighbouring threads, and those one behind the
/// other. A piece is named by its numbers behind the other and beside it.
struct Cut<'a> {
    buffer: BufferId,
    count: i64,
    /// Pieces side by side in a tile.
    beside: i64,
    /// A piece.
    piece: &'a dyn Fn(&mut KernelBuilder, [Expr; 2]) -> Piece,
    /// Where an element of it lies in the buffer.
    place: &'a dyn Fn(&Piece, VarId) -> Vec<Expr>,
    /// Where an element of a piece lies in the tile.
    within: &'a dyn Fn([Expr; 2], VarId) -> [Expr; 2],
}

impl Thread<'_> {
    /// Moves this thread's pieces between memory and the tile.
    fn carry(&self, b: &mut KernelBuilder, way: Way, cut: &Cut<'_>) {
        let count = cut.count;
        let turns = SIDE * SIDE / count / THREADS;
        let held = b.alloc("held", self.turn.dtype, &[turns, count], Scope::Register);
        let [_, _, t] = self.at.map(Expr::from);
        let number = |turn: VarId| {
            [turn * (THREADS / cut.beside) + t.clone().floor_div(cut.beside), t.clone().floor_mod(cut.beside)]
        };
        let in_memory = |b: &mut KernelBuilder, turn: VarId| {
            let piece = (cut.piece)(b, number(turn));
            let all = |b: &mut KernelBuilder| {
                b.loop_("element", count, LoopKind::Vectorized, |b, element| {
                    let (here, there) = (vec![turn.into(), element.into()], (cut.place)(&piece, element));
                    match way {
                        Way::ToTile => b.store(held, here, Expr::load(cut.buffer, there)),
                        Way::FromTile => b.store(cut.buffer, there, Expr::load(held, here)),
                    }
                });
            };
            b.when(piece.exists.clone(), all);
        };
        let in_tile = |b: &mut KernelBuilder, turn: VarId| {
            unrolled(b, "element", count, |b, element| {
                let (here, there) = (vec![turn.into(), element.into()], (cut.within)(number(turn), element).to_vec());
                match way {
                    Way::ToTile => b.store(self.tile, there, Expr::load(held, here)),
                    Way::FromTile => b.store(held, here, Expr::load(self.tile, there)),
                }
            });
        };
        if way == Way::FromTile {
            return unrolled(b, "turn", turns, |b, turn| {
                in_tile(b, turn);
                in_memory(b, turn);
            });
        }
        // What does not exist is zero. All loads are under way before the first store waits for one.
        unrolled(b, "turn", turns, |b, turn| {
            unrolled(b, "element", count, |b, element| {
                b.store(held, vec![turn.into(), element.into()], Expr::f32(0.0));
            });
        });
        unrolled(b, "turn", turns, in_memory);
        unrolled(b, "turn", turns, in_tile);
    }

    /// Moves pieces of planes: neighbouring threads have neighbouring pixels.
    fn planes(&self, b: &mut KernelBuilder, way: Way) {
        let (activations, [pixel_tile, channel_tile, _]) = (self.turn.activations, self.at);
        let count = activations.run();
        let per_row = SIDE / count;
        let cut = Cut {
            buffer: self.turn.planes,
            count,
            beside: per_row,
            piece: &|b, [channel, run]| {
                let channel = channel_tile * SIDE + channel;
                let number = b.let_("number", pixel_tile * per_row + run);
                let pixel = activations.pixel(b, number, count);
                Piece { exists: self.exists(&pixel, &channel), pixel, channel }
            },
            place: &|piece, element| activations.in_planes(&piece.pixel, piece.channel.clone(), element),
            within: &|[channel, run], element| [channel, run * count + element],
        };
        self.carry(b, way, &cut);
    }

    /// Moves pieces of rows: neighbouring threads have neighbouring channels.
    fn rows(&self, b: &mut KernelBuilder, way: Way) {
        let (activations, [pixel_tile, channel_tile, _]) = (self.turn.activations, self.at);
        let count = self.turn.run();
        let per_pixel = SIDE / count;
        let cut = Cut {
            buffer: self.turn.rows,
            count,
            beside: per_pixel,
            piece: &|b, [pixel, run]| {
                let channel = channel_tile * SIDE + run * count;
                let number = b.let_("number", pixel_tile * SIDE + pixel);
                let pixel = activations.pixel(b, number, 1);
                Piece { exists: self.exists(&pixel, &channel), pixel, channel }
            },
            place: &|piece, element| {
                activations.in_rows(&piece.pixel, piece.channel.clone() + element, self.turn.dimensions)
            },
            within: &|[pixel, run], element| [run * count + element, pixel],
        };
        self.carry(b, way, &cut);
    }

    /// The condition that a piece with this first pixel and this first channel exists; pieces exist as a whole.
    fn exists(&self, pixel: &Pixel, channel: &Expr) -> Option<Expr> {
        let activations = self.turn.activations;
        let beyond = |all: i64| all % SIDE != 0;
        let pixel = beyond(activations.pixels()).then(|| pixel[0].clone().lt(activations.extents()[0]));
        let channel = beyond(activations.channels).then(|| channel.clone().lt(activations.channels));
        Expr::all(pixel.into_iter().chain(channel))
    }
}
