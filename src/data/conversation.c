#include "data/conversation.h"

#include "base/text.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The keys of a form: LLaMA-Factory's and ms-swift's `messages`, ShareGPT's and InternVL's `conversations`. */
static const struct {
  const char *list, *role, *text;
} FORMS[] = {{"messages", "role", "content"}, {"conversations", "from", "value"}};

static const struct {
  const char *name;
  mt_role role;
} ROLES[] = {{"system", MT_ROLE_SYSTEM},
             {"user", MT_ROLE_USER},
             {"human", MT_ROLE_USER},
             {"assistant", MT_ROLE_ASSISTANT},
             {"gpt", MT_ROLE_ASSISTANT}};

/* malformed(error, key, format, ...) */
#define malformed(error, key, ...) (at_key((error), (key), mt_error_set((error), MOTET_ERROR_PARSE, __VA_ARGS__)))

static motet_status at_key(motet_error *error, const char *key, motet_status status) {
  mt_error_key(error, key);
  return status;
}

static_assert(sizeof MT_IMAGE_MARKER == sizeof MT_VIDEO_MARKER, "markers have one length");

const char *mt_marker_find(const char *text, size_t bytes, bool *video) {
  if (bytes == 0) return NULL;
  const char *image = memmem(text, bytes, MT_IMAGE_MARKER, MT_MARKER_BYTES),
             *moving = memmem(text, bytes, MT_VIDEO_MARKER, MT_MARKER_BYTES);
  *video = moving != NULL && (image == NULL || moving < image);
  return *video ? moving : image;
}

/* What a row of a table lacks is null. */
static bool is_given(const json_t *value) { return value != NULL && !json_is_null(value); }

static motet_status read_role(const json_t *value, const char *key, size_t place, motet_error *error,
                              mt_role *role) {
  const char *name = json_string_value(value);
  if (name == NULL) return malformed(error, key, "turn %zu has no text \"%s\"", place + 1, key);
  for (size_t i = 0; i < sizeof ROLES / sizeof *ROLES; i++)
    if (strcmp(name, ROLES[i].name) == 0) {
      *role = ROLES[i].role;
      return MOTET_OK;
    }
  return malformed(error, key,
                   "turn %zu has the unknown role \"%.100s\"; system, user (human) and assistant (gpt) are known",
                   place + 1, name);
}

/* LLaMA-Factory's and ms-swift's "system": a text beside the turns. */
static motet_status read_system(const json_t *root, const json_t *first, const char *role_key, motet_error *error,
                                mt_conversation *conversation) {
  const json_t *system = json_object_get(root, "system");
  const char *role = json_string_value(json_object_get(first, role_key));
  if (system == NULL || json_is_null(system) || (json_is_string(system) && json_string_length(system) == 0))
    return MOTET_OK;
  if (!json_is_string(system)) return malformed(error, "system", "\"system\" is no text");
  if (role != NULL && strcmp(role, "system") == 0)
    return malformed(error, "system",
                     "\"system\" beside a first turn that is the system's: one of them belongs here");
  const mt_turn turn = {
      .role = MT_ROLE_SYSTEM, .text = json_string_value(system), .bytes = json_string_length(system)};
  return MT_ARRAY_PUSH(&conversation->turns, turn) ? MOTET_OK
                                                   : mt_error_memory(error, sizeof turn, "a conversation");
}

/* A picture or video is a path, or an object with one. */
static motet_status read_path(const json_t *value, const char *key, motet_error *error, mt_path_list *list) {
  const json_t *path = json_is_object(value) ? json_object_get(value, "path") : value;
  if (!json_is_string(path) || json_string_length(path) == 0 ||
      strlen(json_string_value(path)) != json_string_length(path))
    return malformed(error, key, "entry %zu of \"%s\" is not a path", list->count + 1, key);
  if (!MT_ARRAY_PUSH(list, json_string_value(path)))
    return mt_error_memory(error, sizeof(char *), "a conversation");
  return MOTET_OK;
}

/* What a part of a turn is, and the key of its content. */
static const struct {
  const char *type, *key, *marker;
} PARTS[] = {{"text", "text", NULL}, {"image", "image", MT_IMAGE_MARKER}, {"video", "video", MT_VIDEO_MARKER}};
enum { PART_KINDS = sizeof PARTS / sizeof *PARTS };

static motet_status read_part(const json_t *part, size_t turn, size_t place, bool shows, motet_error *error,
                              mt_conversation *conversation, mt_text *text) {
  const char *type = json_string_value(json_object_get(part, "type"));
  int kind = 0;
  while (kind < PART_KINDS && (type == NULL || strcmp(type, PARTS[kind].type) != 0)) kind++;
  if (kind == PART_KINDS)
    return malformed(error, "content",
                     "turn %zu, part %zu: type \"%.60s\" is not known; {\"type\": \"text\", \"text\": ...}, "
                     "{\"type\": \"image\", \"image\": PATH} and video are",
                     turn + 1, place + 1, type == NULL ? "" : type);
  const json_t *content = json_object_get(part, PARTS[kind].key);
  if (PARTS[kind].marker == NULL) {
    if (!json_is_string(content))
      return malformed(error, "content", "turn %zu, part %zu has no text \"text\"", turn + 1, place + 1);
    mt_text_bytes(text, json_string_value(content), json_string_length(content));
    return MOTET_OK;
  }
  if (!shows)
    return malformed(error, "content", "turn %zu, part %zu: only the user's turns show pictures", turn + 1,
                     place + 1);
  mt_text_append(text, "%s", PARTS[kind].marker);
  if (is_given(json_object_get(part, "url")))
    return malformed(error, "content",
                     "turn %zu, part %zu has a \"url\": \"%s\" or \"path\" of a local file belongs here", turn + 1,
                     place + 1, PARTS[kind].key);
  if (!is_given(content) && is_given(json_object_get(part, "path"))) content = part;
  /* Without a path it is the next of "images" or "videos". */
  if (!is_given(content)) return MOTET_OK;
  return read_path(content, "content", error, kind == 1 ? &conversation->images : &conversation->videos);
}

/* A turn that is a list of parts, as ms-swift's and transformers' chat messages are: one text with markers. */
static motet_status read_parts(const json_t *list, size_t place, motet_error *error, mt_conversation *conversation,
                               mt_turn *turn) {
  mt_text text = {0};
  motet_status status = MOTET_OK;
  mt_text_append(&text, "%s", "");
  for (size_t p = 0; p < json_array_size(list) && status == MOTET_OK; p++)
    status = read_part(json_array_get(list, p), place, p, turn->role == MT_ROLE_USER, error, conversation, &text);
  if (status == MOTET_OK && (text.failed || !MT_ARRAY_PUSH(&conversation->owned, text.data)))
    status = mt_error_memory(error, text.length, "a conversation");
  if (status != MOTET_OK) {
    mt_text_free(&text);
    return status;
  }
  turn->text = text.data;
  turn->bytes = text.length;
  return MOTET_OK;
}

static motet_status read_turns(const json_t *root, motet_error *error, mt_conversation *conversation) {
  size_t form = is_given(json_object_get(root, FORMS[0].list)) ? 0 : 1;
  const json_t *list = json_object_get(root, FORMS[form].list);
  if (!json_is_array(list) || json_array_size(list) == 0)
    return malformed(error, FORMS[0].list, "no list \"messages\" or \"conversations\" with turns in it%s",
                     json_object_get(root, "instruction") != NULL || json_object_get(root, "query") != NULL
                         ? "; questions and answers under other keys must be rewritten as turns"
                         : "");
  bool answered = false;
  motet_status read = read_system(root, json_array_get(list, 0), FORMS[form].role, error, conversation);
  if (read != MOTET_OK) return read;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i), *text = json_object_get(item, FORMS[form].text);
    mt_turn turn = {0};
    motet_status status =
        read_role(json_object_get(item, FORMS[form].role), FORMS[form].role, i, error, &turn.role);
    if (status != MOTET_OK) return status;
    if (!json_is_string(text) && !json_is_array(text))
      return malformed(error, FORMS[form].text, "turn %zu has no text \"%s\"", i + 1, FORMS[form].text);
    const json_t *loss = json_object_get(item, "loss");
    turn.unlearnt = json_is_false(loss) || (json_is_number(loss) && json_number_value(loss) == 0);
    if (turn.role == MT_ROLE_SYSTEM && i > 0)
      return malformed(error, FORMS[form].role, "turn %zu is the system's; it may only be the first", i + 1);
    turn.text = json_string_value(text);
    turn.bytes = json_string_length(text);
    if (json_is_array(text)) status = read_parts(text, i, error, conversation, &turn);
    if (status != MOTET_OK) return status;
    answered = answered || (turn.role == MT_ROLE_ASSISTANT && !turn.unlearnt);
    if (!MT_ARRAY_PUSH(&conversation->turns, turn)) return mt_error_memory(error, sizeof turn, "a conversation");
  }
  return answered ? MOTET_OK : malformed(error, FORMS[form].list, "no turn of the assistant to learn from");
}

/* `plural` holds a list, `singular` (InternVL's form) one path or several. */
static motet_status read_paths(const json_t *root, const char *plural, const char *singular, motet_error *error,
                               mt_path_list *list) {
  const char *key = is_given(json_object_get(root, plural)) ? plural : singular;
  const json_t *paths = json_object_get(root, key);
  if (!is_given(paths) || (json_is_array(paths) && json_array_size(paths) == 0)) return MOTET_OK;
  if (list->count > 0)
    return malformed(error, key, "paths stand in parts of turns and in \"%s\" too: one of them belongs here", key);
  if (!json_is_array(paths)) return read_path(paths, key, error, list);
  for (size_t i = 0; i < json_array_size(paths); i++) {
    motet_status status = read_path(json_array_get(paths, i), key, error, list);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

static motet_status read_media(const json_t *root, motet_error *error, mt_conversation *conversation) {
  const json_t *sounds = json_object_get(root, "audios");
  if (json_is_array(sounds) && json_array_size(sounds) > 0)
    return malformed(error, "audios", "the line has sounds, which no model here hears");
  motet_status status = read_paths(root, "images", "image", error, &conversation->images);
  return status == MOTET_OK ? read_paths(root, "videos", "video", error, &conversation->videos) : status;
}

size_t mt_conversation_markers(const mt_conversation *conversation) {
  size_t markers = 0;
  bool video;
  for (size_t i = 0; i < conversation->turns.count; i++) {
    const mt_turn *turn = &conversation->turns.data[i];
    if (turn->role != MT_ROLE_USER) continue;
    const char *text = turn->text, *end = text + turn->bytes;
    while ((text = mt_marker_find(text, (size_t)(end - text), &video)) != NULL) {
      markers++;
      text += MT_MARKER_BYTES;
    }
  }
  return markers;
}

/* Markers in front of the first user's turn. */
static motet_status put_in_front(mt_conversation *conversation, motet_error *error) {
  size_t first = 0;
  while (first < conversation->turns.count && conversation->turns.data[first].role != MT_ROLE_USER) first++;
  if (first == conversation->turns.count)
    return malformed(error, "images", "pictures without a user's turn that they could stand in");
  mt_turn *turn = &conversation->turns.data[first];
  mt_text text = {0};
  for (size_t i = 0; i < conversation->images.count; i++) mt_text_append(&text, MT_IMAGE_MARKER "\n");
  for (size_t i = 0; i < conversation->videos.count; i++) mt_text_append(&text, MT_VIDEO_MARKER "\n");
  mt_text_bytes(&text, turn->text, turn->bytes);
  if (text.failed) {
    mt_text_free(&text);
    return mt_error_memory(error, turn->bytes, "a conversation");
  }
  if (!MT_ARRAY_PUSH(&conversation->owned, text.data)) {
    mt_text_free(&text);
    return mt_error_memory(error, turn->bytes, "a conversation");
  }
  turn->text = text.data;
  turn->bytes = text.length;
  return MOTET_OK;
}

static motet_status too_few(motet_error *error, const char *key, const char *marker, size_t markers, size_t paths) {
  return malformed(
      error, key,
      "%zu %s in the user's turns, but %zu in \"%s\": there must be as many, or no marker at all to have "
      "all in front",
      markers, marker, paths, key);
}

motet_status mt_conversation_place(mt_conversation *conversation, motet_error *error) {
  size_t next[2] = {0, 0}; /* pictures, videos */
  const size_t images = conversation->images.count, videos = conversation->videos.count;
  if (images + videos > 0 && mt_conversation_markers(conversation) == 0) {
    motet_status status = put_in_front(conversation, error);
    if (status != MOTET_OK) return status;
  }
  for (size_t i = 0; i < conversation->turns.count; i++) {
    const mt_turn *turn = &conversation->turns.data[i];
    if (turn->role != MT_ROLE_USER) continue;
    const char *text = turn->text, *end = text + turn->bytes;
    bool video;
    for (; (text = mt_marker_find(text, (size_t)(end - text), &video)) != NULL; text += MT_MARKER_BYTES) {
      const size_t place = next[video]++;
      if (place >= (video ? videos : images)) continue; /* told below, with their number */
      const char *path = video ? conversation->videos.data[place] : conversation->images.data[place];
      if (!MT_ARRAY_PUSH(&conversation->media, (mt_medium){path, video}))
        return mt_error_memory(error, sizeof(mt_medium), "a conversation");
    }
  }
  if (next[0] != images) return too_few(error, "images", MT_IMAGE_MARKER, next[0], images);
  if (next[1] != videos) return too_few(error, "videos", MT_VIDEO_MARKER, next[1], videos);
  return MOTET_OK;
}

motet_status mt_conversation_parse(const char *line, size_t bytes, motet_error *error,
                                   mt_conversation *conversation) {
  *conversation = (mt_conversation){0};
  json_error_t where;
  json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
  conversation->document = root;
  if (root == NULL) {
    size_t begin = 0;
    while (begin < bytes && (line[begin] == ' ' || line[begin] == '\t')) begin++;
    bool list = begin < bytes && line[begin] == '[';
    return mt_error_set(error, MOTET_ERROR_PARSE, "not JSON: %s at column %d%s", where.text, where.column,
                        list ? "; a file that is one list must be rewritten, a sample a line" : "");
  }
  if (!json_is_object(root))
    return mt_error_set(error, MOTET_ERROR_PARSE, "not a JSON object%s",
                        json_is_array(root) ? "; of a list of samples each belongs on a line of its own" : "");
  motet_status status = read_turns(root, error, conversation);
  if (status == MOTET_OK) status = read_media(root, error, conversation);
  return status == MOTET_OK ? mt_conversation_place(conversation, error) : status;
}

void mt_conversation_free(mt_conversation *conversation) {
  json_decref(conversation->document);
  free(conversation->turns.data);
  free(conversation->images.data);
  free(conversation->videos.data);
  free(conversation->media.data);
  for (size_t i = 0; i < conversation->owned.count; i++) free(conversation->owned.data[i]);
  free(conversation->owned.data);
  *conversation = (mt_conversation){0};
}
