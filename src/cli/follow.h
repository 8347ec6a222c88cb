/** @file `motet report RUN --follow`: the page of a run that goes on, and its news beside it. */
#ifndef MT_CLI_FOLLOW_H
#define MT_CLI_FOLLOW_H

#include "cli/report_page.h"

/**
 * Writes the page anew whenever the run has a new timeline, and its steps into a small script beside the page,
 * until the run is over or somebody ends it (Ctrl-C). The last page needs nothing beside it.
 * @param interval seconds between two looks at the run
 */
motet_status mt_report_follow(const mt_report_request *request, double interval, motet_error *error);

#endif
