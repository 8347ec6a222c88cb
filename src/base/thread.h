/** @file
 * Threads that work beside a computation: they take the time that it leaves, where the system knows such threads
 * (SCHED_IDLE of Linux), and an ordinary share elsewhere.
 */
#ifndef MT_BASE_THREAD_H
#define MT_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/**
 * Has @p thread run while its processors have nothing else to do (@p idle), or like any other thread. The way back
 * needs a right that not every user has; without it the thread stays as it is, which is right as long as whoever
 * waits for it leaves it the processor.
 */
void mt_thread_set_idle(pthread_t thread, bool idle);

#endif
