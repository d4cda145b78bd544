/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of symbols: for kvmscope archive, and at the end of a recording. Main thread. */
#ifndef KVMSCOPE_CLI_RECORD_ARCHIVE_H
#define KVMSCOPE_CLI_RECORD_ARCHIVE_H

#include <stdbool.h>

#include "vmm/cli/profile_arguments.h"
#include "vmm/cli/record_options.h"

/* Writes the archive PATH of the recording that ARGUMENTS select and logs what is in it; OWN: of
 * this process, which closes other files for that. The errors of profile_archive(). */
int record_archive_write(const struct profile_arguments *arguments, const char *path, bool own);

/* With --self-contained: writes one beside each of the FILES of a recording that has ended. Errors
 * as above. */
int record_archive(const struct record_options *options, unsigned int files);

#endif
