/* AdamW with numbers of its own for each module, against the update rule written out in doubles. */
#include "nn_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2, for one number. */
static double updated(double value, double gradient, double rate, double decay, int64_t step) {
  const double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-6;
  double first = (1 - beta1) * gradient, second = (1 - beta2) * gradient * gradient;
  double corrected1 = first / (1 - pow(beta1, (double)step)), corrected2 = second / (1 - pow(beta2, (double)step));
  return value - rate * decay * value - rate * corrected1 / (sqrt(corrected2) + epsilon);
}

static void test_modules_have_rates_and_steps_of_their_own(void **state) {
  (void)state;
  motet_error error;
  const mt_internvl config = nn_case_config(false);
  const bool all[NN_CASE_LAYERS] = {true, true, true, true, true, true, true, true};
  /* The projector's moments began behind step 40, the language model's behind step 42; this is step 43. */
  const mt_adamw_module modules[MT_NETWORK_MODULES] = {{1e-3, 0}, {2e-2, 40}, {5e-3, 42}};
  const mt_adamw options = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1, .modules = modules};
  mt_network *network;
  assert_int_equal(mt_network_create(&config, all, all, &error, &network), MOTET_OK);
  nn_case_weights(network);
  float before[NN_CASE_LAYERS * 32];
  int32_t count = mt_network_parameter_count(network);
  assert_true(count <= NN_CASE_LAYERS * 32);
  for (int32_t i = 0; i < count; i++) {
    mt_parameter *parameter = mt_network_parameter(network, i);
    before[i] = parameter->value[0];
    parameter->gradient[0] = 0.3F + 0.01F * (float)i;
  }
  assert_int_equal(mt_network_adamw(network, &options, 43, 1, &error), MOTET_OK);
  for (int32_t i = 0; i < count; i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    int module = parameter->layer <= 2 ? 0 : parameter->layer == 3 ? 1 : 2;
    double want = updated((double)before[i], (double)(0.3F + 0.01F * (float)i), modules[module].learning_rate,
                          parameter->decay ? 0.1 : 0, 43 - modules[module].first_step);
    if (fabs((double)parameter->value[0] - want) > 1e-6)
      fail_msg("%s: %.9g, should be %.9g", parameter->name, (double)parameter->value[0], want);
  }
  assert_int_equal(mt_network_adamw(network, &options, 42, 1, &error), MOTET_ERROR_ARGUMENT);
  mt_network_destroy(network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_modules_have_rates_and_steps_of_their_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
