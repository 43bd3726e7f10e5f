#include "estimate/least_squares.h"

#include <cmath>
#include <limits>

namespace situ::estimate {
namespace {

constexpr double kTolerated = 0.5;  // a relative error up to which a slow row counts in full
constexpr int kRounds = 6;

using Matrix = std::array<Triple, 3>;

struct Normal {  // c^T a c - 2 b^T c + constant
  Matrix a{};
  Triple b{};
  double value(const Triple& c) const {
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      sum -= 2 * b[i] * c[i];
      for (size_t j = 0; j < 3; ++j) sum += c[i] * a[i][j] * c[j];
    }
    return sum;
  }
};

Normal normal_of(const std::vector<Row>& rows, const std::vector<double>& trust, const Prior& prior) {
  Normal n;
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < 3; ++i) {
      const double w = rows[r].weight * trust[r] / rows[r].y;
      n.b[i] += w * rows[r].x[i];
      for (size_t j = 0; j < 3; ++j) n.a[i][j] += w * rows[r].x[i] * rows[r].x[j] / rows[r].y;
    }
  for (size_t i = 0; i < 3; ++i) {
    const double w = prior.strength / (prior.spread[i] * prior.spread[i]);
    n.a[i][i] += w;
    n.b[i] += w * prior.middle[i];
  }
  return n;
}

// The free coefficients (bits of `free`) at their best, the others at their bounds; by elimination.
Triple solve(const Normal& n, unsigned free, const Triple& least) {
  Matrix a{};
  Triple b{};
  for (size_t i = 0; i < 3; ++i) {
    const bool mine = free >> i & 1;
    b[i] = mine ? n.b[i] : least[i];
    for (size_t j = 0; j < 3; ++j) {
      if (!mine)
        a[i][j] = i == j;
      else if (free >> j & 1)
        a[i][j] = n.a[i][j];
      else
        b[i] -= n.a[i][j] * least[j];
    }
  }
  for (size_t k = 0; k < 3; ++k) {  // positive definite: needs no pivoting
    for (size_t i = k + 1; i < 3; ++i) {
      const double factor = a[k][k] == 0 ? 0 : a[i][k] / a[k][k];
      for (size_t j = k; j < 3; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  Triple c{};
  for (size_t k = 3; k-- > 0;) {
    double rest = b[k];
    for (size_t j = k + 1; j < 3; ++j) rest -= a[k][j] * c[j];
    c[k] = a[k][k] == 0 ? least[k] : rest / a[k][k];
  }
  return c;
}

Triple best_of(const Normal& n, const Triple& least) {
  Triple best = least;
  double value = n.value(best);
  for (unsigned free = 1; free < 8; ++free) {
    const Triple c = solve(n, free, least);
    bool allowed = true;
    for (size_t i = 0; i < 3; ++i) allowed = allowed && c[i] >= least[i] && std::isfinite(c[i]);
    if (!allowed || n.value(c) >= value) continue;
    best = c;
    value = n.value(c);
  }
  return best;
}

}  // namespace

Triple fit_triple(const std::vector<Row>& rows, const Prior& prior) {
  std::vector<double> trust(rows.size(), 1);
  Triple c{};
  for (int round = 0; round < kRounds; ++round) {
    c = best_of(normal_of(rows, trust, prior), prior.least);
    for (size_t r = 0; r < rows.size(); ++r) {
      double fitted = 0;
      for (size_t i = 0; i < 3; ++i) fitted += c[i] * rows[r].x[i];
      const double above = 1 - fitted / rows[r].y;
      trust[r] = above > kTolerated ? kTolerated / above : 1;
    }
  }
  return c;
}

}  // namespace situ::estimate
