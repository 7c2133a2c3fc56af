//! Helper functions that are one PTX instruction each (PTX ISA 8.7; the section is named beside each).

use super::arch::Arch;
use crate::ir::DType;

/// A helper that is inline PTX. The order of the variants is the order in the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Ptx {
    /// The address of shared memory as instructions want it.
    SharedAddress,
    /// `cp.async` of so many bytes; zeros instead, where told so.
    CpAsync(i64),
    /// Makes an mbarrier.
    MbarrierInit,
    /// One arrival.
    MbarrierArrive,
    /// One arrival at the barrier at the same place in another block of the cluster; whether what the thread wrote to
    /// global memory comes before it, for that block too.
    MbarrierArriveAt { releases: bool },
    /// Stores so many neighbours in another block of the cluster, whose barrier counts their bytes.
    StoreAt(usize, DType),
    /// One arrival that announces bytes.
    MbarrierExpect,
    /// Waits for the end of a phase.
    MbarrierWait,
    /// The type of a tensor map.
    TensorMap,
    /// Loads a box of a tensor.
    TensorLoad { rank: usize, multicast: bool },
    /// Stores a box of a tensor.
    TensorStore { rank: usize },
    /// Asks the second-level cache for bytes of global memory.
    Prefetch,
    /// `ldmatrix` of four 8 x 8 matrices.
    Ldmatrix { transposed: bool },
    /// `ldmatrix` of two 8 x 8 matrices.
    LdmatrixHalf,
    /// A load of 16 bytes of a row, or zeros: two registers of each of two left operands.
    LoadRow,
    /// The type of a register of two `f16` sums.
    HalfPair,
    /// `mma.sync` on 16 x 8 sums and a reduction of 16, of bytes of 32: the types of operands and that of sums.
    Mma { dtypes: [DType; 2], sums: DType },
    /// `wmma.load` of a tile of 16 x 16.
    WmmaLoad(WmmaTile),
    /// `wmma.store` of one of sums.
    WmmaStore(WmmaTile),
    /// `wmma.mma` on such tiles, and which of the operands are transposed.
    Wmma { sums: DType, transposed: [bool; 2] },
    /// Says that registers hold what an asynchronous product needs or has left.
    Settle { sums: DType },
    /// The same of registers that hold an operand.
    SettleOperand,
    /// The descriptor of a matrix in shared memory.
    WgmmaOperand,
    /// `wgmma` on 64 x n sums and a reduction of 32 bytes: of 16 elements, of 8 in `f32`, whose first 10 fraction bits count, of 32
    /// in `i8` and `u8`; operands whose fast dimension is not the reduction are transposed, which only those of 16 bits can be.
    Wgmma { columns: i64, dtypes: [DType; 2], transposed: [bool; 2], adds: bool },
    /// An `f32` rounded to 10 fraction bits.
    RoundTf32,
    /// 2 to the power.
    Exp2,
    /// The two parts of an `f32` as operands.
    SplitTf32,
    /// Neighbouring `f32`s as so many parts in bf16, each a register of two.
    SplitBf16 { parts: i64 },
    /// [`Ptx::Wgmma`] with the left operand in registers; of the right one it is said whether it is transposed.
    WgmmaHeld { columns: i64, dtype: DType, transposed: bool },
}

/// A tile of 16 x 16 that `wmma` moves, and where.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct WmmaTile {
    pub(super) operand: WmmaOperand,
    /// The type of its elements.
    pub(super) dtype: DType,
    /// Whether the tile in memory holds the transposed matrix.
    pub(super) transposed: bool,
    /// Whether it is in shared memory, and not in global memory.
    pub(super) shared: bool,
}

/// What a tile is in a product.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum WmmaOperand {
    Left,
    Right,
    Sums,
}

impl WmmaTile {
    /// The end of a helper's name: `a`, `b_t`, `sums_f32_global`.
    fn name(self) -> String {
        let operand = match self.operand {
            WmmaOperand::Left => "a".to_string(),
            WmmaOperand::Right => "b".to_string(),
            WmmaOperand::Sums => format!("sums_{}", self.dtype),
        };
        let order = if self.transposed { "_t" } else { "" };
        format!("{operand}{order}{}", if self.shared { "" } else { "_global" })
    }

    /// The type of a thread's registers, how inline assembly calls one, what of it is meant, and how many there are.
    fn registers(self) -> (&'static str, char, &'static str, usize) {
        match (self.operand, self.dtype) {
            (WmmaOperand::Sums, DType::F16) => ("half_pair", 'r', ".both", 4),
            (WmmaOperand::Sums, _) => ("float", 'f', "", 8),
            _ => ("unsigned", 'r', "", 8),
        }
    }

    /// Layout, shape, space and type: the modifiers behind `wmma.load.a.sync.aligned`.
    fn modifiers(self) -> String {
        let (order, space) = (["row", "col"][usize::from(self.transposed)], ["", ".shared"][usize::from(self.shared)]);
        format!("{order}.m16n16k16{space}.{}", self.dtype)
    }

    /// The address of the tile as an operand. Addresses of global memory need no conversion.
    fn address(self) -> &'static str {
        if self.shared { "\"r\"(shared_address(tile))" } else { "\"l\"(tile)" }
    }
}

/// Operands `%first` and on.
fn operands(first: usize, count: usize) -> String {
    (first..first + count).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ")
}

/// Registers of an array as operands of inline assembly.
fn registers(constraint: &str, array: &str, member: &str, count: usize) -> String {
    (0..count).map(|i| format!("\"{constraint}\"({array}[{i}]{member})")).collect::<Vec<_>>().join(", ")
}

impl Ptx {
    pub(super) fn name(self) -> String {
        match self {
            Ptx::SharedAddress => "shared_address".into(),
            Ptx::CpAsync(bytes) => format!("cp_async_{bytes}"),
            Ptx::MbarrierInit => "mbarrier_init".into(),
            Ptx::MbarrierArrive => "mbarrier_arrive".into(),
            Ptx::MbarrierArriveAt { releases } => {
                format!("mbarrier_arrive_at{}", if releases { "_release" } else { "" })
            }
            Ptx::StoreAt(n, dtype) => {
                let count = if n == 1 { String::new() } else { format!("_{n}") };
                format!("store_at{count}{}", if dtype == DType::I32 { "_i32" } else { "" })
            }
            Ptx::MbarrierExpect => "mbarrier_expect".into(),
            Ptx::MbarrierWait => "mbarrier_wait".into(),
            Ptx::TensorMap => "tensor_map".into(),
            Ptx::TensorLoad { rank, multicast } => {
                format!("tma_load_{rank}d{}", if multicast { "_multicast" } else { "" })
            }
            Ptx::TensorStore { rank } => format!("tma_store_{rank}d"),
            Ptx::Prefetch => "prefetch_l2".into(),
            Ptx::Ldmatrix { transposed } => format!("mma_ldmatrix{}", if transposed { "_transposed" } else { "" }),
            Ptx::LdmatrixHalf => "mma_ldmatrix_half".into(),
            Ptx::LoadRow => "mma_load_row".into(),
            Ptx::HalfPair => "half_pair".into(),
            Ptx::Mma { dtypes: [dtype, _], sums: DType::F16 } => format!("mma_m16n8k16_{dtype}_f16"),
            Ptx::Mma { dtypes, sums: DType::I32 } => {
                let [a, b] = dtypes.map(kind);
                format!("mma_m16n8k32_{a}_{b}")
            }
            Ptx::Mma { dtypes: [dtype, _], .. } => format!("mma_m16n8k16_{dtype}"),
            Ptx::WmmaLoad(tile) => format!("wmma_load_{}", tile.name()),
            Ptx::WmmaStore(tile) => format!("wmma_store_{}", tile.name()),
            Ptx::Wmma { sums, transposed } => {
                let [a, b] = transposed.map(|t| if t { 't' } else { 'n' });
                format!("wmma_m16n16k16_{sums}_{a}{b}")
            }
            Ptx::Settle { sums: DType::I32 } => "wgmma_settle_i32".into(),
            Ptx::Settle { .. } => "wgmma_settle".into(),
            Ptx::SettleOperand => "wgmma_settle_operand".into(),
            Ptx::RoundTf32 => "round_tf32".into(),
            Ptx::Exp2 => "exp2_approx".into(),
            Ptx::SplitTf32 => "split_tf32".into(),
            Ptx::SplitBf16 { parts } => format!("split_bf16_{parts}"),
            Ptx::WgmmaHeld { columns, dtype, transposed } => {
                let (depth, [kind, _]) = wgmma_kinds([dtype; 2]);
                let order = match (dtype, transposed) {
                    (DType::F32, _) => "",
                    (_, true) => "_held_t",
                    (_, false) => "_held_n",
                };
                format!("wgmma_m64n{columns}k{depth}_{kind}{order}")
            }
            Ptx::WgmmaOperand => "wgmma_operand".into(),
            Ptx::Wgmma { columns, dtypes, adds, .. } if dtypes[0].bytes() == 1 => {
                let (depth, [a, b]) = wgmma_kinds(dtypes);
                format!("wgmma_m64n{columns}k{depth}_{a}_{b}{}", if adds { "" } else { "_first" })
            }
            Ptx::Wgmma { columns, dtypes, transposed: [a, b], .. } => {
                let letter = |t| if t { 't' } else { 'n' };
                let (depth, [kind, _]) = wgmma_kinds(dtypes);
                format!("wgmma_m64n{columns}k{depth}_{kind}_{}{}", letter(a), letter(b))
            }
        }
    }

    pub(super) fn text(self, arch: Arch) -> String {
        let name = self.name();
        match self {
            // The instructions take 32-bit addresses of the shared window.
            Ptx::SharedAddress => format!(
                "KG_FN unsigned {name}(const void *p) {{\n  return (unsigned)__cvta_generic_to_shared(p);\n}}\n"
            ),
            // 9.7.9.25.3.1: bytes beyond the source's size are filled with zeros.
            Ptx::CpAsync(bytes) => format!(
                "KG_FN void {name}(void *to, const void *from, bool read) {{\n  \
                 asm volatile(\"cp.async.{cache}.shared.global [%0], [%1], {bytes}, %2;\" :: \
                 \"r\"(shared_address(to)), \"l\"(from), \"r\"(read ? {bytes} : 0) : \"memory\");\n}}\n",
                // Only whole 16 bytes may pass by the first-level cache.
                cache = if bytes == 16 { "cg" } else { "ca" },
            ),
            // 9.7.13.15.
            Ptx::MbarrierInit => format!(
                "KG_FN void {name}(unsigned long long *on, int arrivals) {{\n  \
                 asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \
                 \"r\"(shared_address(on)), \"r\"(arrivals) : \"memory\");\n}}\n"
            ),
            Ptx::MbarrierArrive => format!(
                "KG_FN void {name}(unsigned long long *on) {{\n  \
                 asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: \"r\"(shared_address(on)) : \"memory\");\n}}\n"
            ),
            // Releasing to the cluster costs a fence of all memory, half a microsecond each time.
            Ptx::MbarrierArriveAt { releases } => format!(
                "KG_FN void {name}(unsigned long long *on, int rank) {{\n  \
                 asm volatile(\"{{\\n.reg .b32 there;\\nmapa.shared::cluster.u32 there, %0, %1;\\n\"\n    \
                 \"mbarrier.arrive{}.shared::cluster.b64 _, [there];\\n}}\" :: \
                 \"r\"(shared_address(on)), \"r\"(rank) : \"memory\");\n}}\n",
                if releases { ".release.cluster" } else { "" }
            ),
            // 9.7.9.12: asynchronous, so that nobody waits for a fence; the barrier tells when the element is there.
            Ptx::StoreAt(n, dtype) => {
                let list = |one: &dyn Fn(usize) -> String| (0..n).map(one).collect::<Vec<String>>().join(", ");
                let (ty, constraint) = register(dtype);
                let ptx = if dtype == DType::I32 { "b32" } else { "f32" };
                let values = list(&|i| format!("{ty} v{i}"));
                let operands = list(&|i| format!("\"{constraint}\"(v{i})"));
                let (vector, stored) = match n {
                    1 => (String::new(), "%3".to_string()),
                    n => (format!(".v{n}"), format!("{{{}}}", list(&|i| format!("%{}", i + 3)))),
                };
                format!(
                    "KG_FN void {name}({ty} *to, int rank, unsigned long long *on, {values}) {{\n  \
                     asm volatile(\"{{\\n.reg .b32 there, counter;\\nmapa.shared::cluster.u32 there, %0, %1;\\n\"\n    \
                     \"mapa.shared::cluster.u32 counter, %2, %1;\\n\"\n    \
                     \"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{ptx} [there], {stored}, [counter];\\n}}\" ::\n    \
                     \"r\"(shared_address(to)), \"r\"(rank), \"r\"(shared_address(on)), {operands} : \"memory\");\n}}\n"
                )
            }
            Ptx::MbarrierExpect => format!(
                "KG_FN void {name}(unsigned long long *on, int bytes) {{\n  \
                 asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: \
                 \"r\"(shared_address(on)), \"r\"(bytes) : \"memory\");\n}}\n"
            ),
            // `try_wait` sleeps for a while by itself, so the loop costs no issue slots of others.
            Ptx::MbarrierWait => format!(
                "KG_FN void {name}(unsigned long long *on, int parity) {{\n  \
                 asm volatile(\"{{\\n.reg .pred done;\\nwaiting:\\n\"\n    \
                 \"mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n@done bra ended;\\nbra waiting;\\nended:\\n}}\" \
                 :: \"r\"(shared_address(on)), \"r\"(parity) : \"memory\");\n}}\n"
            ),
            // The driver's CUtensorMap.
            Ptx::TensorMap => format!("struct __align__(64) {name} {{\n  unsigned long long words[16];\n}};\n"),
            Ptx::TensorLoad { rank, multicast } => {
                let (args, list, operands) = coordinates(rank, 3 + usize::from(multicast));
                let (mask, cast, operand, last) = match multicast {
                    true => (", int blocks", ".multicast::cluster", ", \"h\"((unsigned short)blocks)", ", %3"),
                    false => ("", "", "", ""),
                };
                format!(
                    "KG_FN void {name}(void *to, const tensor_map &map, unsigned long long *on{mask}{args}) {{\n  \
                     asm volatile(\"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{cast} \
                     [%0], [%1, {{{list}}}], [%2]{last};\" ::\n    \
                     \"r\"(shared_address(to)), \"l\"(&map), \"r\"(shared_address(on)){operand}{operands} : \"memory\");\n}}\n"
                )
            }
            Ptx::TensorStore { rank } => {
                let (args, list, operands) = coordinates(rank, 2);
                format!(
                    "KG_FN void {name}(const tensor_map &map, const void *from{args}) {{\n  \
                     asm volatile(\"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{list}}}], [%1];\" ::\n    \
                     \"l\"(&map), \"r\"(shared_address(from)){operands} : \"memory\");\n}}\n"
                )
            }
            // 9.7.9.25.4: a multiple of 16 bytes from one of 16 on.
            Ptx::Prefetch => format!(
                "KG_FN void {name}(const void *from, int bytes) {{\n  \
                 asm volatile(\"cp.async.bulk.prefetch.L2.global [%0], %1;\" :: \"l\"(from), \"r\"(bytes) : \"memory\");\n}}\n"
            ),
            // 9.7.14.5.15: lane l, of two matrices one of the first sixteen, gives the address of row l % 8 of matrix l / 8.
            Ptx::Ldmatrix { .. } | Ptx::LdmatrixHalf => {
                let n = if self == Ptx::LdmatrixHalf { 2 } else { 4 };
                format!(
                    "KG_FN void {name}(unsigned *to, const void *row) {{\n  \
                     asm volatile(\"ldmatrix.sync.aligned.m8n8.x{n}{}.shared.b16 {{{}}}, [%{n}];\" : \
                     {} : \"r\"(shared_address(row)) : \"memory\");\n}}\n",
                    if self == (Ptx::Ldmatrix { transposed: true }) { ".trans" } else { "" },
                    operands(0, n),
                    registers("=r", "to", "", n),
                )
            }
            // 9.7.14.5.8: registers 0 and 2 of a left operand are a lane's pairs of one row, 1 and 3 those of the row eight
            // below.
            Ptx::LoadRow => format!(
                "KG_FN void {name}(unsigned *low, unsigned *high, const void *from, bool exists) {{\n  \
                 uint4 row = make_uint4(0, 0, 0, 0);\n  if (exists) row = *(const uint4 *)from;\n  \
                 low[0] = row.x, low[2] = row.y, high[0] = row.z, high[2] = row.w;\n}}\n"
            ),
            Ptx::HalfPair => format!("union {name} {{\n  unsigned both;\n  unsigned short half[2];\n}};\n"),
            Ptx::Mma { dtypes, sums } => {
                let (ty, held) = match sums {
                    DType::F16 => ("half_pair", registers("+r", "sums", ".both", 2)),
                    DType::I32 => ("int", registers("+r", "sums", "", 4)),
                    _ => ("float", registers("+f", "sums", "", 4)),
                };
                let n = if sums == DType::F16 { 2 } else { 4 };
                let product = |depth: i64, a: &[usize], b: &[usize]| {
                    let own = |name: &str, of: &[usize]| -> Vec<String> {
                        of.iter().map(|i| format!("\"r\"({name}[{i}])")).collect()
                    };
                    let ([left, right], sum) = (dtypes.map(kind), kind_of_sums(sums));
                    format!(
                        "  asm(\"mma.sync.aligned.m16n8k{depth}.row.col.{sum}.{left}.{right}.{sum} \"\n    \
                         \"{{{d}}}, {{{x}}}, {{{y}}}, {{{d}}};\" :\n    {held} :\n    {inputs});\n",
                        d = operands(0, n),
                        x = operands(n, a.len()),
                        y = operands(n + a.len(), b.len()),
                        inputs = [own("a", a), own("b", b)].concat().join(", "),
                    )
                };
                // Before sm_80 a reduction has eight elements: the registers are those of the two halves.
                let products = match arch.capability {
                    _ if sums == DType::I32 => product(32, &[0, 1, 2, 3], &[0, 1]),
                    ..80 => [product(8, &[0, 1], &[0]), product(8, &[2, 3], &[1])].concat(),
                    _ => product(16, &[0, 1, 2, 3], &[0, 1]),
                };
                format!("KG_FN void {name}({ty} *sums, const unsigned *a, const unsigned *b) {{\n{products}}}\n")
            }
            // 9.7.14.4.3 to 9.7.14.4.5.
            Ptx::WmmaLoad(tile) => {
                let (ty, constraint, member, n) = tile.registers();
                let operand = ["a", "b", "c"][tile.operand as usize];
                format!(
                    "KG_FN void {name}({ty} *to, const void *tile, int stride) {{\n  \
                     asm volatile(\"wmma.load.{operand}.sync.aligned.{} {{{}}}, [%{n}], %{};\" :\n    {} :\n    \
                     {}, \"r\"(stride) : \"memory\");\n}}\n",
                    tile.modifiers(),
                    operands(0, n),
                    n + 1,
                    registers(&format!("={constraint}"), "to", member, n),
                    tile.address(),
                )
            }
            Ptx::WmmaStore(tile) => {
                let (ty, constraint, member, n) = tile.registers();
                format!(
                    "KG_FN void {name}(void *tile, const {ty} *from, int stride) {{\n  \
                     asm volatile(\"wmma.store.d.sync.aligned.{} [%0], {{{}}}, %{};\" ::\n    {},\n    {},\n    \
                     \"r\"(stride) : \"memory\");\n}}\n",
                    tile.modifiers(),
                    operands(1, n),
                    n + 1,
                    tile.address(),
                    registers(&constraint.to_string(), "from", member, n),
                )
            }
            Ptx::Wmma { sums, transposed } => {
                let (ty, constraint, member, n) = match sums {
                    DType::F16 => ("half_pair", "+r", ".both", 4),
                    _ => ("float", "+f", "", 8),
                };
                let [a, b] = transposed.map(|t| if t { "col" } else { "row" });
                format!(
                    "KG_FN void {name}({ty} *sums, const unsigned *a, const unsigned *b) {{\n  \
                     asm(\"wmma.mma.sync.aligned.{a}.{b}.m16n16k16.{sums}.{sums} \"\n    \
                     \"{{{d}}}, {{{x}}}, \"\n    \"{{{y}}}, {{{d}}};\" :\n    {} :\n    {},\n    {});\n}}\n",
                    registers(constraint, "sums", member, n),
                    registers("r", "a", "", 8),
                    registers("r", "b", "", 8),
                    d = operands(0, n),
                    x = operands(n, 8),
                    y = operands(n + 8, 8),
                )
            }
            // No instruction: compilers must not move what touches the registers across the asynchronous product.
            Ptx::Settle { sums } => {
                let (ty, constraint) = register(sums);
                format!(
                    "template <int n> KG_FN void {name}({ty} *sums) {{\n  #pragma unroll\n  \
                     for (int i = 0; i < n; ++i) asm volatile(\"\" : \"+{constraint}\"(sums[i]) :: \"memory\");\n}}\n"
                )
            }
            Ptx::SettleOperand => format!(
                "template <int n> KG_FN void {name}(unsigned *operand) {{\n  #pragma unroll\n  \
                 for (int i = 0; i < n; ++i) asm volatile(\"\" : \"+r\"(operand[i]) :: \"memory\");\n}}\n"
            ),
            // 9.7.3.21: a maximum relative error of 2^-22.
            Ptx::Exp2 => format!(
                "KG_FN float {name}(float x) {{\n  float r;\n  \
                 asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n  return r;\n}}\n"
            ),
            // Adding half of the last place kept would make zeros of some NaN.
            Ptx::RoundTf32 => format!(
                "KG_FN float {name}(float x) {{\n  \
                 return x != x ? x : __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);\n}}\n"
            ),
            // What is left over has at most 12 bits, of which tensor cores ignore the last one; of NaN it is NaN, whatever the
            // first part is.
            Ptx::SplitTf32 => format!(
                "KG_FN void {name}(unsigned &whole, unsigned &rest, float x) {{\n  \
                 whole = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;\n  \
                 rest = __float_as_uint(x - __uint_as_float(whole));\n}}\n"
            ),
            // The parts of NaN are NaN, as is what infinity leaves over.
            Ptx::SplitBf16 { parts } => {
                let names: Vec<String> = (0..parts).map(|i| format!("part{i}")).collect();
                let params: String = names.iter().map(|n| format!("unsigned &{n}, ")).collect();
                let rounded = names.iter().map(|n| format!("  {n} = f32_to_bf16x2(low, high);\n"));
                let rests = names.iter().map(|n| {
                    format!("  low -= __uint_as_float({n} << 16);\n  high -= __uint_as_float({n} & 0xffff0000u);\n")
                });
                // Behind the last part nothing asks for the rest.
                let mut lines: Vec<String> = rounded.zip(rests).flat_map(|(part, rest)| [part, rest]).collect();
                lines.pop();
                format!("KG_FN void {name}({params}float low, float high) {{\n{}}}\n", lines.concat())
            }
            Ptx::WgmmaHeld { columns, dtype, transposed } => {
                wgmma(&name, columns, [dtype; 2], (None, transposed), true)
            }
            // 9.7.15.5.1.2.2: address, leading and stride offsets in units of 16 bytes; the swizzle in the top bits.
            Ptx::WgmmaOperand => format!(
                "KG_FN unsigned long long {name}(const void *p, unsigned long long layout) {{\n  \
                 return layout | (shared_address(p) & 0x3ffffu) >> 4;\n}}\n"
            ),
            Ptx::Wgmma { columns, dtypes, transposed: [a, b], adds } => {
                wgmma(&name, columns, dtypes, (Some(a), b), adds)
            }
        }
    }
}

/// The definition of a `wgmma`. `left` and `right` say whether an operand is transposed; a left operand of `None` is in registers. One that
/// does not add makes sums of its products alone.
fn wgmma(name: &str, columns: i64, dtypes: [DType; 2], (left, right): (Option<bool>, bool), adds: bool) -> String {
    let n = columns as usize / 2;
    let (depth, [kind, other]) = wgmma_kinds(dtypes);
    let integers = dtypes[0].is_byte();
    let sums_type = if integers { DType::I32 } else { DType::F32 };
    let (sum, constraint) = register(sums_type);
    let [sums, outputs] = accumulators(columns / 2, constraint);
    let (ty, a, inputs, next) = match left {
        Some(_) => ("unsigned long long ", format!("%{n}"), "\"l\"(a)".to_string(), n + 1),
        None => ("const unsigned *", format!("{{{}}}", operands(n, 4)), registers("r", "a", "", 4), n + 4),
    };
    // Behind "add to the sums" floats have signs, and those of 16 bits orders.
    let modifiers: String = match dtypes[0] {
        _ if integers => String::new(),
        dtype if dtype == DType::F32 || dtype.is_f8() => ", 1, 1".into(),
        _ => {
            let orders = left.into_iter().chain([right]).map(|t| format!(", {}", u8::from(t)));
            [", 1, 1".to_string()].into_iter().chain(orders).collect()
        }
    };
    format!(
        "KG_FN void {name}({sum} *sums, {ty}a, unsigned long long b) {{\n  \
         asm volatile(\"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{}.{kind}.{other} \"\n    \
         \"{{{sums}}}, \"\n    \"{a}, %{next}, {}{modifiers};\" :\n    {outputs} :\n    \
         {inputs}, \"l\"(b));\n}}\n",
        kind_of_sums(sums_type),
        u8::from(adds),
    )
}

/// The reduction of one `wgmma`, and what it calls its operands.
fn wgmma_kinds(dtypes: [DType; 2]) -> (i64, [&'static str; 2]) {
    (32 / dtypes[0].bytes() as i64, dtypes.map(kind))
}

/// What instructions of tensor cores call a type of operands.
fn kind(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "tf32",
        DType::I8 => "s8",
        dtype => dtype.name(),
    }
}

/// What instructions of tensor cores call a type of sums.
fn kind_of_sums(dtype: DType) -> &'static str {
    if dtype == DType::I32 { "s32" } else { dtype.name() }
}

/// A register of sums, `f32` or `i32`: its type in C, and as an operand.
fn register(dtype: DType) -> (&'static str, &'static str) {
    if dtype == DType::I32 { ("int", "r") } else { ("float", "f") }
}

/// `n` sums: the list in the instruction, and operands.
fn accumulators(n: i64, constraint: &str) -> [String; 2] {
    let lines = |each: &dyn Fn(i64) -> String, wide: usize, between: &str| {
        let all: Vec<String> = (0..n).map(each).collect();
        all.chunks(wide).map(|c| c.join(", ")).collect::<Vec<_>>().join(between)
    };
    let registers = lines(&|i| format!("%{i}"), 16, ", \"\n    \"");
    [registers, lines(&|i| format!("\"+{constraint}\"(sums[{i}])"), 6, ",\n    ")]
}

/// Coordinates of a box: parameters, the list in the instruction, and operands. The fastest dimension comes first.
fn coordinates(rank: usize, first: usize) -> (String, String, String) {
    let all = |f: &dyn Fn(usize) -> String| (0..rank).map(f).collect::<Vec<_>>();
    let args: String = all(&|d| format!(", int c{d}")).concat();
    let list = all(&|d| format!("%{}", first + d)).join(", ");
    let operands: String = all(&|d| format!(", \"r\"(c{d})")).concat();
    (args, list, operands)
}
