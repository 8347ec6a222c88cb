#include "algebra/skeleton.h"

#include <string.h>

static mt_layout sharded(const mt_skeleton *skeleton, int32_t ranks) {
  return (mt_layout){
      .map = MT_SLAB_LOOP, .slabs = ranks * skeleton->virtual_stages, .pipeline = ranks, .data = 1, .context = 1};
}

static mt_layout folded(const mt_skeleton *skeleton, int32_t ranks) {
  mt_layout layout = sharded(skeleton, ranks);
  layout.map = MT_SLAB_FOLD;
  return layout;
}

static mt_layout replicated(const mt_skeleton *skeleton, int32_t ranks) {
  return (mt_layout){.map = MT_SLAB_OWNER,
                     .owner = (int32_t)skeleton->owner,
                     .slabs = 1,
                     .pipeline = ranks,
                     .data = 1,
                     .context = 1};
}

/* Activations that a rank may hold, in shares of a rank (arXiv 2401.10241 sections 2 and 6, arXiv 2405.15362).
 * 1F1B's first rank holds `once`. */
static int32_t once(int32_t ranks) { return ranks; }
static int32_t twice(int32_t ranks) { return 2 * ranks; }
static int32_t two_thirds(int32_t ranks) { return (2 * ranks + 2) / 3; }
static int32_t a_half(int32_t ranks) { return ranks / 2 + 1; }
static int32_t a_third(int32_t ranks) { return (ranks + 4) / 3; }

const mt_skeleton_row mt_skeleton_rows[MT_SKELETON_KINDS] = {
    [MT_SKELETON_1F1B] = {"1f1b", MT_PLACEMENT_SHARDED, sharded, mt_body_1f1b, NULL, false},
    [MT_SKELETON_GPIPE] = {"gpipe", MT_PLACEMENT_SHARDED, sharded, mt_body_gpipe, NULL, false},
    [MT_SKELETON_TRANSPOSE] = {"transpose", MT_PLACEMENT_REPLICATED, replicated, NULL, NULL, false},
    [MT_SKELETON_INLINE] = {"inline", MT_PLACEMENT_HOSTED, NULL, NULL, NULL, false},
    [MT_SKELETON_ZB1P] = {"zb1p", MT_PLACEMENT_SHARDED, sharded, NULL, once, true},
    [MT_SKELETON_ZB2P] = {"zb2p", MT_PLACEMENT_SHARDED, sharded, NULL, twice, true},
    [MT_SKELETON_FOLD] = {"fold", MT_PLACEMENT_SHARDED, folded, NULL, two_thirds, false},
    [MT_SKELETON_ZBV] = {"zbv", MT_PLACEMENT_SHARDED, folded, NULL, once, true},
    [MT_SKELETON_VHALF] = {"vhalf", MT_PLACEMENT_SHARDED, folded, NULL, a_half, true},
    [MT_SKELETON_DUALPIPEV] = {"dualpipev", MT_PLACEMENT_SHARDED, folded, mt_body_dualpipev, NULL, true},
    [MT_SKELETON_VMIN] = {"vmin", MT_PLACEMENT_SHARDED, folded, NULL, a_third, true},
    [MT_SKELETON_DEDICATE] = {"dedicate", MT_PLACEMENT_SHARDED, NULL, NULL, NULL, false},
};

static const char *const order_words[MT_ORDER_KINDS] = {
    [MT_ORDER_FILL] = "fill", [MT_ORDER_PREFIX] = "prefix", [MT_ORDER_AHEAD] = "ahead"};
static const char *const owner_words[MT_OWNER_KINDS] = {
    [MT_OWNER_BALANCED] = "balanced", [MT_OWNER_ROUND_ROBIN] = "round-robin"};

static int32_t get_virtual(const mt_skeleton *skeleton) { return skeleton->virtual_stages; }
static void set_virtual(mt_skeleton *skeleton, int32_t value) { skeleton->virtual_stages = value; }
static int32_t one(const mt_skeleton *skeleton) { return (void)skeleton, 1; }

static int32_t get_order(const mt_skeleton *skeleton) { return (int32_t)skeleton->order; }
static void set_order(mt_skeleton *skeleton, int32_t value) { skeleton->order = (mt_order_kind)value; }
static int32_t order_fill(const mt_skeleton *skeleton) { return (void)skeleton, MT_ORDER_FILL; }

static int32_t get_window(const mt_skeleton *skeleton) { return skeleton->window; }
static void set_window(mt_skeleton *skeleton, int32_t value) { skeleton->window = value; }
static int32_t unbounded(const mt_skeleton *skeleton) { return (void)skeleton, 0; }

static int32_t get_owner(const mt_skeleton *skeleton) { return (int32_t)skeleton->owner; }
static void set_owner(mt_skeleton *skeleton, int32_t value) { skeleton->owner = (mt_owner_kind)value; }

static int32_t get_ranks(const mt_skeleton *skeleton) { return skeleton->ranks; }
static void set_ranks(mt_skeleton *skeleton, int32_t value) { skeleton->ranks = value; }
static int32_t none(const mt_skeleton *skeleton) { return (void)skeleton, 0; }

static int32_t get_batch(const mt_skeleton *skeleton) { return skeleton->batch; }
static void set_batch(mt_skeleton *skeleton, int32_t value) { skeleton->batch = value; }

static int32_t get_data(const mt_skeleton *skeleton) { return skeleton->data; }
static void set_data(mt_skeleton *skeleton, int32_t value) { skeleton->data = value; }

/* What may be the inner skeleton of a dedicated region, by the words' order. */
static const mt_skeleton_kind inner_kinds[] = {MT_SKELETON_1F1B,  MT_SKELETON_GPIPE, MT_SKELETON_ZB1P,
                                               MT_SKELETON_ZB2P,  MT_SKELETON_FOLD,  MT_SKELETON_ZBV,
                                               MT_SKELETON_VHALF, MT_SKELETON_VMIN,  MT_SKELETON_DUALPIPEV};
enum { INNER_KINDS = sizeof inner_kinds / sizeof *inner_kinds };
static const char *const inner_words[INNER_KINDS] = {"1f1b", "gpipe", "zb1p", "zb2p",     "fold",
                                                     "zbv",  "vhalf", "vmin", "dualpipev"};

int32_t mt_skeleton_chunks(mt_skeleton_kind kind) { return mt_skeleton_rows[kind].layout == folded ? 2 : 1; }

static int32_t get_inner(const mt_skeleton *skeleton) {
  int32_t word = 0;
  while (word + 1 < INNER_KINDS && inner_kinds[word] != skeleton->kind) word++;
  return word;
}

static void set_inner(mt_skeleton *skeleton, int32_t value) {
  skeleton->kind = inner_kinds[value];
  skeleton->virtual_stages = mt_skeleton_chunks(skeleton->kind);
}

static int32_t chunks(const mt_skeleton *skeleton) { return mt_skeleton_chunks(skeleton->kind); }

/* `prefix` is the published baseline, which deals microbatches round robin; the other orders plan owners. */
static int32_t owner_of_order(const mt_skeleton *skeleton) {
  return skeleton->order == MT_ORDER_PREFIX ? MT_OWNER_ROUND_ROBIN : MT_OWNER_BALANCED;
}

#define OF(kind) (UINT32_C(1) << MT_SKELETON_##kind)

/* In the order of printing; a default may depend on the options before it. */
const mt_skeleton_option mt_skeleton_options[MT_SKELETON_OPTIONS] = {
    {OF(1F1B), 0, "virtual", NULL, 1, 1 << 16, get_virtual, set_virtual, one},
    {OF(TRANSPOSE), MT_ORDER_KINDS, "order", order_words, 0, 0, get_order, set_order, order_fill},
    {OF(TRANSPOSE), 0, "window", NULL, 1, INT32_MAX, get_window, set_window, unbounded},
    {OF(TRANSPOSE), MT_OWNER_KINDS, "owner", owner_words, 0, 0, get_owner, set_owner, owner_of_order},
    {OF(DEDICATE), 0, "ranks", NULL, 1, 1 << 20, get_ranks, set_ranks, none},
    {OF(DEDICATE), INNER_KINDS, "inner", inner_words, 0, 0, get_inner, set_inner, none},
    {OF(DEDICATE), 0, "data", NULL, 1, 1 << 20, get_data, set_data, one},
    {OF(DEDICATE), 0, "virtual", NULL, 1, 1 << 16, get_virtual, set_virtual, chunks},
    {~OF(INLINE), 0, "batch", NULL, 1, 1 << 16, get_batch, set_batch, one},
};

mt_skeleton mt_skeleton_standard(mt_skeleton_kind kind) {
  /* Fields of other kinds hold fixed values too, so that equal skeletons are equal in every field. */
  mt_skeleton skeleton = {.kind = kind, .virtual_stages = mt_skeleton_chunks(kind), .data = 1, .batch = 1};
  for (int i = 0; i < MT_SKELETON_OPTIONS; i++) {
    const mt_skeleton_option *option = &mt_skeleton_options[i];
    if (mt_skeleton_knows(option, kind)) option->set(&skeleton, option->standard(&skeleton));
  }
  return skeleton;
}

static bool is_word(const char *word, const char *name, size_t length) {
  return strlen(word) == length && memcmp(word, name, length) == 0;
}

int mt_skeleton_find(const char *name, size_t length) {
  for (int kind = 0; kind < MT_SKELETON_KINDS; kind++)
    if (is_word(mt_skeleton_rows[kind].name, name, length)) return kind;
  return -1;
}

void mt_skeleton_list(mt_text *text) {
  for (int kind = 0; kind < MT_SKELETON_KINDS; kind++)
    mt_text_append(text, "%s%s", kind > 0 ? ", " : "", mt_skeleton_rows[kind].name);
}

void mt_skeleton_list_options(mt_text *text, mt_skeleton_kind kind) {
  int listed = 0;
  for (int i = 0; i < MT_SKELETON_OPTIONS; i++) {
    const mt_skeleton_option *option = &mt_skeleton_options[i];
    if (!mt_skeleton_knows(option, kind)) continue;
    mt_text_append(text, "%s%s=", listed++ > 0 ? ", " : "", option->name);
    if (option->words == NULL) mt_text_append(text, "n");
    for (int32_t w = 0; w < option->word_count; w++)
      mt_text_append(text, "%s%s", w > 0 ? "|" : "", option->words[w]);
  }
  if (listed == 0) mt_text_append(text, "no option");
}

void mt_skeleton_append(mt_text *text, const mt_skeleton *skeleton) {
  mt_skeleton_kind written = mt_skeleton_written(skeleton);
  mt_text_append(text, "%s", mt_skeleton_rows[written].name);
  int printed = 0;
  for (int i = 0; i < MT_SKELETON_OPTIONS; i++) {
    const mt_skeleton_option *option = &mt_skeleton_options[i];
    if (!mt_skeleton_knows(option, written)) continue;
    int32_t value = option->get(skeleton);
    if (value == option->standard(skeleton)) continue;
    mt_text_append(text, "%s%s=", printed++ > 0 ? ", " : "(", option->name);
    if (option->words != NULL)
      mt_text_append(text, "%s", option->words[value]);
    else
      mt_text_append(text, "%d", value);
  }
  if (printed > 0) mt_text_append(text, ")");
}

char *mt_skeleton_print(mt_arena *arena, const mt_skeleton *skeleton) {
  mt_text text = {0};
  mt_skeleton_append(&text, skeleton);
  char *copy = text.failed ? NULL : mt_arena_text(arena, text.data);
  mt_text_free(&text);
  return copy;
}

bool mt_skeleton_equal(const mt_skeleton *a, const mt_skeleton *b) {
  return a->kind == b->kind && a->virtual_stages == b->virtual_stages && a->order == b->order &&
         a->owner == b->owner && a->window == b->window && a->ranks == b->ranks && a->data == b->data &&
         a->batch == b->batch;
}
