//! The program that runs kernels, and what their compilation needs, made once for an instruction set level.

use super::folder::Folder;
use crate::emit::c::Isa;
use crate::toolchain::{Compiler, ToolError, Warnings, headers};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long the compiler may take for what does not depend on a kernel.
const LIMIT: Duration = Duration::from_secs(120);

/// The program that opens kernels of one instruction set level and runs them.
#[derive(Debug)]
pub struct Host {
    folder: Folder,
    isa: Isa,
    /// Objects of what packs parameters, by a hash of their source: many configs share them.
    packs: Mutex<BTreeMap<u128, PathBuf>>,
    has_headers: bool,
}

impl Host {
    /// The program for a level. One that is in use is taken again.
    pub fn of(compiler: &Compiler, isa: Isa) -> Result<Arc<Host>, ToolError> {
        static HOSTS: Mutex<Vec<(u64, Isa, Weak<Host>)>> = Mutex::new(vec![]);
        let identity = compiler.identity();
        let mut hosts = HOSTS.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|(.., host)| host.strong_count() > 0);
        let known = hosts.iter().find(|(i, level, _)| (*i, *level) == (identity, isa));
        if let Some(host) = known.and_then(|(.., host)| host.upgrade()) {
            return Ok(host);
        }
        let host = Arc::new(Host::make(compiler, isa)?);
        hosts.push((identity, isa, Arc::downgrade(&host)));
        Ok(host)
    }

    fn make(compiler: &Compiler, isa: Isa) -> Result<Host, ToolError> {
        let folder = Folder::new()?;
        let main = [SYSTEM_HEADERS, super::tables::ABI, include_str!("peak.c"), include_str!("harness.c")].join("\n");
        let source = folder.write("harness.c", main.as_bytes())?;
        compiler.executable(&[&source], isa.flags(), &folder.join("harness"))?;
        let x86 = isa.flags().iter().any(|f| f.contains("x86"));
        folder.write("headers.h", headers::text(x86).as_bytes())?;
        let mut host = Host { folder, isa, packs: Mutex::new(BTreeMap::new()), has_headers: false };
        // A compiler that cannot do this compiles the headers with each kernel.
        host.has_headers = compiler.precompile(&host.headers(), isa.flags(), LIMIT).is_ok();
        Ok(host)
    }

    /// The level.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.join("harness")
    }

    fn headers(&self) -> PathBuf {
        self.folder.join("headers.h")
    }

    /// Compiles to a shared object, or to an object if that is what `made` ends in.
    pub(super) fn compile(
        &self,
        compiler: &Compiler,
        sources: &[&Path],
        warnings: Warnings,
        made: &Path,
        limit: Duration,
    ) -> Result<(), ToolError> {
        let headers = self.headers();
        let headers = self.has_headers.then_some(headers.as_path());
        compiler.shared(sources, headers, self.isa.flags(), warnings, made, limit)
    }

    /// The object of a source that many kernels share.
    pub(super) fn object(&self, compiler: &Compiler, text: &str, limit: Duration) -> Result<PathBuf, ToolError> {
        let hash = crate::stable::fnv1a_128(text.as_bytes());
        if let Some(made) = self.packs().get(&hash) {
            return Ok(made.clone());
        }
        // Two threads that want the same one make it twice, each under a name of its own.
        let number = self.packs().len();
        let name = format!("pack-{hash:032x}-{number}-{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let source = self.folder.write(&format!("{name}.c"), text.as_bytes())?;
        let made = source.with_extension("o");
        self.compile(compiler, &[&source], Warnings::Ignore, &made, limit)?;
        Ok(self.packs().entry(hash).or_insert(made).clone())
    }

    fn packs(&self) -> std::sync::MutexGuard<'_, BTreeMap<u128, PathBuf>> {
        self.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const SYSTEM_HEADERS: &str = "#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
";
