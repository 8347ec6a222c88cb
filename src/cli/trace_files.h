/** @file Traces for other tools, in the form that `--trace-format` names. */
#ifndef MT_CLI_TRACE_FILES_H
#define MT_CLI_TRACE_FILES_H

#include "report/chrome_trace.h"

/**
 * What the options --trace-format (@p *format, NULL: chrome), --hta and --trace (@p path) ask for together;
 * @p hta sets @p *format. MOTET_ERROR_ARGUMENT for a form that is none, two forms, or a form of no trace.
 */
motet_status mt_trace_format_choose(const char *path, bool hta, const char **format, motet_error *error);

/**
 * Writes @p trace: "chrome" to the file @p path, "hta" to @p path/rank-N.json (the folder is made), "chakra" to
 * @p path.N.et; N are ranks.
 */
motet_status mt_trace_files_write(const mt_chrome_trace *trace, const char *format, const char *path,
                                  motet_error *error);

#endif
