/** @file Clocks in seconds; only differences between two readings of one of them mean something. */
#ifndef MT_BASE_CLOCK_H
#define MT_BASE_CLOCK_H

/** Time that passes, whatever is done to the date. */
double mt_clock_seconds(void);

/** Processor time, user and system: of the whole process, and of the calling thread. */
double mt_clock_process_seconds(void);
double mt_clock_thread_seconds(void);

#endif
