/* SPDX-License-Identifier: Apache-2.0 */
/* What writer and reader of archives share: the header of an entry (POSIX.1-1988 ustar), and the
 * identity of a recording. */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_ARCHIVE_FORMAT_H
#define KVMSCOPE_SYMBOLS_SYMBOL_ARCHIVE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512u
#define TAR_FILE  '0'
#define TAR_LINK  '2'

struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], time[12], checksum[8], type, link[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

_Static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a header is one block");

/* The sum of the header's bytes, with blanks as checksum. */
unsigned int tar_checksum(const struct tar_header *header);

/* The entry that identifies the recording, and its content: size and CRC-32 of its beginning. */
#define RECORDING_ENTRY    "kvmscope.recording"
#define RECORDING_TEXT_MAX 64
int recording_identity(char text[RECORDING_TEXT_MAX], const char *input);

#endif
