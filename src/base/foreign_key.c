#include "base/foreign_key.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

enum { NAME_SIZE = 64, MEANINGS = 2 };

typedef struct row {
  const char *name, *keys[MEANINGS];
} row;

/* clang-format off: a table */
static const row rows[] = {
    {"lr", {"train.learning_rate"}},
    {"max_steps", {"train.steps"}},
    {"num_steps", {"train.steps"}},
    {"train_iters", {"train.steps"}},
    {"epochs", {"train.steps"}},
    {"num_epochs", {"train.steps"}},
    {"num_train_epochs", {"train.steps"}},
    {"batch_size", {"train.global_batch"}},
    {"train_batch_size", {"train.global_batch"}},
    {"global_batch_size", {"train.global_batch"}},
    {"micro_batch_size", {"workload.samples", "train.global_batch"}},
    {"train_micro_batch_size_per_gpu", {"workload.samples", "train.global_batch"}},
    {"per_device_train_batch_size", {"workload.samples", "train.global_batch"}},
    {"num_microbatches", {"train.microbatches"}},
    {"gradient_accumulation", {"train.microbatches"}},
    {"gradient_accumulation_steps", {"train.microbatches"}},
    {"warmup", {"train.warmup_steps"}},
    {"warmup_ratio", {"train.warmup_steps"}},
    {"lr_warmup_iters", {"train.warmup_steps"}},
    {"lr_warmup_fraction", {"train.warmup_steps"}},
    {"scheduler", {"train.decay"}},
    {"lr_scheduler", {"train.decay"}},
    {"lr_scheduler_type", {"train.decay"}},
    {"lr_decay_style", {"train.decay"}},
    {"adam_beta1", {"train.betas"}},
    {"adam_beta2", {"train.betas"}},
    {"adam_eps", {"train.epsilon"}},
    {"adam_epsilon", {"train.epsilon"}},
    {"clip_grad", {"train.clip_norm"}},
    {"max_grad_norm", {"train.clip_norm"}},
    {"gradient_clipping", {"train.clip_norm"}},
    {"bf16", {"train.dtype", "parallel.precision"}},
    {"fp16", {"train.dtype", "parallel.precision"}},
    {"fp8", {"parallel.precision", "train.dtype"}},
    {"precision", {"train.dtype"}},
    {"mixed_precision", {"train.dtype", "parallel.precision"}},
    {"torch_dtype", {"train.dtype", "parallel.precision"}},
    {"save_steps", {"train.save_every"}},
    {"save_interval", {"train.save_every"}},
    {"save_total_limit", {"train.keep"}},
    {"eval_steps", {"train.eval_every"}},
    {"eval_interval", {"train.eval_every"}},
    {"eval_iters", {"train.eval_batches"}},
    {"logging_steps", {"train.log_every"}},
    {"log_interval", {"train.log_every"}},
    {"report_to", {"train.tensorboard"}},
    {"tensorboard_dir", {"train.tensorboard"}},
    {"resume_from_checkpoint", {"train.resume"}},
    {"load", {"train.resume"}},
    {"save", {"output_dir"}},
    {"save_dir", {"output_dir"}},
    {"model_name_or_path", {"model"}},
    {"model_path", {"model"}},
    {"pretrained_model_name_or_path", {"model"}},
    {"tokenizer_model", {"data.tokenizer"}},
    {"tokenizer_name_or_path", {"data.tokenizer"}},
    {"data_path", {"data.train"}},
    {"dataset", {"data.train"}},
    {"train_file", {"data.train"}},
    {"train_data_path", {"data.train"}},
    {"validation_file", {"data.eval"}},
    {"valid_data_path", {"data.eval"}},
    {"image_dir", {"data.images_root"}},
    {"image_folder", {"data.images_root"}},
    {"max_length", {"data.max_tokens", "workload.tokens"}},
    {"max_seq_length", {"data.max_tokens", "workload.tokens"}},
    {"model_max_length", {"data.max_tokens", "workload.tokens"}},
    {"seq_length", {"data.max_tokens", "workload.tokens"}},
    {"num_workers", {"data.decode_threads"}},
    {"dataloader_num_workers", {"data.decode_threads"}},
    {"freeze", {"trainable"}},
    {"freeze_llm", {"trainable"}},
    {"freeze_vision_tower", {"trainable"}},
    {"tune_mm_llm", {"trainable"}},
    {"tune_mm_mlp", {"trainable"}},
    {"tune_mm_vision", {"trainable"}},
    {"tp", {"parallel.tensor"}},
    {"tp_size", {"parallel.tensor"}},
    {"tensor_parallel_size", {"parallel.tensor"}},
    {"tensor_model_parallel_size", {"parallel.tensor"}},
    {"pp", {"parallel.pipeline"}},
    {"pp_size", {"parallel.pipeline"}},
    {"pipeline_parallel_size", {"parallel.pipeline"}},
    {"pipeline_model_parallel_size", {"parallel.pipeline"}},
    {"virtual_pipeline_model_parallel_size", {"schedule"}},
    {"num_layers_per_virtual_pipeline_stage", {"schedule"}},
    {"pipeline_model_parallel_layout", {"parallel.split"}},
    {"dp", {"parallel.data"}},
    {"dp_size", {"parallel.data"}},
    {"data_parallel_size", {"parallel.data"}},
    {"cp", {"parallel.context"}},
    {"cp_size", {"parallel.context"}},
    {"sp", {"parallel.context"}},
    {"context_parallel_size", {"parallel.context"}},
    {"sequence_parallel_size", {"parallel.context"}},
    {"sequence_parallel", {"parallel.sequence"}},
    {"ep", {"parallel.expert"}},
    {"expert_parallel_size", {"parallel.expert"}},
    {"expert_model_parallel_size", {"parallel.expert"}},
    {"fsdp", {"parallel.zero"}},
    {"zero_stage", {"parallel.zero"}},
    {"use_distributed_optimizer", {"parallel.zero"}},
    {"recompute", {"memory.recompute", "parallel.recompute"}},
    {"recompute_granularity", {"memory.recompute", "parallel.recompute"}},
    {"gradient_checkpointing", {"memory.recompute", "parallel.recompute"}},
    {"activation_checkpointing", {"memory.recompute", "parallel.recompute"}},
    {"gpus", {"devices"}},
    {"num_gpus", {"devices"}},
    {"world_size", {"devices"}},
};
/* clang-format on */

const char *mt_foreign_key(const char *name, bool (*exists)(const char *key)) {
  const char *point = strrchr(name, '.');
  if (point != NULL) name = point + 1;
  name += strspn(name, "-");
  char plain[NAME_SIZE];
  size_t length = strlen(name);
  if (length >= sizeof plain) return NULL;
  for (size_t i = 0; i <= length; i++) plain[i] = name[i] == '-' ? '_' : (char)tolower((unsigned char)name[i]);
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (int i = 0; strcmp(rows[r].name, plain) == 0 && i < MEANINGS; i++)
      if (rows[r].keys[i] != NULL && exists(rows[r].keys[i])) return rows[r].keys[i];
  return NULL;
}
