#include "data/conversation.h"

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

const char *mt_image_marker_find(const char *text, size_t bytes) {
  return bytes == 0 ? NULL : memmem(text, bytes, MT_IMAGE_MARKER, strlen(MT_IMAGE_MARKER));
}

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

static motet_status read_turns(const json_t *root, motet_error *error, mt_conversation *conversation) {
  size_t form = json_object_get(root, FORMS[0].list) != NULL ? 0 : 1;
  const json_t *list = json_object_get(root, FORMS[form].list);
  if (!json_is_array(list) || json_array_size(list) == 0)
    return malformed(error, FORMS[0].list, "no list \"messages\" or \"conversations\" with turns in it");
  bool answered = false;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i), *text = json_object_get(item, FORMS[form].text);
    mt_turn turn;
    motet_status status =
        read_role(json_object_get(item, FORMS[form].role), FORMS[form].role, i, error, &turn.role);
    if (status != MOTET_OK) return status;
    if (!json_is_string(text))
      return malformed(error, FORMS[form].text, "turn %zu has no text \"%s\"", i + 1, FORMS[form].text);
    if (turn.role == MT_ROLE_SYSTEM && i > 0)
      return malformed(error, FORMS[form].role, "turn %zu is the system's; it may only be the first", i + 1);
    turn.text = json_string_value(text);
    turn.bytes = json_string_length(text);
    answered = answered || turn.role == MT_ROLE_ASSISTANT;
    if (!MT_ARRAY_PUSH(&conversation->turns, turn)) return mt_error_memory(error, sizeof turn, "a conversation");
  }
  return answered ? MOTET_OK : malformed(error, FORMS[form].list, "no turn of the assistant to learn from");
}

/* A picture is a path, or an object with one. */
static motet_status read_image(const json_t *value, motet_error *error, mt_conversation *conversation) {
  const json_t *path = json_is_object(value) ? json_object_get(value, "path") : value;
  if (!json_is_string(path) || json_string_length(path) == 0 ||
      strlen(json_string_value(path)) != json_string_length(path))
    return malformed(error, "images", "picture %zu is not a path", conversation->images.count + 1);
  if (!MT_ARRAY_PUSH(&conversation->images, json_string_value(path)))
    return mt_error_memory(error, sizeof(char *), "a conversation");
  return MOTET_OK;
}

static motet_status read_images(const json_t *root, motet_error *error, mt_conversation *conversation) {
  const json_t *images = json_object_get(root, "images");
  if (images == NULL) images = json_object_get(root, "image"); /* InternVL's form: one path or several */
  if (images == NULL || json_is_null(images)) return MOTET_OK;
  if (!json_is_array(images)) return read_image(images, error, conversation);
  for (size_t i = 0; i < json_array_size(images); i++) {
    motet_status status = read_image(json_array_get(images, i), error, conversation);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

size_t mt_conversation_markers(const mt_conversation *conversation) {
  size_t markers = 0;
  for (size_t i = 0; i < conversation->turns.count; i++) {
    const mt_turn *turn = &conversation->turns.data[i];
    if (turn->role != MT_ROLE_USER) continue;
    const char *text = turn->text, *end = text + turn->bytes;
    while ((text = mt_image_marker_find(text, (size_t)(end - text))) != NULL) {
      markers++;
      text += strlen(MT_IMAGE_MARKER);
    }
  }
  return markers;
}

static motet_status check_markers(const mt_conversation *conversation, motet_error *error) {
  size_t markers = mt_conversation_markers(conversation);
  if (markers == conversation->images.count) return MOTET_OK;
  return malformed(error, "images", "%zu " MT_IMAGE_MARKER " in the user's turns, but %zu pictures", markers,
                   conversation->images.count);
}

motet_status mt_conversation_parse(const char *line, size_t bytes, motet_error *error,
                                   mt_conversation *conversation) {
  *conversation = (mt_conversation){0};
  json_error_t where;
  json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
  conversation->document = root;
  if (root == NULL)
    return mt_error_set(error, MOTET_ERROR_PARSE, "not JSON: %s at column %d", where.text, where.column);
  if (!json_is_object(root)) return mt_error_set(error, MOTET_ERROR_PARSE, "not a JSON object");
  motet_status status = read_turns(root, error, conversation);
  if (status == MOTET_OK) status = read_images(root, error, conversation);
  return status == MOTET_OK ? check_markers(conversation, error) : status;
}

void mt_conversation_free(mt_conversation *conversation) {
  json_decref(conversation->document);
  free(conversation->turns.data);
  free(conversation->images.data);
  *conversation = (mt_conversation){0};
}
