/* SPDX-License-Identifier: Apache-2.0 */
/* The names of recordings below their directory, and the directories of domains. Any thread. */
#ifndef KVMSCOPE_DAEMON_RECORDING_FILE_H
#define KVMSCOPE_DAEMON_RECORDING_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/daemon/domain_name.h"
#include "vmm/perf_data/recording_name.h"

#define RECORDING_DOMAIN_MAX 1024 /* bytes of a domain's name */
#define RECORDING_NAME_SIZE  48   /* "20261122T105600.123Z.perf.data.partial" and a zero */
#define RECORDING_PATH_SIZE  (DOMAIN_FILE_SIZE + RECORDING_NAME_SIZE)

/* The name of the file that was begun at TIME, ms since 1970 and before the year 10000. */
void recording_file_name(uint64_t time, enum recording_state state, char name[RECORDING_NAME_SIZE]);

/* Reads what recording_file_name() writes; false for any other name. */
bool recording_file_parse(const char *name, uint64_t *time, enum recording_state *state);

/*
 * Opens the directory PATH below DIRECTORY, which is no symbolic link and belongs to us, and closes
 * it to others where it is open to them. A descriptor; -EPERM, or the errors of open(2), which are
 * said.
 */
int recording_directory_open(int directory, const char *path);

/* Makes the directory FILE of the domain NAME below DIRECTORY, unless it is there. Errors of
 * mkdir(2), open(2), write(2); -EPERM. */
int recording_directory_make(int directory, const char *file, const char *name);

/* The domain that the directory FD, FILE by name, is of, into NAME of RECORDING_DOMAIN_MAX + 1
 * bytes. -EINVAL: of none. */
int recording_directory_domain(int fd, const char *file, char *name);

/* Of a domain's directory: its name, byte by byte, and what its kernel and programs call their
 * functions. */
#define RECORDING_DOMAIN "domain"
#define RECORDING_NAMES  "names"

/* Bytes of all files in that directory of the domain FILE; 0 without one. */
uint64_t recording_names_size(int directory, const char *file);

/* Removes the directory FILE of the domain NAME with what its functions are called, if there is
 * nothing else in it. */
void recording_directory_remove(int directory, const char *file, const char *name);

#endif
