/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of symbols: for kvmscope archive, and at the end of a recording. Main thread. */
#ifndef KVMSCOPE_CLI_RECORD_ARCHIVE_H
#define KVMSCOPE_CLI_RECORD_ARCHIVE_H

#include "vmm/cli/record_options.h"
#include "vmm/report/profile_stacks.h"

/* Writes the archive PATH and logs what is in it. The errors of profile_archive(). */
int record_archive_write(const struct profile_options *options, const char *path);

/* With --self-contained: writes one beside each of the FILES of a recording that has ended. Errors
 * as above. */
int record_archive(const struct record_options *options, unsigned int files);

#endif
