// executable.h -- a bound launch list that is replayed, launch by launch or as recordings.
#pragma once
#include <memory>
#include <vector>

#include "backend/opencl/bind.h"
#include "backend/opencl/recording.h"

namespace situ::opencl {

class LaunchList : public device::Executable {
 public:
  // `seconds` estimates each launch; what a profile measures takes their place.
  LaunchList(Runtime& run, BoundLaunches bound, std::vector<double> seconds);
  void enqueue(int feed) override;
  void enqueue(int first, int count) override;
  int launches() const override { return static_cast<int>(bound_.launches.size()); }

 private:
  struct Piece {  // of the list, recorded; one submission long
    int first = 0, count = 0;
    double seconds = 0;
    Recording recording;
  };
  int feeds() const;  // that differ
  void enqueue_part(int first, int count, int feed);
  void enqueue_one(int index, int feed);
  void make_room(double seconds);
  bool record(int feed);

  Runtime& run_;
  BoundLaunches bound_;
  LaunchTimes seconds_;
  std::vector<std::vector<Piece>> pieces_;  // all of the list, per feed if they differ; or none
};

}  // namespace situ::opencl
