//! Draws the scene that the examples use into `examples/picture/scene.png`, or the file that is named.

use std::path::PathBuf;

fn main() -> Result<(), picture::PictureError> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/scene.png");
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(default), PathBuf::from);
    picture::scene::draw().write_png(&path)?;
    println!("wrote {}", path.display());
    Ok(())
}
