/** @file Threads of the matrix products: OpenMP's, behind oneDNN. */
#ifndef MT_TENSOR_THREADS_H
#define MT_TENSOR_THREADS_H

/**
 * Products called from the calling thread use @p count threads from now on; the default is OMP_NUM_THREADS or all
 * processors. With more ranks than processors anything but 1 is many times slower. Sums may be cut differently with
 * another count, so that bits are only equal between runs with the same one.
 */
void mt_threads_set(int count);

/** What is set for the calling thread; 1 if the library was built without threads. */
int mt_threads_get(void);

#endif
