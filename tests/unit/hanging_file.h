/* SPDX-License-Identifier: Apache-2.0 */
/* A file whose content never comes: of a file system of ours (FUSE) that does not answer reads. */
#ifndef KVMSCOPE_TESTS_UNIT_HANGING_FILE_H
#define KVMSCOPE_TESTS_UNIT_HANGING_FILE_H

#include <stddef.h>

/*
 * A descriptor of a file with SIZE bytes, -1: it can not be had here, as without root. It lives as
 * long as this process, which gets a mount namespace of its own by it. Who reads waits until then,
 * or is killed.
 */
int hanging_file_open(size_t size);

#endif
