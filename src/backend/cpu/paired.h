// paired.h -- matrix products that multiply half as often in two thirds of their terms (Winograd, 1968):
//
//     a1 b1 + a2 b2 =  (a1 + b2) (a2 + b1) - a1 a2 - b1 b2
//                   = -(b2 - a1) (b1 - a2) + a1 a2 + b1 b2
//
// Processors whose units for additions are not those for multiply-adds do two additions beside every two multiply-adds:
// of three terms two are a pair (two additions, one multiply-add), the third is multiplied plainly (one), and three
// terms take the time of two. What a and b contribute alone, "own" sums, is summed when they are packed.
//
// A pair rounds at the size of a + b, so both must be of one size: rows of a and columns of b are scaled by powers of
// two to values whose mean size is between 1 and 2, in blocks of terms. So the error is that of a sum whose terms are
// of the row's and the column's usual size, not of their own: a row that is mostly zeros is rounded as if it were not.
// Pairs take turns with either sign: own sums of values that are mostly positive, as activations are, cancel instead of
// growing.
//
// A panel of `width` rows of a or columns of b holds for each block
//     own sums to begin with [width], scales [width], terms [rounded up to kPairedStep, zeros at the end][width]
#pragma once
#include <cstdint>

namespace situ::cpu {

// One block of a panel. Value (term, lane) is from[term * term_step + lane * lane_step]; one of the steps is 1.
struct PairedPanel {
  const float* from = nullptr;
  int64_t term_step = 1, lane_step = 1;
  int64_t terms = 0, lanes = 0;  // that exist
  int64_t width = 0;
  float* to = nullptr;
  int64_t ahead = 0;  // elements to the values that are packed next, which are asked for; 0: nothing is
};
using PackPaired = void (*)(const PairedPanel&);
PackPaired pack_paired_function();

}  // namespace situ::cpu
