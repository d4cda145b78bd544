/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the guest agent and the host over a byte stream: docs/agent-protocol.md. Native
 * byte order of x86-64, little-endian.
 *
 * Neither side trusts the other. agent_stream_next() checks that a message was received completely,
 * agent_payload() that its payload is long enough for its type. A receiver skips unknown types and
 * ignores bytes after the fields that it has, so that either side may be older.
 *
 * No function here allocates or makes a system call. A stream belongs to one thread at a time.
 */
#ifndef KVMSCOPE_SHARED_AGENT_PROTOCOL_H
#define KVMSCOPE_SHARED_AGENT_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_PORT_NAME        "org.kvmscope.agent.0"
#define AGENT_PROTOCOL_VERSION 1u
#define AGENT_MAGIC            0x746e65676173766bull /* "kvsagent" */
#define AGENT_MESSAGE_MAX      65536u                /* bytes, with the header */
#define AGENT_RELEASE_MAX      65                    /* of utsname.release */

enum agent_message_type {
	/* from the host */
	AGENT_START = 1, /* starts a session and ends an earlier one */
	AGENT_PING = 2,  /* clock exchange; the first one also requests events and the snapshot */
	AGENT_STOP = 3,  /* ends the session; no payload */
	/* Each kind needs a feature: tables AGENT_FEATURE_TABLES, JIT maps AGENT_FEATURE_JIT_MAPS,
	 * the kernel AGENT_FEATURE_KERNEL, tasks AGENT_FEATURE_TASKS. */
	AGENT_REQUEST = 4,
	/* from the guest */
	AGENT_HELLO = 16, /* the answer to AGENT_START, and the first message of a session */
	AGENT_PONG = 17,
	AGENT_EVENTS = 18,  /* records of the guest's kernel, or of the snapshot */
	AGENT_ROUND = 19,   /* everything before a time has been sent */
	AGENT_TABLE = 20,   /* a part of a requested table */
	AGENT_JIT_MAP = 21, /* new lines of a requested JIT map */
	AGENT_TASKS = 22,   /* requested reference tasks */
};

struct agent_message {
	uint32_t size;     /* bytes with this header: a multiple of 8, at most AGENT_MESSAGE_MAX */
	uint16_t type;     /* enum agent_message_type */
	uint16_t reserved; /* 0 */
	uint8_t payload[];
};

struct agent_start {
	uint64_t magic;   /* AGENT_MAGIC */
	uint64_t session; /* a number that the host has not used before */
	uint32_t version; /* AGENT_PROTOCOL_VERSION of the host */
	uint32_t reserved;
};

struct agent_ping {
	uint64_t host_time; /* ns, CLOCK_MONOTONIC_RAW of the host at sending */
};

enum agent_features {
	AGENT_FEATURE_EVENTS = 1 << 0,    /* the guest's kernel reports exec, fork, exit and mmap */
	AGENT_FEATURE_BUILD_IDS = 1 << 1, /* older agents only: its mappings have build ids */
	AGENT_FEATURE_KSYMBOLS = 1 << 2,  /* it reports BPF programs and trampolines (Linux 5.0) */
	AGENT_FEATURE_TABLES = 1 << 3,    /* the agent answers AGENT_TABLE_SYMBOLS */
	/* Instead of AGENT_FEATURE_EVENTS: the kernel reports fork, exec and exit; mappings are
	 * read from /proc. */
	AGENT_FEATURE_CONNECTOR = 1 << 4,
	AGENT_FEATURE_JIT_MAPS = 1 << 5, /* the agent answers AGENT_TABLE_JIT_MAP, */
	AGENT_FEATURE_KERNEL = 1 << 6,   /* AGENT_TABLE_KERNEL, */
	AGENT_FEATURE_TASKS = 1 << 7,    /* AGENT_TABLE_TASKS */
};

struct agent_hello {
	uint64_t magic;      /* AGENT_MAGIC */
	uint64_t session;    /* of the AGENT_START that it answers */
	uint32_t version;    /* AGENT_PROTOCOL_VERSION of the agent */
	uint32_t features;   /* enum agent_features */
	uint64_t guest_time; /* ns, guest clock: events are complete from here on */
	uint32_t cpus;       /* number of CPUs with events */
	/* Without AGENT_FEATURE_EVENTS: negative errno of perf_event_open(2), or -EPROTONOSUPPORT.
	 */
	int32_t error;
	char release[AGENT_RELEASE_MAX]; /* of the guest's kernel, NUL-terminated */
	uint8_t reserved[7];
};

struct agent_pong {
	uint64_t host_time;  /* of the ping that it answers */
	uint64_t guest_time; /* ns, CLOCK_MONOTONIC_RAW of the guest */
	uint64_t tsc_before; /* guest TSC just before guest_time was read, */
	uint64_t tsc_after;  /* and just after it */
	/*
	 * ns, guest clock: when the ping was read. The agent fetches events between this and
	 * guest_time, to send all with one write. Older agents omit it.
	 */
	uint64_t received;
};

/* Bytes of an older agent's payload. */
#define AGENT_PONG_MIN offsetof(struct agent_pong, received)

#define AGENT_CPU_SNAPSHOT UINT32_MAX

/*
 * Consecutive whole records of perf_event_open(2): MMAP2, COMM, FORK, EXIT, LOST, KSYMBOL,
 * BPF_EVENT. sample_type is AGENT_SAMPLE_TYPE with sample_id_all, so each ends with struct
 * agent_record_end. The agent makes those of a snapshot from /proc.
 */
struct agent_events {
	uint32_t cpu; /* of the guest, or AGENT_CPU_SNAPSHOT */
	uint32_t reserved;
	uint8_t records[];
};

#define AGENT_SAMPLE_TYPE 0x6u /* PERF_SAMPLE_TID | PERF_SAMPLE_TIME */

struct agent_record_end {
	uint32_t pid, tid; /* of the task that caused the record */
	uint64_t time;     /* ns, CLOCK_MONOTONIC_RAW of the guest */
};

/* The payload of PERF_RECORD_MMAP2; the path follows. */
struct agent_mmap2 {
	uint32_t pid, tid;
	uint64_t start, size, offset;
	union {
		struct {
			uint32_t major, minor;
			uint64_t inode, generation;
		};
		struct { /* with PERF_RECORD_MISC_MMAP_BUILD_ID */
			uint8_t build_id_size, reserved[3];
			uint8_t build_id[20];
		};
	};
	uint32_t prot, flags;
};

enum agent_round_flags {
	AGENT_ROUND_SNAPSHOT_DONE = 1 << 0, /* the first snapshot has been sent */
};

struct agent_round {
	uint64_t guest_time; /* ns: all events that the kernel had written by then were sent */
	uint64_t lost;       /* records that the kernel dropped in this session */
	/* Processes left out of the snapshot because they kept changing, or exited first. */
	uint64_t unstable;
	uint64_t cut;   /* mappings and threads left out because their process had too many */
	uint32_t flags; /* enum agent_round_flags */
	uint32_t reserved;
};

enum agent_table_kind {
	/* Symbols of an image, by its build id: starts with struct agent_symbols. */
	AGENT_TABLE_SYMBOLS = 1,
	/*
	 * Functions that a process generates at run time, from /tmp/perf-PID.map (perf's
	 * tools/perf/Documentation/jit-interface.txt). Only pid is used in the request. From then
	 * on new lines are sent as AGENT_JIT_MAP, before each round, until the process exits.
	 */
	AGENT_TABLE_JIT_MAP = 2,
	/*
	 * The running kernel and its modules: starts with struct agent_kernel. Only start is used
	 * in the request: agent_kernel.modules_hash of the host's table, or 0. If the modules are
	 * still the same, the answer is the error -EALREADY.
	 */
	AGENT_TABLE_KERNEL = 3,
	/*
	 * Idle child tasks of the agent with known values, for AGENT_TASKS_LIFETIME_MS. The host
	 * uses them to find the kernel's task structure. Answered by AGENT_TASKS; no field of the
	 * request is used.
	 */
	AGENT_TABLE_TASKS = 4,
};

/* One table at a time: another request before the end of the last is answered with -EBUSY. JIT maps
 * and tasks do not count. */
struct agent_request {
	uint64_t request;       /* a number that the answer repeats */
	uint32_t kind;          /* enum agent_table_kind */
	uint32_t pid;           /* a process that has, or had, the file mapped */
	uint64_t start, end;    /* at these addresses */
	uint32_t build_id_size; /* bytes */
	uint8_t build_id[20];
	char path[]; /* of the file, in the process's root; NUL-terminated */
};

enum agent_table_flags {
	AGENT_TABLE_END = 1 << 0, /* last part: the table is complete, or has an error */
};

/* Bytes of an uncompressed table; a larger one is answered with -EFBIG. */
#define AGENT_TABLE_MAX (32u << 20)

struct agent_table {
	uint64_t request; /* of the AGENT_REQUEST that it answers */
	int32_t error;    /* negative errno: discard all parts; or 0 */
	uint32_t flags;   /* enum agent_table_flags */
	uint32_t size;    /* bytes of data */
	uint32_t reserved;
	uint8_t data[]; /* the next part of a zlib stream (RFC 1950) */
};

enum agent_symbols_section {
	AGENT_SYMBOLS_SYMTAB = 1, /* .symtab: all functions */
	AGENT_SYMBOLS_DYNSYM = 2, /* .dynsym, without .symtab: exported functions */
};

/*
 * Head of an AGENT_TABLE_SYMBOLS table. It is followed by parts of the ELF file: SEGMENTS program
 * headers (Elf64_Phdr) of type PT_LOAD, the symbol table (Elf64_Sym) and its strings. Then, up to
 * the table's end, a struct agent_section for each section with code; older agents omit these.
 */
struct agent_symbols {
	uint32_t section;  /* enum agent_symbols_section */
	uint32_t segments; /* at most AGENT_SEGMENTS_MAX */
	uint32_t symbols;  /* bytes */
	uint32_t strings;  /* bytes */
};

#define AGENT_SEGMENTS_MAX 16u

/* Further sections are left out. */
#define AGENT_SECTIONS_MAX 32u

/* A symbol without a size ends with its section at the latest. */
struct agent_section {
	uint64_t start; /* address, as in the symbols */
	uint64_t size;  /* bytes */
};

#define AGENT_KERNEL_MODULES_MAX 512u

/*
 * Head of an AGENT_TABLE_KERNEL table. It is followed by MODULES times struct agent_module and, up
 * to the table's end, /proc/kallsyms: lines "ADDRESS TYPE NAME[\t[MODULE]]".
 */
struct agent_kernel {
	/* Identifies this boot and the loaded modules with their addresses; changes when a module
	 * is reloaded; not 0. */
	uint64_t modules_hash;
	uint32_t modules;       /* at most AGENT_KERNEL_MODULES_MAX; the oldest are left out */
	uint32_t build_id_size; /* of the kernel (/sys/kernel/notes), bytes; 0: none */
	uint8_t build_id[20];
	uint32_t reserved;
};

struct agent_module {
	char name[64];  /* as in /proc/modules; NUL-terminated */
	uint64_t start; /* guest virtual address of the whole module, */
	uint64_t size;  /* and its bytes, from /proc/modules */
	/* Addresses of its sections (/sys/module/NAME/sections), 0 if it lacks one: */
	uint64_t text; /* .text */
	uint64_t init; /* .init.text: freed when the module has started */
	uint64_t exit; /* .exit.text */
	uint64_t note; /* .note.gnu.build-id */
	uint32_t build_id_size;
	uint8_t build_id[20];
};

#define AGENT_TASKS_MAX         16u
#define AGENT_TASKS_LIFETIME_MS 4000u
#define AGENT_TASK_MARK         16u

struct agent_task {
	uint32_t pid;                  /* of the thread, */
	uint32_t tgid;                 /* and of its process, in the agent's pid namespace */
	char comm[16];                 /* partly random, unique; NUL-terminated */
	uint64_t marked;               /* address of the mark in the process's memory */
	uint8_t mark[AGENT_TASK_MARK]; /* random, unique to each process */
};

struct agent_tasks {
	int32_t error;  /* negative errno without tasks, or 0 */
	uint32_t count; /* at most AGENT_TASKS_MAX */
	struct agent_task tasks[];
};

enum agent_jit_map_flags {
	/* The lines are the map's first ones; earlier lines of the process are obsolete. */
	AGENT_JIT_MAP_BEGIN = 1 << 0,
	/* Some lines are not sent yet: rounds do not cover this map until a message without this
	 * flag. */
	AGENT_JIT_MAP_INCOMPLETE = 1 << 1,
	AGENT_JIT_MAP_END = 1 << 2, /* the process exited: last message */
};

struct agent_jit_map {
	/*
	 * ns, guest clock: the lines were not in the map yet; for the first lines, the file's
	 * creation time. 0: unknown.
	 */
	uint64_t since;
	uint64_t time;  /* ns: the lines were in the map */
	uint32_t pid;   /* of the process, in the guest's initial pid namespace */
	uint32_t flags; /* enum agent_jit_map_flags */
	uint32_t size;  /* bytes of lines */
	/*
	 * ms, with AGENT_JIT_MAP_BEGIN: at TIME the process had executed its current program for
	 * at least this long. 0: unknown, as with older agents.
	 */
	uint32_t program;
	char lines[]; /* whole lines of the file, each with its newline */
};

/* Received bytes that are not consumed yet. Zeroed: empty and not in step. */
struct agent_stream {
	uint8_t data[2 * AGENT_MESSAGE_MAX] __attribute__((aligned(8)));
	size_t begin, end; /* of the bytes in data */
	bool in_step;      /* begin is the start of a message */
};

/* Where to receive the next bytes, and how many fit: never 0 after agent_stream_next() returned 0.
 */
uint8_t *agent_stream_room(struct agent_stream *stream, size_t *size);
void agent_stream_received(struct agent_stream *stream, size_t size);

/*
 * Returns 1 with the next complete message in *MESSAGE, valid until the next call on the stream; 0
 * if more bytes are needed; -EPROTO if the bytes are invalid. A stream that is not in step (new, or
 * after -EPROTO) skips bytes up to a message of type FIRST (AGENT_START or AGENT_HELLO) with
 * AGENT_MAGIC.
 */
int agent_stream_next(struct agent_stream *stream, enum agent_message_type first,
		      const struct agent_message **message);

/* Drops everything, because the peer is a new one. */
void agent_stream_reset(struct agent_stream *stream);

/* Bytes of MESSAGE's payload. */
static inline size_t agent_payload_size(const struct agent_message *message)
{
	return message->size - sizeof(*message);
}

/* MESSAGE's payload, aligned to 8 bytes, or NULL if it has less than SIZE bytes. */
static inline const void *agent_payload(const struct agent_message *message, size_t size)
{
	return agent_payload_size(message) >= size ? message->payload : NULL;
}

#endif
