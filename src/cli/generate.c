#include "base/text.h"
#include "cli/commands.h"
#include "data/dataset.h"
#include "train/generator.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS_MAX = 1 << 20, THREADS_MAX = 1024 /* as train.threads */ };

typedef struct generate_options {
  mt_option_texts images, videos;
  const char *prompt, *system, *data, *images_root, *tokenizer;
  int64_t max_tokens, count, threads, video_frames;
  bool together, json;
} generate_options;

static const mt_option options[] = {
    {"image", MT_OPTION_TEXTS, offsetof(generate_options, images), "FILE",
     "a picture to answer about; may be given several times, each picture then has its own answer"},
    {"video", MT_OPTION_TEXTS, offsetof(generate_options, videos), "FILE", "a video, likewise"},
    {"video-frames", MT_OPTION_COUNT, offsetof(generate_options, video_frames), "N",
     "frames of a video that has as many (the run's data.video_frames, or 8)"},
    {"together", MT_OPTION_FLAG, offsetof(generate_options, together), NULL,
     "one answer about all pictures and videos"},
    {"prompt", MT_OPTION_TEXT, offsetof(generate_options, prompt), "TEXT",
     "the question (Please describe the image shortly.); <image> and <video> in it are places of pictures and "
     "videos"},
    {"system", MT_OPTION_TEXT, offsetof(generate_options, system), "TEXT",
     "the system's turn (the run's data.system_prompt)"},
    {"data", MT_OPTION_TEXT, offsetof(generate_options, data), "FILE",
     "data lines instead of pictures: their last answers, with the true ones beside"},
    {"count", MT_OPTION_COUNT, offsetof(generate_options, count), "N",
     "so many lines of the data file, evenly spread (8)"},
    {"images-root", MT_OPTION_TEXT, offsetof(generate_options, images_root), "DIR",
     "where relative paths in the data file start (the run's data.images_root, or the file's directory)"},
    {"max-tokens", MT_OPTION_COUNT, offsetof(generate_options, max_tokens), "N",
     "the longest answer, in tokens (128)"},
    {"tokenizer", MT_OPTION_TEXT, offsetof(generate_options, tokenizer), "FILE",
     "tokenizer.json, where the model's directory has none"},
    {"threads", MT_OPTION_COUNT, offsetof(generate_options, threads), "N", "threads (all processors)"},
    {"json", MT_OPTION_FLAG, offsetof(generate_options, json), NULL, "print one JSON document"},
};

/* One answer as it is told. */
typedef struct result {
  const char *const *images; /* paths, or NULL: a line of the data file */
  int32_t image_count, line;
  const char *wanted; /* the true answer, or NULL */
  const mt_prompt *prompt;
  const mt_answer *answer;
} result;

typedef struct session {
  const generate_options *chosen;
  mt_generator *generator;
  json_t *answers; /* for --json */
} session;

static motet_status tell_json(json_t *answers, const result *told, motet_error *error) {
  json_t *item = json_object(), *images = json_array(), *tokens = json_array();
  for (int32_t i = 0; i < told->image_count; i++) json_array_append_new(images, json_string(told->images[i]));
  for (size_t i = 0; i < told->answer->tokens.count; i++)
    json_array_append_new(tokens, json_integer(told->answer->tokens.data[i]));
  const mt_text *text = &told->answer->text;
  bool good = json_object_set_new(item, "images", images) == 0;
  if (told->line > 0) good = json_object_set_new(item, "line", json_integer(told->line)) == 0 && good;
  good =
      json_object_set_new(item, "prompt_tokens", json_integer((json_int_t)told->prompt->tokens.count)) == 0 && good;
  good = json_object_set_new(item, "tokens", tokens) == 0 && good;
  good = json_object_set_new(item, "ended", json_boolean(told->answer->ended)) == 0 && good;
  good = json_object_set_new(item, "text", json_stringn(text->data != NULL ? text->data : "", text->length)) == 0 &&
         good;
  if (told->wanted != NULL) good = json_object_set_new(item, "wanted", json_string(told->wanted)) == 0 && good;
  good = json_array_append_new(answers, item) == 0 && good;
  return good ? MOTET_OK : mt_error_memory(error, text->length, "an answer");
}

static void tell_text(const session *this, const result *told, mt_text *out) {
  const mt_text *text = &told->answer->text;
  if (told->line > 0) mt_text_append(out, "line %d\n", (int)told->line);
  for (int32_t i = 0; i < told->image_count; i++) mt_text_append(out, "%s\n", told->images[i]);
  mt_text_append(out, "  ");
  mt_text_bytes(out, text->data != NULL ? text->data : "", text->length);
  mt_text_append(out, "%s\n", told->answer->ended ? "" : " [...]");
  if (told->wanted != NULL) mt_text_append(out, "  %s  [the data's own]\n", told->wanted);
  (void)this;
}

static motet_status answer(session *this, result *told, motet_error *error) {
  mt_answer said;
  motet_status status =
      mt_generator_answer(this->generator, told->prompt, (int32_t)this->chosen->max_tokens, error, &said);
  told->answer = &said;
  if (status == MOTET_OK && this->chosen->json) {
    status = tell_json(this->answers, told, error);
  } else if (status == MOTET_OK) {
    mt_text out = {0};
    tell_text(this, told, &out);
    if (out.failed)
      status = mt_error_memory(error, out.length, "an answer");
    else if (mt_cli_print(out.data) != MT_EXIT_DONE)
      status = mt_error_set(error, MOTET_ERROR_IO, "cannot write the answer");
    mt_text_free(&out);
  }
  mt_answer_free(&said);
  told->answer = NULL;
  return status;
}

static const char *system_text(const session *this) {
  const mt_job *job = mt_generator_job(this->generator);
  return this->chosen->system != NULL ? this->chosen->system : job != NULL ? job->data.system_prompt : NULL;
}

static int32_t video_frames(const session *this) {
  const mt_job *job = mt_generator_job(this->generator);
  return (int32_t)(this->chosen->video_frames > 0 ? this->chosen->video_frames
                   : job != NULL                  ? job->data.video_frames
                                                  : MT_DATASET_VIDEO_FRAMES);
}

static motet_status answer_prompt(session *this, const mt_prompt_options *asked, motet_error *error) {
  mt_prompt prompt;
  motet_status status = mt_prompt_make(mt_generator_tokenizer(this->generator),
                                       mt_generator_config(this->generator), asked, error, &prompt);
  const char *media[2 * MT_OPTION_TEXTS_MAX];
  int32_t count = 0;
  for (int32_t i = 0; i < asked->image_count; i++) media[count++] = asked->images[i];
  for (int32_t i = 0; i < asked->video_count; i++) media[count++] = asked->videos[i];
  result told = {.images = media, .image_count = count, .prompt = &prompt};
  if (status == MOTET_OK) status = answer(this, &told, error);
  mt_prompt_free(&prompt);
  return status;
}

static motet_status answer_media(session *this, motet_error *error) {
  const generate_options *chosen = this->chosen;
  const int32_t images = chosen->images.count, videos = chosen->videos.count;
  mt_prompt_options asked = {.system = system_text(this),
                             .text = chosen->prompt != NULL ? chosen->prompt : "Please describe the image shortly.",
                             .images = chosen->images.values,
                             .image_count = images,
                             .videos = chosen->videos.values,
                             .video_count = videos,
                             .video_frames = video_frames(this)};
  if (chosen->together || images + videos == 0) return answer_prompt(this, &asked, error);
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < images + videos && status == MOTET_OK; i++) {
    asked.images = chosen->images.values + (i < images ? i : 0);
    asked.image_count = i < images;
    asked.videos = chosen->videos.values + (i < images ? 0 : i - images);
    asked.video_count = i >= images;
    status = answer_prompt(this, &asked, error);
  }
  return status;
}

static motet_status answer_line(session *this, const mt_dataset *dataset, int32_t sample, mt_arena *arena,
                                motet_error *error) {
  const mt_row *row;
  mt_batch batch;
  mt_prompt prompt = {0};
  mt_text wanted = {0};
  mt_arena_reset(arena);
  motet_status status = mt_dataset_plan_range(dataset, sample, 1, 1, arena, error, &row);
  if (status == MOTET_OK) status = mt_dataset_question(dataset, sample, error, &prompt.tokens, &wanted);
  if (status == MOTET_OK) status = mt_dataset_load(dataset, row, false, true, arena, error, &batch);
  if (status == MOTET_OK && batch.tiles > 0) {
    prompt.tiles = batch.tiles;
    size_t bytes = (size_t)batch.tiles * (size_t)mt_dataset_tile_floats(dataset) * sizeof(float);
    prompt.pixels = malloc(bytes);
    if (prompt.pixels == NULL)
      status = mt_error_memory(error, bytes, "a line's pictures");
    else
      memcpy(prompt.pixels, batch.pixels, bytes);
  }
  const char **images = NULL;
  int32_t image_count = 0;
  if (status == MOTET_OK) status = mt_dataset_pictures(dataset, sample, arena, error, &images, &image_count);
  result told = {.images = images,
                 .image_count = image_count,
                 .line = mt_dataset_sample(dataset, sample)->line,
                 .wanted = wanted.data != NULL ? wanted.data : "",
                 .prompt = &prompt};
  if (status == MOTET_OK) status = answer(this, &told, error);
  mt_text_free(&wanted);
  mt_prompt_free(&prompt);
  return status;
}

static motet_status answer_data(session *this, motet_error *error) {
  const generate_options *chosen = this->chosen;
  const mt_job *job = mt_generator_job(this->generator);
  mt_dataset_options opened = {
      .images_root = chosen->images_root, .system_prompt = system_text(this), .video_frames = video_frames(this)};
  if (opened.images_root == NULL && job != NULL) opened.images_root = job->data.images_root;
  mt_dataset *dataset = NULL;
  mt_arena *arena = mt_arena_create();
  motet_status status = arena == NULL
                            ? mt_error_memory(error, 1, "a data set")
                            : mt_dataset_open(chosen->data, mt_generator_tokenizer(this->generator),
                                              mt_generator_config(this->generator), &opened, error, &dataset);
  if (status == MOTET_OK) {
    const int64_t all = mt_dataset_count(dataset), count = chosen->count < all ? chosen->count : all;
    for (int64_t i = 0; i < count && status == MOTET_OK; i++)
      status = answer_line(this, dataset, (int32_t)(i * all / count), arena, error);
  }
  mt_dataset_close(dataset);
  mt_arena_destroy(arena);
  return status;
}

/* What would change nothing. */
static void check_use(const mt_command *command, const generate_options *chosen, mt_options_given given,
                      motet_error *error) {
  static const char *const of_data[] = {"count", "images-root", NULL}, *const of_videos[] = {"video-frames", NULL},
                           *const of_media[] = {"together", NULL};
  if (chosen->data != NULL) return;
  mt_cli_refuse_given(command, given, of_data, "is for --data", error);
  if (chosen->videos.count == 0) mt_cli_refuse_given(command, given, of_videos, "is for --video or --data", error);
  if (chosen->videos.count + chosen->images.count == 0)
    mt_cli_refuse_given(command, given, of_media, "is for --image and --video", error);
}

static motet_status check(const generate_options *chosen, int words, motet_error *error) {
  if (words != 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "generate takes one model directory or run, not %d%s", words,
                        words > 1 ? "; each picture has its own --image" : "");
  const int32_t media = chosen->images.count + chosen->videos.count;
  if (chosen->data != NULL && media > 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--data and --image or --video exclude each other");
  if (chosen->data != NULL && (chosen->prompt != NULL || chosen->together))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "data lines bring their own questions: no --prompt, no --together");
  if (chosen->data == NULL && media == 0 && chosen->prompt == NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "generate needs an --image or --video FILE, a --prompt or a --data FILE");
  if (chosen->max_tokens > TOKENS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--max-tokens: 1 to %d tokens", TOKENS_MAX);
  if (chosen->threads > THREADS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--threads: 1 to %d threads", THREADS_MAX);
  if (chosen->video_frames > 4096)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "--video-frames: 1 to 4096 frames");
  return MOTET_OK;
}

static int print_json(const session *this) {
  json_t *document = json_object();
  json_object_set_new(document, "model", json_string(mt_generator_model(this->generator)));
  json_object_set(document, "answers", this->answers);
  char *text = json_dumps(document, JSON_INDENT(1));
  int code = text != NULL && mt_cli_print(text) == MT_EXIT_DONE && mt_cli_print("\n") == MT_EXIT_DONE
                 ? MT_EXIT_DONE
                 : MT_EXIT_FAILURE;
  free(text);
  json_decref(document);
  return code;
}

static int32_t threads_of(const generate_options *chosen) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (chosen->threads > 0) return (int32_t)chosen->threads;
  return processors > 0 ? (int32_t)processors : 1;
}

static int run(const mt_command *command, int argc, char **argv) {
  generate_options chosen = {.max_tokens = 128, .count = 8};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0) check(&chosen, words, &error);
  if (error.status == MOTET_OK) check_use(command, &chosen, given, &error);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  session this = {.chosen = &chosen, .answers = json_array()};
  motet_status status = mt_generator_open(argv[0], chosen.tokenizer, threads_of(&chosen), &error, &this.generator);
  if (status == MOTET_OK) status = chosen.data != NULL ? answer_data(&this, &error) : answer_media(&this, &error);
  int code = status != MOTET_OK ? mt_cli_fail(&error, chosen.json) : chosen.json ? print_json(&this) : MT_EXIT_DONE;
  json_decref(this.answers);
  mt_generator_close(this.generator);
  return code;
}

const mt_command mt_command_generate = {
    .name = "generate",
    .arguments = "RUN|DIR --image FILE [options]",
    .summary = "answers of a trained model about pictures",
    .details =
        "Answers greedily, on one rank: about pictures of your own, or about the lines of a data file with the "
        "true\n"
        "answers beside. DIR is a model in the HuggingFace layout (InternVL); of a RUN (a job's output_dir) the\n"
        "newest checkpoint answers. docs/generate.md has examples.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
