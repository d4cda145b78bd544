/* SPDX-License-Identifier: Apache-2.0 */
/* A pprof file as text, decoded by protoc with pprof's own definition. */
#ifndef KVMSCOPE_TESTS_UNIT_PPROF_TEXT_H
#define KVMSCOPE_TESTS_UNIT_PPROF_TEXT_H

#include <stddef.h>

/* The caller frees it. A file that protoc rejects fails the test. */
char *pprof_text(const char *path);

/* How often TEXT contains WHAT. */
size_t pprof_text_count(const char *text, const char *what);

/* The index of STRING in the string table, or -1. */
int pprof_text_index(const char *text, const char *string);

#endif
