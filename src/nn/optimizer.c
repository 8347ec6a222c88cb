#include "nn/internal.h"

#include <math.h>

motet_status mt_network_adamw(mt_network *network, const mt_adamw *options, int64_t step, double gradient_scale,
                              motet_error *error) {
  if (step < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "optimizer steps count from 1, not %lld", (long long)step);
  const mt_adamw_step one = {.learning_rate = (float)options->learning_rate,
                             .beta1 = (float)options->beta1,
                             .beta2 = (float)options->beta2,
                             .epsilon = (float)options->epsilon,
                             .weight_decay = (float)options->weight_decay,
                             .gradient_scale = (float)gradient_scale,
                             .correction1 = (float)(1.0 - pow(options->beta1, (double)step)),
                             .correction2 = (float)sqrt(1.0 - pow(options->beta2, (double)step))};
  for (int32_t i = 0; i < network->parameter_count; i++) {
    const mt_parameter *parameter = &network->parameters[i];
    if (!parameter->trainable) continue;
    network->backend->adamw(parameter->count, &one, parameter->decay, parameter->value, parameter->gradient,
                            network->first[i], network->second[i]);
  }
  return MOTET_OK;
}

double mt_network_gradient_square_sum(const mt_network *network, int32_t index) {
  const mt_parameter *parameter = &network->parameters[index];
  return parameter->trainable ? network->backend->square_sum(parameter->count, parameter->gradient) : 0.0;
}
