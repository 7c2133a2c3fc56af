//! Small sources in one file: a compiler takes longer to start than to compile most of them.

use super::c::Source;
use crate::emit::c::declared_words;
use crate::stable::fnv1a;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a file of several sources. Larger ones would keep one processor busy when others are idle, and a change of one
/// kernel would compile more.
const MOST: usize = 60_000;

/// One source in this many, picked by its name, ends its file. Adding or removing a source then changes files up to the next such
/// source, usually one file; if files were simply filled in order, it would change every file after it.
const LAST: u64 = 8;

/// The files to compile: sources as they are, or several of one level together.
pub(super) fn join(sources: &[Source]) -> Vec<Cow<'_, Source>> {
    let mut files: Vec<Vec<&Source>> = vec![];
    // The file of each level that is not full.
    let mut open: BTreeMap<&[String], usize> = BTreeMap::new();
    for source in sources {
        // The user's own sources may hold anything.
        if source.prototypes.is_empty() || source.text.len() > MOST {
            files.push(vec![source]);
            continue;
        }
        let bytes = |file: &[&Source]| file.iter().map(|s| s.text.len()).sum::<usize>();
        match open.get(&source.flags[..]).filter(|at| bytes(&files[**at]) + source.text.len() <= MOST) {
            Some(at) => files[*at].push(source),
            None => {
                open.insert(&source.flags, files.len());
                files.push(vec![source]);
            }
        }
        if fnv1a(source.name.as_bytes()).is_multiple_of(LAST) {
            open.remove(&source.flags[..]);
        }
    }
    files
        .into_iter()
        .map(|file| if let [one] = file[..] { Cow::Borrowed(one) } else { Cow::Owned(one(&file)) })
        .collect()
}

/// Several sources in one.
fn one(all: &[&Source]) -> Source {
    let mut known = BTreeSet::new();
    let prototypes: String = all.iter().map(|s| s.prototypes.as_str()).collect();
    // An object is linked as a whole. Two crates of a program may have a kernel in common beside others that they have not, and
    // then both objects define it; definitions of one name are equal, so it does not matter which is taken.
    let weak: String = prototypes.lines().map(|line| format!("__attribute__((weak)) {line}\n")).collect();
    let mut text =
        format!("// {} kernels, compiled together.\n#include <stdint.h>\n{}\n{weak}", all.len(), declared_words(&weak));
    for source in all {
        let mut own = source.text.clone();
        for helper in &source.helpers {
            if !known.insert(helper) {
                own = own.replacen(helper.as_str(), "", 1);
            }
        }
        text += &format!("\n{own}");
    }
    Source { name: format!("joint.{}", all[0].name), flags: all[0].flags.clone(), text, helpers: vec![], prototypes }
}
