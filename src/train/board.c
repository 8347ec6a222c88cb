#include "train/board.h"

#include "motet/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct mt_board {
  int32_t ranks;
  size_t bytes;
  struct content {
    atomic_int reported; /* exit code + 1; 0: nothing */
    char padding[60];
    mt_board_place places[];
  } * content;
};

motet_status mt_board_open(const char *path, int32_t ranks, motet_error *error, mt_board **out) {
  size_t bytes = sizeof(struct content) + (size_t)ranks * sizeof(mt_board_place);
  mt_board *board = calloc(1, sizeof *board);
  if (board == NULL) return mt_error_memory(error, sizeof *board, "the board");
  void *memory = MAP_FAILED;
  int file = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (path == NULL)
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  else if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    motet_status status = path == NULL ? mt_error_memory(error, bytes, "the board")
                                       : mt_error_system(error, "the ranks' board cannot be made", path);
    if (file >= 0) close(file);
    free(board);
    return status;
  }
  if (file >= 0) close(file);
  *board = (mt_board){.ranks = ranks, .bytes = bytes, .content = memory};
  *out = board;
  return MOTET_OK;
}

void mt_board_close(mt_board *board) {
  if (board == NULL) return;
  munmap(board->content, board->bytes);
  free(board);
}

mt_board_place *mt_board_at(mt_board *board, int32_t rank) { return &board->content->places[rank]; }

void mt_board_note_report(mt_board *board, int code) {
  int none = 0;
  atomic_compare_exchange_strong(&board->content->reported, &none, code + 1);
}

int mt_board_reported(const mt_board *board) { return atomic_load(&board->content->reported) - 1; }

/** Whether the process has no memory any more. Nothing but what handlers of signals may call. */
static bool is_gone(int32_t process) {
  char path[32] = "/proc/", digits[12], pages = '0';
  size_t length = strlen(path), count = 0;
  for (int32_t rest = process; rest > 0; rest /= 10) digits[count++] = (char)('0' + rest % 10);
  while (count > 0) path[length++] = digits[--count];
  memcpy(path + length, "/statm", sizeof "/statm");
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  bool is_read = read(file, &pages, 1) == 1;
  close(file);
  return !is_read || pages == '0';
}

void mt_board_note_abort(mt_board *board, int32_t rank) {
  int32_t missing = 0, last = 0;
  for (int32_t other = 0; other < board->ranks; other++) {
    const mt_board_place *place = mt_board_at(board, other);
    if (other == rank || place->process <= 0 || place->state >= MT_BOARD_FINISHED || !is_gone(place->process))
      continue;
    missing++;
    last = other;
  }
  if (missing == 0) return;
  mt_board_place *own = mt_board_at(board, rank);
  own->state = MT_BOARD_STOPPED;
  own->missed = missing == 1 ? last + 1 : 0;
}

int32_t mt_board_missed(mt_board *board) {
  for (int32_t rank = 0; rank < board->ranks; rank++)
    if (mt_board_at(board, rank)->missed > 0) return mt_board_at(board, rank)->missed - 1;
  return -1;
}

int32_t mt_board_victim(mt_board *board) {
  for (int32_t rank = 0; rank < board->ranks; rank++) {
    int32_t state = mt_board_at(board, rank)->state;
    if (state == MT_BOARD_STARTED || state == MT_BOARD_RUNNING || state == MT_BOARD_SAVING) return rank;
  }
  return -1;
}

void mt_board_describe(mt_board *board, int32_t rank, char *text, size_t size) {
  const mt_board_place *place = mt_board_at(board, rank);
  const char *kind = motet_instruction_name(place->kind);
  if (place->state == MT_BOARD_SAVING)
    snprintf(text, size, "rank %d was saving a checkpoint at step %lld", (int)rank, (long long)place->step);
  else if (place->state != MT_BOARD_RUNNING || kind == NULL)
    snprintf(text, size, "rank %d was between steps (step %lld)", (int)rank, (long long)place->step);
  else if (place->microbatch >= 0)
    snprintf(text, size, "rank %d was at instruction %lld of step %lld (%s of %.48s, microbatch %d)", (int)rank,
             (long long)place->instruction, (long long)place->step, kind, place->region, (int)place->microbatch);
  else
    snprintf(text, size, "rank %d was at instruction %lld of step %lld (%s)", (int)rank,
             (long long)place->instruction, (long long)place->step, kind);
}
