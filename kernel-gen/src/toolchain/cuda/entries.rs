//! The kernels that PTX defines.

/// A kernel as PTX defines it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Its name, as the linker knows it.
    pub name: &'a str,
    /// Most threads of a block, from its `__launch_bounds__`.
    pub max_threads: Option<u64>,
}

/// The kernels of PTX as compilers write it, in its order.
pub fn entries(ptx: &str) -> Vec<Entry<'_>> {
    ptx.split(".entry").skip(1).map(entry).collect()
}

/// The kernel whose definition goes on like that behind `.entry`.
fn entry(rest: &str) -> Entry<'_> {
    let rest = rest.trim_start();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let name = rest.split(|c| !is_name(c)).next().unwrap_or_default();
    // What bounds a launch stands between the parameters and the body.
    let head = rest.split('{').next().unwrap_or_default();
    Entry { name, max_threads: head.lines().find_map(max_threads) }
}

/// Reads `.maxntid 128, 1, 1` or `.reqntid 128`.
fn max_threads(line: &str) -> Option<u64> {
    let line = line.trim();
    let extents = line.strip_prefix(".maxntid").or_else(|| line.strip_prefix(".reqntid"))?;
    extents.split(',').map(|n| n.trim().parse::<u64>().ok()).try_fold(1u64, |product, n| product.checked_mul(n?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bounds_are_read() {
        let ptx = ".version 9.0\n.visible .entry scale(\n\t.param .u64 scale_param_0\n)\n.maxntid 64, 2, 1\n.minnctapersm 2\n{\n\
                   .maxntid 7\n}\n.weak .entry _Z5threeIfEvPT_(\n)\n{\n}\n.visible .entry last$1(";
        let all = entries(ptx);
        assert_eq!(all.iter().map(|e| e.name).collect::<Vec<_>>(), ["scale", "_Z5threeIfEvPT_", "last$1"]);
        assert_eq!(all.iter().map(|e| e.max_threads).collect::<Vec<_>>(), [Some(128), None, None]);
        assert_eq!(entries("no PTX"), []);
        assert_eq!(entries(".entry"), [Entry { name: "", max_threads: None }]);
        assert_eq!(max_threads(".maxntid a, 1"), None);
    }
}
