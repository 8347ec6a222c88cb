#include "tensor/memory.h"

#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20, SMALL_PAGE_BYTES = 4096 };

static size_t mapped_bytes(size_t bytes) {
  size_t page = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : SMALL_PAGE_BYTES;
  return (bytes + page - 1) / page * page;
}

motet_status mt_memory_map(size_t bytes, bool prefault, const char *purpose, motet_error *error, void **memory) {
  *memory = NULL;
  if (bytes == 0) return MOTET_OK;
  if (bytes > SIZE_MAX / 2) return mt_error_memory(error, bytes, purpose);
  size_t size = mapped_bytes(bytes);
  /* Huge pages need an aligned address: map more and give back the ends. */
  size_t extra = size >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
  unsigned char *mapping = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return mt_error_memory(error, size, purpose);
  size_t before = extra == 0 ? 0 : (HUGE_PAGE_BYTES - (uintptr_t)mapping % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
  if (before > 0) munmap(mapping, before);
  if (extra > before) munmap(mapping + before + size, extra - before);
  mapping += before;
  /* Both are only hints: without huge pages or early population all still works. */
  if (extra > 0) madvise(mapping, size, MADV_HUGEPAGE);
  if (prefault) {
    bool populated = false;
#ifdef MADV_POPULATE_WRITE
    populated = madvise(mapping, size, MADV_POPULATE_WRITE) == 0;
#endif
    if (!populated)
      for (size_t at = 0; at < size; at += SMALL_PAGE_BYTES) mapping[at] = 0;
  }
  *memory = mapping;
  return MOTET_OK;
}

void mt_memory_unmap(void *memory, size_t bytes) {
  if (memory != NULL) munmap(memory, mapped_bytes(bytes));
}

motet_status mt_workspace_reserve(mt_workspace *workspace, size_t count, motet_error *error) {
  if (workspace->capacity - workspace->used >= count) return MOTET_OK;
  assert(workspace->used == 0);
  if (count > SIZE_MAX / sizeof(float) / 2) return mt_error_memory(error, SIZE_MAX, "a workspace");
  mt_workspace_free(workspace);
  size_t wanted = count + count / 8; /* the next batch is often a little longer */
  void *memory;
  motet_status status = mt_memory_map(wanted * sizeof(float), true, "a workspace", error, &memory);
  if (status != MOTET_OK) return status;
  *workspace = (mt_workspace){.data = memory, .capacity = wanted};
  return MOTET_OK;
}

float *mt_workspace_take(mt_workspace *workspace, size_t count) {
  size_t room = mt_workspace_room(count);
  assert(workspace->capacity - workspace->used >= room);
  float *array = workspace->data + workspace->used;
  workspace->used += room;
  return array;
}

void mt_workspace_free(mt_workspace *workspace) {
  mt_memory_unmap(workspace->data, workspace->capacity * sizeof(float));
  *workspace = (mt_workspace){0};
}
