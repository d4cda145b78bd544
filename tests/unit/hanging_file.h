/* SPDX-License-Identifier: Apache-2.0 */
/* A file whose reads block: of a FUSE file system that does not answer them. */
#ifndef KVMSCOPE_TESTS_UNIT_HANGING_FILE_H
#define KVMSCOPE_TESTS_UNIT_HANGING_FILE_H

#include <stddef.h>

/*
 * Returns a descriptor of a file with SIZE bytes, or -1 if that is not possible here, for example
 * without root. The file exists as long as this process, which gets its own mount namespace. A
 * reader blocks until then or until it is killed.
 */
int hanging_file_open(size_t size);

#endif
