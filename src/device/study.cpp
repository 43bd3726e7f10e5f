#include "device/study.h"

namespace situ::device::study {

std::span<const Phone> phones() {
  static constexpr Phone list[] = {{"OnePlus 6", "Snapdragon 845", "Adreno 630", 10, 40},
                                   {"OnePlus 8 Pro", "Snapdragon 865", "Adreno 650", 15, 70},
                                   {"OnePlus Nord", "Snapdragon 765G", "Adreno 620", 5, 25}};
  return list;
}

std::span<const Model> models() {
  static constexpr Model list[] = {
      {"M1", "mlp:16-16", 1, {{{23, 370, 360}, {20, 440, 450}, {24, 575, 465}}}},
      {"M2", "mlp:16-16-16-16", 3, {{{48, 980, 995}, {31, 1150, 1180}, {53, 1310, 1225}}}},
      {"M3", "mlp:256-256", 1, {{{67, 410, 485}, {37, 505, 505}, {55, 605, 500}}}},
      {"M4", "mlp:784-256-128-16", 3, {{{186, 885, 870}, {106, 1340, 1355}, {159, 1440, 1290}}}}};
  return list;
}

}  // namespace situ::device::study
