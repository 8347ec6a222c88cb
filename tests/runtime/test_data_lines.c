/* Lines of data files: the ways to write a sample, and what wrong ones are told. */
#include "dataset_case.h"

#define ANSWER "{\"role\":\"assistant\",\"content\":\"ok\"}"

/* The ids and labels of a line alone in a file. */
static mt_batch load_line(const char *line, mt_arena *arena, mt_dataset **dataset) {
  char path[] = "/tmp/motet-dataset-XXXXXX";
  close(mkstemp(path));
  motet_error error;
  assert_int_equal(mt_file_write(path, line, strlen(line), NULL), MOTET_OK);
  *dataset = open_good(path, NULL);
  const mt_row *rows;
  mt_batch batch;
  assert_int_equal(mt_dataset_count(*dataset), 1);
  assert_int_equal(mt_dataset_plan_range(*dataset, 0, 1, 1, arena, &error, &rows), MOTET_OK);
  if (mt_dataset_load(*dataset, rows, true, true, arena, &error, &batch) != MOTET_OK) fail_msg("%s", error.text);
  unlink(path);
  return batch;
}

/* Two ways to write a sample give the same tokens, labels and pixels. */
static void expect_same(const char *line, const char *other) {
  mt_arena *arena = mt_arena_create();
  mt_dataset *first, *second;
  const mt_batch a = load_line(line, arena, &first), b = load_line(other, arena, &second);
  assert_int_equal(a.tokens, b.tokens);
  assert_int_equal(a.tiles, b.tiles);
  assert_memory_equal(a.token_ids, b.token_ids, (size_t)a.tokens * sizeof *a.token_ids);
  assert_memory_equal(a.labels, b.labels, (size_t)a.tokens * sizeof *a.labels);
  if (a.tiles > 0) assert_memory_equal(a.pixels, b.pixels, (size_t)(a.tiles * TILE_FLOATS) * sizeof(float));
  mt_dataset_close(first);
  mt_dataset_close(second);
  mt_arena_destroy(arena);
}

static void test_other_ways_to_write_a_sample(void **state) {
  (void)state;
  /* No marker: all in front, in InternVL's way. */
  expect_same("{\"messages\":[{\"role\":\"user\",\"content\":\"Compare.\"}," ANSWER
              "],\"images\":[\"rgb.png\",\"odd.jpg\"]}",
              "{\"messages\":[{\"role\":\"user\",\"content\":\"<image>\\n<image>\\nCompare.\"}," ANSWER
              "],\"images\":[\"rgb.png\",\"odd.jpg\"]}");
  /* Turns in parts, their pictures in place or in the list. */
  const char *plain = "{\"messages\":[{\"role\":\"user\",\"content\":\"A <image> and <image>?\"}," ANSWER
                      "],\"images\":[\"rgb.png\",\"odd.jpg\"]}";
  expect_same("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A "
              "\"},{\"type\":\"image\",\"image\":\"rgb.png\"},"
              "{\"type\":\"text\",\"text\":\" and "
              "\"},{\"type\":\"image\",\"image\":{\"path\":\"odd.jpg\"}},{\"type\":\"text\",\"text\":\"?\"}]},"
              "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"o\"},{\"type\":\"text\",\"text\":"
              "\"k\"}]}]}",
              plain);
  expect_same(
      "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A \"},{\"type\":\"image\"},"
      "{\"type\":\"text\",\"text\":\" and \"},{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"?\"}]}," ANSWER
      "],\"images\":[\"rgb.png\",\"odd.jpg\"]}",
      plain);
  /* As rows of a table: every line and part has every key. */
  expect_same(
      "{\"messages\":null,\"conversations\":[{\"from\":\"human\",\"value\":\"A <image> and "
      "<image>?\"},{\"from\":\"gpt\","
      "\"value\":\"ok\"}],\"images\":null,\"image\":[\"rgb.png\",\"odd.jpg\"],\"videos\":null,\"video\":null}",
      plain);
  expect_same(
      "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A \",\"image\":null},{\"type\":"
      "\"image\",\"image\":null,\"path\":null,\"url\":null,\"text\":null},{\"type\":\"text\",\"text\":\" and \"},"
      "{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"?\"}]}," ANSWER
      "],\"images\":[\"rgb.png\",\"odd.jpg\"],\"audios\":[]}",
      plain);
  expect_same(
      "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"A \"},{\"type\":\"image\","
      "\"path\":\"rgb.png\"},{\"type\":\"text\",\"text\":\" and \"},{\"type\":\"image\",\"image\":null,\"path\":"
      "\"odd.jpg\"},{\"type\":\"text\",\"text\":\"?\"}]}," ANSWER "],\"images\":[]}",
      plain);
  /* The system's text beside the turns. */
  expect_same("{\"system\":\"Be brief.\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi.\"}," ANSWER "]}",
              "{\"messages\":[{\"role\":\"system\",\"content\":\"Be "
              "brief.\"},{\"role\":\"user\",\"content\":\"Hi.\"}," ANSWER "]}");
  /* A byte-order mark, blank lines, carriage returns, no newline at the end; an absolute path. */
  expect_same("\xef\xbb\xbf\r\n\r\n{\"conversations\":[{\"from\":\"human\",\"value\":\"<image>?\"},{\"from\":"
              "\"gpt\",\"value\":"
              "\"x\"}],\"image\":\"" PICTURES "/rgb.png\"}\r\n",
              "{\"messages\":[{\"role\":\"user\",\"content\":\"<image>?\"},{\"role\":\"assistant\",\"content\":"
              "\"x\"}],\"images\":["
              "\"rgb.png\"]}");
  expect_same("\xef\xbb\xbf{\"messages\":[" ANSWER "]}", "{\"messages\":[" ANSWER "]}");
}

/* Of two answers the first is not learnt. */
static void check_without_loss(const char *loss) {
  mt_arena *arena = mt_arena_create();
  mt_dataset *first, *second;
  const char *turns = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"One two.\"%s}," ANSWER "]}";
  char line[256];
  snprintf(line, sizeof line, turns, "");
  const mt_batch both = load_line(line, arena, &first);
  snprintf(line, sizeof line, turns, loss);
  const mt_batch last = load_line(line, arena, &second);
  int32_t unlearnt = 0;
  for (int32_t t = 0; t < both.tokens; t++) {
    assert_int_equal(both.token_ids[t], last.token_ids[t]);
    if (both.labels[t] != last.labels[t]) {
      assert_int_equal(last.labels[t], -100);
      unlearnt++;
    }
  }
  mt_tokens words = {0};
  motet_error error;
  assert_int_equal(mt_tokenizer_encode(TOKENIZER, "One two.<|im_end|>", 18, &error, &words), MOTET_OK);
  assert_int_equal(unlearnt, words.count);
  free(words.data);
  mt_dataset_close(first);
  mt_dataset_close(second);
  mt_arena_destroy(arena);
}

static void test_answers_without_loss(void **state) {
  (void)state;
  check_without_loss(",\"loss\":false");
  check_without_loss(",\"loss\":0.0");
}

/* A video is its frames, one tile each, with their numbers in front; order is that of the markers. */
static void test_videos_become_frames(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_dataset *dataset;
  const mt_batch batch =
      load_line("{\"messages\":[{\"role\":\"user\",\"content\":\"<video>\\nAnd <image>?\"}," ANSWER
                "],\"images\":[\"wide.jpg\"],\"videos\":[\"../../video/waves.mp4\"]}",
                arena, &dataset);
  mt_text text = {0};
  motet_error error;
  mt_text_append(&text, "<|im_start|>user\n");
  for (int frame = 1; frame <= 8; frame++)
    mt_text_append(&text, "Frame%d: <img><IMG_CONTEXT><IMG_CONTEXT><IMG_CONTEXT><IMG_CONTEXT></img>\n", frame);
  mt_text_append(&text, "And <img>");
  const int32_t tiles = batch.tiles - 8;
  assert_true(tiles > 1);
  for (int32_t i = 0; i < 4 * tiles; i++) mt_text_append(&text, "<IMG_CONTEXT>");
  mt_text_append(&text, "</img>?<|im_end|>\n");
  mt_tokens wanted = {0};
  assert_int_equal(mt_tokenizer_encode(TOKENIZER, text.data, text.length, &error, &wanted), MOTET_OK);
  assert_true(wanted.count < (size_t)batch.tokens);
  for (size_t t = 0; t < wanted.count; t++) assert_int_equal(batch.token_ids[t], wanted.data[t]);
  const mt_sample *sample = mt_dataset_sample(dataset, 0);
  assert_int_equal(sample->videos, 1);
  assert_int_equal(sample->images, 1);
  assert_int_equal(sample->tiles, batch.tiles);
  /* The picture's tiles stand behind the frames'. */
  mt_image image;
  float *pixels = MT_ARENA_NEW(arena, float, tiles *TILE_FLOATS);
  assert_int_equal(mt_image_read(PICTURES "/wide.jpg", &error, &image), MOTET_OK);
  const mt_tiling tiling = mt_tiling_choose(&CONFIG, image.width, image.height);
  assert_int_equal(mt_image_tiles(&CONFIG, &image, &tiling, &error, pixels), MOTET_OK);
  assert_memory_equal(batch.pixels + 8 * TILE_FLOATS, pixels, (size_t)(tiles * TILE_FLOATS) * sizeof *pixels);
  mt_image_free(&image);
  mt_text_free(&text);
  free(wanted.data);
  mt_dataset_close(dataset);
  mt_arena_destroy(arena);
}

static void test_refuses_with_line_and_key(void **state) {
  (void)state;
  static const struct {
    const char *line, *key, *text;
  } cases[] = {
      {"{", "", "not JSON"},
      {"[]", "", "not a JSON object"},
      {"{}", "messages", "no list"},
      {"{\"messages\":[]}", "messages", "no list"},
      {"{\"messages\":[{\"content\":\"x\"}]}", "role", "turn 1 has no text \"role\""},
      {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "role", "unknown role \"tool\""},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages", "no turn of the assistant"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"audio\"}]}]}", "content",
       "part 1: type \"audio\" is not known"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[7]}]}", "content", "part 1: type \"\" is not known"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", "content", "part 1 has no text"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":7}]}]}", "content",
       "is not a path"},
      {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"image\"}]}]}", "content",
       "only the user's turns"},
      {"{\"conversations\":[{\"from\":\"human\"}]}", "value", "turn 1 has no text"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "messages", "no turn of the assistant"},
      {"{\"messages\":[" ANSWER ",{\"role\":\"system\",\"content\":\"x\"}]}", "role", "only be the first"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<image>\"}," ANSWER "]}", "images", "1 <image>"},
      {"{\"messages\":[" ANSWER "],\"images\":[\"rgb.png\"]}", "images", "without a user's turn"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<image>\"}," ANSWER
       "],\"images\":[\"rgb.png\",\"odd.jpg\"]}",
       "images", "1 <image> in the user's turns, but 2 in"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<image>\"}," ANSWER "],\"videos\":[\"rgb.png\"]}", "images",
       "1 <image> in the user's turns, but 0 in"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<image><video>\"}," ANSWER "],\"images\":[\"rgb.png\"]}",
       "videos", "1 <video> in the user's turns, but 0 in"},
      {"{\"messages\":[" ANSWER "],\"images\":[7]}", "images", "entry 1 of \"images\" is not a path"},
      {"{\"messages\":[" ANSWER "],\"video\":{}}", "video", "entry 1 of \"video\" is not a path"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"\"}," ANSWER "],\"images\":[\"https://a/b.png\"]}",
       "images", "no local file"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"\"}," ANSWER "],\"videos\":[\"rgb.png\"]}", "rgb.png",
       "no MP4"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"\"}," ANSWER "],\"videos\":[\"../../video/sound.mp4\"]}",
       "../../video/sound.mp4", "has no video stream"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"},{\"type\":\"image\",\"image\":\"odd."
       "jpg\"}]"
       "}," ANSWER "],\"images\":[\"rgb.png\"]}",
       "images", "in parts of turns and in \"images\" too"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"url\":\"rgb.png\"}]}," ANSWER
       "],\"images\":[\"rgb.png\"]}",
       "content", "\"image\" or \"path\" of a local file"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<audio>\"}," ANSWER "],\"audios\":[\"a.wav\"]}", "audios",
       "sounds"},
      {"[{\"messages\":[" ANSWER "]},", "", "rewritten, a sample a line"},
      {"[{\"messages\":[" ANSWER "]}]", "", "on a line of its own"},
      {"{\"instruction\":\"a\",\"output\":\"b\"}", "messages", "rewritten as turns"},
      {"{\"messages\":[" ANSWER "],\"system\":[]}", "system", "is no text"},
      {"{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}," ANSWER "],\"system\":\"y\"}", "system",
       "one of them"},
      {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"loss\":false}]}", "messages",
       "no turn of the assistant"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<image>\"}," ANSWER "],\"images\":[\"gone.png\"]}",
       "gone.png", "No such file"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<image>\"}," ANSWER "],\"images\":[\"../tilings.csv\"]}",
       "../tilings.csv", "is no PNG"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"<IMG_CONTEXT>\"}," ANSWER "]}", "", "spells out"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\"}," ANSWER "]}", "", "not JSON"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[] = "/tmp/motet-dataset-XXXXXX";
    close(mkstemp(path));
    mt_text text = {0};
    mt_text_append(&text, "{\"messages\":[" ANSWER "]}\n\n  \r\n%s\n", cases[i].line);
    assert_int_equal(mt_file_write(path, text.data, text.length, NULL), MOTET_OK);
    const mt_dataset_options options = {.images_root = PICTURES};
    motet_error error;
    motet_error_clear(&error);
    mt_dataset *dataset;
    motet_status status = mt_dataset_open(path, TOKENIZER, &CONFIG, &options, &error, &dataset);
    if (status == MOTET_OK || strstr(error.text, cases[i].text) == NULL || strcmp(error.key, cases[i].key) != 0)
      fail_msg("%s: status %d, key '%s', text '%s'", cases[i].line, status, error.key, error.text);
    assert_null(dataset);
    assert_string_equal(error.file, path);
    assert_int_equal(error.line, 4);
    unlink(path);
    mt_text_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_other_ways_to_write_a_sample),
      cmocka_unit_test(test_answers_without_loss),
      cmocka_unit_test(test_videos_become_frames),
      cmocka_unit_test(test_refuses_with_line_and_key),
  };
  return cmocka_run_group_tests(tests, load_tokenizer, drop_tokenizer);
}
