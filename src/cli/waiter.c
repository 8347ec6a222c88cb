#include "cli/waiter.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

motet_status mt_waiter_open(bool keys, motet_error *error, mt_waiter *waiter) {
  static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sigaddset(&set, taken[i]);
  sigprocmask(SIG_BLOCK, &set, &waiter->before);
  waiter->keys = keys;
  waiter->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (waiter->signals >= 0) return MOTET_OK;
  sigprocmask(SIG_SETMASK, &waiter->before, NULL);
  return mt_error_set(error, MOTET_ERROR_FAILED, "signals cannot be waited for: %s", strerror(errno));
}

static mt_wake wake_of(uint32_t signal_number) {
  if (signal_number == SIGWINCH) return MT_WAKE_RESIZE;
  return signal_number == SIGTSTP ? MT_WAKE_STOP : MT_WAKE_END;
}

mt_wake mt_waiter_wait(mt_waiter *waiter, double seconds, char *key) {
  struct pollfd places[] = {{.fd = waiter->signals, .events = POLLIN},
                            {.fd = waiter->keys ? STDIN_FILENO : -1, .events = POLLIN}};
  int woken = poll(places, 2, seconds < 1e6 ? (int)(seconds * 1e3) : 1000000000);
  if (woken <= 0) return MT_WAKE_TIME;
  if (places[0].revents != 0) {
    struct signalfd_siginfo information;
    if (read(waiter->signals, &information, sizeof information) == (ssize_t)sizeof information)
      return wake_of(information.ssi_signo);
    return MT_WAKE_TIME;
  }
  ssize_t count = read(STDIN_FILENO, key, 1);
  if (count == 1) return MT_WAKE_KEY;
  if (count == 0 || errno != EAGAIN) waiter->keys = false; /* the keyboard is gone */
  return MT_WAKE_TIME;
}

void mt_waiter_close(mt_waiter *waiter) {
  close(waiter->signals);
  sigprocmask(SIG_SETMASK, &waiter->before, NULL);
}
