// oneDNN behind a small C interface, for src/onednn.rs. Compiled by run.sh against oneDNN 2.x or 3.x, whichever it finds.
//
// A problem is one convolution or product with its epilogue. Its weights are in the layout that oneDNN picks before any
// time is taken. Three ways to run it:
//
//     blocked         activations in the layout that oneDNN likes best, on both sides; nothing is reordered
//     plain           plain tensors on both sides, and oneDNN picks an implementation that takes them
//     reordered       plain tensors on both sides; the call reorders to the layout that oneDNN likes, computes, reorders back
//
// A residual is summed into what the destination holds (oneDNN's `sum`), so the destination starts as a copy of it. That
// copy is made once and is not part of a run: later runs add to the results of earlier ones, which costs the same time.
#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

using namespace dnnl;
using tag = memory::format_tag;
using dims = memory::dims;

namespace {

const auto f32 = memory::data_type::f32;

// The order of the fields is that of `Problem` in src/onednn.rs.
struct Problem {
  int64_t kind;  // 0: convolution, 1: matrix product
  int64_t n, ci, h, w, co, kh, kw, stride_h, stride_w, top, left, bottom, right, dilation_h, dilation_w, groups;
  int64_t batch, m, columns, k, trans_a, trans_b;
  int64_t bias, residual, activation;  // activation: 0 none, 1 relu, 2 relu6, 3 gelu
};

enum Variant { blocked, plain, reordered };

struct Handle {
  primitive op;
  std::unordered_map<int, memory> args;
  bool reorder_in = false, reorder_out = false;
  reorder in, out;
  memory x, inner_x, y, inner_y, residual;
  reorder residual_in;
  bool has_residual = false;
  std::string implementation;
  memory::desc plain_y;
};

engine &cpu() {
  static engine e(engine::kind::cpu, 0);
  return e;
}

stream &queue() {
  static stream s(cpu());
  return s;
}

memory borrowed(const memory::desc &desc, const float *data) { return memory(desc, cpu(), const_cast<float *>(data)); }

// The same values in another layout, in memory of its own.
memory copy_as(const memory::desc &desc, memory from) {
  memory to(desc, cpu());
  reorder(from, to).execute(queue(), from, to);
  queue().wait();
  return to;
}

primitive_attr attributes(const Problem &p) {
  post_ops after;
  if (p.residual) after.append_sum(1.0f);
  auto activate = [&](algorithm kind, float alpha, float beta) {
#if DNNL_VERSION_MAJOR >= 3
    after.append_eltwise(kind, alpha, beta);
#else
    after.append_eltwise(1.0f, kind, alpha, beta);
#endif
  };
  if (p.activation == 1) activate(algorithm::eltwise_relu, 0, 0);
  if (p.activation == 2) activate(algorithm::eltwise_clip, 0, 6);
  if (p.activation == 3) activate(algorithm::eltwise_gelu_erf, 0, 0);
  primitive_attr attr;
  attr.set_post_ops(after);
  return attr;
}

// Fills in everything but the primitive: memories, reorders, arguments.
template <class Descriptor>
void complete(Handle &h, const Problem &p, const Descriptor &pd, Variant variant, memory x, memory w, memory bias,
              memory residual, memory y) {
  h.implementation = pd.impl_info_str();
  h.x = x;
  h.y = y;
  h.plain_y = y.get_desc();
  h.inner_x = pd.src_desc() == x.get_desc() ? x : copy_as(pd.src_desc(), x);
  h.inner_y = pd.dst_desc() == y.get_desc() ? y : memory(pd.dst_desc(), cpu());
  h.reorder_in = variant == reordered && pd.src_desc() != x.get_desc();
  h.reorder_out = variant == reordered && pd.dst_desc() != y.get_desc();
  if (h.reorder_in) h.in = reorder(x, h.inner_x);
  if (pd.dst_desc() != y.get_desc()) h.out = reorder(h.inner_y, y);
  h.args[DNNL_ARG_SRC] = h.inner_x;
  h.args[DNNL_ARG_WEIGHTS] = pd.weights_desc() == w.get_desc() ? w : copy_as(pd.weights_desc(), w);
  h.args[DNNL_ARG_DST] = h.inner_y;
  if (p.bias) h.args[DNNL_ARG_BIAS] = bias;
  if (p.residual) {
    h.has_residual = true;
    h.residual = residual;
    h.residual_in = reorder(residual, h.inner_y);
  }
}

std::unique_ptr<Handle> convolution(const Problem &p, Variant variant, const float *x, const float *w, const float *bias,
                                    const float *residual, float *y) {
  int64_t oh = (p.h + p.top + p.bottom - ((p.kh - 1) * p.dilation_h + 1)) / p.stride_h + 1;
  int64_t ow = (p.w + p.left + p.right - ((p.kw - 1) * p.dilation_w + 1)) / p.stride_w + 1;
  dims xd{p.n, p.ci, p.h, p.w}, yd{p.n, p.co, oh, ow}, bd{p.co};
  bool grouped = p.groups > 1;
  dims wd = grouped ? dims{p.groups, p.co / p.groups, p.ci / p.groups, p.kh, p.kw} : dims{p.co, p.ci, p.kh, p.kw};
  tag activations = variant == plain ? tag::nchw : tag::any;
  memory::desc xm(xd, f32, activations), wm(wd, f32, tag::any), bm(bd, f32, tag::a), ym(yd, f32, activations);
  dims strides{p.stride_h, p.stride_w}, dilation{p.dilation_h - 1, p.dilation_w - 1}, before{p.top, p.left},
      after{p.bottom, p.right};
  auto attr = attributes(p);
  auto kind = prop_kind::forward_inference;
  auto method = algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  auto pd = p.bias ? convolution_forward::primitive_desc(cpu(), kind, method, xm, wm, bm, ym, strides, dilation, before,
                                                         after, attr)
                   : convolution_forward::primitive_desc(cpu(), kind, method, xm, wm, ym, strides, dilation, before,
                                                         after, attr);
#else
  auto desc = p.bias ? convolution_forward::desc(kind, method, xm, wm, bm, ym, strides, dilation, before, after)
                     : convolution_forward::desc(kind, method, xm, wm, ym, strides, dilation, before, after);
  convolution_forward::primitive_desc pd(desc, attr, cpu());
#endif
  auto h = std::make_unique<Handle>();
  complete(*h, p, pd, variant, borrowed({xd, f32, tag::nchw}, x), borrowed({wd, f32, grouped ? tag::goihw : tag::oihw}, w),
           p.bias ? borrowed({bd, f32, tag::a}, bias) : memory(),
           p.residual ? borrowed({yd, f32, tag::nchw}, residual) : memory(), borrowed({yd, f32, tag::nchw}, y));
  h->op = convolution_forward(pd);
  return h;
}

std::unique_ptr<Handle> product(const Problem &p, Variant variant, const float *a, const float *b, const float *bias,
                                const float *residual, float *c) {
  bool many = p.batch > 1;
  auto shape = [&](int64_t rows, int64_t columns) { return many ? dims{p.batch, rows, columns} : dims{rows, columns}; };
  tag straight = many ? tag::abc : tag::ab, turned = many ? tag::acb : tag::ba;
  memory::desc am(shape(p.m, p.k), f32, p.trans_a ? turned : straight), bm(shape(p.k, p.columns), f32, tag::any),
      cm(shape(p.m, p.columns), f32, straight), stored_b(shape(p.k, p.columns), f32, p.trans_b ? turned : straight);
  dims bias_shape = many ? dims{1, 1, p.columns} : dims{1, p.columns};
  memory::desc biasm(bias_shape, f32, straight);
  (void)variant;  // Activations of a product are plain in every variant.
  auto attr = attributes(p);
#if DNNL_VERSION_MAJOR >= 3
  auto pd = p.bias ? matmul::primitive_desc(cpu(), am, bm, biasm, cm, attr) : matmul::primitive_desc(cpu(), am, bm, cm, attr);
#else
  auto desc = p.bias ? matmul::desc(am, bm, biasm, cm) : matmul::desc(am, bm, cm);
  matmul::primitive_desc pd(desc, attr, cpu());
#endif
  auto h = std::make_unique<Handle>();
  complete(*h, p, pd, plain, borrowed(am, a), borrowed(stored_b, b), p.bias ? borrowed(biasm, bias) : memory(),
           p.residual ? borrowed(cm, residual) : memory(), borrowed(cm, c));
  h->op = matmul(pd);
  return h;
}

}  // namespace

extern "C" {

void peer_version(char *text, size_t bytes) {
  auto *v = dnnl_version();
  snprintf(text, bytes, "%d.%d.%d", v->major, v->minor, v->patch);
}

// Null where oneDNN has no implementation; `text` says why, or else which implementation it is. The tensors must live
// as long as the handle; `y` is written by `peer_result` and, in the variants with plain tensors, by `peer_run`.
void *peer_create(const Problem *p, int variant, const float *x, const float *w, const float *bias, const float *residual,
                  float *y, char *text, size_t bytes) {
  try {
    auto make = p->kind == 0 ? convolution : product;
    auto h = make(*p, Variant(variant), x, w, bias, residual, y);
    snprintf(text, bytes, "%s", h->implementation.c_str());
    return h.release();
  } catch (const std::exception &e) {
    snprintf(text, bytes, "%s", e.what());
    return nullptr;
  }
}

// One run. Zero on success.
int peer_run(void *handle) {
  auto &h = *static_cast<Handle *>(handle);
  try {
    if (h.reorder_in) h.in.execute(queue(), h.x, h.inner_x);
    // Where tensors are plain at the call, so is the residual.
    if (h.has_residual && h.reorder_out) h.residual_in.execute(queue(), h.residual, h.inner_y);
    h.op.execute(queue(), h.args);
    if (h.reorder_out) h.out.execute(queue(), h.inner_y, h.y);
    queue().wait();
    return 0;
  } catch (const std::exception &) {
    return 1;
  }
}

// One run from a fresh destination, and its result in `y`. Zero on success.
int peer_result(void *handle) {
  auto &h = *static_cast<Handle *>(handle);
  try {
    if (h.has_residual) h.residual_in.execute(queue(), h.residual, h.inner_y);
    queue().wait();
    if (peer_run(handle)) return 1;
    if (!h.reorder_out && h.inner_y.get_data_handle() != h.y.get_data_handle()) h.out.execute(queue(), h.inner_y, h.y);
    queue().wait();
    return 0;
  } catch (const std::exception &) {
    return 1;
  }
}

void peer_destroy(void *handle) { delete static_cast<Handle *>(handle); }
}
