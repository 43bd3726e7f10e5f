// tile.h -- the register tile of the GEMM family as tuning gives it, and how products and packings expand to launches.
#pragma once
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {

struct Tile {
  int64_t vw, tm, nv;
  int64_t tn() const { return vw * nv; }
};

// How many vectors wide: as tuned, or fewer where they would mostly hold padding. One vector alone hides little latency
// and gets a taller tile (gemm.TM1).
inline int64_t vectors_for(const Target& target, int64_t n, std::string_view key = "gemm.NV") {
  const int64_t vw = tuned(target, "gemm.VW"), most = tuned(target, key);
  int64_t best = most;
  double least = 0;
  for (int64_t nv = most; nv >= 1; --nv) {
    const double work = static_cast<double>(round_up(n, nv * vw)) * (nv == 1 && n > vw ? 1.3 : 1.0);
    if (nv == most || work < least) best = nv, least = work;
  }
  return n <= vw ? 1 : best;
}

inline Tile gemm_tile(const Target& target, int64_t nv, bool tall = false) {
  return {tuned(target, "gemm.VW"), tuned(target, nv == 1 ? "gemm.TM1" : tall ? "gemm.TALL" : "gemm.TM"), nv};
}

inline void define_tile(Call& call, const Target& target, const Tile& tile) {
  call.define("VW", tile.vw).define("TM", tile.tm).define("NV", tile.nv).define("MAC_FORM", tuned(target, "gemm.MAC"));
  if (tuned(target, "gemm.HINT")) call.define("VECTOR_HINT", 1);
}

// How many tiles one below the other a work-item does: enough to be worth its launch, if enough work-items remain.
inline int64_t tiles_per_item(const Target& target, int64_t tiles, int64_t others, int64_t work_per_tile) {
  const int64_t wanted = ceil_div(tuned(target, "gemm.WORK"), std::max<int64_t>(work_per_tile, 1));
  const int64_t most = tiles * others / tuned(target, "gemm.ITEMS");
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, std::min(most, tiles)));
}

// The seconds of rows x cols x k multiply-adds in tiles. B in place is slower once its rows leave the nearest cache.
inline double tile_seconds(const Target& target, const Tile& tile, double m, double n, double k, bool packed) {
  const double padded = std::ceil(m / static_cast<double>(tile.tm)) * static_cast<double>(tile.tm) *
                        std::ceil(n / static_cast<double>(tile.tn())) * static_cast<double>(tile.tn());
  const double items = padded / static_cast<double>(tile.tm * tile.tn());
  const double busy = std::min(1.0, items / static_cast<double>(tuned(target, "gemm.ITEMS")));
  const double reached = packed || n * k < 8192 ? 0.8 : 0.6;
  return 2 * padded * k / (kNominalFlops * reached * busy) + kNominalLaunch;
}

inline double pack_seconds(double elements) { return 12 * elements / kNominalBytes + kNominalLaunch; }

// --- packing (pack.cl) ----------------------------------------------------------------------------------------------
// Panels of b [K, groups * N].
inline ir::Value pack_rows(Expansion& e, ir::Value b, int64_t groups, int64_t nv) {
  const Shape& shape = e.type(b).shape;
  const int64_t tn = nv * tuned(e.target(), "gemm.VW"), panels = groups * ceil_div(shape.cols() / groups, tn);
  return e.launch("pack_rows", {b}, f32({panels, shape.rows(), tn}), {{"groups", groups}, {"nv", nv}});
}
// Panels of the transpose: w is [taps * N, groups * K], taps come out in reverse order. One launch may do several.
inline ir::Value pack_cols(Expansion& e, ir::Value w, int64_t taps, int64_t groups, int64_t nv) {
  const Shape& shape = e.type(w).shape;
  const int64_t tn = nv * tuned(e.target(), "gemm.VW"), panels = groups * ceil_div(shape.rows() / taps, tn);
  return e.launch(
      "pack_cols", {w}, f32({panels, taps * (shape.cols() / groups), tn}),
      {{"joins", int64_t{1}}, {"taps", ir::Ints{taps}}, {"groups", ir::Ints{groups}}, {"nv", ir::Ints{nv}}});
}

// --- padding (copy.cl) ----------------------------------------------------------------------------------------------
inline bool has_padding(const ops::Window& w) {
  const ops::Window p = padded_window(w);
  return w.y.before != 0 || w.x.before != 0 || p.y.in > w.y.in || p.x.in > w.x.in;
}
inline ir::Value pad_images(Expansion& e, ir::Value x, const ops::Window& w) {
  const Shape& shape = e.type(x).shape;
  const ops::Window p = padded_window(w);
  return e.launch("pad", {x}, f32({shape[0], p.y.in, p.x.in, shape[3]}),
                  {{"before", ir::Ints{w.y.before, w.x.before}}});
}
inline double pad_seconds(const ops::Window& w, int64_t images, int64_t channels) {
  const ops::Window p = padded_window(w);
  const double pixels = static_cast<double>(w.y.in * w.x.in + p.y.in * p.x.in);
  return 4 * pixels * static_cast<double>(images * channels) / kNominalBytes + kNominalLaunch;
}

// --- products (gemm.cl) ---------------------------------------------------------------------------------------------
// y = a' b' over rows x cols, whatever the shapes: a 1x1 convolution is one too.
struct Product {
  int64_t m, n, k;
  bool ta, tb;
};

inline Product product_of(const Type& a, const Type& b, bool ta, bool tb) {
  return {ta ? a.shape.cols() : a.shape.rows(), tb ? b.shape.rows() : b.shape.cols(),
          ta ? a.shape.rows() : a.shape.cols(), ta, tb};
}

inline int64_t splits_for(const Target& target, const Product& p) {
  const Tile tile = gemm_tile(target, vectors_for(target, p.n));
  const int64_t items = ceil_div(p.m, tile.tm) * ceil_div(p.n, tile.tn());
  return std::min(ceil_div(tuned(target, "gemm.ITEMS"), items), p.k / tuned(target, "gemm.SPLIT"));
}

struct Way {
  bool packed = false, split = false;
  bool turned = false;  // a is transposed first, so that a tile walks along its rows
  bool tall = false;    // two vectors wide and gemm.TALL rows high: reads b less often, whose panels may come from afar
};

inline int64_t product_vectors(const Target& target, const Product& p, Way way) {
  const int64_t nv = vectors_for(target, p.n);
  return way.tall ? std::min<int64_t>(nv, 2) : nv;
}

inline bool product_accepts(const Target& target, const Product& p, Way way) {
  if (!way.packed && p.tb) return false;
  if (way.turned && !p.ta) return false;
  if (way.tall && (tuned(target, "gemm.TALL") == 0 || p.n <= tuned(target, "gemm.VW"))) return false;
  return !way.split || splits_for(target, p) > 1;
}

inline double product_seconds(const Target& target, const Product& p, Way way) {
  const Tile tile = gemm_tile(target, product_vectors(target, p, way), way.tall);
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double s = way.split ? static_cast<double>(splits_for(target, p)) : 1;
  double seconds = tile_seconds(target, tile, m * s, n, k / s, way.packed);
  if (way.tall) seconds *= 1.2;  // where it is faster a measurement says
  if (way.packed) seconds += pack_seconds(n * k);
  if (way.split) seconds += 4 * (2 * s + 1) * m * n / kNominalBytes + kNominalLaunch;
  return seconds;
}

// Emits the launches of epilogue(a' b'); `extras` are the epilogue's operands.
inline ir::Value expand_product(Expansion& e, ir::Value a, ir::Value b, const ir::Values& extras, const Product& p,
                                Way way, const Type& y) {
  const Target& target = e.target();
  const int64_t nv = product_vectors(target, p, way), splits = way.split ? splits_for(target, p) : 1;
  const std::string epilogue = e.attrs().text("epilogue", "");
  if (way.packed) b = p.tb ? pack_cols(e, b, 1, 1, nv) : pack_rows(e, b, 1, nv);
  if (way.turned) a = e.launch("transpose", {a}, f32({p.m, p.k}), {{"perm", ir::Ints{1, 0}}});
  const bool ta = p.ta && !way.turned;
  ir::Attrs attrs{{"nv", nv}, {"packed", int64_t{way.packed}}, {"ta", int64_t{ta}}, {"splits", splits}};
  if (way.tall) attrs.set("tall", int64_t{1});
  ir::Values inputs{a, b};
  if (splits > 1) {
    const ir::Value part = e.launch("gemm", inputs, f32({splits, p.m, p.n}), attrs);
    inputs = {part};
    inputs.insert(inputs.end(), extras.begin(), extras.end());
    return e.launch("sum_splits", inputs, y, {{"epilogue", epilogue}});
  }
  inputs.insert(inputs.end(), extras.begin(), extras.end());
  return e.launch("gemm", inputs, y, attrs.set("epilogue", epilogue));
}

inline ir::Values operands_from(const Expansion& e, int first) {
  return {e.inputs().begin() + first, e.inputs().end()};
}

}  // namespace situ::opencl::kernels
