// bind.cpp -- calls from launches, programs from calls (each once, built in parallel), kernels from programs.
#include "backend/opencl/bind.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <thread>
#include <tuple>

#include "backend/opencl/images.h"
#include "base/error.h"

namespace situ::opencl {
namespace {

bool images_of(const Call& call, OperandImages& images) {
  return std::all_of(call.args.begin(), call.args.end(), [&](const Arg& arg) {
    const auto* image = std::get_if<ImageArg>(&arg);
    return image == nullptr || images.has(*image);
  });
}

// Where the driver refuses an image that its limits allow, the call is made anew without.
std::vector<Call> make_calls(const Binder& binder, std::span<const device::LaunchSpec> specs, OperandImages& images) {
  std::vector<Call> calls;
  device::Target without = binder.run.target;
  set_image_limits(without, {});
  calls.reserve(specs.size());
  for (const device::LaunchSpec& spec : specs) {
    const auto found = binder.kernels.find(spec.node.op);
    SITU_ASSERT(found != binder.kernels.end(), "there is no OpenCL kernel '{}'", spec.node.op);
    calls.push_back(call_of(*found->second, spec, binder.run.target));
    if (!images_of(calls.back(), images)) calls.back() = call_of(*found->second, spec, without);
  }
  return calls;
}

// --- programs -------------------------------------------------------------------------------------------------------
using ProgramName = std::tuple<std::string, std::string, std::string, bool>;  // file, prelude, options, sub-groups
ProgramName program_name(const Call& call) { return {call.file, call.prelude, call.options, call.sub_groups}; }

struct Program {
  cl_program program = nullptr;
  bool any_group = false;
};
using Programs = std::map<ProgramName, Program>;

int build_threads(const Runtime& run, size_t programs) {
  const int64_t cores = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 8);
  const int64_t threads = run.target.tuning.get("build.threads", cores);  // 1 for a compiler that is not thread-safe
  return static_cast<int>(std::clamp<int64_t>(threads, 1, static_cast<int64_t>(std::max<size_t>(programs, 1))));
}

// Runs work(0) .. work(count - 1) on this thread and others; the first failure by index is raised at the end.
template <typename Work>
void in_parallel(size_t count, int threads, const Work& work) {
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> failures(count);
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        work(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(run);
  run();
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

Programs build_programs(const Binder& binder, const std::vector<Call>& calls) {
  Programs programs;
  for (const Call& call : calls) programs.emplace(program_name(call), Program());
  std::vector<Programs::value_type*> order;
  for (auto& entry : programs) order.push_back(&entry);
  in_parallel(order.size(), build_threads(binder.run, order.size()), [&](size_t i) {
    const auto& [file, prelude, options, sub_groups] = order[i]->first;
    const std::string text = assemble_source(prelude, file, binder.find_source);
    const std::string standard = sub_groups ? binder.run.found.info.sub_group_option : "";
    order[i]->second = {binder.programs.get({file, text, options + standard}), runs_in_any_group(text)};
  });
  return programs;
}

// --- arguments ------------------------------------------------------------------------------------------------------
class ArgumentSetter {
 public:
  ArgumentSetter(Runtime& run, const Slabs& slabs, OperandImages& images, std::vector<Handle<cl_mem>>& tables)
      : run_(run), slabs_(slabs), images_(images), tables_(tables) {}

  void set_all(const Call& call, cl_kernel kernel, int feed) {
    call_ = &call;
    kernel_ = kernel;
    feed_ = feed;
    index_ = 0;
    for (const Arg& arg : call.args) std::visit([this](const auto& value) { set(value); }, arg);
    cl_uint expected = 0;
    check("clGetKernelInfo", run_.cl.clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(expected), &expected, nullptr));
    SITU_ASSERT(index_ == expected, "kernel '{}' of {} takes {} arguments, its call gives {}", call.kernel, call.file,
                expected, index_);
  }

 private:
  template <typename T>
  void set_raw(const T& value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): a buffer is passed as its handle, which is a pointer
    const cl_int code = run_.cl.clSetKernelArg(kernel_, index_, sizeof(T), &value);
    const bool wrong = code == CL_INVALID_ARG_INDEX || code == CL_INVALID_ARG_SIZE || code == CL_INVALID_ARG_VALUE;
    SITU_ASSERT(!wrong, "argument {} of kernel '{}' of {}: {}", index_, call_->kernel, call_->file, code_name(code));
    check("clSetKernelArg", code);
    ++index_;
  }
  void set(int32_t value) { set_raw<cl_int>(value); }
  void set(float value) { set_raw<cl_float>(value); }
  void check_tensor(const device::TensorArg& tensor) {
    const int64_t element = bytes_of(tensor.type.dtype);
    const int64_t rows = tensor.rows(), cols = tensor.cols();
    slabs_.check_range(tensor.slab, tensor.offset, rows > 0 ? ((rows - 1) * tensor.pitch + cols) * element : 0);
    SITU_ASSERT(tensor.offset % element == 0, "offset {} of an element of {} bytes", tensor.offset, element);
    SITU_ASSERT(tensor.pitch <= std::numeric_limits<cl_int>::max(), "pitch {}", tensor.pitch);
  }
  void set_place(cl_mem memory, int64_t bytes, int64_t pitch, const device::TensorArg& tensor) {
    set_raw<cl_mem>(memory);
    set_raw<cl_ulong>(static_cast<cl_ulong>(bytes / bytes_of(tensor.type.dtype)));
    set_raw<cl_int>(static_cast<cl_int>(pitch));
  }
  void set(const device::TensorArg& tensor) {
    check_tensor(tensor);
    set_place(slabs_.buffer(tensor.slab, feed_), tensor.offset, tensor.pitch, tensor);
  }
  void set(const ImageArg& arg) {
    check_tensor(arg.tensor);
    const OperandImage& image = *images_.find(arg, feed_);
    set_place(image.image, arg.tensor.offset - image.first, arg.plane ? kPlaneRow : arg.tensor.pitch, arg.tensor);
  }
  void set(const TableArg& table) {
    cl_mem& buffer = by_words_[table.words];  // launches often share one table
    if (buffer == nullptr) {
      const std::vector<int32_t> words = table.words.empty() ? std::vector<int32_t>{0} : table.words;
      tables_.push_back(
          run_.make_buffer(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, words.size() * sizeof(int32_t), words.data()));
      buffer = tables_.back().get();
    }
    set_raw<cl_mem>(buffer);
  }

  Runtime& run_;
  const Slabs& slabs_;
  OperandImages& images_;
  std::vector<Handle<cl_mem>>& tables_;
  std::map<std::vector<int32_t>, cl_mem> by_words_;
  const Call* call_ = nullptr;
  cl_kernel kernel_ = nullptr;
  int feed_ = 0;
  cl_uint index_ = 0;
};

// --- sizes ----------------------------------------------------------------------------------------------------------
size_t largest_group(const Runtime& run, cl_kernel kernel) {
  size_t items = 0;
  check("clGetKernelWorkGroupInfo", run.cl.clGetKernelWorkGroupInfo(kernel, run.found.device, CL_KERNEL_WORK_GROUP_SIZE,
                                                                    sizeof(items), &items, nullptr));
  return items;
}

// The limit is the kernel's own on this device: registers may make it smaller than the device's.
bool group_fits(const Runtime& run, const BoundLaunch& launch) {
  for (size_t axis = 0; axis < 3; ++axis)
    if (launch.local[axis] > run.found.info.max_items[axis]) return false;
  const size_t most = std::min(run.found.info.max_group, largest_group(run, launch.kernel(0)));
  return launch.local[0] * launch.local[1] * launch.local[2] <= most;
}

void set_sizes(const Runtime& run, const Call& call, bool any_group, BoundLaunch& launch) {
  launch.global = call.global;
  launch.dims = call.global[2] > 1 ? 3 : call.global[1] > 1 ? 2 : 1;
  const bool grouped = call.local[0] != 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    SITU_ASSERT(launch.global[axis] > 0, "kernel '{}': no work along axis {}", call.kernel, axis);
    launch.local[axis] = grouped ? std::max<size_t>(1, call.local[axis]) : 1;
    SITU_ASSERT(launch.global[axis] % launch.local[axis] == 0,
                "kernel '{}': {} work-items in groups of {} along axis {}", call.kernel, launch.global[axis],
                launch.local[axis], axis);
  }
  if (!grouped || (!group_fits(run, launch) && any_group)) {
    launch.local = {0, 0, 0};
  } else if (!group_fits(run, launch)) {
    fail_environment(
        "kernel '{}' of {} needs groups of {}x{}x{} work-items and '{}' allows {}: set a smaller group in its tuning",
        call.kernel, call.file, launch.local[0], launch.local[1], launch.local[2], run.target.name,
        largest_group(run, launch.kernel(0)));
  }
}

Handle<cl_kernel> make_kernel(const Runtime& run, const Call& call, cl_program program) {
  cl_int code = CL_SUCCESS;
  Handle<cl_kernel> kernel(run.cl.clCreateKernel(program, call.kernel.c_str(), &code), run.cl.clReleaseKernel);
  SITU_ASSERT(code != CL_INVALID_KERNEL_NAME, "{} has no kernel '{}'", call.file, call.kernel);
  check("clCreateKernel", code);
  return kernel;
}

bool reads_feed(const Call& call) {
  return std::ranges::any_of(call.args, [](const Arg& arg) {
    const auto* image = std::get_if<ImageArg>(&arg);
    const auto* tensor = image != nullptr ? &image->tensor : std::get_if<device::TensorArg>(&arg);
    return tensor != nullptr && tensor->slab == 0;
  });
}

}  // namespace

BoundLaunches bind_launches(const Binder& binder, std::span<const device::LaunchSpec> specs, const Slabs& slabs) {
  const Runtime& run = binder.run;
  BoundLaunches bound;
  OperandImages images(binder.run, slabs, bound.images);
  const std::vector<Call> calls = make_calls(binder, specs, images);
  const Programs programs = build_programs(binder, calls);
  ArgumentSetter arguments(binder.run, slabs, images, bound.tables);
  for (const Call& call : calls) {
    BoundLaunch& launch = bound.launches.emplace_back();
    const Program& program = programs.at(program_name(call));
    const int feeds = reads_feed(call) ? slabs.feeds() : 1;
    for (int feed = 0; feed < feeds; ++feed) {
      launch.kernels.push_back(make_kernel(run, call, program.program));
      arguments.set_all(call, launch.kernels.back().get(), feed);
    }
    set_sizes(run, call, program.any_group, launch);
  }
  return bound;
}

}  // namespace situ::opencl
