/* From the schedule's terms to regions: which modules each skeleton covers. */
#include "algebra/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

motet_status mt_build_refuse(mt_build *build, const char *rule, const char *region, const char *format, ...) {
  char text[MOTET_ERROR_TEXT_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  mt_error_set(build->error, MOTET_ERROR_ILLEGAL, "%s", text);
  mt_error_rule(build->error, rule, -1, -1, -1);
  mt_error_key(build->error, region);
  return MOTET_ERROR_ILLEGAL;
}

char *mt_build_name(const mt_build *build, int32_t begin, int32_t end) {
  mt_text text = {0};
  for (int32_t m = begin; m < end; m++)
    mt_text_append(&text, "%s%s", m > begin ? "+" : "", build->request->model->modules[m].name);
  char *copy = text.failed || begin == end ? NULL : mt_arena_text(build->arena, text.data);
  mt_text_free(&text);
  return copy;
}

/* Whether module `m` follows `m - 1` alone, and `m - 1` feeds `m` alone. */
static bool chained(const mt_build *build, int32_t m) {
  return build->module_before[m] == mt_bit(m - 1) && build->module_after[m - 1] == mt_bit(m);
}

void mt_build_connect(mt_build *build) {
  mt_derivation *d = build->result;
  int32_t owner[MT_MODEL_MODULES_MAX];
  for (int32_t r = 0; r < d->region_count; r++) {
    build->region_before[r] = build->region_after[r] = 0;
    for (int32_t m = d->regions[r].module_begin; m < d->regions[r].module_end; m++) owner[m] = r;
  }
  const mt_model *model = build->request->model;
  for (int32_t e = 0; e < model->edge_count; e++) {
    int32_t from = owner[model->edges[e].from], to = owner[model->edges[e].to];
    if (from == to) continue;
    build->region_after[from] |= mt_bit(to);
    build->region_before[to] |= mt_bit(from);
  }
}

static motet_status add_region(mt_build *build, const mt_skeleton *skeleton, int32_t branch, int32_t module_begin,
                               int32_t module_end) {
  mt_derivation *d = build->result;
  const mt_model *model = build->request->model;
  char *name = mt_build_name(build, module_begin, module_end);
  if (name == NULL) return mt_error_memory(build->error, 1, "a region's name");
  for (int32_t m = module_begin + 1; m < module_end; m++)
    if (!chained(build, m))
      return mt_build_refuse(build, "cut", name,
                             "region %s is no chain: %s does not follow %s alone; accepted: a term for each, or "
                             "side by side as (%s: .. | %s: ..) where neither feeds the other",
                             name, model->modules[m].name, model->modules[m - 1].name, model->modules[m - 1].name,
                             model->modules[m].name);
  build->branch[d->region_count] = branch;
  d->regions[d->region_count++] = (mt_region){.name = name,
                                              .skeleton = *skeleton,
                                              .module_begin = module_begin,
                                              .module_end = module_end,
                                              .layer_begin = model->modules[module_begin].layer_begin,
                                              .layer_end = model->modules[module_end - 1].layer_end,
                                              .host = -1};
  return MOTET_OK;
}

/* Positional terms. */

/* Where each module group begins: the last module is the trunk, a group of its own; the modules before it are
 * grouped in their longest chains. Returns the number of groups; starts[] has room for one more, the end. */
static int32_t module_groups(const mt_build *build, int32_t *starts) {
  int32_t modules = build->request->model->module_count, count = 0;
  for (int32_t m = 0; m < modules; m++)
    if (m == 0 || m == modules - 1 || !chained(build, m)) starts[count++] = m;
  starts[count] = modules;
  return count;
}

/* Writes the terms with each run of adjacent 1f1b terms as one term with virtual stages. */
static int32_t join_runs(const mt_schedule *schedule, mt_term *terms) {
  int32_t count = 0;
  for (int32_t i = 0; i < schedule->term_count; i++) {
    const mt_term *term = &schedule->terms[i];
    mt_term *last = count > 0 ? &terms[count - 1] : NULL;
    if (last != NULL && term->skeleton.kind == MT_SKELETON_1F1B && last->skeleton.kind == MT_SKELETON_1F1B &&
        term->branch == 0 && last->branch == 0 && term->skeleton.ranks == 0 && last->skeleton.ranks == 0)
      last->skeleton.virtual_stages += term->skeleton.virtual_stages; /* terms and options are bounded: fits */
    else
      terms[count++] = *term;
  }
  return count;
}

static motet_status bind_terms(mt_build *build, const mt_term *terms, int32_t count, const int32_t *starts) {
  for (int32_t i = 0; i < count; i++) {
    motet_status status = add_region(build, &terms[i].skeleton, terms[i].branch, starts[i], starts[i + 1]);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

static motet_status bind_positional(mt_build *build) {
  const mt_schedule *schedule = build->request->schedule;
  int32_t modules = build->request->model->module_count;
  mt_term *joined = MT_ARENA_NEW(build->arena, mt_term, schedule->term_count);
  if (joined == NULL) return mt_error_memory(build->error, sizeof *joined, "a schedule's terms");
  int32_t joined_count = join_runs(schedule, joined), count = schedule->term_count;
  int32_t group_starts[MT_MODEL_MODULES_MAX + 1], each[MT_MODEL_MODULES_MAX + 1];
  int32_t groups = module_groups(build, group_starts);
  for (int32_t m = 0; m <= modules; m++) each[m] = m;
  int32_t whole[2] = {0, modules};
  /* The first reading that fits. Virtual stages before one term a module: <transpose, 1f1b, 1f1b> on vision,
   * projector, llm interleaves llm in two. */
  if (joined_count == groups) return bind_terms(build, joined, joined_count, group_starts);
  if (count == modules) return bind_terms(build, schedule->terms, count, each);
  if (count == groups) return bind_terms(build, schedule->terms, count, group_starts);
  if (joined_count == modules) return bind_terms(build, joined, joined_count, each);
  if (joined_count == 1) return bind_terms(build, joined, 1, whole);
  mt_text accepted = {0};
  for (int32_t g = 0; g < groups; g++) {
    char *name = mt_build_name(build, group_starts[g], group_starts[g + 1]);
    mt_text_append(&accepted, "%s%s", g > 0 ? " | " : "", name != NULL ? name : "");
  }
  motet_status status = mt_build_refuse(
      build, "cut", NULL,
      "%d skeletons do not cut %d modules; accepted: one a module (%d), one a module group (%d: %s), "
      "or terms with module names, as in <%s: 1f1b>",
      count, modules, modules, groups, accepted.data != NULL ? accepted.data : "",
      build->request->model->modules[0].name);
  mt_text_free(&accepted);
  return status;
}

/* Named terms. */

static int32_t find_module(const mt_build *build, const char *name) {
  const mt_model *model = build->request->model;
  for (int32_t m = 0; m < model->module_count; m++)
    if (strcmp(model->modules[m].name, name) == 0) return m;
  return -1;
}

static motet_status refuse_unknown(mt_build *build, const mt_term *term, const char *name) {
  char *all = mt_build_name(build, 0, build->request->model->module_count);
  return mt_build_refuse(build, "cut", name,
                         "column %d: the model has no module '%.64s'; accepted: those it has, %s", term->column,
                         name, all != NULL ? all : "");
}

/* Finds the term that names each module; every module must be named once. */
static motet_status name_modules(mt_build *build, int32_t *term_of) {
  const mt_schedule *schedule = build->request->schedule;
  const mt_model *model = build->request->model;
  for (int32_t m = 0; m < model->module_count; m++) term_of[m] = -1;
  for (int32_t t = 0; t < schedule->term_count; t++) {
    const mt_term *term = &schedule->terms[t];
    for (int32_t i = 0; i < term->module_count; i++) {
      int32_t m = find_module(build, term->modules[i]);
      if (m < 0) return refuse_unknown(build, term, term->modules[i]);
      if (term_of[m] >= 0)
        return mt_build_refuse(build, "cut", model->modules[m].name,
                               "column %d: module %s is named twice; accepted: once (several chunks a rank are "
                               "written 1f1b(virtual=2))",
                               term->column, model->modules[m].name);
      term_of[m] = t;
    }
  }
  for (int32_t m = 0; m < model->module_count; m++)
    if (term_of[m] < 0)
      return mt_build_refuse(build, "cut", model->modules[m].name,
                             "module %s is missing from the schedule; accepted: every module in one term",
                             model->modules[m].name);
  return MOTET_OK;
}

static motet_status refuse_order(mt_build *build, const mt_term *term, int32_t found, int32_t wanted) {
  const mt_model *model = build->request->model;
  char *all = mt_build_name(build, 0, model->module_count);
  return mt_build_refuse(
      build, "cut", model->modules[found].name,
      "column %d: module %s is out of order, %s comes before it; accepted: the model's order, %s", term->column,
      model->modules[found].name, model->modules[wanted].name, all != NULL ? all : "");
}

static motet_status bind_named(mt_build *build) {
  const mt_schedule *schedule = build->request->schedule;
  const mt_model *model = build->request->model;
  int32_t term_of[MT_MODEL_MODULES_MAX] = {0}, expected = 0;
  motet_status status = name_modules(build, term_of);
  for (int32_t t = 0; status == MOTET_OK && t < schedule->term_count; t++) {
    const mt_term *term = &schedule->terms[t];
    int32_t begin = expected;
    for (int32_t i = 0; i < term->module_count; i++, expected++) {
      int32_t m = find_module(build, term->modules[i]);
      if (m == expected) continue;
      if (i > 0 && m > expected && term_of[expected] != t)
        return mt_build_refuse(
            build, "cut", model->modules[m].name,
            "column %d: %s and %s are not contiguous, %s stands between them; accepted: a run of "
            "neighbouring modules in one term",
            term->column, model->modules[expected - 1].name, model->modules[m].name, model->modules[expected].name);
      return refuse_order(build, term, m, expected);
    }
    status = add_region(build, &term->skeleton, term->branch, begin, expected);
  }
  return status;
}

/* Branches written side by side must not feed one another. */
static motet_status check_branches(mt_build *build) {
  const mt_derivation *d = build->result;
  for (int32_t a = 0; a < d->region_count; a++)
    for (int32_t b = a + 1; b < d->region_count; b++)
      if (build->branch[a] > 0 && build->branch[a] == build->branch[b] && (build->region_after[a] & mt_bit(b)) != 0)
        return mt_build_refuse(build, "cut", d->regions[b].name,
                               "regions %s and %s stand side by side, but %s feeds %s; accepted: a comma in place "
                               "of the '|'",
                               d->regions[a].name, d->regions[b].name, d->regions[a].name, d->regions[b].name);
  return MOTET_OK;
}

static motet_status connect_modules(mt_build *build) {
  const mt_model *model = build->request->model;
  for (int32_t e = 0; e < model->edge_count; e++) {
    mt_module_edge edge = model->edges[e];
    if (edge.from < 0 || edge.from >= edge.to || edge.to >= model->module_count)
      return mt_error_set(build->error, MOTET_ERROR_ARGUMENT,
                          "the model's edge %d goes from module %d to %d; accepted: upwards, inside [0, %d)", e,
                          edge.from, edge.to, model->module_count);
    build->module_after[edge.from] |= mt_bit(edge.to);
    build->module_before[edge.to] |= mt_bit(edge.from);
  }
  return MOTET_OK;
}

motet_status mt_build_bind(mt_build *build) {
  const mt_schedule *schedule = build->request->schedule;
  motet_status status = connect_modules(build);
  if (status != MOTET_OK) return status;
  int32_t named = 0;
  for (int32_t t = 0; t < schedule->term_count; t++) named += schedule->terms[t].module_count > 0;
  if (schedule->term_count < 1)
    return mt_build_refuse(build, "cut", NULL, "the schedule has no term; accepted: one skeleton or more");
  if (named > 0 && named < schedule->term_count)
    return mt_build_refuse(build, "cut", NULL, "%d of %d terms name their modules; accepted: all of them or none",
                           named, schedule->term_count);
  status = named > 0 ? bind_named(build) : bind_positional(build);
  if (status != MOTET_OK) return status;
  mt_build_connect(build);
  return check_branches(build);
}
