/** @file Waiting in a command that goes on until somebody ends it: for time, a key, or a signal. */
#ifndef MT_CLI_WAITER_H
#define MT_CLI_WAITER_H

#include "base/error.h"

#include <signal.h>
#include <stdbool.h>

typedef enum mt_wake {
  MT_WAKE_TIME,
  MT_WAKE_KEY,
  MT_WAKE_RESIZE, /* the terminal has another size */
  MT_WAKE_STOP,   /* Ctrl-Z: leave the terminal in order and stop */
  MT_WAKE_END     /* Ctrl-C, or a request to end */
} mt_wake;

typedef struct mt_waiter {
  int signals; /* a descriptor that signals are read from */
  bool keys;   /* standard input is a keyboard that is listened to */
  sigset_t before;
} mt_waiter;

/** Takes the signals over until mt_waiter_close(). */
motet_status mt_waiter_open(bool keys, motet_error *error, mt_waiter *waiter);

/** Waits at most @p seconds. @p key: of MT_WAKE_KEY. */
mt_wake mt_waiter_wait(mt_waiter *waiter, double seconds, char *key);

void mt_waiter_close(mt_waiter *waiter);

#endif
