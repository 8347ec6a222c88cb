/* Presets and the view from above. Every number's source stands in docs/clusters.md. */
#include "cluster/cluster.h"

#include <string.h>

/* Copies to and from the host: 24.9 of PCIe 4's 32 GB/s (FlagPerf, on a 910B). */
#define REACHED_PCIE 0.78

/* Efficiencies at large sizes where nothing was measured: matrix products 0.8 and memory 0.8 of the peak; attention
 * 0.6 (arXiv 2307.08691, figures 4 and 5: up to 0.73 forward and 0.63 backward on A100). */
#define USUAL_EFFICIENCY                                                                                           \
  .matmul_efficiency = 0.8, .attention_efficiency = 0.6, .memory_efficiency = 0.8, .matmul_half_width = 64,        \
  .matmul_depth = 430, .host_efficiency = REACHED_PCIE

/* Fitted on measured GPT plans (docs/forecast.md); attention without fusion is made of products. */
#define FITTED_A100                                                                                                \
  .matmul_efficiency = 0.85, .attention_efficiency = 0.55, .memory_efficiency = 0.93, .matmul_half_width = 64,     \
  .matmul_depth = 430, .layer_host_seconds = 0.97e-3, .collective_units = 20, .host_efficiency = REACHED_PCIE

/* Products as fitted on one run of a large model on H100 (docs/forecast.md); the rest as assumed. Its successors'
 * were not fitted: the same is assumed. */
#define FITTED_H100                                                                                                \
  .matmul_efficiency = 0.63, .attention_efficiency = 0.5, .memory_efficiency = 0.8, .matmul_half_width = 64,       \
  .matmul_depth = 430, .layer_host_seconds = 0.5e-3, .collective_units = 20, .host_efficiency = REACHED_PCIE

/* Rows exchanged between nodes over 400 Gb/s InfiniBand: 43 to 47 of 50 GB/s (DeepEP's published figures). */
#define REACHED_NDR 0.88

static const mt_cluster presets[] = {
    {.name = "a100-40gb",
     .device = {.name = "A100 SXM4 40GB",
                .bfloat16_flops = 312e12,
                .float16_flops = 312e12,
                .float32_flops = 19.5e12,
                .memory_bytes = 40e9,
                .memory_bytes_per_second = 1555e9,
                .host_bytes_per_second = 32e9,
                .host_memory_bytes = 128e9,
                .compute_units = 108,
                FITTED_A100},
     .levels = {{"node", 8, {3e-6, 300e9}, 0, 0}, {"cluster", 0, {5e-6, 25e9}, 0, 0}},
     .level_count = 2},
    {.name = "a100-80gb",
     .device = {.name = "A100 SXM4 80GB",
                .bfloat16_flops = 312e12,
                .float16_flops = 312e12,
                .float32_flops = 19.5e12,
                .memory_bytes = 80e9,
                .memory_bytes_per_second = 2039e9,
                .host_bytes_per_second = 32e9,
                .host_memory_bytes = 256e9,
                .compute_units = 108,
                FITTED_A100},
     .levels = {{"node", 8, {3e-6, 300e9}, 0, 0}, {"cluster", 0, {5e-6, 25e9}, 0, 0}},
     .level_count = 2},
    {.name = "h100",
     .device = {.name = "H100 SXM5 80GB",
                .bfloat16_flops = 989.4e12,
                .float16_flops = 989.4e12,
                .float32_flops = 66.9e12,
                .float8_flops = 1978.9e12,
                .memory_bytes = 80e9,
                .memory_bytes_per_second = 3350e9,
                .host_bytes_per_second = 64e9,
                .host_memory_bytes = 256e9,
                .compute_units = 132,
                FITTED_H100},
     .levels = {{"node", 8, {3e-6, 450e9}, 0, 0}, {"cluster", 0, {5e-6, 50e9}, REACHED_NDR, 0}},
     .level_count = 2},
    {.name = "h800",
     .device = {.name = "H800 SXM5 80GB",
                .bfloat16_flops = 989.4e12,
                .float16_flops = 989.4e12,
                .float32_flops = 66.9e12,
                .float8_flops = 1978.9e12,
                .memory_bytes = 80e9,
                .memory_bytes_per_second = 3350e9,
                .host_bytes_per_second = 64e9,
                .host_memory_bytes = 256e9,
                .compute_units = 132,
                FITTED_H100},
     .levels = {{"node", 8, {3e-6, 200e9}, 0, 0}, {"cluster", 0, {5e-6, 50e9}, REACHED_NDR, 0}},
     .level_count = 2},
    {.name = "h200",
     .device = {.name = "H200 SXM5 141GB",
                .bfloat16_flops = 989.4e12,
                .float16_flops = 989.4e12,
                .float32_flops = 66.9e12,
                .float8_flops = 1978.9e12,
                .memory_bytes = 141e9,
                .memory_bytes_per_second = 4800e9,
                .host_bytes_per_second = 64e9,
                .host_memory_bytes = 256e9,
                .compute_units = 132,
                FITTED_H100},
     .levels = {{"node", 8, {3e-6, 450e9}, 0, 0}, {"cluster", 0, {5e-6, 50e9}, REACHED_NDR, 0}},
     .level_count = 2},
    {.name = "b200",
     .device = {.name = "B200 SXM6 180GB",
                .bfloat16_flops = 2250e12,
                .float16_flops = 2250e12,
                .float32_flops = 75e12,
                .float8_flops = 4500e12,
                .memory_bytes = 180e9,
                .memory_bytes_per_second = 8000e9,
                .host_bytes_per_second = 64e9,
                .host_memory_bytes = 256e9,
                .compute_units = 148,
                FITTED_H100},
     .levels = {{"node", 8, {3e-6, 900e9}, 0, 0}, {"cluster", 0, {5e-6, 50e9}, REACHED_NDR, 0}},
     .level_count = 2},
    {.name = "gb200",
     .device = {.name = "GB200 NVL72 186GB",
                .bfloat16_flops = 2500e12,
                .float16_flops = 2500e12,
                .float32_flops = 80e12,
                .float8_flops = 5000e12,
                .memory_bytes = 186e9,
                .memory_bytes_per_second = 8000e9,
                .host_bytes_per_second = 225e9,
                .host_memory_bytes = 240e9,
                .compute_units = 148,
                FITTED_H100},
     .levels = {{"rack", 72, {3e-6, 900e9}, 0, 0}, {"cluster", 0, {5e-6, 50e9}, REACHED_NDR, 0}},
     .level_count = 2},
    {.name = "gb300",
     .device = {.name = "GB300 NVL72 279GB",
                .bfloat16_flops = 2500e12,
                .float16_flops = 2500e12,
                .float32_flops = 80e12,
                .float8_flops = 5000e12,
                .memory_bytes = 279e9,
                .memory_bytes_per_second = 8000e9,
                .host_bytes_per_second = 225e9,
                .host_memory_bytes = 240e9,
                .compute_units = 148,
                FITTED_H100},
     .levels = {{"rack", 72, {3e-6, 900e9}, 0, 0}, {"cluster", 0, {5e-6, 100e9}, REACHED_NDR, 0}},
     .level_count = 2},
    {.name = "ascend-910b",
     .device = {.name = "Ascend 910B2 64GB",
                .bfloat16_flops = 353.9e12,
                .float16_flops = 353.9e12,
                .memory_bytes = 64e9,
                .memory_bytes_per_second = 1600e9,
                .host_bytes_per_second = 32e9,
                .compute_units = 24,
                USUAL_EFFICIENCY},
     .levels = {{"node", 8, {3e-6, 196e9}, 0, 7}, {"cluster", 0, {5e-6, 25e9}, 0, 0}},
     .level_count = 2},
    {.name = "ascend-910c-supernode",
     .device = {.name = "Ascend 910C die 64GB",
                .bfloat16_flops = 376e12,
                .float16_flops = 376e12,
                .memory_bytes = 64e9,
                .memory_bytes_per_second = 1600e9,
                .compute_units = 24,
                USUAL_EFFICIENCY},
     .levels = {{"package", 2, {1e-6, 270e9}, 0, 0},
                {"server", 16, {2e-6, 196e9}, 0, 0},
                {"supernode", 768, {2e-6, 196e9}, 0, 0},
                {"cluster", 0, {5e-6, 25e9}, 0, 0}},
     .level_count = 4,
     .fast_level = 2},
};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *mt_cluster_presets(void) {
  return "a100-40gb, a100-80gb, h100, h800, h200, b200, gb200, gb300, ascend-910b, ascend-910c-supernode";
}

motet_status mt_cluster_resize(mt_cluster *cluster, int32_t devices, motet_error *error) {
  if (devices < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a cluster has at least 1 device, not %d", devices);
  /* Levels that one group below them covers are gone; the one that covers all is the last. */
  while (cluster->level_count > 1 && cluster->levels[cluster->level_count - 2].devices >= devices)
    cluster->level_count--;
  if (cluster->fast_level >= cluster->level_count) cluster->fast_level = cluster->level_count - 1;
  mt_level *last = &cluster->levels[cluster->level_count - 1];
  int32_t below = cluster->level_count > 1 ? cluster->levels[cluster->level_count - 2].devices : 1;
  if (devices > INT32_MAX - below)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%d devices are more than a cluster may have", devices);
  last->devices = (devices + below - 1) / below * below;
  cluster->devices = devices;
  return MOTET_OK;
}

motet_status mt_cluster_preset(const char *name, int32_t devices, motet_error *error, mt_cluster *cluster) {
  for (int p = 0; p < PRESETS; p++) {
    if (strcmp(name, presets[p].name) != 0) continue;
    *cluster = presets[p];
    return mt_cluster_resize(cluster, devices, error);
  }
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "there is no cluster '%.60s'; presets are %s", name,
                      mt_cluster_presets());
}

int32_t mt_cluster_level(const mt_cluster *cluster, int32_t a, int32_t b) {
  int32_t level = 0;
  while (level + 1 < cluster->level_count &&
         a / cluster->levels[level].devices != b / cluster->levels[level].devices)
    level++;
  return level;
}

mt_links mt_cluster_links(const mt_cluster *cluster) {
  const mt_level *fast = &cluster->levels[cluster->fast_level];
  const mt_level *above = cluster->fast_level + 1 < cluster->level_count ? fast + 1 : fast;
  mt_link pair = fast->link;
  if (fast->peers > 1) pair.bytes_per_second /= fast->peers;
  return (mt_links){.ranks_per_node = fast->devices, .local = pair, .remote = above->link};
}

motet_status mt_cluster_check(const mt_cluster *cluster, motet_error *error) {
  motet_status status = MOTET_OK;
  if (cluster->level_count < 1)
    status = mt_error_set(error, MOTET_ERROR_PARSE, "a cluster needs at least one level of links");
  for (int32_t l = 0; l < cluster->level_count && status == MOTET_OK; l++) {
    const mt_level *level = &cluster->levels[l];
    int32_t below = l > 0 ? cluster->levels[l - 1].devices : 1;
    if (level->devices < below || level->devices % below != 0)
      status = mt_error_set(error, MOTET_ERROR_PARSE,
                            "level '%s' joins %d devices, which is no multiple of the %d joined below it",
                            level->name, level->devices, below);
  }
  /* The last of the groups that the outermost level joins need not be full. */
  int32_t joined = status == MOTET_OK ? cluster->levels[cluster->level_count - 1].devices : 0;
  int32_t group =
      status == MOTET_OK && cluster->level_count > 1 ? cluster->levels[cluster->level_count - 2].devices : 1;
  if (status == MOTET_OK && (joined < cluster->devices || joined - cluster->devices >= group))
    status = mt_error_set(error, MOTET_ERROR_PARSE, "the last level joins %d devices, but the cluster has %d",
                          cluster->levels[cluster->level_count - 1].devices, cluster->devices);
  if (status != MOTET_OK) mt_error_key(error, "levels");
  return status;
}
