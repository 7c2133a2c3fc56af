//! Tensor maps: encoded by the driver's library, and remembered by address.
//!
//! A map is a pure function of its specification and the buffer's address. A cache that is read and written without
//! locks saves the encoding in launches that use the same buffers again; it never allocates.

use super::CudaError;
use super::driver::{Driver, TensorMap};
use super::table::TensorMapSpec;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Buffers that one map of a program is remembered for.
const WAYS: usize = 16;

/// The maps of one specification, by address and number of units.
pub(super) struct MapCache {
    entries: [Entry; WAYS],
}

/// A map, what it is of and a version that is odd while they are being written. A reader that sees the same even
/// version before and after has read one whole map.
struct Entry {
    version: AtomicU32,
    address: AtomicU64,
    units: AtomicU64,
    words: [AtomicU64; 16],
}

impl MapCache {
    pub(super) fn new() -> MapCache {
        let entry = || Entry {
            version: AtomicU32::new(0),
            // No buffer lies at 0.
            address: AtomicU64::new(0),
            units: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; 16],
        };
        MapCache { entries: std::array::from_fn(|_| entry()) }
    }

    /// The map of a buffer at this address, with `units` units if their number varies.
    pub(super) fn get(
        &self,
        driver: &Driver,
        spec: &TensorMapSpec,
        address: u64,
        units: u64,
    ) -> Result<TensorMap, CudaError> {
        let units = if spec.rows > 0 { units } else { 1 };
        self.get_or((address, units), || encode(driver, spec, address, units))
    }

    fn get_or<E>(&self, of: (u64, u64), encode: impl FnOnce() -> Result<TensorMap, E>) -> Result<TensorMap, E> {
        // Buffers start at multiples of 256 bytes, and large ones at multiples of 2 MiB: fold the upper bits in.
        let (address, units) = of;
        let hash = (address >> 8).wrapping_add(units).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let entry = &self.entries[hash as usize % WAYS];
        if let Some(map) = entry.read(of) {
            return Ok(map);
        }
        let map = encode()?;
        entry.write(of, &map);
        Ok(map)
    }
}

impl Entry {
    fn read(&self, of: (u64, u64)) -> Option<TensorMap> {
        let version = self.version.load(Ordering::Acquire);
        let held = (self.address.load(Ordering::Relaxed), self.units.load(Ordering::Relaxed));
        if !version.is_multiple_of(2) || held != of {
            return None;
        }
        let map = TensorMap(std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)));
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(map)
    }

    /// Replaces what was there, unless another thread is doing so.
    fn write(&self, (address, units): (u64, u64), map: &TensorMap) {
        let version = self.version.load(Ordering::Relaxed);
        let free = version.is_multiple_of(2);
        if !free || self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        fence(Ordering::Release);
        self.address.store(address, Ordering::Relaxed);
        self.units.store(units, Ordering::Relaxed);
        for (word, value) in self.words.iter().zip(map.0) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// `CU_TENSOR_MAP_L2_PROMOTION_L2_256B`: what is loaded is used by neighbouring blocks soon.
const L2_PROMOTION: i32 = 3;

/// Encodes a map, with `units` units if their number varies. This runs on the host; the GPU is not asked.
pub(super) fn encode(driver: &Driver, spec: &TensorMapSpec, address: u64, units: u64) -> Result<TensorMap, CudaError> {
    let encode = driver.encode_tiled()?;
    let mut dims = spec.dims;
    if let Some(last) = dims.get_mut((spec.rank as usize).wrapping_sub(1)).filter(|_| spec.rows > 0) {
        *last = spec.rows * units;
    }
    let mut map = TensorMap([0; 16]);
    // SAFETY: the driver reads `rank` (strides: one less) numbers of each array, which have 5 (4), and writes the map.
    // Interleave 0 and fill 0 are "none".
    let code = unsafe {
        encode(
            &mut map,
            spec.data_type as i32,
            spec.rank,
            std::ptr::without_provenance_mut(address as usize),
            dims.as_ptr(),
            spec.strides.as_ptr(),
            spec.box_dims.as_ptr(),
            spec.steps.as_ptr(),
            0,
            spec.swizzle as i32,
            L2_PROMOTION,
            0,
        )
    };
    driver.check("cuTensorMapEncodeTiled", code)?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn map_of(address: u64) -> TensorMap {
        TensorMap(std::array::from_fn(|i| address * 31 + i as u64))
    }

    #[test]
    fn a_map_is_encoded_once_for_each_address() {
        let cache = MapCache::new();
        let mut encoded = 0;
        for _ in 0..5 {
            for address in [256, 512] {
                let map = cache.get_or((address, 1), || {
                    encoded += 1;
                    Ok::<_, Infallible>(map_of(address))
                });
                assert_eq!(map.unwrap().0, map_of(address).0);
            }
        }
        assert!(encoded == 2 || encoded == 10, "these two share an entry, or do not: {encoded}");
        assert_eq!(cache.get_or((3 << 20, 1), || Err("refused")).err(), Some("refused"));
    }

    #[test]
    fn threads_that_replace_each_others_maps_read_whole_ones() {
        let cache = MapCache::new();
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for i in 0..50_000u64 {
                        let address = (1 + (i * 7 + t) % 40) << 8;
                        let map = cache.get_or((address, 1), || Ok::<_, Infallible>(map_of(address))).unwrap();
                        assert_eq!(map.0, map_of(address).0);
                    }
                });
            }
        });
    }
}
