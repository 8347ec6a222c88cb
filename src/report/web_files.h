/** @file The page's own text: src/report/web/, put into the library by the build (cmake/embed.cmake). */
#ifndef MT_REPORT_WEB_FILES_H
#define MT_REPORT_WEB_FILES_H

#include <stddef.h>

extern const unsigned char mt_web_frame[], mt_web_style[], mt_web_script[];
extern const size_t mt_web_frame_bytes, mt_web_style_bytes, mt_web_script_bytes;

#endif
