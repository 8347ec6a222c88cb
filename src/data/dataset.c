#include "data/dataset.h"

#include "base/digest.h"
#include "data/dataset_form.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Working memory of one line. */
typedef struct line_scratch {
  mt_conversation conversation;
  mt_tokens tokens;
  mt_marks targets;
  MT_ARRAY(int32_t) tiles;
} line_scratch;

static void scratch_free(line_scratch *scratch) {
  mt_conversation_free(&scratch->conversation);
  free(scratch->tokens.data);
  free(scratch->targets.data);
  free(scratch->tiles.data);
}

static motet_status at_line(const mt_dataset *dataset, int32_t line, motet_error *error, motet_status status) {
  if (status == MOTET_OK) return status;
  mt_error_context(error, status, "%s, line %" PRId32, dataset->path, line);
  mt_error_place(error, dataset->path, line);
  return status;
}

/* Reads the headers of the line's pictures and videos and appends them to the data set. */
static motet_status probe_media(mt_dataset *dataset, line_scratch *scratch, motet_error *error) {
  const mt_conversation *conversation = &scratch->conversation;
  const mt_internvl config = mt_tiling_share(dataset->config, conversation->images.count);
  scratch->tiles.count = 0;
  for (size_t i = 0; i < conversation->media.count; i++) {
    const char *name = conversation->media.data[i].path;
    if (strstr(name, "://") != NULL || strncmp(name, "data:", 5) == 0) {
      mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "%.80s is no local file, whose path belongs here", name);
      mt_error_key(error, conversation->media.data[i].video ? "videos" : "images");
      return MOTET_ERROR_UNSUPPORTED;
    }
    bool absolute = name[0] == '/' || dataset->root[0] == '\0';
    mt_dataset_medium medium = {.path = absolute ? mt_arena_text(dataset->arena, name)
                                                 : mt_arena_format(dataset->arena, "%s/%s", dataset->root, name)};
    if (medium.path == NULL) return mt_error_memory(error, strlen(name), "a picture's path");
    motet_status status = mt_medium_probe(&config, medium.path, conversation->media.data[i].video,
                                          dataset->video_frames, error, &medium.form);
    if (status != MOTET_OK) {
      mt_error_key(error, name);
      return status;
    }
    if (!MT_ARRAY_PUSH(&dataset->media, medium) || !MT_ARRAY_PUSH(&scratch->tiles, medium.form.tiling.tiles))
      return mt_error_memory(error, sizeof medium, "the list of pictures");
  }
  return MOTET_OK;
}

static motet_status encode_line(const mt_dataset *dataset, line_scratch *scratch, motet_error *error) {
  scratch->tokens.count = scratch->targets.count = 0;
  motet_status status = mt_chat_encode(&dataset->chat, &scratch->conversation, dataset->system_prompt,
                                       scratch->tiles.data, error, &scratch->tokens, &scratch->targets);
  if (status == MOTET_OK && scratch->tokens.count > INT32_MAX / 2)
    status = mt_error_set(error, MOTET_ERROR_LIMIT, "%zu tokens in one sample", scratch->tokens.count);
  return status;
}

/* The first token of a sample has none in front that could predict it, so a mark there is no target; the chat
 * template's first token is never marked. */
static int32_t count_targets(const mt_marks *targets) {
  int32_t count = 0;
  for (size_t i = 0; i < targets->count; i++) count += targets->data[i];
  return count;
}

/* Chains the sample's tokens to those before. */
static void digest_tokens(mt_dataset *dataset, const line_scratch *scratch) {
  const uint64_t chain[] = {
      dataset->content, mt_digest_of(scratch->tokens.data, scratch->tokens.count * sizeof *scratch->tokens.data),
      mt_digest_of(scratch->targets.data, scratch->targets.count * sizeof *scratch->targets.data)};
  dataset->content = mt_digest_of(chain, sizeof chain);
}

/* Adds the sample of one line, or leaves it out if it is too long. */
static motet_status add_line(mt_dataset *dataset, const char *text, size_t bytes, int64_t offset, int32_t line,
                             line_scratch *scratch, motet_error *error) {
  size_t first_medium = dataset->media.count;
  mt_conversation_free(&scratch->conversation);
  motet_status status = mt_conversation_parse(text, bytes, error, &scratch->conversation);
  if (status == MOTET_OK) status = probe_media(dataset, scratch, error);
  if (status == MOTET_OK) status = encode_line(dataset, scratch, error);
  if (status != MOTET_OK) return status;
  mt_sample sample = {.line = line,
                      .tokens = (int32_t)scratch->tokens.count,
                      .targets = count_targets(&scratch->targets),
                      .images = (int32_t)scratch->conversation.images.count,
                      .videos = (int32_t)scratch->conversation.videos.count};
  for (size_t i = 0; i < scratch->tiles.count; i++) sample.tiles += scratch->tiles.data[i];
  if (dataset->max_tokens > 0 && sample.tokens > dataset->max_tokens) {
    if (dataset->refuse_long)
      return mt_error_set(error, MOTET_ERROR_PARSE, "%" PRId32 " tokens; at most %" PRId32 " are allowed",
                          sample.tokens, dataset->max_tokens);
    dataset->dropped++;
    dataset->media.count = first_medium;
    return MOTET_OK;
  }
  if (!MT_ARRAY_PUSH(&dataset->samples, sample) ||
      !MT_ARRAY_PUSH(&dataset->lines, (mt_dataset_line){offset, (int64_t)bytes, (int64_t)first_medium}))
    return mt_error_memory(error, sizeof sample, "the list of samples");
  digest_tokens(dataset, scratch);
  return MOTET_OK;
}

static bool is_blank(const char *text, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (strchr(" \t\r\n", text[i]) == NULL || text[i] == '\0') return false;
  return true;
}

static motet_status read_lines(mt_dataset *dataset, FILE *file, motet_error *error) {
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  int64_t offset = 0;
  int32_t line = 0;
  line_scratch scratch = {0};
  motet_status status = MOTET_OK;
  while (status == MOTET_OK && (errno = 0, length = getline(&text, &capacity, file)) >= 0) {
    if (line == INT32_MAX) status = mt_error_set(error, MOTET_ERROR_LIMIT, "too many lines");
    line++;
    /* Some editors put a byte-order mark in front. */
    const size_t mark = line == 1 && length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (status == MOTET_OK && !is_blank(text + mark, (size_t)length - mark))
      status = add_line(dataset, text + mark, (size_t)length - mark, offset + (int64_t)mark, line, &scratch, error);
    offset += length;
  }
  status = at_line(dataset, line, error, status);
  if (status == MOTET_OK && !feof(file)) {
    status = mt_error_set(error, MOTET_ERROR_IO, "cannot read %s: %s", dataset->path, strerror(errno));
    mt_error_place(error, dataset->path, 0);
  }
  if (status == MOTET_OK && dataset->samples.count == 0) {
    status = dataset->dropped == 0
                 ? mt_error_set(error, MOTET_ERROR_PARSE, "%s holds no samples", dataset->path)
                 : mt_error_set(error, MOTET_ERROR_PARSE,
                                "%s holds no samples (%" PRId32 " were longer than %" PRId32 " tokens)",
                                dataset->path, dataset->dropped, dataset->max_tokens);
    mt_error_place(error, dataset->path, 0);
  }
  free(text);
  scratch_free(&scratch);
  return status;
}

static motet_status index_file(mt_dataset *dataset, motet_error *error) {
  struct stat information;
  dataset->descriptor = open(dataset->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (dataset->descriptor >= 0 && fstat(dataset->descriptor, &information) == 0 && !S_ISREG(information.st_mode)) {
    motet_status status =
        mt_error_set(error, MOTET_ERROR_IO, "%s is no file: its lines are read more than once", dataset->path);
    mt_error_place(error, dataset->path, 0);
    return status;
  }
  /* The stream has its own place in the file; the descriptor stays for reading lines again. */
  FILE *file = dataset->descriptor < 0 ? NULL : fopen(dataset->path, "rb");
  if (file == NULL) {
    motet_status status = mt_error_set(error, MOTET_ERROR_IO, "cannot open %s: %s", dataset->path, strerror(errno));
    mt_error_place(error, dataset->path, 0);
    return status;
  }
  motet_status status = read_lines(dataset, file, error);
  fclose(file);
  return status;
}

static const char *directory_of(mt_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  if (slash == NULL) return mt_arena_text(arena, "");
  return mt_arena_format(arena, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

motet_status mt_dataset_open(const char *path, const mt_tokenizer *tokenizer, const mt_internvl *config,
                             const mt_dataset_options *options, motet_error *error, mt_dataset **dataset) {
  *dataset = NULL;
  mt_dataset *made = calloc(1, sizeof *made);
  if (made == NULL) return mt_error_memory(error, sizeof *made, path);
  made->descriptor = -1;
  made->config = config;
  made->max_tokens = options->max_tokens;
  made->refuse_long = options->refuse_long;
  made->video_frames = options->video_frames > 0 ? options->video_frames : MT_DATASET_VIDEO_FRAMES;
  motet_status status = mt_chat_create(tokenizer, config, error, &made->chat);
  if (status != MOTET_OK) goto fail;
  made->arena = mt_arena_create();
  if (made->arena != NULL) {
    made->path = mt_arena_text(made->arena, path);
    made->root = options->images_root != NULL ? mt_arena_text(made->arena, options->images_root)
                                              : directory_of(made->arena, path);
    if (options->system_prompt != NULL) made->system_prompt = mt_arena_text(made->arena, options->system_prompt);
  }
  if (made->arena == NULL || made->path == NULL || made->root == NULL ||
      (options->system_prompt != NULL && made->system_prompt == NULL)) {
    status = mt_error_memory(error, strlen(path), "a data set");
    goto fail;
  }
  status = index_file(made, error);
  if (status != MOTET_OK) goto fail;
  *dataset = made;
  return MOTET_OK;
fail:
  mt_dataset_close(made);
  return status;
}

void mt_dataset_close(mt_dataset *dataset) {
  if (dataset == NULL) return;
  if (dataset->descriptor >= 0) close(dataset->descriptor);
  free(dataset->samples.data);
  free(dataset->lines.data);
  free(dataset->media.data);
  mt_arena_destroy(dataset->arena);
  free(dataset);
}

int32_t mt_dataset_count(const mt_dataset *dataset) { return (int32_t)dataset->samples.count; }

const mt_sample *mt_dataset_sample(const mt_dataset *dataset, int32_t sample) {
  return &dataset->samples.data[sample];
}

int32_t mt_dataset_dropped(const mt_dataset *dataset) { return dataset->dropped; }

uint64_t mt_dataset_digest(const mt_dataset *dataset) {
  mt_digest *digest = mt_digest_create();
  if (digest == NULL) return 0;
  mt_digest_integer(digest, (int64_t)dataset->content);
  for (size_t i = 0; i < dataset->samples.count; i++) {
    const mt_sample *sample = &dataset->samples.data[i];
    const int32_t values[] = {sample->line, sample->tokens, sample->targets, sample->tiles, sample->images};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) mt_digest_integer(digest, values[v]);
    if (sample->videos > 0) mt_digest_integer(digest, sample->videos);
  }
  uint64_t value = mt_digest_value(digest);
  mt_digest_destroy(digest);
  return value;
}

static motet_status read_line(const mt_dataset *dataset, const mt_dataset_line *line, motet_error *error,
                              char **text) {
  *text = malloc((size_t)line->bytes + 1);
  if (*text == NULL) return mt_error_memory(error, (size_t)line->bytes, "a line");
  size_t done = 0;
  while (done < (size_t)line->bytes) {
    ssize_t got = pread(dataset->descriptor, *text + done, (size_t)line->bytes - done, line->offset + (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return mt_error_set(error, MOTET_ERROR_IO, "cannot be read: %s",
                          got < 0 ? strerror(errno) : "the file became shorter");
    done += (size_t)got;
  }
  return MOTET_OK;
}

/* A sample's line, parsed again; the conversation points into its own document. */
static motet_status read_sample(const mt_dataset *dataset, int32_t sample, motet_error *error,
                                mt_conversation *conversation, int32_t **tiles) {
  const mt_dataset_line *line = &dataset->lines.data[sample];
  const mt_sample *known = &dataset->samples.data[sample];
  char *text;
  motet_status status = read_line(dataset, line, error, &text);
  if (status == MOTET_OK) status = mt_conversation_parse(text, (size_t)line->bytes, error, conversation);
  free(text);
  const size_t media = (size_t)known->images + (size_t)known->videos;
  if (status == MOTET_OK && conversation->media.count != media)
    status = mt_error_set(error, MOTET_ERROR_FAILED, "changed since the data set was opened");
  if (status != MOTET_OK) return status;
  *tiles = malloc((media + 1) * sizeof **tiles);
  if (*tiles == NULL) return mt_error_memory(error, media * sizeof **tiles, "a sample");
  for (size_t i = 0; i < media; i++)
    (*tiles)[i] = dataset->media.data[line->first_medium + (int64_t)i].form.tiling.tiles;
  return MOTET_OK;
}

motet_status mt_dataset_encode(const mt_dataset *dataset, int32_t sample, motet_error *error, mt_tokens *tokens,
                               mt_marks *targets) {
  const mt_sample *known = &dataset->samples.data[sample];
  mt_conversation conversation = {0};
  int32_t *tiles = NULL;
  size_t before = tokens->count;
  motet_status status = read_sample(dataset, sample, error, &conversation, &tiles);
  if (status == MOTET_OK)
    status = mt_chat_encode(&dataset->chat, &conversation, dataset->system_prompt, tiles, error, tokens, targets);
  if (status == MOTET_OK && tokens->count - before != (size_t)known->tokens)
    status = mt_error_set(error, MOTET_ERROR_FAILED, "changed since the data set was opened");
  free(tiles);
  mt_conversation_free(&conversation);
  return at_line(dataset, known->line, error, status);
}

motet_status mt_dataset_question(const mt_dataset *dataset, int32_t sample, motet_error *error, mt_tokens *tokens,
                                 mt_text *answer) {
  mt_conversation conversation = {0};
  int32_t *tiles = NULL;
  motet_status status = read_sample(dataset, sample, error, &conversation, &tiles);
  if (status == MOTET_OK) {
    size_t last = conversation.turns.count - 1;
    while (conversation.turns.data[last].role != MT_ROLE_ASSISTANT)
      last--; /* parsing saw to it that there is one */
    mt_text_bytes(answer, conversation.turns.data[last].text, conversation.turns.data[last].bytes);
    conversation.turns.count = last;
    conversation.media.count = mt_conversation_markers(&conversation);
    status = mt_chat_encode(&dataset->chat, &conversation, dataset->system_prompt, tiles, error, tokens, NULL);
  }
  if (status == MOTET_OK) status = mt_chat_open_answer(&dataset->chat, error, tokens);
  if (status == MOTET_OK && answer->failed) status = mt_error_memory(error, answer->length, "an answer");
  free(tiles);
  mt_conversation_free(&conversation);
  return at_line(dataset, dataset->samples.data[sample].line, error, status);
}

motet_status mt_dataset_pictures(const mt_dataset *dataset, int32_t sample, mt_arena *arena, motet_error *error,
                                 const char ***paths, int32_t *count) {
  const int32_t media = dataset->samples.data[sample].images + dataset->samples.data[sample].videos;
  const char **list = MT_ARENA_NEW(arena, const char *, media);
  if (list == NULL) return mt_error_memory(error, (size_t)media * sizeof *list, "paths of pictures");
  for (int32_t i = 0; i < media; i++)
    list[i] = dataset->media.data[dataset->lines.data[sample].first_medium + i].path;
  *paths = list;
  *count = media;
  return MOTET_OK;
}
