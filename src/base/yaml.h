/** @file Loading of YAML files, which are one document each. */
#ifndef MT_BASE_YAML_H
#define MT_BASE_YAML_H

#include "base/error.h"

#include <stddef.h>
#include <yaml.h>

/**
 * Loads the one document of @p yaml; delete it with yaml_document_delete(). Its root may be NULL: an empty file.
 * Errors name @p name and the line. What is nested deeper than any file of this project is refused before it is
 * parsed, as the parser's time grows with the square of the depth.
 */
motet_status mt_yaml_load(const char *yaml, size_t bytes, const char *name, motet_error *error,
                          yaml_document_t *document);

#endif
