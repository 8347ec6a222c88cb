/* motet help job */
#include "cli/help.h"

#ifdef MOTET_WITH_RUNTIME

#include "train/job_keys.h"

static const char *const kinds[MT_JOB_KINDS] = {
    "TEXT", "N", "X", NULL, "[NAME, ...]", "[N, ...]", "[X, ...]", "X|{MODULE: X, ...}", "[{...}, ...]"};

static void put_key(const mt_job_key *key, mt_text *text) {
  mt_text_append(text, "  %s=%s\n        %s", key->name,
                 key->kind == MT_JOB_CHOICE ? key->choices : kinds[key->kind], key->meaning);
  if (key->choices != NULL && key->kind != MT_JOB_CHOICE) mt_text_append(text, ": of %s", key->choices);
  if (key->required)
    mt_text_append(text, " (required)");
  else if (key->standard != NULL)
    mt_text_append(text, " (%s)", key->standard);
  mt_text_append(text, "\n");
}

bool mt_help_job(mt_text *text) {
  mt_text_append(
      text,
      "Keys of a job file, as on the command line of plan, simulate, profile and train. In the file those before "
      "and\n"
      "behind the point stand below each other, as in 'train: {steps: 20}'. docs/formats/job.md says more.\n\n");
  for (int32_t i = 0; i < mt_job_key_count; i++) put_key(&mt_job_keys[i], text);
  mt_text_append(text,
                 "\nA job with the key cluster is planned for a cluster in place of this machine, and has other "
                 "keys: docs/formats/cluster-job.md,\nand for 'motet plan --search' docs/search.md.\n");
  return true;
}

#else

bool mt_help_job(mt_text *text) {
  (void)text;
  return false;
}

#endif
