// Times oneDNN on the workloads that standard input lists, one a line, and prints one JSON object a workload and variant.
//
//     conv NAME n ci h w co kh kw stride_h stride_w top left bottom right groups
//     matmul NAME m n k
//
// usage: onednn_peer THREADS ROUNDS SAMPLES MIN_SAMPLE_SECONDS < workloads
// Built and called by peers.py. Weights are in the layout that oneDNN picks for them, before the time is taken.
//
//     nchw            plain NCHW in and out, and oneDNN picks its implementation for that
//     nchw+reorders   plain NCHW in and out; the call reorders to the layout that oneDNN likes, convolves, reorders back
//     blocked         activations in the layout that oneDNN likes, nothing reordered
//     row-major       (matmul) A and C row-major, B packed
#include <oneapi/dnnl/dnnl.hpp>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "peak.h"

using namespace dnnl;
using tag = memory::format_tag;
using dims = memory::dims;
static const auto f32 = memory::data_type::f32;

struct Variant {
  std::string name, variant, implementation;
  std::function<void()> call;
  double error;  // Largest error against f64 sums over a sample of the outputs, relative to the largest output.
  long calls;
  std::vector<double> sample_us, peak_gflops;
  std::vector<bool> disturbed;  // Whether a thread lost its core during the sample.
};

// How often such a sample is taken again before it is kept.
static const int retries = 8;

// How often the system has taken a core away from a thread of this process that wanted to go on.
static long preemptions() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

static engine cpu(engine::kind::cpu, 0);
static stream queue(cpu);

static void fill(memory &m, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  float *p = static_cast<float *>(m.get_data_handle());
  for (size_t i = 0; i < m.get_desc().get_size() / 4; i++) p[i] = normal(random);
}

// The same values in another layout, or the same memory if the layouts are equal.
static memory to_layout(memory &from, const memory::desc &layout) {
  if (from.get_desc() == layout) return from;
  memory to(layout, cpu);
  reorder(from, to).execute(queue, from, to);
  queue.wait();
  return to;
}

struct Conv {
  long n, ci, h, w, co, kh, kw, sh, sw, top, left, bottom, right, groups;
};

static double conv_error(const Conv &c, memory &x, memory &w, memory &y) {
  const float *px = static_cast<float *>(x.get_data_handle()), *pw = static_cast<float *>(w.get_data_handle()),
              *py = static_cast<float *>(y.get_data_handle());
  long oh = (c.h + c.top + c.bottom - c.kh) / c.sh + 1, ow = (c.w + c.left + c.right - c.kw) / c.sw + 1;
  long per_group = c.ci / c.groups;
  std::mt19937 random(5);
  double error = 0, largest = 0;
  for (int sample = 0; sample < 200; sample++) {
    long b = random() % c.n, o = random() % c.co, i = random() % oh, j = random() % ow;
    double sum = 0;
    for (long k = 0; k < per_group; k++)
      for (long u = 0; u < c.kh; u++)
        for (long v = 0; v < c.kw; v++) {
          long row = i * c.sh - c.top + u, column = j * c.sw - c.left + v;
          if (row < 0 || row >= c.h || column < 0 || column >= c.w) continue;
          long channel = o / (c.co / c.groups) * per_group + k;
          sum += double(px[((b * c.ci + channel) * c.h + row) * c.w + column]) *
                 double(pw[((o * per_group + k) * c.kh + u) * c.kw + v]);
        }
    error = std::max(error, std::abs(sum - py[((b * c.co + o) * oh + i) * ow + j]));
    largest = std::max(largest, std::abs(sum));
  }
  return error / largest;
}

static void add_conv(std::vector<Variant> &out, const std::string &name, const Conv &c) {
  long oh = (c.h + c.top + c.bottom - c.kh) / c.sh + 1, ow = (c.w + c.left + c.right - c.kw) / c.sw + 1;
  dims xd{c.n, c.ci, c.h, c.w}, yd{c.n, c.co, oh, ow};
  dims wd = c.groups > 1 ? dims{c.groups, c.co / c.groups, c.ci / c.groups, c.kh, c.kw} : dims{c.co, c.ci, c.kh, c.kw};
  memory x({xd, f32, tag::nchw}, cpu), w({wd, f32, c.groups > 1 ? tag::goihw : tag::oihw}, cpu);
  fill(x, 1);
  fill(w, 2);
  auto make = [&](tag activations) {
    memory::desc xm(xd, f32, activations), wm(wd, f32, tag::any), ym(yd, f32, activations);
#if DNNL_VERSION_MAJOR >= 3
    return convolution_forward::primitive_desc(cpu, prop_kind::forward_inference, algorithm::convolution_direct, xm, wm,
                                               ym, dims{c.sh, c.sw}, dims{c.top, c.left}, dims{c.bottom, c.right});
#else
    return convolution_forward::primitive_desc({prop_kind::forward_inference, algorithm::convolution_direct, xm, wm, ym,
                                                dims{c.sh, c.sw}, dims{c.top, c.left}, dims{c.bottom, c.right}},
                                               cpu);
#endif
  };
  for (std::string variant : {"nchw", "nchw+reorders", "blocked"}) {
    auto pd = make(variant == "nchw" ? tag::nchw : tag::any);
    memory packed = to_layout(w, pd.weights_desc());
    memory y({yd, f32, tag::nchw}, cpu);
    memory inner_x = to_layout(x, pd.src_desc());
    memory inner_y = y.get_desc() == pd.dst_desc() ? y : memory(pd.dst_desc(), cpu);
    bool reorder_x = inner_x.get_desc() != x.get_desc(), reorder_y = inner_y.get_desc() != y.get_desc();
    auto op = std::make_shared<convolution_forward>(pd);
    auto in = std::make_shared<reorder>(x, inner_x), back = std::make_shared<reorder>(inner_y, y);
    auto convolve = [=] {
      op->execute(queue, {{DNNL_ARG_SRC, inner_x}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, inner_y}});
      queue.wait();
    };
    std::function<void()> call = convolve;
    if (variant == "nchw+reorders")
      call = [=]() mutable {
        if (reorder_x) in->execute(queue, x, inner_x);
        op->execute(queue, {{DNNL_ARG_SRC, inner_x}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, inner_y}});
        if (reorder_y) back->execute(queue, inner_y, y);
        queue.wait();
      };
    call();
    memory plain = to_layout(inner_y, memory::desc(yd, f32, tag::nchw));
    out.push_back({name, variant, pd.impl_info_str(), call, conv_error(c, x, w, plain), 1, {}, {}, {}});
  }
}

static void add_matmul(std::vector<Variant> &out, const std::string &name, long m, long n, long k) {
  memory::desc am({m, k}, f32, tag::ab), bm({k, n}, f32, tag::any), cm({m, n}, f32, tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  matmul::primitive_desc pd(cpu, am, bm, cm);
#else
  matmul::primitive_desc pd({am, bm, cm}, cpu);
#endif
  memory a(am, cpu), b({{k, n}, f32, tag::ab}, cpu), c(cm, cpu);
  fill(a, 1);
  fill(b, 2);
  memory packed = to_layout(b, pd.weights_desc());
  auto op = std::make_shared<matmul>(pd);
  auto call = [=] {
    op->execute(queue, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, c}});
    queue.wait();
  };
  call();
  const float *pa = static_cast<float *>(a.get_data_handle()), *pb = static_cast<float *>(b.get_data_handle()),
              *pc = static_cast<float *>(c.get_data_handle());
  std::mt19937 random(5);
  double error = 0, largest = 0;
  for (int sample = 0; sample < 200; sample++) {
    long i = random() % m, j = random() % n;
    double sum = 0;
    for (long l = 0; l < k; l++) sum += double(pa[i * k + l]) * double(pb[l * n + j]);
    error = std::max(error, std::abs(sum - pc[i * n + j]));
    largest = std::max(largest, std::abs(sum));
  }
  out.push_back({name, "row-major", pd.impl_info_str(), call, error / largest, 1, {}, {}, {}});
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: onednn_peer THREADS ROUNDS SAMPLES MIN_SAMPLE_SECONDS < workloads\n");
    return 2;
  }
  int threads = atoi(argv[1]), rounds = atoi(argv[2]), samples = atoi(argv[3]);
  double min_sample = atof(argv[4]);
  std::vector<Variant> variants;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string kind, name;
    in >> kind >> name;
    if (kind == "conv") {
      Conv c;
      in >> c.n >> c.ci >> c.h >> c.w >> c.co >> c.kh >> c.kw >> c.sh >> c.sw >> c.top >> c.left >> c.bottom >> c.right >>
          c.groups;
      add_conv(variants, name, c);
    } else if (kind == "matmul") {
      long m, n, k;
      in >> m >> n >> k;
      add_matmul(variants, name, m, n, k);
    }
    if (!in) {
      fprintf(stderr, "onednn_peer: cannot read the workload `%s`\n", line.c_str());
      return 2;
    }
  }
  auto timed = [](Variant &v, long calls) {
    double t = kg_now();
    for (long i = 0; i < calls; i++) v.call();
    return kg_now() - t;
  };
  for (auto &v : variants) {
    timed(v, 3);
    double seconds = timed(v, 1);
    while (seconds < min_sample) {
      double growth = std::min(8.0, 1.2 * min_sample / std::max(seconds, 1e-7));
      v.calls = std::max(v.calls + 1, long(double(v.calls) * growth));
      seconds = timed(v, v.calls);
    }
  }
  for (int round = 0; round < rounds; round++)
    for (auto &v : variants) {
      timed(v, 1);  // Its data back into the caches, after the others.
      for (int s = 0; s < samples; s++) {
        for (int attempt = 0;; attempt++) {
          double peak = kg_peak_gflops();
          timed(v, 1);  // Wakes the threads.
          long before = preemptions();
          double us = timed(v, v.calls) / double(v.calls) * 1e6;
          bool disturbed = preemptions() != before;
          if (disturbed && attempt < retries) continue;
          v.peak_gflops.push_back(peak);
          v.sample_us.push_back(us);
          v.disturbed.push_back(disturbed);
          break;
        }
      }
    }
  auto list = [](const auto &values, auto text_of) {
    std::string text;
    for (auto value : values) text += (text.empty() ? "" : ", ") + text_of(value);
    return "[" + text + "]";
  };
  auto number = [](double value) { return std::to_string(value); };
  auto truth = [](bool value) { return std::string(value ? "true" : "false"); };
  const auto *version = dnnl_version();
  for (auto &v : variants)
    printf("{\"peer\": \"oneDNN\", \"version\": \"%d.%d.%d\", \"workload\": \"%s\", \"variant\": \"%s\", "
           "\"implementation\": \"%s\", \"threads\": %d, \"error\": %.3e, \"sample_us\": %s, \"peak_gflops\": %s, "
           "\"disturbed\": %s}\n",
           version->major, version->minor, version->patch, v.name.c_str(), v.variant.c_str(), v.implementation.c_str(),
           threads, v.error, list(v.sample_us, number).c_str(), list(v.peak_gflops, number).c_str(),
           list(v.disturbed, truth).c_str());
  return 0;
}
