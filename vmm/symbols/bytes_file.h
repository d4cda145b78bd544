/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a file that has a path as long as it is open, for what reads files. Any thread. */
#ifndef KVMSCOPE_SYMBOLS_BYTES_FILE_H
#define KVMSCOPE_SYMBOLS_BYTES_FILE_H

#include "shared/bytes.h"

/* Of a path, with its end. */
#define BYTES_FILE_PATH 32

/* The file (memfd_create(2)), with its name into PATH; the caller's to close. Negative errno, no
 * message. */
int bytes_file_open(const struct bytes *bytes, char path[BYTES_FILE_PATH]);

#endif
