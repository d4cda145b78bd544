/* SPDX-License-Identifier: Apache-2.0 */
/* File names of recordings, and the directories of domains. Any thread. */
#ifndef KVMSCOPE_DAEMON_RECORDING_FILE_H
#define KVMSCOPE_DAEMON_RECORDING_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/daemon/domain_name.h"
#include "vmm/perf_data/recording_name.h"

#define RECORDING_DOMAIN_MAX 1024 /* bytes of a domain's name */
#define RECORDING_NAME_SIZE  48   /* "20261122T105600.123Z.perf.data.partial" and a zero */
#define RECORDING_PATH_SIZE  (DOMAIN_FILE_SIZE + RECORDING_NAME_SIZE)

/* The name of a file that was begun at TIME, ms since 1970 and before the year 10000. */
void recording_file_name(uint64_t time, enum recording_state state, char name[RECORDING_NAME_SIZE]);

/* Parses a name of recording_file_name(); false for any other. */
bool recording_file_parse(const char *name, uint64_t *time, enum recording_state *state);

/*
 * Opens the directory PATH below DIRECTORY, which must belong to us and not be a symbolic link,
 * and removes the access of others. Returns a descriptor; -EPERM, or the errors of open(2), with
 * the message.
 */
int recording_directory_open(int directory, const char *path);

/* Opens PATH below DIRECTORY, not a symbolic link, for readdir(3). NULL: the errors of open(2). */
DIR *recording_directory_list(int directory, const char *path);

/* Creates the directory PATH if it is missing, opens it as above and locks it for this process.
 * Returns a descriptor; also the errors of mkdir(2), and -EWOULDBLOCK if another process uses it.
 */
int recording_directory_claim(const char *path);

/* Creates the directory FILE of the domain NAME below DIRECTORY if it is missing. The errors of
 * mkdir(2), open(2), write(2); -EPERM. */
int recording_directory_make(int directory, const char *file, const char *name);

/* Reads the domain of the directory FD, named FILE, into NAME of RECORDING_DOMAIN_MAX + 1 bytes.
 * -EINVAL: it is not a domain's. */
int recording_directory_domain(int fd, const char *file, char *name);

/* Files in a domain's directory: its name, byte by byte, and a build-id cache. */
#define RECORDING_DOMAIN "domain"
#define RECORDING_NAMES  "names"

/* Bytes of the symbols in the directory FILE; 0 without any. */
uint64_t recording_symbols_size(int directory, const char *file);

/* Removes the directory FILE of the domain NAME with its symbols, if it has no other files. */
void recording_directory_remove(int directory, const char *file, const char *name);

#endif
