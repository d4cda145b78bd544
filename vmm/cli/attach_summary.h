/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of an attachment at its end. Main thread. */
#ifndef KVMSCOPE_CLI_ATTACH_SUMMARY_H
#define KVMSCOPE_CLI_ATTACH_SUMMARY_H

#include "vmm/attach/attach.h"
#include "vmm/profile/collector.h"

/* In words, to standard error; OUTPUT is where the recording is. */
void attach_summary_tell(const struct collector_statistics *statistics,
			 const struct attach_statistics *counts, double seconds, const char *output);

/* As one JSON object, to standard output; BACKEND is the way's name. */
void attach_summary_print(const struct collector_statistics *statistics,
			  const struct attach_statistics *counts, const char *backend, double seconds);

#endif
