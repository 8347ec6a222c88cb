#include "train/planner_context.h"

#include "nn/network.h"
#include "train/share.h"

typedef struct spreading {
  const mt_planner_tables *whole; /* over microbatches */
  const mt_planner_microbatch *microbatches;
  int32_t count, width, ulysses;
  mt_arena *arena;
  mt_spread *spread;
  mt_planner_column *columns; /* [shares] */
  motet_error *error;
} spreading;

static motet_status wrong_groups(const spreading *this, int32_t m) {
  return mt_error_set(
      this->error, MOTET_ERROR_ARGUMENT,
      "the context groups of microbatch %d must have all its segments, in order, and disjoint ranks "
      "below %d",
      (int)m, (int)this->width);
}

/** Bytes that a member sends in one decoder block's forward, as the volume formulas have it for U x R ranks. */
static double forward_bytes(const mt_internvl_decoder *decoder, const mt_context *context, double tokens,
                            double element_bytes) {
  double heads = (double)decoder->heads * decoder->head_dim, ulysses = context->ulysses;
  double kv_heads = decoder->kv_heads < context->ulysses ? ulysses : decoder->kv_heads;
  double kv = kv_heads * decoder->head_dim, degree = ulysses * context->rings;
  return tokens / degree * element_bytes *
         ((2 * heads + 2 * kv) * (ulysses - 1) / ulysses + 2 * kv * (context->rings - 1));
}

/** A share as a column: its part of the tokens, and of the area and the targets as evenly as zig-zag deals them. */
static void fill_column(const spreading *this, const mt_planner_microbatch *microbatch, const mt_share *share,
                        mt_batch *batch, mt_batch *images, mt_planner_column *column) {
  int32_t degree = mt_context_degree(share->context);
  double row[MT_COST_FEATURES];
  *batch = share->batch;
  *images = (mt_batch){.tiles = share->tiles};
  column->batch = batch;
  column->images = images;
  mt_cost_features(&share->range, 0, row);
  column->features[MT_COST_FIXED] = 1;
  column->features[MT_COST_TOKENS] = batch->tokens;
  column->features[MT_COST_TILES] = share->tiles;
  column->features[MT_COST_AREA] = row[MT_COST_AREA] / degree;
  column->features[MT_COST_TARGETS] =
      microbatch->batch.tokens > 0 ? (double)microbatch->targets * batch->tokens / microbatch->batch.tokens : 0;
  if (degree < 2) return;
  const mt_link *link = &this->whole->costs->link;
  double hops = share->context->rings - 1 + (share->context->ulysses > 1 ? 2 : 0);
  double bytes = forward_bytes(&this->whole->config->decoder, share->context, share->range.tokens,
                               (double)mt_element_bytes(this->whole->element));
  column->exchange_seconds = hops * link->latency_seconds;
  if (link->bytes_per_second > 0) column->exchange_seconds += bytes / link->bytes_per_second;
}

static motet_status add_group(spreading *this, int32_t m, const mt_planner_group *group) {
  mt_spread *spread = this->spread;
  const mt_planner_microbatch *microbatch = &this->microbatches[m];
  mt_share_query query = {.begin = microbatch->batch.segment_begin[group->segment_begin],
                          .end = microbatch->batch.segment_begin[group->segment_end],
                          .ulysses = this->ulysses,
                          .degree = group->degree,
                          .ranks = group->context_ranks};
  spread->ranges[spread->range_count] = (motet_range){.begin = query.begin,
                                                      .end = query.end,
                                                      .microbatch = m,
                                                      .first_share = spread->share_count,
                                                      .degree = group->degree};
  mt_batch *batches = MT_ARENA_NEW(this->arena, mt_batch, 2 * (int64_t)group->degree);
  if (batches == NULL) return mt_error_memory(this->error, (unsigned)group->degree, "shares");
  for (int32_t i = 0; i < group->degree; i++) {
    int32_t rank = group->context_ranks[i];
    if (rank < 0 || rank >= this->width) return wrong_groups(this, m);
    int32_t *place = &spread->place[m * this->width + rank];
    if (*place >= 0) return wrong_groups(this, m);
    mt_share share;
    query.member = i;
    motet_status status =
        mt_share_make(this->arena, this->whole->config, &microbatch->batch, &query, this->error, &share);
    if (status != MOTET_OK) return status;
    *place = spread->share_count;
    fill_column(this, microbatch, &share, &batches[2 * i], &batches[2 * i + 1],
                &this->columns[spread->share_count]);
    spread->shares[spread->share_count++] = (mt_spread_share){.range = spread->range_count,
                                                              .member = i,
                                                              .context_rank = rank,
                                                              .tokens = share.batch.tokens,
                                                              .features = share.features};
  }
  spread->range_count++;
  return MOTET_OK;
}

static motet_status fill_spread(spreading *this) {
  mt_spread *spread = this->spread;
  for (int32_t m = 0; m < this->count; m++) {
    const mt_planner_microbatch *microbatch = &this->microbatches[m];
    int32_t segment = 0;
    spread->begin[m] = spread->share_count;
    for (int32_t g = 0; g < microbatch->group_count; g++) {
      const mt_planner_group *group = &microbatch->groups[g];
      if (group->segment_begin != segment || group->segment_end <= segment ||
          group->segment_end > microbatch->batch.segments || group->degree < 1 || group->degree > this->width)
        return wrong_groups(this, m);
      segment = group->segment_end;
      motet_status status = add_group(this, m, group);
      if (status != MOTET_OK) return status;
    }
    if (segment != microbatch->batch.segments) return wrong_groups(this, m);
  }
  spread->begin[this->count] = spread->share_count;
  return MOTET_OK;
}

/** A stage of a replicated region computes the microbatch whole: its time stands at the first share. */
static void place_whole_costs(const spreading *this, const mt_cost_table *whole, mt_cost_table *costs) {
  for (int32_t s = 0; s < this->whole->derivation->stage_count; s++) {
    if (this->whole->derivation->stages[s].rank >= 0) continue;
    for (int kind = 0; kind < MT_COST_KINDS; kind++) {
      mt_cost_values *values = &costs->seconds[kind];
      if (values->values == NULL) continue;
      for (int32_t m = 0; m < this->count; m++)
        values->values[s * values->stage_stride + this->spread->begin[m]] =
            mt_cost_seconds(whole, (mt_cost_kind)kind, s, m);
    }
  }
}

/** Likewise what it keeps; of what leaves it each share has the features that it reads. */
static void place_whole_sizes(const spreading *this, const mt_sizes *whole, mt_sizes *sizes) {
  for (int32_t s = 0; s < this->whole->derivation->stage_count; s++) {
    if (this->whole->derivation->stages[s].rank >= 0) continue;
    for (int32_t m = 0; m < this->count; m++)
      for (int32_t c = this->spread->begin[m]; c < this->spread->begin[m + 1]; c++) {
        motet_size_table *saved = &sizes->saved_bytes, *outputs = &sizes->output_bytes;
        saved->values[s * saved->stage_stride + c] =
            c == this->spread->begin[m] ? whole->saved_bytes.values[s * whole->saved_bytes.stage_stride + m] : 0;
        outputs->values[s * outputs->stage_stride + c] = (int64_t)this->spread->shares[c].features *
                                                         this->whole->config->decoder.hidden *
                                                         (int64_t)mt_element_bytes(this->whole->element);
      }
  }
}

/** By which the order is sought: the slowest share of a microbatch, and of encoding what one of the plane's ranks
 * has to do on average. */
static void make_plane_costs(const spreading *this, const mt_cost_table *shares, mt_cost_table *planes) {
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    mt_cost_values *values = &planes->seconds[kind];
    if (values->values == NULL || kind == MT_COST_RECOMPUTE) continue; /* which shares the forward's values */
    for (int32_t s = 0; s < this->whole->derivation->stage_count; s++)
      for (int32_t m = 0; m < this->count; m++) {
        double *value = &values->values[s * values->stage_stride + m];
        if (this->whole->derivation->stages[s].rank < 0) {
          *value /= this->width;
          continue;
        }
        *value = 0;
        for (int32_t c = this->spread->begin[m]; c < this->spread->begin[m + 1]; c++) {
          double seconds = mt_cost_seconds(shares, (mt_cost_kind)kind, s, c);
          if (seconds > *value) *value = seconds;
        }
      }
  }
}

/** Shares have tokens: image modules are encoded whole by owners, or run in front of decoder layers of one stage.
 */
static motet_status check_stages(const spreading *this) {
  const mt_derivation *derivation = this->whole->derivation;
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    const mt_stage *stage = &derivation->stages[s];
    if (stage->rank < 0 || stage->layer_begin == stage->layer_end ||
        stage->layer_end > this->whole->config->vision.layers + 2)
      continue;
    motet_status status = mt_error_set(this->error, MOTET_ERROR_ILLEGAL,
                                       "with context parallelism the image modules must be transposed, or inline "
                                       "in front of the decoder: stage %d, "
                                       "layers [%d, %d), of '%s' has image layers alone",
                                       (int)s, (int)stage->layer_begin, (int)stage->layer_end, derivation->text);
    mt_error_key(this->error, "schedule");
    return status;
  }
  return MOTET_OK;
}

static motet_status allocate(spreading *this) {
  mt_spread *spread = this->spread;
  int64_t most = (int64_t)this->count * this->width;
  if (most > INT32_MAX)
    return mt_error_set(this->error, MOTET_ERROR_LIMIT, "%d microbatches over %d context ranks are too many",
                        (int)this->count, (int)this->width);
  spread->width = this->width;
  spread->ranges = MT_ARENA_NEW(this->arena, motet_range, most);
  spread->shares = MT_ARENA_NEW(this->arena, mt_spread_share, most);
  spread->begin = MT_ARENA_NEW(this->arena, int32_t, this->count + 1);
  spread->place = MT_ARENA_NEW(this->arena, int32_t, most);
  this->columns = MT_ARENA_NEW(this->arena, mt_planner_column, most);
  if (spread->ranges == NULL || spread->shares == NULL || spread->begin == NULL || spread->place == NULL ||
      this->columns == NULL)
    return mt_error_memory(this->error, (unsigned long long)most * sizeof *this->columns, "shares");
  for (int64_t i = 0; i < most; i++) spread->place[i] = -1;
  return MOTET_OK;
}

motet_status mt_planner_context(const mt_planner_tables *tables, const mt_planner_microbatch *microbatches,
                                int32_t width, int32_t ulysses, motet_error *error, mt_plan_replica *part,
                                mt_cost_table *costs) {
  mt_plan_spread *result = MT_ARENA_NEW(tables->arena, mt_plan_spread, 1);
  if (result == NULL) return mt_error_memory(error, sizeof *result, "shares");
  spreading this = {.whole = tables,
                    .microbatches = microbatches,
                    .count = tables->derivation->microbatches,
                    .width = width,
                    .ulysses = ulysses,
                    .arena = tables->arena,
                    .spread = &result->spread,
                    .error = error};
  motet_status status = check_stages(&this);
  if (status == MOTET_OK) status = allocate(&this);
  if (status == MOTET_OK) status = fill_spread(&this);
  if (status != MOTET_OK) return status;
  mt_planner_tables shares = *tables;
  shares.columns = result->spread.share_count;
  shares.column = this.columns;
  status = mt_planner_tables_costs(&shares, error, &result->costs);
  if (status == MOTET_OK) status = mt_planner_tables_sizes(&shares, error, &result->sizes);
  if (status != MOTET_OK) return status;
  place_whole_costs(&this, costs, &result->costs);
  place_whole_sizes(&this, &part->sizes, &result->sizes);
  result->sizes.tokens = part->sizes.tokens;
  make_plane_costs(&this, &result->costs, costs);
  part->spread = result;
  return MOTET_OK;
}
