/** @file The table of a job's keys, and the reading of one value; see job.h. */
#ifndef MT_TRAIN_JOB_KEYS_H
#define MT_TRAIN_JOB_KEYS_H

#include "train/job.h"

#include <yaml.h>

typedef enum mt_job_kind {
  MT_JOB_TEXT,    /* const char * */
  MT_JOB_INTEGER, /* int64_t */
  MT_JOB_NUMBER,  /* double */
  MT_JOB_CHOICE,  /* int64_t: index in `choices` */
  MT_JOB_TEXTS,   /* mt_job_texts */
  MT_JOB_INTEGERS,
  MT_JOB_NUMBERS,
  MT_JOB_RATES,  /* mt_job_rates */
  MT_JOB_PHASES, /* phase_count and phases */
  MT_JOB_KINDS
} mt_job_kind;

typedef struct mt_job_key {
  const char *name; /* "train.steps" */
  mt_job_kind kind;
  size_t offset; /* in mt_job */
  double least, most;
  const char *choices;  /* separated by '|'; of a list of texts: what `all` stands for */
  const char *standard; /* the default, as one would write it; NULL: none */
  bool required;
  const char *meaning;
} mt_job_key;

extern const mt_job_key mt_job_keys[];
extern const int32_t mt_job_key_count;

/** NULL if there is no such key. */
const mt_job_key *mt_job_key_find(const char *name);

/** The key most like @p name, or NULL if none is near. */
const char *mt_job_key_nearest(const char *name);

/** Whether some key lies below the section @p name. */
bool mt_job_section_exists(const char *name);

/** Reads a node of a document into the key's field. */
motet_status mt_job_key_read(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                             motet_error *error, mt_job *job);

/** Reads a value as written behind `key=`. Texts are taken as they stand. */
motet_status mt_job_key_read_text(const mt_job_key *key, const char *text, motet_error *error, mt_job *job);

/** Bytes of the key's field. */
size_t mt_job_key_bytes(const mt_job_key *key);

/** Reads one number within the key's range. */
motet_status mt_job_key_number(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                               motet_error *error, double *value);

/** Takes away what the file gave a key that has no default (`key=null` on the command line); false for other keys.
 */
bool mt_job_key_remove(const mt_job_key *key, mt_job *job);

/** Appends the value as YAML. Returns false if the field has none. */
bool mt_job_key_print(const mt_job_key *key, const mt_job *job, mt_text *text);

#endif
