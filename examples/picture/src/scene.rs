//! The scene that the examples use as their photo: a lighthouse, a boat, mountains, a fence.
//!
//! It is drawn and not photographed, so that it is free of anyone's rights and small. Smooth gradients, straight and
//! round edges, and fine detail are all in it, which is what shows the effect of a filter. Only operations that IEEE
//! 754 rounds in one way are used, so every machine draws the same pixels.

use crate::Picture;

/// Width of the scene.
pub const WIDTH: usize = 320;
/// Height of the scene.
pub const HEIGHT: usize = 240;
/// Points per pixel and axis that are averaged.
const SAMPLES: usize = 4;

type Colour = [f64; 3];

/// Height of the horizon, in pixels from the top.
const HORIZON: f64 = 138.0;

/// Draws the scene.
pub fn draw() -> Picture {
    Picture::from_fn(WIDTH, HEIGHT, |x, y| {
        let mut sum = [0.0; 3];
        for i in 0..SAMPLES * SAMPLES {
            let offset = |k: usize| (k as f64 + 0.5) / SAMPLES as f64;
            let point = colour(x as f64 + offset(i % SAMPLES), y as f64 + offset(i / SAMPLES));
            (0..3).for_each(|c| sum[c] += point[c].clamp(0.0, 255.0));
        }
        sum.map(|v| (v / (SAMPLES * SAMPLES) as f64).round() as u8)
    })
}

/// The colour at a point: the nearest thing that covers it.
fn colour(x: f64, y: f64) -> Colour {
    fence(x, y)
        .or_else(|| grass(x, y))
        .or_else(|| lighthouse(x, y))
        .or_else(|| rock(x, y))
        .or_else(|| boat(x, y))
        .or_else(|| sea(x, y))
        .or_else(|| mountains(x, y))
        .unwrap_or_else(|| sky(x, y))
}

fn mix(a: Colour, b: Colour, t: f64) -> Colour {
    let t = t.clamp(0.0, 1.0);
    [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t]
}

/// The height at `x` of the line through points that ascend in `x`.
fn polyline(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.iter().position(|p| p.0 > x).unwrap_or(points.len() - 1).max(1);
    let (a, b) = (points[after - 1], points[after]);
    a.1 + (b.1 - a.1) * ((x - a.0) / (b.0 - a.0)).clamp(0.0, 1.0)
}

/// A number in 0..1 that looks random.
fn hash(i: i64) -> f64 {
    let mut z = (i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((z ^ (z >> 32)) >> 40) as f64 / (1u64 << 24) as f64
}

fn sky(x: f64, y: f64) -> Colour {
    let (dx, dy) = (x - 82.0, y - 52.0);
    let distance = dx * dx + dy * dy;
    if distance < 17.0 * 17.0 {
        return [255.0, 244.0, 205.0];
    }
    let clear = mix([72.0, 128.0, 196.0], [246.0, 206.0, 168.0], y / HORIZON);
    let glowing = mix(clear, [255.0, 236.0, 180.0], 420.0 / (distance + 420.0));
    let clouds =
        [(150.0, 40.0, 34.0, 7.0), (172.0, 33.0, 22.0, 8.0), (190.0, 41.0, 30.0, 6.0), (28.0, 88.0, 40.0, 5.0)];
    let density = clouds.iter().fold(0.0f64, |d, (cx, cy, rx, ry)| {
        let (u, v) = ((x - cx) / rx, (y - cy) / ry);
        d.max(1.0 - u * u - v * v)
    });
    mix(glowing, [255.0, 250.0, 244.0], density * 1.6)
}

fn mountains(x: f64, y: f64) -> Option<Colour> {
    let far = [(0.0, 112.0), (30.0, 96.0), (52.0, 108.0), (96.0, 70.0), (132.0, 104.0), (158.0, 88.0), (205.0, 118.0)];
    let far = polyline(&far, x).min(polyline(&[(190.0, 124.0), (250.0, 92.0), (288.0, 110.0), (320.0, 98.0)], x));
    let near = [(0.0, 126.0), (44.0, 118.0), (84.0, 131.0), (140.0, 122.0), (196.0, 134.0), (320.0, 128.0)];
    if y > polyline(&near, x) {
        return Some(mix([66.0, 92.0, 88.0], [92.0, 118.0, 104.0], (y - 118.0) / 20.0));
    }
    if y < far {
        return None;
    }
    // Snow lies above a line that is ragged in steps of a few pixels.
    let ragged = 90.0 + 7.0 * hash((x / 4.0).floor() as i64);
    if y < ragged && y < far + 16.0 {
        return Some([238.0, 242.0, 250.0]);
    }
    Some(mix([112.0, 122.0, 152.0], [150.0, 158.0, 176.0], (y - far) / 50.0))
}

fn sea(x: f64, y: f64) -> Option<Colour> {
    if y < HORIZON {
        return None;
    }
    let depth = (y - HORIZON) / 70.0;
    let water = mix([150.0, 178.0, 196.0], [28.0, 84.0, 120.0], depth);
    // Ripples: short dashes that grow towards the viewer; brighter below the sun.
    let height = 1.4 + 2.6 * depth;
    let row = ((y - HORIZON) / height).floor();
    let length = 5.0 + 16.0 * depth;
    let dash = ((x + 37.0 * hash(row as i64)) / length).floor();
    let bright = hash((row * 1000.0 + dash) as i64);
    let below_sun = (1.0 - ((x - 82.0) / (14.0 + 46.0 * depth)).abs()).max(0.0);
    Some(mix(water, [255.0, 236.0, 200.0], if bright > 0.72 { 0.18 + 0.62 * below_sun } else { 0.22 * below_sun }))
}

fn boat(x: f64, y: f64) -> Option<Colour> {
    let (u, v) = (x - 140.0, y - 160.0);
    // The hull is a trapezoid, the sails are triangles along the mast.
    if (0.0..9.0).contains(&v) && u.abs() < 24.0 - 0.9 * v {
        return Some(if v < 2.5 { [236.0, 230.0, 220.0] } else { [128.0, 44.0, 36.0] });
    }
    if (-50.0..0.0).contains(&v) && (u + 1.0).abs() < 0.9 {
        return Some([84.0, 62.0, 44.0]);
    }
    if (-47.0..-4.0).contains(&v) && u > 0.6 && u < 0.6 + (v + 47.0) * 0.5 {
        return Some(mix([255.0, 252.0, 244.0], [214.0, 206.0, 200.0], u / 20.0));
    }
    if (-40.0..-4.0).contains(&v) && u < -2.6 && u > -2.6 - (v + 40.0) * 0.46 {
        return Some(mix([250.0, 186.0, 92.0], [222.0, 132.0, 62.0], -u / 18.0));
    }
    None
}

fn rock(x: f64, y: f64) -> Option<Colour> {
    let top = [
        (196.0, 186.0),
        (208.0, 170.0),
        (222.0, 166.0),
        (236.0, 158.0),
        (276.0, 156.0),
        (292.0, 166.0),
        (320.0, 172.0),
    ];
    if x < 196.0 || y < polyline(&top, x) {
        return None;
    }
    let facet = hash(((x + 0.6 * y) / 9.0).floor() as i64 * 64 + ((y - 0.3 * x) / 7.0).floor() as i64);
    Some(mix([86.0, 78.0, 74.0], [146.0, 134.0, 122.0], 0.25 + 0.6 * facet - (y - 160.0) / 120.0))
}

fn lighthouse(x: f64, y: f64) -> Option<Colour> {
    let u = x - 254.0;
    // Light comes from the left.
    let shaded = |colour: Colour, half: f64| mix(colour, [40.0, 40.0, 62.0], 0.45 * (u / half + 1.0) / 2.0);
    let roof = (y - 30.0) * 0.85;
    if (30.0..42.0).contains(&y) && u.abs() < roof {
        return Some(shaded([176.0, 44.0, 40.0], 12.0));
    }
    if (42.0..57.0).contains(&y) && u.abs() < 8.0 {
        let frame = (u + 8.0) % 4.0 < 0.8 || (48.8..49.8).contains(&y);
        return Some(if frame {
            [46.0, 46.0, 54.0]
        } else {
            mix([255.0, 250.0, 190.0], [250.0, 214.0, 120.0], u.abs() / 8.0)
        });
    }
    if (57.0..61.0).contains(&y) && u.abs() < 14.0 {
        return Some([58.0, 58.0, 66.0]);
    }
    let half = 9.5 + (y - 61.0) * 0.075;
    if !(61.0..160.0).contains(&y) || u.abs() > half {
        return None;
    }
    let window = [78.0, 112.0].iter().any(|top| u.abs() < 2.4 && (*top..*top + 8.0).contains(&y));
    let door = u.abs() < 4.0 && y > 145.0;
    if window || door {
        return Some([44.0, 40.0, 48.0]);
    }
    let stripe = ((y - 61.0) / 16.5).floor() as i64 % 2 == 0;
    Some(shaded(if stripe { [250.0, 248.0, 240.0] } else { [204.0, 52.0, 46.0] }, half))
}

/// Top of the grass.
fn bank(x: f64) -> f64 {
    polyline(&[(0.0, 194.0), (70.0, 202.0), (150.0, 206.0), (240.0, 200.0), (320.0, 190.0)], x)
}

fn grass(x: f64, y: f64) -> Option<Colour> {
    // Blades: each column of two pixels ends at a height of its own.
    let blade = 5.0 * hash((x / 2.0).floor() as i64 + 5000);
    if y < bank(x) - blade {
        return None;
    }
    let tuft = hash(((x / 3.0).floor() as i64) * 512 + ((y - bank(x)) / 6.0).floor() as i64);
    Some(mix([104.0, 140.0, 58.0], [44.0, 86.0, 40.0], (y - bank(x)) / 50.0 + 0.35 * (tuft - 0.5)))
}

fn fence(x: f64, y: f64) -> Option<Colour> {
    let base = bank(x);
    let across = x % 16.0;
    let post = (across - 8.0).abs() < 2.6;
    // Posts end in a point.
    let top = base - 16.0 + (across - 8.0).abs() * 0.9;
    if x < 186.0 && post && (top..base + 16.0).contains(&y) {
        return Some(mix([250.0, 246.0, 236.0], [168.0, 160.0, 156.0], (across - 5.4) / 6.0));
    }
    let rail = (base - 9.0..base - 6.0).contains(&y) || (base + 3.0..base + 6.0).contains(&y);
    (x < 186.0 && rail).then_some([222.0, 214.0, 202.0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_file_in_the_repository_is_what_this_program_draws() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scene.png");
        assert!(Picture::read(&file).unwrap() == draw(), "draw it again: cargo run -p picture --bin draw-scene");
        assert!(std::fs::metadata(file).unwrap().len() < 100_000, "the file in the repository stays small");
    }
}
