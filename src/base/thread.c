#include "base/thread.h"

#include <sched.h>

void mt_thread_set_idle(pthread_t thread, bool idle) {
#ifdef SCHED_IDLE
  (void)pthread_setschedparam(thread, idle ? SCHED_IDLE : SCHED_OTHER, &(struct sched_param){0});
#else
  (void)thread;
  (void)idle;
#endif
}
