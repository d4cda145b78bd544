/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a short recording, for kvmscope top. Main thread. */
#ifndef KVMSCOPE_CLI_TOP_FUNCTIONS_H
#define KVMSCOPE_CLI_TOP_FUNCTIONS_H

#include <jansson.h>

/*
 * Reads the recording PATH, which covers SECONDS, adds to OBJECT its samples, lost_samples,
 * host_samples and functions, and writes OBJECT as one line to the descriptor FD. VMLINUX: kernel
 * symbols from this file; NULL. As root this is done in a sandbox (confined_reader.h), and OBJECT
 * is unchanged. Errors as of profile_load(), or of writing.
 */
int top_functions_send(json_t *object, const char *path, const char *vmlinux, double seconds,
		       int fd);

/* Writes OBJECT as one line to FD, waiting for its reader. The errors of write(2). */
int top_json_send(const json_t *object, int fd);

#endif
