#include "report/page_history.h"

#include "report/chrome_trace.h"

#include <inttypes.h>
#include <math.h>

static size_t first_step(const mt_history *history, int64_t after) {
  size_t first = history->steps.count;
  while (first > 0 && history->steps.data[first - 1].step > after) first--;
  return first;
}

static size_t first_evaluation(const mt_history *history, int64_t after) {
  size_t first = history->evaluations.count;
  while (first > 0 && history->evaluations.data[first - 1].step > after) first--;
  return first;
}

static void put_key(mt_text *json, const char *key) { mt_text_append(json, ",\"%s\":[", key); }

static void put_value(mt_text *json, bool first, double value) {
  if (isfinite(value))
    mt_text_append(json, "%s%.9g", first ? "" : ",", value);
  else
    mt_text_append(json, "%snull", first ? "" : ",");
}

void mt_page_history(const mt_history *history, mt_page_history_after after, mt_text *json) {
  size_t step = first_step(history, after.step), evaluation = first_evaluation(history, after.evaluation);
  mt_text_append(json, "{\"planned_steps\":%" PRId64, history->planned_steps);
  put_key(json, "step");
  for (size_t i = step; i < history->steps.count; i++)
    mt_text_append(json, "%s%" PRId64, i > step ? "," : "", history->steps.data[i].step);
  for (int value = 0; value < MT_HISTORY_VALUES; value++) {
    mt_text_append(json, "]");
    put_key(json, mt_history_key((mt_history_value)value));
    for (size_t i = step; i < history->steps.count; i++)
      put_value(json, i == step, history->steps.data[i].values[value]);
  }
  mt_text_append(json, "]");
  put_key(json, "tokens_per_second");
  for (size_t i = step; i < history->steps.count; i++)
    put_value(json, i == step, mt_history_throughput(&history->steps.data[i]));
  mt_text_append(json, "]");
  put_key(json, "eval_step");
  for (size_t i = evaluation; i < history->evaluations.count; i++)
    mt_text_append(json, "%s%" PRId64, i > evaluation ? "," : "", history->evaluations.data[i].step);
  mt_text_append(json, "]");
  put_key(json, "eval_loss");
  for (size_t i = evaluation; i < history->evaluations.count; i++)
    put_value(json, i == evaluation, history->evaluations.data[i].loss);
  mt_text_append(json, "]}");
}

void mt_page_news_write(const mt_page_news *news, mt_text *out) {
  mt_text_append(out,
                 "motetLive({\"page\":%" PRId64 ",\"beat\":%" PRId64 ",\"finished\":%s,\"message\":", news->page,
                 news->beat, news->finished ? "true" : "false");
  mt_report_json_string(out, news->failure != NULL ? news->failure : "");
  mt_text_append(out, ",\"after\":{\"step\":%" PRId64 ",\"evaluation\":%" PRId64 "},\"history\":", news->after.step,
                 news->after.evaluation);
  mt_page_history(news->history, news->after, out);
  mt_text_append(out, "});\n");
}
