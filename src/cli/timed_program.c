#include "cli/timed_program.h"

#include "base/error.h"
#include "cli/program_file.h"
#include "order/unit_costs.h"

#include <stdlib.h>

static motet_status unit_times(mt_arena *arena, const char *unit, const mt_times_options *options,
                               motet_error *error, mt_timed_program *timed) {
  mt_unit *units;
  int32_t unit_count;
  motet_status status = mt_unit_parse(arena, unit, error, &units, &unit_count);
  timed->costs.links.local = (mt_link){options->alpha, options->beta};
  return status == MOTET_OK
             ? mt_unit_costs_of_program(arena, timed->program, units, unit_count, error, &timed->costs)
             : status;
}

static motet_status choose_times(mt_arena *arena, const char *path, const mt_program_times *own,
                                 const mt_times_options *options, motet_error *error, mt_timed_program *timed) {
  if (options->unit != NULL) return unit_times(arena, options->unit, options, error, timed);
  if (own->known) {
    if (options->alpha > 0 || options->beta > 0)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "%s has its own times, of links too: --alpha and --beta go with --unit", path);
    timed->costs = own->costs;
    timed->flops = own->flops;
    timed->bound = own->bound;
    return MOTET_OK;
  }
  timed->standard = options->standard != NULL;
  if (timed->standard) return unit_times(arena, options->standard, options, error, timed);
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%s has no times: give them, as in --unit 'f=1, b=2'", path);
}

motet_status mt_timed_program_read(mt_arena *arena, const char *path, const mt_times_options *options,
                                   motet_error *error, mt_timed_program *timed) {
  *timed = (mt_timed_program){.bound = NAN};
  mt_program_file file;
  motet_status status = mt_program_file_read(path, options->format, options->placement, error, &file);
  timed->program = file.program;
  motet_verify_options verify = {0};
  if (status == MOTET_OK) status = motet_verify(timed->program, &verify, error, &timed->verification);
  if (status == MOTET_OK) status = choose_times(arena, path, &file.times, options, error, timed);
  mt_simulate_options how = {.timeline = true, .attribute = true};
  return status == MOTET_OK ? mt_simulate(arena, timed->program, &timed->costs, &how, error, &timed->simulation)
                            : status;
}

void mt_timed_program_free(mt_timed_program *timed) {
  motet_verification_free(&timed->verification);
  motet_program_destroy(timed->program);
  *timed = (mt_timed_program){0};
}

motet_status mt_timed_program_document(const mt_timed_program *timed, int64_t step, motet_error *error,
                                       mt_text *text) {
  mt_report_plan plan = mt_timed_program_report(timed);
  json_t *document = mt_report_json_plan(&plan);
  char *dump = NULL;
  if (document != NULL && json_object_set_new(document, "step", step > 0 ? json_integer(step) : json_null()) == 0)
    dump = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  json_decref(document);
  if (dump == NULL) return mt_error_set(error, MOTET_ERROR_MEMORY, "no memory for the step's JSON document");
  mt_text_append(text, "%s\n", dump);
  free(dump);
  return MOTET_OK;
}

mt_report_plan mt_timed_program_report(const mt_timed_program *timed) {
  return (mt_report_plan){.program = timed->program,
                          .simulation = timed->simulation,
                          .verification = &timed->verification,
                          .flops = timed->flops,
                          .bound = timed->bound};
}
