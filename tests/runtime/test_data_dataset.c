#include "dataset_case.h"

#include "data/prefetch.h"
#include "data/prompt.h"

#include <jansson.h>

#define DATASETS MOTET_TEST_DATA "/dataset/"

/* One sample a row against the ids and labels of tools/make_dataset_fixtures.py. */
static void check_dataset(mt_dataset *dataset, const mt_tokenizer *tokenizer, const char *name) {
  char path[512];
  snprintf(path, sizeof path, DATASETS "%s_expected.json", name);
  json_t *expected = json_load_file(path, 0, NULL);
  int32_t count = mt_dataset_count(dataset);
  assert_int_equal(count, json_array_size(expected));
  mt_arena *arena = mt_arena_create();
  motet_error error;
  const mt_row *rows;
  assert_int_equal(mt_dataset_plan_range(dataset, 0, count, count, arena, &error, &rows), MOTET_OK);
  for (int32_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(expected, (size_t)i), *ids = json_object_get(item, "ids"),
                 *labels = json_object_get(item, "labels"), *tiles = json_object_get(item, "tiles");
    const mt_sample *sample = mt_dataset_sample(dataset, i);
    int64_t all_tiles = 0, targets = 0;
    for (size_t t = 0; t < json_array_size(tiles); t++) all_tiles += json_integer_value(json_array_get(tiles, t));
    assert_int_equal(sample->images, json_array_size(tiles));
    assert_int_equal(sample->tiles, all_tiles);
    assert_int_equal(sample->tokens, json_array_size(ids));
    mt_batch batch;
    assert_int_equal(mt_dataset_load(dataset, &rows[i], true, false, arena, &error, &batch), MOTET_OK);
    assert_null(batch.pixels);
    assert_int_equal(batch.tokens, json_array_size(ids));
    assert_int_equal(batch.segments, 1);
    int32_t features = 0, image = mt_tokenizer_find(tokenizer, "<IMG_CONTEXT>");
    for (int32_t t = 0; t < batch.tokens; t++) {
      assert_int_equal(batch.token_ids[t], json_integer_value(json_array_get(ids, (size_t)t)));
      assert_int_equal(batch.labels[t], json_integer_value(json_array_get(labels, (size_t)t)));
      targets += batch.labels[t] != -100;
      if (batch.token_ids[t] == image) assert_int_equal(batch.feature_rows[features++], t);
    }
    assert_int_equal(features, all_tiles * 4);
    assert_int_equal(sample->targets, targets);
  }
  mt_arena_destroy(arena);
  mt_dataset_close(dataset);
  json_decref(expected);
}

static void check_against(const char *name, const char *system) {
  char path[512];
  snprintf(path, sizeof path, DATASETS "%s.jsonl", name);
  check_dataset(open_good(path, system), TOKENIZER, name);
}

static void test_messages_become_tokens(void **state) {
  (void)state;
  check_against("messages", NULL);
}

static void test_sharegpt_becomes_tokens(void **state) {
  (void)state;
  check_against("sharegpt", "You are Motet.");
}

/* ---- refusals ---- */

#define ANSWER "{\"role\":\"assistant\",\"content\":\"ok\"}"

/* The templates of InternVL 2; InternLM2's with a tokenizer of its own form. */
static void test_older_templates(void **state) {
  (void)state;
  mt_internvl config = CONFIG;
  config.template = MT_INTERNVL_TEMPLATE_HERMES2;
  check_dataset(open_with(TOKENIZER, &config, DATASETS "messages.jsonl", NULL), TOKENIZER, "hermes2");
  config.template = MT_INTERNVL_TEMPLATE_INTERNLM2;
  mt_tokenizer *tokenizer;
  motet_error error;
  assert_int_equal(mt_tokenizer_read(MOTET_TEST_DATA "/tokenizer/internlm2.json", &error, &tokenizer), MOTET_OK);
  check_dataset(open_with(tokenizer, &config, DATASETS "messages.jsonl", NULL), tokenizer, "internlm2");
  mt_tokenizer_destroy(tokenizer);
}

static void test_refuses_unfit_models(void **state) {
  (void)state;
  const mt_dataset_options options = {.images_root = PICTURES};
  motet_error error;
  mt_dataset *dataset;
  mt_internvl small = CONFIG, other = CONFIG;
  small.decoder.vocabulary = 100;
  other.image_token = 3;
  assert_int_equal(mt_dataset_open(DATASETS "messages.jsonl", TOKENIZER, &small, &options, &error, &dataset),
                   MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_dataset_open(DATASETS "messages.jsonl", TOKENIZER, &other, &options, &error, &dataset),
                   MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_dataset_open(DATASETS "absent.jsonl", TOKENIZER, &CONFIG, &options, &error, &dataset),
                   MOTET_ERROR_IO);
}

/* Words, what is learnt of them, and numbers of tokens all count; the file's name does not. */
static void test_digest_follows_content(void **state) {
  (void)state;
  static const char *const lines[] = {
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, "
      "{\"role\": \"assistant\", \"content\": \"c\"}]}\n",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"d\"}, "
      "{\"role\": \"assistant\", \"content\": \"c\"}]}\n",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, "
      "{\"role\": \"assistant\", \"content\": \"c\", \"loss\": false}]}\n",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", "
      "\"loss\": "
      "false}, {\"role\": \"assistant\", \"content\": \"c\"}]}\n",
  };
  uint64_t digests[4];
  for (int i = 0; i < 5; i++) {
    char path[] = "/tmp/motet-dataset-XXXXXX";
    close(mkstemp(path));
    motet_error error;
    assert_int_equal(mt_file_write(path, lines[i % 4], strlen(lines[i % 4]), &error), MOTET_OK);
    mt_dataset *dataset = open_good(path, NULL);
    uint64_t digest = mt_dataset_digest(dataset);
    if (i == 4) assert_true(digest == digests[0]);
    for (int k = 0; k < i && i < 4; k++) assert_true(digest != digests[k]);
    if (i < 4) digests[i] = digest;
    mt_dataset_close(dataset);
    unlink(path);
  }
}

static void test_long_samples_are_dropped_or_refused(void **state) {
  (void)state;
  mt_dataset *all = open_good(DATASETS "messages.jsonl", NULL), *some;
  int32_t longest = 0, longest_line = 0;
  for (int32_t i = 0; i < mt_dataset_count(all); i++)
    if (mt_dataset_sample(all, i)->tokens > longest) {
      longest = mt_dataset_sample(all, i)->tokens;
      longest_line = mt_dataset_sample(all, i)->line;
    }
  motet_error error;
  mt_dataset_options options = {.images_root = PICTURES, .max_tokens = longest};
  assert_int_equal(mt_dataset_open(DATASETS "messages.jsonl", TOKENIZER, &CONFIG, &options, &error, &some),
                   MOTET_OK);
  assert_int_equal(mt_dataset_count(some), mt_dataset_count(all));
  assert_true(mt_dataset_digest(some) == mt_dataset_digest(all));
  mt_dataset_close(some);
  options.max_tokens = longest - 1;
  assert_int_equal(mt_dataset_open(DATASETS "messages.jsonl", TOKENIZER, &CONFIG, &options, &error, &some),
                   MOTET_OK);
  assert_int_equal(mt_dataset_count(some), mt_dataset_count(all) - 1);
  assert_int_equal(mt_dataset_dropped(some), 1);
  assert_true(mt_dataset_digest(some) != mt_dataset_digest(all));
  /* What lies behind the dropped sample still finds its pictures. */
  mt_arena *arena = mt_arena_create();
  const mt_row *rows;
  mt_batch batch;
  int32_t count = mt_dataset_count(some);
  assert_int_equal(mt_dataset_plan_range(some, 0, count, 1, arena, &error, &rows), MOTET_OK);
  assert_int_equal(mt_dataset_load(some, rows, true, true, arena, &error, &batch), MOTET_OK);
  mt_arena_destroy(arena);
  mt_dataset_close(some);
  options.refuse_long = true;
  assert_int_equal(mt_dataset_open(DATASETS "messages.jsonl", TOKENIZER, &CONFIG, &options, &error, &some),
                   MOTET_ERROR_PARSE);
  assert_int_equal(error.line, longest_line);
  options.refuse_long = false;
  options.max_tokens = 1;
  assert_int_equal(mt_dataset_open(DATASETS "messages.jsonl", TOKENIZER, &CONFIG, &options, &error, &some),
                   MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "no samples"));
  mt_dataset_close(all);
}

/* ---- rows ---- */

static void test_plan_visits_every_sample_once_an_epoch(void **state) {
  (void)state;
  mt_dataset *dataset = open_good(DATASETS "messages.jsonl", NULL);
  int32_t count = mt_dataset_count(dataset);
  enum { BATCH = 4, EPOCHS = 50 };
  int seen[64][8] = {{0}}, at_head[8] = {0};
  motet_error error;
  mt_arena *arena = mt_arena_create();
  int position = 0;
  for (int64_t step = 0; position < EPOCHS * count; step++) {
    mt_arena_reset(arena);
    const mt_row *rows, *again, *whole;
    assert_int_equal(mt_dataset_plan(dataset, 17, step, BATCH, 2, arena, &error, &rows), MOTET_OK);
    assert_int_equal(mt_dataset_plan(dataset, 17, step, BATCH, 2, arena, &error, &again), MOTET_OK);
    assert_int_equal(mt_dataset_plan(dataset, 17, step, BATCH, 1, arena, &error, &whole), MOTET_OK);
    int32_t targets = 0;
    for (int r = 0; r < 2; r++) {
      assert_int_equal(rows[r].samples, 2);
      int32_t tokens = 0, tiles = 0;
      for (int i = 0; i < 2; i++, position++) {
        int32_t sample = rows[r].sample[i];
        assert_int_equal(sample, again[r].sample[i]);
        assert_int_equal(sample, whole->sample[2 * r + i]);
        if (position < EPOCHS * count) seen[position / count][sample]++;
        if (position % count == 0 && position < EPOCHS * count) at_head[sample]++;
        assert_int_equal(rows[r].segment_begin[i], tokens);
        tokens += mt_dataset_sample(dataset, sample)->tokens;
        tiles += mt_dataset_sample(dataset, sample)->tiles;
        targets += mt_dataset_sample(dataset, sample)->targets;
      }
      assert_int_equal(rows[r].segment_begin[2], tokens);
      assert_int_equal(rows[r].tokens, tokens);
      assert_int_equal(rows[r].tiles, tiles);
    }
    assert_true(rows[0].loss_weight == 1.0 / targets && rows[1].loss_weight == 1.0 / targets);
  }
  for (int e = 0; e < EPOCHS; e++)
    for (int32_t s = 0; s < count; s++) assert_int_equal(seen[e][s], 1);
  for (int32_t s = 0; s < count; s++) assert_true(at_head[s] > 0 && at_head[s] < EPOCHS / 2);
  const mt_row *rows, *other;
  assert_int_equal(mt_dataset_plan(dataset, 17, 0, count, 1, arena, &error, &rows), MOTET_OK);
  assert_int_equal(mt_dataset_plan(dataset, 18, 0, count, 1, arena, &error, &other), MOTET_OK);
  assert_memory_not_equal(rows->sample, other->sample, (size_t)count * sizeof(int32_t));
  assert_int_equal(mt_dataset_plan(dataset, 17, 0, 2, 3, arena, &error, &rows), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_dataset_plan(dataset, 17, INT64_MAX / 2, 4, 2, arena, &error, &rows), MOTET_ERROR_ARGUMENT);
  mt_arena_destroy(arena);
  mt_dataset_close(dataset);
}

/* A row's pixels are its pictures' tiles one after another; its tokens its samples'. */
static void test_rows_pack_their_samples(void **state) {
  (void)state;
  mt_dataset *dataset = open_good(DATASETS "messages.jsonl", NULL);
  int32_t count = mt_dataset_count(dataset);
  mt_arena *arena = mt_arena_create();
  motet_error error;
  const mt_row *packed, *single;
  mt_batch whole, part;
  assert_int_equal(mt_dataset_plan_range(dataset, 0, count, 1, arena, &error, &packed), MOTET_OK);
  assert_int_equal(mt_dataset_plan_range(dataset, 0, count, count, arena, &error, &single), MOTET_OK);
  assert_int_equal(mt_dataset_load(dataset, packed, true, true, arena, &error, &whole), MOTET_OK);
  assert_int_equal(whole.segments, count);
  int32_t token = 0, tile = 0;
  for (int32_t i = 0; i < count; i++) {
    assert_int_equal(whole.segment_begin[i], token);
    assert_int_equal(mt_dataset_load(dataset, &single[i], true, true, arena, &error, &part), MOTET_OK);
    assert_memory_equal(whole.token_ids + token, part.token_ids, (size_t)part.tokens * sizeof(int32_t));
    assert_memory_equal(whole.labels + token, part.labels, (size_t)part.tokens * sizeof(int32_t));
    for (int32_t f = 0; f < part.tiles * 4; f++)
      assert_int_equal(whole.feature_rows[tile * 4 + f], part.feature_rows[f] + token);
    if (part.tiles > 0)
      assert_memory_equal(whole.pixels + tile * TILE_FLOATS, part.pixels,
                          (size_t)part.tiles * TILE_FLOATS * sizeof(float));
    else
      assert_null(part.pixels);
    token += part.tokens;
    tile += part.tiles;
  }
  assert_int_equal(whole.segment_begin[count], token);
  assert_int_equal(whole.tiles, tile);
  /* The first picture, by the image functions alone. */
  mt_image image;
  assert_int_equal(mt_image_read(PICTURES "/rgb.png", &error, &image), MOTET_OK);
  mt_tiling tiling = mt_tiling_choose(&CONFIG, image.width, image.height);
  float *pixels = malloc((size_t)tiling.tiles * TILE_FLOATS * sizeof *pixels);
  assert_int_equal(mt_image_tiles(&CONFIG, &image, &tiling, &error, pixels), MOTET_OK);
  assert_memory_equal(whole.pixels, pixels, (size_t)tiling.tiles * TILE_FLOATS * sizeof *pixels);
  free(pixels);
  mt_image_free(&image);
  mt_arena_destroy(arena);
  mt_dataset_close(dataset);
}

static void copy_file(const char *from, const char *to) {
  char *data;
  size_t bytes;
  assert_int_equal(mt_file_read(from, NULL, &data, &bytes), MOTET_OK);
  assert_int_equal(mt_file_write(to, data, bytes, NULL), MOTET_OK);
  free(data);
}

/* Pictures are relative to the data file where no root is given; one that breaks later is told with its line. */
static void test_pictures_that_change_are_errors(void **state) {
  (void)state;
  char directory[] = "/tmp/motet-pictures-XXXXXX", data[64], picture[64];
  assert_non_null(mkdtemp(directory));
  snprintf(data, sizeof data, "%s/data.jsonl", directory);
  snprintf(picture, sizeof picture, "%s/p.png", directory);
  copy_file(PICTURES "/rgb.png", picture);
  const char *line =
      "\n{\"messages\":[{\"role\":\"user\",\"content\":\"<image>\"}," ANSWER "],\"images\":[\"p.png\"]}";
  assert_int_equal(mt_file_write(data, line, strlen(line), NULL), MOTET_OK);
  const mt_dataset_options options = {0};
  motet_error error;
  mt_dataset *dataset;
  assert_int_equal(mt_dataset_open(data, TOKENIZER, &CONFIG, &options, &error, &dataset), MOTET_OK);
  mt_arena *arena = mt_arena_create();
  const mt_row *row;
  mt_batch batch;
  assert_int_equal(mt_dataset_plan(dataset, 0, 0, 1, 1, arena, &error, &row), MOTET_OK);
  assert_int_equal(mt_dataset_load(dataset, row, true, true, arena, &error, &batch), MOTET_OK);
  copy_file(PICTURES "/rgba.png", picture);
  assert_int_equal(mt_dataset_load(dataset, row, true, true, arena, &error, &batch), MOTET_ERROR_FAILED);
  assert_string_equal(error.file, picture);
  assert_non_null(strstr(error.text, "line 2"));
  assert_int_equal(mt_dataset_load(dataset, row, true, false, arena, &error, &batch), MOTET_OK);
  unlink(picture);
  mt_prefetch *prefetch;
  float *pixels;
  assert_int_equal(mt_prefetch_create(dataset, 1, 1, true, &error, &prefetch), MOTET_OK);
  assert_int_equal(mt_prefetch_post(prefetch, 1, row, &error), MOTET_OK);
  assert_int_equal(mt_prefetch_take(prefetch, 1, &error, &pixels), MOTET_ERROR_IO);
  assert_string_equal(error.file, picture);
  assert_null(pixels);
  mt_prefetch_destroy(prefetch);
  mt_arena_destroy(arena);
  mt_dataset_close(dataset);
  unlink(data);
  rmdir(directory);
}

static void test_prefetch_gives_the_same_pixels(void **state) {
  (void)state;
  mt_dataset *dataset = open_good(DATASETS "messages.jsonl", NULL);
  int32_t count = mt_dataset_count(dataset);
  mt_arena *arena = mt_arena_create();
  motet_error error;
  const mt_row *rows;
  mt_prefetch *prefetch;
  float *pixels;
  assert_int_equal(mt_dataset_plan_range(dataset, 0, count, count, arena, &error, &rows), MOTET_OK);
  assert_int_equal(mt_prefetch_create(dataset, 0, 1, false, &error, &prefetch), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_prefetch_create(dataset, 1, 0, false, &error, &prefetch), MOTET_ERROR_ARGUMENT);
  /* In order, beside the caller, and against it: the last row is beyond the capacity when it is asked for. */
  for (int direction = 0; direction < 4; direction++) { /* twice by one thread, twice by three */
    assert_int_equal(mt_prefetch_create(dataset, 1, direction < 2 ? 1 : 3, direction % 2 == 0, &error, &prefetch),
                     MOTET_OK);
    int64_t taken = 0;
    for (int32_t i = 0; i < count; i++) assert_int_equal(mt_prefetch_post(prefetch, i, &rows[i], &error), MOTET_OK);
    assert_int_equal(mt_prefetch_post(prefetch, count - 1, &rows[0], &error), MOTET_ERROR_ARGUMENT);
    assert_int_equal(mt_prefetch_take(prefetch, count, &error, &pixels), MOTET_ERROR_ARGUMENT);
    for (int32_t i = 0; i < count; i++) {
      int32_t r = direction % 2 == 0 ? i : count - 1 - i;
      mt_batch batch;
      assert_int_equal(mt_prefetch_take(prefetch, r, &error, &pixels), MOTET_OK);
      assert_int_equal(mt_dataset_load(dataset, &rows[r], false, true, arena, &error, &batch), MOTET_OK);
      assert_null(batch.token_ids);
      if (rows[r].tiles > 0)
        assert_memory_equal(pixels, batch.pixels, (size_t)rows[r].tiles * TILE_FLOATS * sizeof(float));
      free(pixels);
      taken += rows[r].tiles;
      assert_true(mt_prefetch_decoded(prefetch).tiles >= taken);
      /* A row that was taken may be asked for again. */
      assert_int_equal(mt_prefetch_post(prefetch, r, &rows[r], &error), MOTET_OK);
    }
    mt_prefetch_destroy(prefetch); /* with rows waiting and ready */
  }
  mt_arena_destroy(arena);
  mt_dataset_close(dataset);
}

/* A prompt is a sample up to its answer's words: the fixture's ids without those of the answer. */
static void check_prompt(const json_t *item, const mt_tokens *tokens, const char *answer) {
  const json_t *ids = json_object_get(item, "ids");
  mt_tokens rest = {0};
  motet_error error;
  assert_int_equal(mt_tokenizer_encode(TOKENIZER, answer, strlen(answer), &error, &rest), MOTET_OK);
  assert_int_equal(tokens->count + rest.count, json_array_size(ids));
  for (size_t i = 0; i < tokens->count; i++)
    assert_int_equal(tokens->data[i], json_integer_value(json_array_get(ids, i)));
  free(rest.data);
}

static void test_prompt_is_the_beginning_of_a_sample(void **state) {
  (void)state;
  /* The fixture's first ShareGPT sample asks "<image>\nWhat?" of one picture. */
  json_t *expected = json_load_file(DATASETS "sharegpt_expected.json", 0, NULL);
  const json_t *item = json_array_get(expected, 0);
  const char *const images[] = {PICTURES "/grey.png"};
  mt_prompt_options asked = {.system = "You are Motet.", .text = "What?", .images = images, .image_count = 1};
  mt_prompt prompt;
  motet_error error;
  assert_int_equal(mt_prompt_make(TOKENIZER, &CONFIG, &asked, &error, &prompt), MOTET_OK);
  check_prompt(item, &prompt.tokens, "An ellipse.<|im_end|>\n");
  assert_int_equal(prompt.tiles, json_integer_value(json_array_get(json_object_get(item, "tiles"), 0)));
  mt_prompt_free(&prompt);
  asked.text = "<image><image>?";
  assert_int_equal(mt_prompt_make(TOKENIZER, &CONFIG, &asked, &error, &prompt), MOTET_ERROR_PARSE);
  mt_prompt_free(&prompt);

  mt_dataset *dataset = open_good(DATASETS "sharegpt.jsonl", "You are Motet.");
  mt_tokens tokens = {0};
  mt_text answer = {0};
  assert_int_equal(mt_dataset_question(dataset, 0, &error, &tokens, &answer), MOTET_OK);
  assert_string_equal(answer.data, "An ellipse.");
  check_prompt(item, &tokens, "An ellipse.<|im_end|>\n");
  free(tokens.data);
  mt_text_free(&answer);
  mt_dataset_close(dataset);
  json_decref(expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_messages_become_tokens),
      cmocka_unit_test(test_sharegpt_becomes_tokens),
      cmocka_unit_test(test_older_templates),
      cmocka_unit_test(test_refuses_unfit_models),
      cmocka_unit_test(test_digest_follows_content),
      cmocka_unit_test(test_long_samples_are_dropped_or_refused),
      cmocka_unit_test(test_plan_visits_every_sample_once_an_epoch),
      cmocka_unit_test(test_rows_pack_their_samples),
      cmocka_unit_test(test_pictures_that_change_are_errors),
      cmocka_unit_test(test_prefetch_gives_the_same_pixels),
      cmocka_unit_test(test_prompt_is_the_beginning_of_a_sample),
  };
  return cmocka_run_group_tests(tests, load_tokenizer, drop_tokenizer);
}
