#include "nn/internal.h"

#include <math.h>

int32_t mt_network_module(const mt_internvl *config, int32_t layer) {
  int32_t block;
  switch (mt_internvl_layer_kind(config, layer, &block)) {
  case MT_INTERNVL_VISION_EMBED:
  case MT_INTERNVL_VISION_BLOCK: return 0;
  case MT_INTERNVL_PROJECTOR: return 1;
  default: return 2;
  }
}

static mt_adamw_step make_step(const mt_adamw *options, const mt_adamw_module *module, int64_t step,
                               double gradient_scale) {
  const double own_step = (double)(step - module->first_step);
  return (mt_adamw_step){.learning_rate = (float)module->learning_rate,
                         .beta1 = (float)options->beta1,
                         .beta2 = (float)options->beta2,
                         .epsilon = (float)options->epsilon,
                         .weight_decay = (float)options->weight_decay,
                         .gradient_scale = (float)gradient_scale,
                         .correction1 = (float)(1.0 - pow(options->beta1, own_step)),
                         .correction2 = (float)sqrt(1.0 - pow(options->beta2, own_step))};
}

motet_status mt_network_adamw(mt_network *network, const mt_adamw *options, int64_t step, double gradient_scale,
                              motet_error *error) {
  mt_adamw_step steps[MT_NETWORK_MODULES];
  for (int module = 0; module < MT_NETWORK_MODULES; module++) {
    const mt_adamw_module all = {.learning_rate = options->learning_rate};
    const mt_adamw_module *own = options->modules != NULL ? &options->modules[module] : &all;
    steps[module] = make_step(options, own, step, gradient_scale);
    if (step <= own->first_step)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "optimizer steps count from %lld, not %lld",
                          (long long)own->first_step + 1, (long long)step);
  }
  for (int32_t i = 0; i < network->parameter_count; i++) {
    const mt_parameter *parameter = &network->parameters[i];
    if (!parameter->trainable) continue;
    const mt_adamw_step *one = &steps[mt_network_module(&network->config, parameter->layer)];
    mt_parallel_adamw(&network->device, parameter->count, one, parameter->decay, parameter->value,
                      parameter->gradient, network->first[i], network->second[i]);
  }
  return MOTET_OK;
}

double mt_network_gradient_square_sum(const mt_network *network, int32_t index) {
  const mt_parameter *parameter = &network->parameters[index];
  return parameter->trainable ? mt_parallel_square_sum(&network->device, parameter->count, parameter->gradient)
                              : 0.0;
}
