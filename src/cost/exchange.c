#include "cost/exchange.h"

#include <math.h>

enum { VALUE_BYTES = 2 };

/* What a layer sends, read off its design. */
typedef struct layer_traffic {
  double rows;          /* of the microbatch */
  double joined_bytes;  /* rows that row-parallel maps give, summed over those maps */
  double spread_bytes;  /* rows that only column-parallel maps take (heads) or a table gives (embeddings) */
  bool table;           /* no map at all: a table */
  double routed_rows;   /* of routed experts */
  int64_t routed_width; /* of such a row */
  bool attention;
} layer_traffic;

static layer_traffic traffic_of(const mt_layer_design *design, const double *extents) {
  layer_traffic traffic = {0};
  double taken = 0;
  for (int32_t p = 0; p < design->product_count; p++) {
    const mt_product *product = &design->products[p];
    double rows = extents[product->rows];
    if (product->rows == MT_ROWS_ROUTED) {
      traffic.routed_rows = rows;
      if (product->split_input) traffic.routed_width = product->out;
      continue;
    }
    if (traffic.rows == 0) traffic.rows = rows;
    if (product->split_input) traffic.joined_bytes += VALUE_BYTES * rows * (double)product->out;
    if (taken == 0) taken = VALUE_BYTES * rows * (double)product->in;
  }
  if (traffic.joined_bytes == 0) traffic.spread_bytes = taken;
  if (design->product_count == 0) {
    traffic.table = true;
    for (int e = 0; e < MT_EXTENTS; e++) traffic.spread_bytes += extents[e] * design->rates[e].output_bytes;
  }
  for (int e = MT_AREA_TEXT; e < MT_EXTENTS; e++) traffic.attention |= design->rates[e].heads > 0 && extents[e] > 0;
  return traffic;
}

double mt_exchange_parts(const mt_parallel *parallel, const double extents[MT_EXTENTS]) {
  double context = (double)parallel->ulysses * parallel->ring, rows = extents[MT_ROWS_PATCHES];
  double whole = extents[MT_AREA_PICTURE] > 0 ? rows * rows / extents[MT_AREA_PICTURE] : extents[MT_ROWS_SAMPLES];
  if (parallel->samples == 1 || whole <= 0) return context * parallel->samples;
  whole = fmax(1, nearbyint(whole));
  return context * whole / ceil(whole / parallel->samples);
}

/* An all-reduce behind every row-parallel map, and before the column-parallel ones in the backward; with sequence
 * parallelism a reduce-scatter and an all-gather in its place, and inputs gathered once more for their weights
 * (arXiv 2205.05198, section 4.2.2). */
static void add_tensor(const mt_forecast *forecast, const mt_parallel *parallel, const layer_traffic *traffic,
                       double parts, mt_exchange *exchange) {
  if (parallel->tensor == 1) return;
  double joined = traffic->joined_bytes / parts, spread = traffic->spread_bytes / parts;
  mt_collective kind = parallel->sequence_parallel ? MT_COLLECTIVE_ALL_GATHER : MT_COLLECTIVE_ALL_REDUCE;
  double each = parallel->sequence_parallel ? 2 : 1;
  if (joined > 0) {
    /* Two maps a block: half of the bytes each. */
    double half = mt_collective_seconds(forecast->cluster, &forecast->fit, kind, parallel->tensor, 1, joined / 2);
    exchange->tensor += 2 * each * half;
    exchange->tensor_input += 2 * each * half;
    if (parallel->sequence_parallel) exchange->regather += 2 * half;
  } else if (spread > 0) {
    double whole = mt_collective_seconds(forecast->cluster, &forecast->fit, kind, parallel->tensor, 1, spread);
    if (traffic->table || parallel->sequence_parallel) exchange->tensor += whole;
    if (!traffic->table) exchange->tensor_input += whole;
    if (!traffic->table && parallel->sequence_parallel) exchange->regather += whole;
  }
}

/* One hop to the next of a ring whose neighbours are `stride` devices apart. */
static double hop_seconds(const mt_forecast *forecast, int32_t ranks, int32_t stride, double bytes) {
  mt_links links = mt_cluster_links(forecast->cluster);
  bool inside = (int64_t)ranks * stride <= links.ranks_per_node;
  mt_collective_links reached = mt_collective_links_of(forecast->cluster, &forecast->fit, stride);
  return inside ? links.local.latency_seconds + bytes / mt_collective_inside(&reached, 1)
                : links.remote.latency_seconds + bytes / reached.between;
}

/* Elements of design 04's table: Ulysses (2 + 2g)(bsh/P)(U - 1)/U, ring 2g(bsh/P)(R - 1) and twice as many back and
 * a last hop; g grows where Ulysses ranks outnumber the KV heads and repeat them. */
static void add_context(const mt_forecast *forecast, const mt_parallel *parallel, const mt_module_facts *facts,
                        const layer_traffic *traffic, double parts, mt_exchange *exchange) {
  int32_t context = parallel->ulysses * parallel->ring;
  if (context == 1 || !traffic->attention || facts->heads == 0) return;
  double heads = (double)facts->heads,
         share = (double)(facts->kv_heads > 0 ? facts->kv_heads : facts->heads) / heads;
  double g = fmax(share, parallel->ulysses / heads);
  double bytes = VALUE_BYTES * traffic->rows * heads * (double)facts->head_width / (parts * parallel->tensor);
  if (parallel->ulysses > 1) {
    double once = mt_collective_all_to_all_seconds(forecast->cluster, &forecast->fit, parallel->ulysses,
                                                   parallel->tensor, (1 + g) * bytes, (mt_sent_parts){1, 1});
    exchange->forward += 2 * once;
    exchange->input += 2 * once;
  }
  if (parallel->ring > 1) {
    int32_t stride = parallel->tensor * parallel->ulysses;
    double forward = hop_seconds(forecast, parallel->ring, stride, 2 * g * bytes);
    exchange->ring += (parallel->ring - 1) * forward;
    exchange->ring_backward += (parallel->ring - 1) * hop_seconds(forecast, parallel->ring, stride, 4 * g * bytes);
    exchange->ring_backward += forward;
  }
}

/* Of n places a token's k experts are at `mean`, or, spread evenly, at n(1 - (1 - 1/n)^k): as a part of its k
 * copies.
 */
static double distinct_part(double places, double mean, int64_t experts_per_token) {
  double k = experts_per_token > 0 ? (double)experts_per_token : 1;
  if (places <= 1) return 1;
  return (mean > 0 ? fmin(mean, fmin(places, k)) : places * (1 - pow(1 - 1 / places, k))) / k;
}

/* A row crosses once to each node that has one of its experts, and goes once to each device there (DeepSeek-V3's
 * and DeepEP's dispatch, arXiv 2412.19437, section 3.2.2); or to every expert, as a plain all-to-all sends it. */
static mt_sent_parts sent_parts(const mt_forecast *forecast, const mt_parallel *parallel,
                                int64_t experts_per_token) {
  if (parallel->dispatch_copies) return (mt_sent_parts){1, 1};
  double nodes = ceil((double)parallel->expert / mt_cluster_links(forecast->cluster).ranks_per_node);
  return (mt_sent_parts){distinct_part(parallel->expert, parallel->routed_devices, experts_per_token),
                         distinct_part(nodes, parallel->routed_nodes, experts_per_token)};
}

/* Tokens go to their experts and back. Every tensor rank brings its own part of the tokens. */
static void add_routing(const mt_forecast *forecast, const mt_parallel *parallel, const mt_module_facts *facts,
                        const layer_traffic *traffic, mt_exchange *exchange) {
  if (parallel->expert == 1 || traffic->routed_rows == 0) return;
  double worst = parallel->worst_routing ? mt_architecture_worst_routing(facts, parallel->expert) : 1.0;
  double rows = worst * traffic->routed_rows / mt_parallel_cell(parallel);
  double once = mt_collective_all_to_all_seconds(forecast->cluster, &forecast->fit, parallel->expert, 1,
                                                 VALUE_BYTES * rows * (double)traffic->routed_width,
                                                 sent_parts(forecast, parallel, facts->experts_per_token));
  exchange->forward += 2 * once;
  exchange->input += 2 * once;
}

mt_layer_parameters mt_exchange_parameters(const mt_forecast *forecast, int32_t layer) {
  const mt_layer *described = &forecast->architecture->model->layers[layer];
  const mt_layer_design *design = &forecast->architecture->designs[described->kind];
  const mt_parallel *parallel = &forecast->parallel[described->module];
  int32_t copies = mt_parallel_copies(parallel);
  double expert = (double)design->expert_parameters, dense = (double)described->parameters - expert;
  mt_layer_parameters result = {
      .dense = dense / parallel->tensor, .dense_copies = copies, .dense_stride = parallel->tensor};
  bool routed = parallel->expert > 1;
  result.expert = expert / (routed ? parallel->expert : parallel->tensor);
  result.expert_copies = routed ? copies * parallel->tensor / parallel->expert : copies;
  result.expert_stride = routed ? parallel->expert : parallel->tensor;
  return result;
}

int32_t mt_exchange_shards(const mt_parallel *parallel, int32_t copies) {
  return parallel->shard_group > 0 && parallel->shard_group < copies ? parallel->shard_group : copies;
}

/* Dense and routed parameters over their shards. */
static double over_shards(const mt_forecast *forecast, const mt_parallel *parallel, mt_collective kind,
                          const mt_layer_parameters *held, double bytes) {
  double seconds = 0;
  if (held->dense > 0)
    seconds += mt_collective_seconds(forecast->cluster, &forecast->fit, kind,
                                     mt_exchange_shards(parallel, held->dense_copies), held->dense_stride,
                                     bytes * held->dense);
  if (held->expert > 0)
    seconds += mt_collective_seconds(forecast->cluster, &forecast->fit, kind,
                                     mt_exchange_shards(parallel, held->expert_copies), held->expert_stride,
                                     bytes * held->expert);
  return seconds;
}

/* In every microbatch: with weights divided they are gathered for the forward and for the backward, with gradients
 * divided they are reduced (design 04: 3m Psi and (m + 1) Psi elements a step). */
static void add_shards(const mt_forecast *forecast, int32_t layer, mt_exchange *exchange) {
  const mt_layer *described = &forecast->architecture->model->layers[layer];
  const mt_parallel *parallel = &forecast->parallel[described->module];
  bool weights = parallel->zero_level == 3 || parallel->layered;
  if (!weights && parallel->zero_level < 2) return;
  mt_layer_parameters held = mt_exchange_parameters(forecast, layer);
  if (weights) exchange->gather = over_shards(forecast, parallel, MT_COLLECTIVE_ALL_GATHER, &held, VALUE_BYTES);
  if (described->trainable)
    exchange->reduce =
        over_shards(forecast, parallel, MT_COLLECTIVE_REDUCE_SCATTER, &held, parallel->float32_gradients ? 4 : 2);
}

void mt_exchange_layer(const mt_forecast *forecast, int32_t layer, const double extents[MT_EXTENTS],
                       mt_exchange *exchange) {
  const mt_architecture *architecture = forecast->architecture;
  const mt_layer *described = &architecture->model->layers[layer];
  const mt_parallel *parallel = &forecast->parallel[described->module];
  const mt_module_facts *facts = &architecture->facts[described->module];
  layer_traffic traffic = traffic_of(&architecture->designs[described->kind], extents);
  *exchange = (mt_exchange){0};
  double parts = mt_exchange_parts(parallel, extents);
  add_tensor(forecast, parallel, &traffic, parts, exchange);
  add_context(forecast, parallel, facts, &traffic, parts, exchange);
  add_routing(forecast, parallel, facts, &traffic, exchange);
  add_shards(forecast, layer, exchange);
}
