/* SPDX-License-Identifier: MIT */
/* Files that the build embeds into the program. */
#ifndef EMBEDDED_H
#define EMBEDDED_H

#include <stddef.h>

extern const char embedded_openapi_yaml[];
extern const size_t embedded_openapi_yaml_len;
extern const char embedded_page_html[];
extern const size_t embedded_page_html_len;
extern const char embedded_errors_html[];
extern const size_t embedded_errors_html_len;

#endif
