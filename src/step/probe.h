// probe.h -- the operands a kernel of a program is tried with.
//
// A node of the program itself is the best example: what is compiled for it is needed anyway, so trying it costs one
// run. Its extents are made small where the device would still compile the same and the oracle is then quick; what
// stays too large is tried on the op's own smallest example.
#pragma once
#include <optional>
#include <string>

#include "device/device.h"
#include "ops/examples.h"
#include "step/self_test.h"

namespace situ::step {

struct Probe {
  const ops::OpDef* op = nullptr;
  std::string candidate;  // empty: the op's own kernel
  ops::Example example;
  Copied copied;  // operands and results that are stored as half
};

// The node, as its operands are stored, with values its op takes at these places.
Probe probe_of(const ops::OpView& view, const device::Candidate* candidate);
// The same with smaller extents, or on an example of the op; nothing if the oracle would take too long on all of them.
std::optional<Probe> made_small(device::Device& device, const Probe& probe);

ir::Graph graph_of(const Probe& probe);                               // inputs i0.., outputs o0..
std::string key_of(const Probe& probe);                               // device::node_key of its node
std::string programs_of(device::Device& device, const Probe& probe);  // a hash of all that is compiled for it
double oracle_work(const Probe& probe);                               // rough: operations of the reference

// While it lives, these probes take the candidates they name.
class Forced {
 public:
  Forced(device::Device& device, std::span<const Probe* const> probes);
  ~Forced() { device_.choices = std::move(before_); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;

 private:
  device::Device& device_;
  device::Choices before_;
};

}  // namespace situ::step
