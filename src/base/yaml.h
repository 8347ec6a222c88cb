/** @file Loading of YAML files, which are one document each. */
#ifndef MT_BASE_YAML_H
#define MT_BASE_YAML_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

/**
 * Loads the one document of @p yaml; delete it with yaml_document_delete(). Its root may be NULL: an empty file.
 * Errors name @p name and the line. What is nested deeper than any file of this project is refused before it is
 * parsed, as the parser's time grows with the square of the depth.
 */
motet_status mt_yaml_load(const char *yaml, size_t bytes, const char *name, motet_error *error,
                          yaml_document_t *document);

/** Whether a plain scalar says that there is no value: null in the core schema of YAML 1.2. The empty one is not
 * among them: where a value was forgotten, that is to be said. */
bool mt_yaml_is_null(const char *text);

#endif
