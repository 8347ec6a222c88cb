/* Refuses one of the allocations that the program itself makes, on one rank: to be put in front of a program by
 * LD_PRELOAD. NO_MEMORY_RANK: the rank; NO_MEMORY_AT: which one, from 0; NO_MEMORY_REPORT: a file that gets their
 * number. Those of libraries, which may not survive it, are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc's own names of what stands in front of them here. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static uintptr_t begin, end;
static long refused = -1;
static atomic_long seen;
static const char *report;

static int find_program(struct dl_phdr_info *info, size_t size, void *nothing) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    begin = info->dlpi_addr + part->p_vaddr;
    end = begin + part->p_memsz;
  }
  return 1; /* the program is the first */
}

__attribute__((constructor)) static void start(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *wanted = getenv("NO_MEMORY_RANK"),
             *number = getenv("NO_MEMORY_AT");
  if (rank == NULL) rank = getenv("PMI_RANK");
  if (rank == NULL || wanted == NULL || strcmp(rank, wanted) != 0) return;
  if (number != NULL) refused = strtol(number, NULL, 10);
  report = getenv("NO_MEMORY_REPORT");
  dl_iterate_phdr(find_program, NULL);
}

__attribute__((destructor)) static void finish(void) {
  FILE *file = report != NULL ? fopen(report, "w") : NULL;
  if (file == NULL) return;
  fprintf(file, "%ld\n", (long)seen);
  fclose(file);
}

static bool refuse(const void *caller) {
  uintptr_t at = (uintptr_t)caller;
  if (at < begin || at >= end) return false;
  if (atomic_fetch_add(&seen, 1) != refused) return false;
  errno = ENOMEM;
  return true;
}
void *malloc(size_t bytes) { return refuse(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) {
  return refuse(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  return refuse(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}
void *aligned_alloc(size_t a, size_t bytes) {
  return refuse(__builtin_return_address(0)) ? NULL : __libc_memalign(a, bytes);
}
