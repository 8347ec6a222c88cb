/** @file Phases of a job: parts of a run with values of their own for some of the job's keys. */
#ifndef MT_TRAIN_JOB_PHASES_H
#define MT_TRAIN_JOB_PHASES_H

#include "train/job_keys.h"

/** Reads the list behind `phases`. */
motet_status mt_job_phases_read(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                                motet_error *error, mt_job *job);
/** Appends it as YAML; false where there is none. */
bool mt_job_phases_print(const mt_job *job, mt_text *text);

/** Reads learning rates: one number, or a mapping from modules to numbers. */
motet_status mt_job_rates_read(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                               motet_error *error, mt_job_rates *rates);

/** What must hold between a job's phases, modules and rates. */
motet_status mt_job_phases_check(const mt_job *job, motet_error *error);

#endif
