// losses.h -- losses written with ops: each returns one number per sample, f32[N], times the sample's weight and the
// step's scale, so that their sum is what training descends.
//
// Over the axes beyond the first it is a mean, as PyTorch's reduction "mean"; with weight 1 and scale 1 / N the sum is
// PyTorch's loss. Gradients come from reverse mode.
#pragma once
#include <string_view>

#include "ir/graph.h"

namespace situ::model {

// What `situ train --loss` offers. Cross entropy learns classes; the others learn numbers, one target per output.
struct Loss {
  enum Kind { cross_entropy, mse, l1, huber, bce } kind = cross_entropy;
  double smoothing = 0;  // of the labels of cross entropy, while training
  double delta = 1;      // of huber
  bool of_classes() const { return kind == cross_entropy; }
};
Loss::Kind parse_loss(std::string_view name);
std::string_view name_of(Loss::Kind kind);

struct Samples {
  ir::Value weight;  // f32[N]
  ir::Value scale;   // f32[]
};

ir::Value cross_entropy(ir::Graph& graph, ir::Value logits, ir::Value labels, const Samples& samples,
                        double smoothing = 0);
ir::Value soft_cross_entropy(ir::Graph& graph, ir::Value logits, ir::Value probabilities, const Samples& samples);

// The chosen one: labels i32[N] for cross entropy, else targets shaped as the outputs.
ir::Value loss_of(ir::Graph& graph, const Loss& loss, ir::Value outputs, ir::Value labels, const Samples& samples);

// x and t of one shape, f32[N,...].
ir::Value bce_with_logits(ir::Graph& graph, ir::Value x, ir::Value t, const Samples& samples);
ir::Value mse(ir::Graph& graph, ir::Value x, ir::Value t, const Samples& samples);
ir::Value l1(ir::Graph& graph, ir::Value x, ir::Value t, const Samples& samples);
ir::Value huber(ir::Graph& graph, ir::Value x, ir::Value t, double delta, const Samples& samples);

// Row i of a belongs to row i of b, f32[N,D]; all other rows of the batch are its opposites, except those of weight 0.
// Rows are normalised; the mean of both directions, a to b and b to a.
ir::Value info_nce(ir::Graph& graph, ir::Value a, ir::Value b, double temperature, const Samples& samples);

// T^2 * KL(softmax(teacher / T) || softmax(student / T)); logits f32[N,C]. The teacher is taken as given: a program
// that trains its parameters too would see no meaningful gradient for them.
ir::Value distillation(ir::Graph& graph, ir::Value student, ir::Value teacher, double temperature,
                       const Samples& samples);

}  // namespace situ::model
