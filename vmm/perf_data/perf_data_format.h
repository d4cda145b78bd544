/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the perf.data format that linux/perf_event.h does not declare: the file header,
 * perf's own records, and the numbers of feature sections
 * (tools/perf/Documentation/perf.data-file-format.txt, tools/lib/perf/include/perf/event.h,
 * tools/perf/util/header.h).
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_FORMAT_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_FORMAT_H

#include <linux/perf_event.h>
#include <stdint.h>

#define PERF_DATA_MAGIC         0x32454c4946524550ull /* "PERFILE2" */
#define PERF_DATA_MAGIC_SWAPPED 0x50455246494c4532ull

/* Guest's perspective: the process in which the VMM's memory is mapped. No task of the guest has
 * this number, nor any other process of a recording. */
#define PERF_DATA_HOST_PID 4259839

/* The size of a record is a 16-bit field. */
#define PERF_DATA_RECORD_MAX 65535u

struct perf_data_section {
	uint64_t offset; /* from the start of the file */
	uint64_t size;
};

struct perf_data_header {
	uint64_t magic;
	uint64_t size;
	uint64_t attribute_size; /* of one attribute with its section of ids */
	struct perf_data_section attributes;
	struct perf_data_section data;
	struct perf_data_section event_types; /* unused */
	uint64_t features[4];                 /* bitmap of enum perf_data_feature */
};

/* The whole header in pipe mode. */
struct perf_data_pipe_header {
	uint64_t magic;
	uint64_t size;
};

/* perf's own records; the kernel's are PERF_RECORD_* of linux/perf_event.h. */
enum perf_data_record_type {
	PERF_DATA_FIRST_OWN_TYPE = 64,
	PERF_DATA_HEADER_ATTR = 64,
	PERF_DATA_HEADER_TRACING_DATA = 66, /* followed by data that its size does not include */
	PERF_DATA_HEADER_BUILD_ID = 67,
	PERF_DATA_FINISHED_ROUND = 68,
	PERF_DATA_ID_INDEX = 69,
	PERF_DATA_AUXTRACE = 71, /* followed by data, as above */
	PERF_DATA_HEADER_FEATURE = 80,
	PERF_DATA_COMPRESSED = 81,
	PERF_DATA_TYPE_END = 83,
};

enum perf_data_feature {
	FEATURE_TRACING_DATA = 1,
	FEATURE_BUILD_ID = 2,
	FEATURE_HOSTNAME = 3,
	FEATURE_OSRELEASE = 4,
	FEATURE_VERSION = 5,
	FEATURE_ARCH = 6,
	FEATURE_NRCPUS = 7,
	FEATURE_CPUDESC = 8,
	FEATURE_CPUID = 9,
	FEATURE_TOTAL_MEM = 10,
	FEATURE_CMDLINE = 11,
	FEATURE_EVENT_DESC = 12,
	FEATURE_SAMPLE_TIME = 21,
	FEATURE_CLOCKID = 23,
	FEATURE_COMPRESSED = 27,
	FEATURE_CLOCK_DATA = 29,
	FEATURE_COUNT = 256,
};

/* Content of a string feature that is not known. perf data convert reads these features without
 * checking that they are there (tools/perf/util/data-convert-json.c). */
#define PERF_DATA_UNKNOWN "(unknown)"

/* Tags of our blocks in FINISHED_ROUND records (perf_data_blocks.h). A block is its tag, the size
 * of its content in bytes, a multiple of 8, and the content. */
#define PERF_DATA_BLOCK_LOSSES 0x73736f6c736d766bull /* "kvmsloss" */
#define PERF_DATA_BLOCK_TIMES  0x656d6974736d766bull /* "kvmstime" */
#define PERF_DATA_BLOCK_FLIGHT 0x67696c66736d766bull /* "kvmsflig" */

#define PERF_DATA_ZSTD 1u /* type in FEATURE_COMPRESSED */

/* The field of 20 bytes of build id, padding, and its true size in byte 20, which is valid if this
 * bit of misc is set. */
#define PERF_DATA_BUILD_ID_FIELD     24
#define PERF_DATA_MISC_BUILD_ID_SIZE (1 << 15)

/* PERF_DATA_ID_INDEX has an array of these entries, then an array of the guests below. */
struct perf_data_id_entry {
	uint64_t id;
	uint64_t index;
	uint64_t cpu;
	uint64_t tid;
};

struct perf_data_id_guest {
	uint64_t machine_pid;
	uint64_t vcpu;
};

/* Raw data of a watch's sample; with its preceding size it fills a multiple of 8 bytes. */
struct perf_data_hit_values {
	uint64_t before, after; /* 0: unknown */
	uint32_t flags;         /* enum sample_hit_flags */
	uint64_t hits;          /* of the event on the sample's vCPU, this one included */
} __attribute__((packed));

/* Registers in a watch's sample (asm/perf_regs.h): the general-purpose ones, RIP and RFLAGS. */
#define PERF_DATA_HIT_REGISTERS 0xff03ffull

#endif
