//! Reads the text of a picture: finds the lines, sees which way up each stands, and reads it. `cargo run --release -- PICTURE` prints
//! the lines and writes the picture with their rectangles to `lines.png`.

mod line;

/// The networks, which the build script generated.
mod networks {
    kernel_gen_runtime::include_kernels!();
    pub(crate) use kernels::*;
}

use anyhow::{Context, Result, bail, ensure};
use image::imageops::{self, FilterType};
use image::{GrayImage, Luma, Rgb, RgbImage};
use imageproc::contours::{BorderType, find_contours};
use imageproc::drawing::draw_hollow_polygon_mut;
use imageproc::point::Point;
use kernel_gen_runtime::{Cpu, Shape, Tensor};
use line::Line;
use networks::{detect, read, read_long, turned};
use std::path::Path;
use std::time::{Duration, Instant};

/// Columns and rows of the picture that the detector takes.
const DETECTED: u32 = 640;

/// From here on a pixel belongs to a text, and a rectangle is one.
const INK: f32 = 0.3;
const TEXT: f32 = 0.5;

/// How much of the margin the detector leaves away; see `Line::grown`.
const MARGIN: f32 = 1.6;

/// Rows of a line's picture, and columns of each network's.
const ROWS: u32 = 48;
const TURNED: u32 = 192;
const SHORT: u32 = 320;
const LONG: u32 = 640;

/// How sure the network has to be that a line is upside down.
const SURE: f32 = 0.9;

/// How sure the reader has to be of its text.
const READ: f32 = 0.5;

/// The networks with the memory that each runs in.
struct Reader {
    dev: Cpu,
    detect: detect::Network<Cpu>,
    turned: turned::Network<Cpu>,
    read: read::Network<Cpu>,
    read_long: read_long::Network<Cpu>,
    /// What the reader's classes are, but for the first, which is no character.
    characters: Vec<&'static str>,
}

/// A line with what it says.
struct Text {
    line: Line,
    text: String,
    /// The mean probability of its characters.
    score: f32,
}

/// A picture as a network takes it: from -1 to 1, blue first; 0, a grey, where the picture ends.
fn tensor<S: Shape>(picture: &RgbImage, columns: u32, rows: u32) -> Tensor<f32, S> {
    let plane = (columns * rows) as usize;
    Tensor::from_fn(|i| {
        let (channel, at) = (i / plane, (i % plane) as u32);
        let pixel = picture.get_pixel_checked(at % columns, at / columns);
        pixel.map_or(0.0, |pixel| f32::from(pixel.0[2 - channel]) / 127.5 - 1.0)
    })
}

impl Reader {
    fn load() -> Result<Reader> {
        let dev = Cpu::new();
        let characters: Vec<&str> = include_str!("../models/characters.txt").lines().chain([" "]).collect();
        let [_, _, classes] = read::Softmax11Tmp0::DIMS else { bail!("the reader gives no rows of classes") };
        ensure!(
            characters.len() + 1 == *classes,
            "{} characters for {classes} classes: fetch the models again",
            characters.len()
        );
        Ok(Reader {
            detect: detect::Network::load(&dev, detect::WEIGHTS)?,
            turned: turned::Network::load(&dev, turned::WEIGHTS)?,
            read: read::Network::load(&dev, read::WEIGHTS)?,
            read_long: read_long::Network::load(&dev, read_long::WEIGHTS)?,
            characters,
            dev,
        })
    }

    /// The lines of a picture, from above.
    fn lines(&mut self, picture: &RgbImage) -> Result<Vec<Line>> {
        let scale = DETECTED as f32 / picture.width().max(picture.height()) as f32;
        let [width, height] =
            [picture.width(), picture.height()].map(|n| ((n as f32 * scale) as u32).clamp(1, DETECTED));
        let small = imageops::resize(picture, width, height, FilterType::Triangle);
        let mut map = Tensor::<f32, detect::Sigmoid0Tmp0>::zeros();
        self.detect.run(&self.dev, &tensor(&small, DETECTED, DETECTED), &mut map)?;
        let probability = |x: u32, y: u32| map.as_slice()[(y * DETECTED + x) as usize];
        // What lies beyond the picture is no text.
        let ink = GrayImage::from_fn(DETECTED, DETECTED, |x, y| {
            Luma([if x < width && y < height && probability(x, y) > INK { 255 } else { 0 }])
        });
        let mut lines: Vec<Line> = vec![];
        for contour in find_contours::<i32>(&ink) {
            if contour.border_type != BorderType::Outer || contour.points.len() < 4 {
                continue;
            }
            let line = Line::around(&contour.points);
            if line.size().1 >= 3.0 && mean(&contour.points, probability) >= TEXT {
                lines.push(line.grown(MARGIN).scaled(1.0 / scale));
            }
        }
        lines.sort_by(|a, b| a.centre().1.total_cmp(&b.centre().1));
        Ok(lines)
    }

    /// What a line says; none if that is not sure.
    fn text(&mut self, picture: &RgbImage, line: Line) -> Result<Option<Text>> {
        let mut cut = line.cut(picture, ROWS, LONG);
        let start = imageops::crop_imm(&cut, 0, 0, cut.width().min(TURNED), ROWS).to_image();
        let mut way = Tensor::<f32, turned::SaveInferModelScale0Tmp1>::zeros();
        self.turned.run(&self.dev, &tensor(&start, TURNED, ROWS), &mut way)?;
        if way.as_slice()[1] > SURE {
            imageops::rotate180_in_place(&mut cut);
        }
        let (text, score) = if cut.width() <= SHORT {
            let mut classes = Tensor::<f32, read::Softmax11Tmp0>::zeros();
            self.read.run(&self.dev, &tensor(&cut, SHORT, ROWS), &mut classes)?;
            self.characters_of(classes.as_slice())
        } else {
            let mut classes = Tensor::<f32, read_long::Softmax11Tmp0>::zeros();
            self.read_long.run(&self.dev, &tensor(&cut, LONG, ROWS), &mut classes)?;
            self.characters_of(classes.as_slice())
        };
        Ok((score >= READ && !text.trim().is_empty()).then_some(Text { line, text, score }))
    }

    /// The text whose probabilities these are, a row of classes for each column of the picture, and how sure it is. A character that
    /// follows itself is one; class 0 stands between two of a kind.
    fn characters_of(&self, probabilities: &[f32]) -> (String, f32) {
        let (mut text, mut last, mut sum, mut count) = (String::new(), 0, 0.0, 0);
        for row in probabilities.chunks(self.characters.len() + 1) {
            let class = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0);
            if class != 0 && class != last {
                text.push_str(self.characters[class - 1]);
                sum += row[class];
                count += 1;
            }
            last = class;
        }
        (text, if count == 0 { 0.0 } else { sum / count as f32 })
    }

    /// All that a picture says, from above, with the time of the detector and that of all lines.
    fn all(&mut self, picture: &RgbImage) -> Result<(Vec<Text>, Duration, Duration)> {
        let start = Instant::now();
        let lines = self.lines(picture)?;
        let found = start.elapsed();
        let mut texts = vec![];
        for line in lines {
            texts.extend(self.text(picture, line)?);
        }
        Ok((texts, found, start.elapsed() - found))
    }
}

/// The mean of what an outline encloses, row by row between its outermost points.
fn mean(outline: &[Point<i32>], value: impl Fn(u32, u32) -> f32) -> f32 {
    let mut rows = std::collections::BTreeMap::<i32, (i32, i32)>::new();
    for point in outline {
        let row = rows.entry(point.y).or_insert((point.x, point.x));
        *row = (row.0.min(point.x), row.1.max(point.x));
    }
    let pixels = rows.iter().flat_map(|(y, (from, to))| (*from..=*to).map(move |x| (x as u32, *y as u32)));
    let (sum, count) = pixels.fold((0.0, 0), |(sum, count), (x, y)| (sum + value(x, y), count + 1));
    sum / count.max(1) as f32
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/sign.png").into());
    let mut picture = image::open(&path).with_context(|| format!("`{path}` cannot be read"))?.into_rgb8();
    let mut reader = Reader::load()?;
    let (texts, found, read) = reader.all(&picture)?;
    for Text { line, text, score } in &texts {
        println!("{score:.2}  {text}");
        let corners = line.corners().map(|(x, y)| Point::new(x, y));
        draw_hollow_polygon_mut(&mut picture, &corners, Rgb([255, 0, 0]));
    }
    let [found, read] = [found, read].map(|time| time.as_secs_f64() * 1e3);
    println!("{} lines, found in {found:.0} ms and read in {read:.0} ms", texts.len());
    let boxes = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lines.png"));
    picture.save(boxes).with_context(|| format!("`{}` cannot be written", boxes.display()))?;
    println!("their rectangles are in {}", boxes.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_is_read() {
        let picture = image::open(concat!(env!("CARGO_MANIFEST_DIR"), "/sign.png")).unwrap().into_rgb8();
        let (texts, ..) = Reader::load().unwrap().all(&picture).unwrap();
        let said: Vec<&str> = texts.iter().map(|text| text.text.as_str()).collect();
        assert_eq!(said, SIGN);
        assert!(texts.iter().all(|text| text.score > 0.8));
    }

    /// What the sign says. The reader was trained on Chinese above all, and leaves the space between large words out.
    const SIGN: [&str; 5] =
        ["CAFERUST", "Open daily 8:30 - 19:00", "Today: soup 4.50, bread 2.20", "upside down", "Follow the crab"];

    #[test]
    fn a_picture_without_text_has_no_lines() {
        let plain = RgbImage::from_pixel(300, 200, Rgb([90, 120, 90]));
        assert!(Reader::load().unwrap().all(&plain).unwrap().0.is_empty());
    }
}
