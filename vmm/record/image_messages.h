/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a parser of images (image_parser.h) and its process, on a stream socket:
 *
 *	request ->	<- IMAGE_READ		for each part of the image that it needs
 *			-> IMAGE_DATA
 *			<- IMAGE_COMPILING	once all of .eh_frame is read
 *			<- IMAGE_RESULT
 */
#ifndef KVMSCOPE_RECORD_IMAGE_MESSAGES_H
#define KVMSCOPE_RECORD_IMAGE_MESSAGES_H

#include <stdint.h>

/* Bytes of one IMAGE_READ. */
#define IMAGE_CHUNK (64u << 10)

enum image_message_type {
	/* Requests. The corpus of tests/fuzz has these numbers. */
	IMAGE_TABLE,      /* an unwind table; number 1: -EBUSY if it takes long */
	IMAGE_IDENTITY,   /* struct image_identity */
	IMAGE_SYMBOLS,    /* symbols as in image_file.h, by enum image_symbols_of NUMBER */
	IMAGE_LINES,      /* the lines of the perf map that follows */
	IMAGE_KERNEL = 8, /* the flat form of the kernel's file (vmlinux_file.h) */
	/* Answers. */
	IMAGE_READ = 4,  /* SIZE bytes at offset NUMBER of the image */
	IMAGE_DATA,      /* those bytes follow, unless there is an ERROR */
	IMAGE_COMPILING, /* SIZE bytes of .eh_frame */
	IMAGE_RESULT,    /* follows, unless there is an ERROR */
};

struct image_message {
	uint32_t type;
	int32_t error;   /* a negative errno; 0 */
	uint64_t number; /* see above */
	uint64_t size;   /* of what follows, unless stated otherwise */
};

/* Starts the result of IMAGE_TABLE; the arrays of struct cfi_table follow in their order. */
struct image_table_head {
	uint32_t count, rule_count;
};

/* A part of the result of IMAGE_LINES; its name follows. */
struct image_line {
	uint64_t start, length;
	uint32_t name_size; /* with the NUL; at most PERF_MAP_NAME_MAX */
	uint32_t reserved;
};

/* For tests: a parser that sends requests to these, for tables and for others, and owns them. */
struct image_parser *image_parser_adopt(const int fds[2]);

/* Answers requests at FD until the other end is closed. FILE: the kernel's file; -1: none. */
void image_parser_serve(int fd, int file);

#endif
