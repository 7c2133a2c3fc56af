//! Convolutions over planes of pixels (`[n, channels, pixels..]`) as products: of one to three dimensions, with groups, and
//! transposed.
//!
//! A row is an output channel and a column an output pixel, whichever image it is of, so that neighbours of a row are neighbours in
//! memory. The reduction goes through the taps and, within a tap, through the channels of a group. Each group is a product of the
//! batch. What a thread has to know of a pixel does not change from step to step; what a tap adds is the same for all pixels.
//! Weights are packed once, in the order of steps, and have no tails.
//!
//! A transposed convolution is one of two things:
//!
//! * Where the kernel is as large as the stride, each output has one tap ([`Form::Scattered`]). Rows are output channels with their
//!   taps, columns input pixels, and the sums of a row are stored a stride apart.
//! * Else outputs that are a stride apart meet the same taps ([`Form::Phases`]), so they are an ordinary convolution with steps of
//!   one: output `o = p + stride * i` of phase `p` meets tap `k` where `k * dilation = o + before` modulo the stride. Each phase
//!   is a product of the batch. Phases differ in how many taps they have, and go through as many steps.

use super::cut::{Cut, Layout, Whole};
use super::launch::pack_rows;
use super::model::ceil_div;
use super::outer::VECTOR;
use super::product::{Column, Element, Piece, Product, widest};
use crate::ir::builder::KernelBuilder;
use crate::ir::{DType, Expr};
use crate::target::Cuda;
use crate::templates::Pack;
use crate::templates::phases::{Dimension, Form};
use crate::templates::planes::{DIMENSIONS, Planes};
use crate::workload::{Op, Param, Role, Workload};

impl Planes {
    /// The convolution that a workload is, or why not, as half a sentence.
    pub(super) fn of(w: &Workload, gpu: &Cuda) -> Result<Planes, String> {
        let layer = match &w.op {
            Op::Conv2d(c) if c.groups == 1 || c.ci == c.groups => None,
            _ => Planes::layer(w),
        };
        let planes =
            layer.ok_or("for convolutions over planes: of one or three dimensions, with groups, or transposed")?;
        let phases = planes.dimensions.iter().fold(planes.groups, |all, d| all.saturating_mul(d.phases()));
        if phases > gpu.grid_dim[1] {
            return Err(format!("{phases} groups and phases are too many products"));
        }
        // Blocks that pack the weights, with those of the last step's zeros.
        if planes.whole().k > gpu.grid_dim[0] / 2 {
            return Err(format!("for sums of at most {} terms", gpu.grid_dim[0] / 2));
        }
        Ok(planes)
    }

    fn form(&self) -> Form {
        self.dimensions[DIMENSIONS - 1].form
    }

    /// Rows of an output channel.
    fn rows_of_channel(&self) -> i64 {
        if self.form() == Form::Scattered { self.all(|d| d.taps) } else { 1 }
    }

    /// The convolution as products of weights and pixels.
    pub(super) fn whole(&self) -> Whole {
        Whole {
            batch: self.groups * self.all(Dimension::phases),
            size: [self.co * self.rows_of_channel(), self.n * self.all(Dimension::columns)],
            k: self.all(Dimension::most_taps) * self.ci,
            layouts: [Layout::ReductionSlow; 2],
        }
    }

    /// Pixels that are copied at a time: neighbours, where outputs are places in the input.
    pub(super) fn unit(&self, dtype: DType) -> i64 {
        if self.is_same() { widest(self.all(|d| d.input), dtype.bytes() as i64) } else { 1 }
    }

    /// Outputs that are neighbours in a row of a product.
    pub(super) fn neighbours(&self) -> i64 {
        if self.is_flat() { self.all(|d| d.output) } else { 1 }
    }

    /// Times that the product has each element of the input.
    pub(super) fn taps(&self) -> i64 {
        self.all(|d| ceil_div(d.most_taps(), d.step()))
    }

    /// The share of all steps that phases with fewer taps leave out.
    pub(super) fn skipped(&self) -> f64 {
        let (most, phases) = (self.all(Dimension::most_taps), self.all(Dimension::phases));
        // A few phases tell enough of many.
        let met: i64 = (0..phases.min(64)).map(|phase| self.taps_met(phase)).sum();
        1.0 - met as f64 / (most * phases.min(64)) as f64
    }

    /// Whether all terms of a step are of the same tap.
    pub(super) fn one_tap(&self, step: i64) -> bool {
        self.ci % step == 0
    }

    /// Taps of a phase, with those between them that it does not have.
    fn taps_met(&self, phase: i64) -> i64 {
        let [.., middle, inner] = self.dimensions;
        let rest = phase / inner.phases();
        let places = [rest / middle.phases(), rest % middle.phases(), phase % inner.phases()];
        let counts: [i64; DIMENSIONS] = std::array::from_fn(|i| self.dimensions[i].met(places[i]));
        if counts.contains(&0) {
            return 0;
        }
        1 + (0..DIMENSIONS).fold(0, |last, i| last * self.dimensions[i].most_taps() + counts[i] - 1)
    }

    fn is_same(&self) -> bool {
        self.dimensions.iter().all(Dimension::is_same)
    }

    /// Whether the columns of an image are its output pixels in their order.
    fn is_flat(&self) -> bool {
        self.form() != Form::Scattered && self.all(Dimension::phases) == 1
    }

    /// A number's places along the dimensions, of which there are as many as `of` says.
    fn places(&self, number: &Expr, of: impl Fn(&Dimension) -> i64) -> [Expr; DIMENSIONS] {
        let [_, middle, inner] = self.dimensions.each_ref().map(of);
        let rest = number.clone().floor_div(inner);
        [rest.clone().floor_div(middle), rest.floor_mod(middle), number.clone().floor_mod(inner)]
    }

    /// The group and the phases of a product of the batch.
    fn group(&self, batch: &Expr) -> (Expr, [Expr; DIMENSIONS]) {
        let phases = self.all(Dimension::phases);
        (batch.clone().floor_div(phases), self.places(&batch.clone().floor_mod(phases), Dimension::phases))
    }

    /// Of a term its tap along each dimension, and its channel of the group.
    fn term(&self, k: &Expr) -> ([Expr; DIMENSIONS], Expr) {
        let tap = k.clone().floor_div(self.ci);
        (self.places(&tap, Dimension::most_taps), k.clone().floor_mod(self.ci))
    }

    /// Brings the weights into the order in which blocks copy them; zeros stand where a phase has no tap, and beyond the last
    /// channel and tap.
    pub(super) fn pack(&self, w: &Workload, cut: &Cut) -> Option<Pack> {
        let original = w.params().into_iter().find(|p| p.role == Role::Weight)?;
        let shape @ [batch, tiles, depth, rows] = Columns::packed_shape(cut);
        let loops = [("batch", batch), ("tile", tiles), ("k", depth)];
        let from = (original.name, w.dtype, &original.shape[..]);
        Some(pack_rows(
            from,
            (w.dtype, &shape),
            loops,
            ("thread", Cuda::WARP),
            |b, [w, packed], [batch, tile, k], at| {
                let row = Expr::from(b.let_("row", tile * rows + at.clone()));
                let (group, phases) = self.group(&batch.into());
                let (taps, ci) = self.term(&k.into());
                let mut exists = vec![at.clone().lt(rows), row.clone().lt(cut.whole.size[0])];
                let mut tap = vec![];
                for (i, d) in self.dimensions.iter().enumerate() {
                    let class = d.class(&phases[i]);
                    let at = class.first + taps[i].clone() * d.tap_stride();
                    exists.push(taps[i].clone().lt(class.count));
                    if d.has_fewer() {
                        // It follows from the phase's number of taps, but not by rules that the verifier has.
                        exists.push(at.clone().lt(d.taps));
                    }
                    tap.push(at);
                }
                let mut co = row.clone();
                if self.form() == Form::Scattered {
                    co = row.clone().floor_div(self.rows_of_channel());
                    tap = self.places(&row.floor_mod(self.rows_of_channel()), |d| d.taps).to_vec();
                }
                let first = match self.form() {
                    Form::Convolution => [group * self.co + co, ci],
                    _ => [group * self.ci + ci, co],
                };
                let from = first.into_iter().chain(tap.into_iter().skip(DIMENSIONS - self.rank)).collect();
                let place = vec![batch.into(), tile.into(), k.into(), at];
                b.if_else(
                    Expr::all(exists).expect("there are conditions"),
                    |b| b.store(packed, place.clone(), Expr::load(w, from)),
                    |b| b.store(packed, place.clone(), Expr::f32(0.0)),
                );
            },
        ))
    }
}

/// The products of a convolution that is cut up.
pub(super) struct Columns<'w> {
    pub(super) workload: &'w Workload,
    pub(super) planes: Planes,
    pub(super) cut: Cut,
    /// Elements of each operand that are copied at a time.
    pub(super) units: [i64; 2],
}

impl Columns<'_> {
    /// The shape of packed weights.
    fn packed_shape(cut: &Cut) -> [i64; 4] {
        [cut.whole.batch, cut.tiles()[0], cut.padded_k(), cut.tile[0]]
    }

    /// What a term's tap adds to the place of a column, and whether the product has the tap; then the term's channel of the group.
    fn tap(&self, block: &[Expr], k: &Expr) -> ([Expr; DIMENSIONS], Vec<Expr>, Expr) {
        let (taps, ci) = self.planes.term(k);
        let (starts, counts) = block[1..].split_at(DIMENSIONS);
        let mut exists = vec![];
        let offsets = std::array::from_fn(|i| {
            let d = &self.planes.dimensions[i];
            // Terms beyond the last tap are those of a tap along the first dimension.
            let beyond = i == 0 && self.cut.padded_k() != self.cut.whole.k;
            if beyond || d.has_fewer() {
                exists.push(taps[i].clone().lt(counts[i].clone()));
            }
            starts[i].clone() + taps[i].clone() * d.tap_step()
        });
        (offsets, exists, ci)
    }
}

impl Product for Columns<'_> {
    fn workload(&self) -> &Workload {
        self.workload
    }

    fn shape(&self, param: &Param) -> Vec<i64> {
        let planes = &self.planes;
        let pixels = |flat: bool, of: fn(&Dimension) -> i64| match flat {
            true => vec![planes.all(of)],
            false => planes.present().iter().map(of).collect(),
        };
        match param.role {
            Role::Weight => Columns::packed_shape(&self.cut).to_vec(),
            Role::Input if planes.is_same() => vec![planes.n, planes.groups * planes.ci, planes.all(|d| d.input)],
            // Groups are a dimension of their own, so that their outputs are seen to be apart.
            Role::Output | Role::Residual => {
                [vec![planes.n, planes.groups, planes.co], pixels(planes.is_flat(), |d| d.output)].concat()
            }
            _ => param.shape.clone(),
        }
    }

    fn operands(&self) -> [usize; 2] {
        [1, 0]
    }

    fn units(&self) -> [i64; 2] {
        self.units
    }

    /// The first channel of the group; for each dimension the start of the phase, and how many taps it has.
    fn block(&self, b: &mut KernelBuilder, batch: &Expr) -> Vec<Expr> {
        let (group, phases) = self.planes.group(batch);
        let mut named = vec![b.let_("group_channel", group * self.planes.ci).into()];
        let mut counts = vec![];
        for (d, phase) in self.planes.dimensions.iter().zip(&phases) {
            let class = d.class(phase);
            let mut name = |name: &str, value: Expr| match d.phases() {
                1 => value,
                _ => b.let_(name, value).into(),
            };
            named.push(name("start", class.start));
            counts.push(name("taps", class.count));
        }
        named.extend(counts);
        named
    }

    /// As many as reach the last tap of the phase.
    fn steps(&self, block: &[Expr]) -> Option<Expr> {
        if self.planes.form() != Form::Phases {
            return None;
        }
        let counts = &block[1 + DIMENSIONS..];
        let mut last = Expr::Int(0);
        for (d, count) in self.planes.dimensions.iter().zip(counts) {
            last = last * d.most_taps() + count.clone() - 1;
        }
        let terms = (last + 1) * self.planes.ci;
        let steps = (terms + (self.cut.tile_k - 1)).floor_div(self.cut.tile_k);
        let none = self.planes.dimensions.iter().zip(counts).filter(|(d, _)| d.has_none());
        Some(none.fold(steps, |steps, (_, count)| count.clone().eq(0).select(Expr::Int(0), steps)))
    }

    fn left_row(&self, b: &mut KernelBuilder, row: Expr) -> Vec<Expr> {
        let tile = self.cut.tile[0];
        let (number, within) = (row.clone().floor_div(tile), row.floor_mod(tile));
        vec![b.let_("weight_tile", number).into(), b.let_("weight_row", within).into()]
    }

    /// Where all terms are of one tap, what this adds to the place of a column, and the first channel.
    fn step(&self, b: &mut KernelBuilder, block: &[Expr], k: &Expr) -> Vec<Expr> {
        let mut named = vec![k.clone()];
        if !self.planes.one_tap(self.cut.tile_k) {
            named.extend_from_slice(block);
            return named;
        }
        let (offsets, exists, ci) = self.tap(block, k);
        named.push(b.let_("first_channel", block[0].clone() + ci).into());
        named.extend(offsets.map(|offset| Expr::from(b.let_("offset", offset))));
        named.extend(exists);
        named
    }

    fn left(&self, batch: &Expr, row: &[Expr], step: &[Expr], within: Expr) -> Piece {
        Piece { index: vec![batch.clone(), row[0].clone(), step[0].clone() + within, row[1].clone()], exists: None }
    }

    /// The image, and the place in the input that the first tap of a convolution without padding meets. Columns beyond the last are
    /// copied from that one, and not to be stored.
    fn right_column(&self, b: &mut KernelBuilder, column: Expr) -> Vec<Expr> {
        let (planes, all, unit) = (&self.planes, self.cut.whole.size[1], self.units[1]);
        let last = all / unit - 1;
        let column = if all % self.cut.tile[1] == 0 { column } else { column.floor_div(unit).min(last) * unit };
        let pixel = Expr::from(b.let_("pixel", column));
        let columns = planes.all(Dimension::columns);
        let within = pixel.clone().floor_mod(columns);
        let image = b.let_("image", pixel.floor_div(columns)).into();
        if planes.is_same() {
            return vec![image, b.let_("within", within).into()];
        }
        let places = planes.places(&within, Dimension::columns);
        let places = places.into_iter().zip(&planes.dimensions);
        let places = places.map(|(place, d)| Expr::from(b.let_("place", place * d.step())));
        [image].into_iter().chain(places).collect()
    }

    fn right(&self, _: &Expr, column: &Column<'_>, step: &[Expr], within: Expr) -> Piece {
        let (planes, column) = (&self.planes, column.named);
        let (offsets, mut exists, channel) = match step {
            [_, channel, down, middle, along, exists @ ..] if planes.one_tap(self.cut.tile_k) => {
                ([down, middle, along].map(Expr::clone), exists.to_vec(), channel.clone() + within)
            }
            [k, block @ ..] => {
                let (offsets, exists, ci) = self.tap(block, &(k.clone() + within));
                (offsets, exists, block[0].clone() + ci)
            }
            [] => unreachable!("a step has a first term"),
        };
        let mut index = vec![column[0].clone(), channel];
        if planes.is_same() {
            index.push(column[1].clone());
            return Piece { index, exists: Expr::all(exists) };
        }
        let beyond = self.cut.padded_k() != self.cut.whole.k;
        for (i, d) in planes.dimensions.iter().enumerate().skip(DIMENSIONS - planes.rank) {
            let place = column[1 + i].clone() + offsets[i].clone();
            if beyond || d.may_miss() {
                exists.push(KernelBuilder::between(&place, 0, d.input));
            }
            index.push(place);
        }
        Piece { index, exists: Expr::all(exists) }
    }

    fn element(&self, batch: &Expr, row: Expr, column: Expr) -> Element {
        let planes = &self.planes;
        let (group, _) = planes.group(batch);
        let co = row.clone().floor_div(planes.rows_of_channel());
        let channel = group.clone() * planes.co + co.clone();
        let columns = planes.all(Dimension::columns);
        let mut index = vec![column.clone().floor_div(columns), group, co];
        match planes.is_flat() {
            true => index.push(column.floor_mod(columns)),
            false => index.extend(self.outputs(batch, &row, &column)),
        }
        Element { index, channel }
    }

    /// The taps of the last dimension, where none is cut off and four columns are of one row of pixels.
    fn woven(&self) -> i64 {
        let [.., last] = self.planes.dimensions;
        let whole = last.before == 0 && last.output == last.input * last.stride && last.input % VECTOR == 0;
        let others = self.has_output(&0.into(), &0.into(), &0.into()).is_none();
        let fits = self.planes.form() == Form::Scattered && whole && others;
        if fits && VECTOR % last.taps == 0 { last.taps } else { 1 }
    }

    fn has_output(&self, batch: &Expr, row: &Expr, column: &Expr) -> Option<Expr> {
        let planes = &self.planes;
        if planes.is_flat() {
            return None;
        }
        let places = self.outputs(batch, row, column).into_iter().zip(planes.present());
        let exists = places.filter_map(|(place, d)| match d.form {
            Form::Scattered => {
                let cut = d.before > 0 || d.input * d.stride > d.output;
                cut.then(|| KernelBuilder::between(&place, 0, d.output))
            }
            _ => (d.output % d.phases() != 0).then(|| place.lt(d.output)),
        });
        Expr::all(exists)
    }
}

impl Columns<'_> {
    /// The output pixel of a row and a column, a number for each dimension that there is.
    fn outputs(&self, batch: &Expr, row: &Expr, column: &Expr) -> Vec<Expr> {
        let planes = &self.planes;
        let (_, phases) = planes.group(batch);
        let taps = planes.places(&row.clone().floor_mod(planes.rows_of_channel()), |d| d.taps);
        let columns = planes.places(&column.clone().floor_mod(planes.all(Dimension::columns)), Dimension::columns);
        let dimensions = planes.dimensions.iter().enumerate().skip(DIMENSIONS - planes.rank);
        let output = dimensions.map(|(i, d)| match d.form {
            Form::Scattered => columns[i].clone() * d.stride + taps[i].clone() - d.before,
            _ => columns[i].clone() * d.phases() + phases[i].clone(),
        });
        output.collect()
    }
}
