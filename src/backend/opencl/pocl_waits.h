// pocl_waits.h -- threads of PoCL look for the next launch for some microseconds before they sleep.
//
// PoCL's threads sleep on a condition variable whenever they find nothing to do, so after most launches: the first to
// finish sleeps, the last one wakes it through the system, 5 to 8 us for each launch, and more processor time than the
// spinning takes. PoCL has no setting for it. What it has is a call of pthread_cond_wait that may return for no reason,
// as POSIX allows: a program that holds this file has a pthread_cond_wait of its own, which spins before it sleeps for
// calls from PoCL and is the C library's for all others. In a program that loads situ as a library later, the C
// library's comes first, and `submit.spin` has no effect.
#pragma once
#include <pthread.h>

#include <cstdint>

namespace situ::opencl {

// From now on, in the whole process; 0: PoCL's threads sleep at once. False if it has no effect here.
bool spin_in_pocl(double seconds);

// What PoCL gets: pthread_cond_wait that spins first, and returns without a signal when it spun in vain.
int spin_until_signalled(pthread_cond_t* condition, pthread_mutex_t* mutex, double seconds);

struct PoclWaits {
  int64_t spun = 0;   // waits that ended while spinning
  int64_t slept = 0;  // that the system had to end
};
PoclWaits pocl_waits();

}  // namespace situ::opencl
