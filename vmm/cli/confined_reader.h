/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading recordings as root: their records, ELF files, DWARF, compressed data and archives are
 * parsed by a confined child process (sandbox_work.h), which has the rights of the recording's
 * owner, and may read what report and export search for symbols.
 */
#ifndef KVMSCOPE_CLI_CONFINED_READER_H
#define KVMSCOPE_CLI_CONFINED_READER_H

#include "vmm/cli/profile_arguments.h"

/*
 * Calls FUNCTION with CONTEXT: in the sandbox if we are root, else, and in a run with its own
 * sandbox (confine.h), directly. It may read what ARGUMENTS and OTHER (NULL: none) select, and
 * write below the directory OUTPUT (NULL: none) and to open files: only *FILE (NULL: all stay
 * open). Returns its result, or an error of the sandbox with its message. Main thread.
 */
int confined_read(const struct profile_arguments *arguments, const struct profile_arguments *other,
		  const char *output, const int *file, int (*function)(void *context),
		  void *context);

#endif
