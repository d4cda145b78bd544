/* SPDX-License-Identifier: Apache-2.0 */
/* Strings of JSON that is written as a stream. */
#ifndef KVMSCOPE_REPORT_JSON_TEXT_H
#define KVMSCOPE_REPORT_JSON_TEXT_H

#include <stdio.h>

/* Writes TEXT, which is UTF-8, quoted. The result may be in a script element of an HTML page. */
void json_text_put(FILE *to, const char *text);

#endif
