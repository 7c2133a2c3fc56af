//! Turning activations from planes of pixels to rows of channels, and back, by way of shared memory.

use crate::ir::builder::KernelBuilder;
use crate::ir::{Axis, BufferId, DType, Expr, LoopKind, Scope, VarId};
use crate::templates::cuda::{ceil_div, unrolled};
use crate::workload::ConvLayout;

/// Pixels and channels of a block's tile, and its threads.
const SIDE: i64 = 64;
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

/// A pixel: its image, row and column.
type Pixel = [Expr; 3];

impl Activations {
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

    /// Pixels that are moved at once in a plane: neighbours that never lie in different rows.
    fn run(&self) -> i64 {
        if self.extents()[2] % PIXELS == 0 { PIXELS } else { 1 }
    }

    /// The first pixel of run `number`, of `count` pixels, in the order of the planes.
    fn pixel(&self, b: &mut KernelBuilder, number: VarId, count: i64) -> Pixel {
        let [outer, middle, inner] = self.extents();
        let rest = b.let_("rest", Expr::from(number).floor_div(inner / count));
        let at = [
            Expr::from(rest).floor_div(middle).floor_mod(outer),
            Expr::from(rest).floor_mod(middle),
            Expr::from(number).floor_mod(inner / count) * count,
        ];
        match self.layout {
            ConvLayout::Hwcn => {
                let [row, column, image] = at;
                [image, row, column]
            }
            _ => at,
        }
    }

    /// Where the `next`-th pixel behind one lies, for a channel.
    fn in_planes(&self, [image, row, column]: &Pixel, channel: Expr, next: VarId) -> Vec<Expr> {
        match self.layout {
            ConvLayout::Hwcn => vec![row.clone(), column.clone(), channel, image.clone() + next],
            _ => vec![image.clone(), channel, row.clone(), column.clone() + next],
        }
    }

    /// Where a channel of a pixel lies among rows of channels, whose coordinates are one number or three.
    fn in_rows(&self, [image, row, column]: &Pixel, channel: Expr, dimensions: usize) -> Vec<Expr> {
        if dimensions > 2 {
            return vec![image.clone(), row.clone(), column.clone(), channel];
        }
        vec![(image.clone() * self.rows + row.clone()) * self.columns + column.clone(), channel]
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
        b.loop_("channel_tile", ceil_div(channels, SIDE), LoopKind::Grid(Axis::Y), |b, channel| {
            b.loop_("pixel_tile", ceil_div(self.activations.pixels(), SIDE), LoopKind::Grid(Axis::X), |b, pixel| {
                b.loop_("t", THREADS, LoopKind::Thread(Axis::X), |b, t| {
                    let tile = b.alloc("tile", self.dtype, &[SIDE, SIDE + PAD], Scope::Shared);
                    body(b, Thread { turn: self, tile, at: [pixel, channel, t] });
                });
            });
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

/// How pieces of `count` elements are cut from a buffer.
struct Cut<'a> {
    buffer: BufferId,
    count: i64,
    /// The piece of a number.
    piece: &'a dyn Fn(&mut KernelBuilder, Expr) -> Piece,
    /// Where an element of it lies in the buffer.
    place: &'a dyn Fn(&Piece, VarId) -> Vec<Expr>,
    /// Where an element of the piece of a number lies in the tile.
    within: &'a dyn Fn(Expr, VarId) -> [Expr; 2],
}

impl Thread<'_> {
    /// Moves this thread's pieces between memory and the tile.
    fn carry(&self, b: &mut KernelBuilder, way: Way, cut: &Cut<'_>) {
        let count = cut.count;
        let turns = SIDE * SIDE / count / THREADS;
        let held = b.alloc("held", self.turn.dtype, &[turns, count], Scope::Register);
        let number = |turn: VarId| turn * THREADS + self.at[2];
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
            match piece.exists.clone() {
                Some(exists) => b.if_(exists, all),
                None => all(b),
            }
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
            piece: &|b, piece| {
                let channel = channel_tile * SIDE + piece.clone().floor_div(per_row);
                let number = b.let_("number", pixel_tile * per_row + piece.floor_mod(per_row));
                let exists = self.exists(Expr::from(number) * count, channel.clone());
                Piece { pixel: activations.pixel(b, number, count), channel, exists }
            },
            place: &|piece, element| activations.in_planes(&piece.pixel, piece.channel.clone(), element),
            within: &|piece, element| [piece.clone().floor_div(per_row), piece.floor_mod(per_row) * count + element],
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
            piece: &|b, piece| {
                let channel = channel_tile * SIDE + piece.clone().floor_mod(per_pixel) * count;
                let number = b.let_("number", pixel_tile * SIDE + piece.floor_div(per_pixel));
                let exists = self.exists(number.into(), channel.clone());
                Piece { pixel: activations.pixel(b, number, 1), channel, exists }
            },
            place: &|piece, element| {
                activations.in_rows(&piece.pixel, piece.channel.clone() + element, self.turn.dimensions)
            },
            within: &|piece, element| {
                [piece.clone().floor_mod(per_pixel) * count + element, piece.floor_div(per_pixel)]
            },
        };
        self.carry(b, way, &cut);
    }

    /// The condition that a piece with this first pixel and this first channel exists; pieces exist as a whole.
    fn exists(&self, pixel: Expr, channel: Expr) -> Option<Expr> {
        let (pixels, channels) = (self.turn.activations.pixels(), self.turn.activations.channels);
        let pixel = (pixels % SIDE != 0).then(|| pixel.lt(pixels));
        let channel = (channels % SIDE != 0).then(|| channel.lt(channels));
        Expr::all(pixel.into_iter().chain(channel))
    }
}
