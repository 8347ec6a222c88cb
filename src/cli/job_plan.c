#include "cli/job_plan.h"

#include "base/error.h"
#include "cli/cli.h"

int mt_job_plan(const char *path, int override_count, char *const *overrides, const mt_job_plan_options *options) {
  (void)override_count;
  (void)overrides;
  motet_error error;
  mt_error_set(&error, MOTET_ERROR_UNSUPPORTED,
               "%s is a job, and this motet was built without the training runtime", path);
  return mt_cli_fail(&error, options->json);
}
