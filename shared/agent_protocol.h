/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest agent and the host say to each other over a byte stream:
 * docs/agent-protocol.md. Native byte order of x86-64, little-endian.
 *
 * Neither side trusts the other. agent_stream_next() checks that a message
 * lies wholly in what was received; agent_payload() that it is long enough
 * for what it says to be. A receiver skips types that it does not know, and
 * what stands behind the fields that it knows: so either side may be older.
 *
 * No function here allocates or calls the system. A stream belongs to one
 * thread at a time.
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
	AGENT_START = 1, /* begins a session; whatever was before is over */
	AGENT_PING = 2,  /* what time is it? The first one also asks for events and snapshot */
	AGENT_STOP = 3,  /* ends the session; no payload */
	/* for a table, only of an agent with AGENT_FEATURE_TABLES; for a JIT map, with
	   AGENT_FEATURE_JIT_MAPS; for the kernel, with AGENT_FEATURE_KERNEL; or for tasks, with
	   AGENT_FEATURE_TASKS */
	AGENT_REQUEST = 4,
	/* from the guest */
	AGENT_HELLO = 16, /* the answer to AGENT_START, and the first message of a session */
	AGENT_PONG = 17,
	AGENT_EVENTS = 18,  /* records of the guest's kernel, or of the snapshot */
	AGENT_ROUND = 19,   /* everything before a time has been sent */
	AGENT_TABLE = 20,   /* a part of what was asked for */
	AGENT_JIT_MAP = 21, /* what is new in a JIT map that was asked for */
	AGENT_TASKS = 22,   /* tasks of the agent's own, which were asked for */
};

struct agent_message {
	uint32_t size;     /* bytes of the message with this header: a multiple of 8, at most
			      AGENT_MESSAGE_MAX */
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
	uint64_t host_time; /* ns, CLOCK_MONOTONIC_RAW of the host, when it was sent */
};

enum agent_features {
	AGENT_FEATURE_EVENTS = 1 << 0, /* the guest's kernel tells of exec, fork, exit and mmap */
	AGENT_FEATURE_BUILD_IDS = 1 << 1, /* its mappings carry build ids; of older agents */
	AGENT_FEATURE_KSYMBOLS = 1 << 2,  /* it tells of BPF programs and trampolines (Linux 5.0) */
	AGENT_FEATURE_TABLES = 1 << 3, /* the agent answers AGENT_REQUEST of AGENT_TABLE_SYMBOLS */
	/* Without AGENT_FEATURE_EVENTS: it tells of fork, exec and exit; what is mapped is read in
	   /proc. */
	AGENT_FEATURE_CONNECTOR = 1 << 4,
	AGENT_FEATURE_JIT_MAPS = 1
				 << 5, /* the agent answers AGENT_REQUEST of AGENT_TABLE_JIT_MAP */
	AGENT_FEATURE_KERNEL = 1 << 6, /* and of AGENT_TABLE_KERNEL, */
	AGENT_FEATURE_TASKS = 1 << 7,  /* and of AGENT_TABLE_TASKS */
};

struct agent_hello {
	uint64_t magic;      /* AGENT_MAGIC */
	uint64_t session;    /* of the AGENT_START that it answers */
	uint32_t version;    /* AGENT_PROTOCOL_VERSION of the agent */
	uint32_t features;   /* enum agent_features */
	uint64_t guest_time; /* ns, the guest's clock: the stream of events is whole from here on */
	uint32_t cpus;       /* that events are taken from */
	int32_t error; /* without AGENT_FEATURE_EVENTS: negative errno of perf_event_open(2), or
			  -EPROTONOSUPPORT */
	char release[AGENT_RELEASE_MAX]; /* of the guest's kernel, NUL-terminated */
	uint8_t reserved[7];
};

struct agent_pong {
	uint64_t host_time;  /* of the ping that it answers */
	uint64_t guest_time; /* ns, CLOCK_MONOTONIC_RAW of the guest */
	uint64_t tsc_before; /* the guest's TSC read just before guest_time, */
	uint64_t tsc_after;  /* and just behind it */
	/*
	 * ns, the guest's clock: when the ping was read. From then on the agent fetched what it
	 * tells, so that all goes with one write. Older agents do not tell it: payload ends before.
	 */
	uint64_t received;
};

/* Bytes of payload that an older agent's has. */
#define AGENT_PONG_MIN offsetof(struct agent_pong, received)

#define AGENT_CPU_SNAPSHOT UINT32_MAX

/*
 * Whole records as perf_event_open(2) describes them, one behind the other:
 * MMAP2, COMM, FORK, EXIT, LOST, KSYMBOL, BPF_EVENT. sample_type is
 * AGENT_SAMPLE_TYPE with sample_id_all, so each ends with struct
 * agent_record_end. Those of a snapshot are made by the agent from /proc.
 */
struct agent_events {
	uint32_t cpu; /* of the guest, or AGENT_CPU_SNAPSHOT */
	uint32_t reserved;
	uint8_t records[];
};

#define AGENT_SAMPLE_TYPE 0x6u /* PERF_SAMPLE_TID | PERF_SAMPLE_TIME */

struct agent_record_end {
	uint32_t pid, tid; /* of who caused the record */
	uint64_t time;     /* ns, CLOCK_MONOTONIC_RAW of the guest */
};

enum agent_round_flags {
	AGENT_ROUND_SNAPSHOT_DONE = 1 << 0, /* what ran before the session has been sent */
};

struct agent_round {
	uint64_t guest_time; /* ns: every event that the kernel had written by then has been sent */
	uint64_t lost; /* in this session, records that the kernel dropped as they were not fetched
			  in time */
	/* Processes that changed each time that the snapshot looked, and are not in it; or were
	 * over before.
	 */
	uint64_t unstable;
	uint64_t cut; /* mappings and threads left out of the snapshot as their process had too many
		       */
	uint32_t flags; /* enum agent_round_flags */
	uint32_t reserved;
};

enum agent_table_kind {
	/* Of a program or library, by its build id: struct agent_symbols and what it says. */
	AGENT_TABLE_SYMBOLS = 1,
	/*
	 * The functions that a process makes at run time, as it writes them to /tmp/perf-PID.map
	 * (perf's tools/perf/Documentation/jit-interface.txt): of the ask only pid counts. From
	 * then on what is new there comes as AGENT_JIT_MAP, before each round, until the process
	 * ends.
	 */
	AGENT_TABLE_JIT_MAP = 2,
	/*
	 * The kernel that runs, with its modules: struct agent_kernel and what it says. Of the ask
	 * `start` counts alone: agent_kernel.modules_hash of the table that the host has, 0 without
	 * one. With the same modules as then the answer is the error -EALREADY.
	 */
	AGENT_TABLE_KERNEL = 3,
	/*
	 * Tasks of the agent's own, begun for it, that do nothing for AGENT_TASKS_LIFETIME_MS. By
	 * them the host finds out where the kernel keeps what a task is. The answer is AGENT_TASKS;
	 * of the ask nothing counts.
	 */
	AGENT_TABLE_TASKS = 4,
};

/* One table at a time: who asks for another one before the end of the last is answered with -EBUSY.
 * JIT maps and tasks are not among those. */
struct agent_request {
	uint64_t request;       /* a number that the answer carries */
	uint32_t kind;          /* enum agent_table_kind */
	uint32_t pid;           /* a process that has, or had, the file mapped, */
	uint64_t start, end;    /* here */
	uint32_t build_id_size; /* bytes */
	uint8_t build_id[20];
	char path[]; /* of the file, in the process's root; NUL-terminated */
};

enum agent_table_flags {
	AGENT_TABLE_END = 1 << 0, /* there is no more: it is complete, or has an error */
};

/* Bytes of what is asked for, before they are compressed; what has more is answered with -EFBIG. */
#define AGENT_TABLE_MAX (32u << 20)

struct agent_table {
	uint64_t request; /* of the AGENT_REQUEST that it answers */
	int32_t error;    /* negative errno: what came is not to be used; 0 */
	uint32_t flags;   /* enum agent_table_flags */
	uint32_t size;    /* bytes of data */
	uint32_t reserved;
	uint8_t data[]; /* the next part of a zlib stream (RFC 1950) */
};

enum agent_symbols_section {
	AGENT_SYMBOLS_SYMTAB = 1, /* .symtab: all functions */
	AGENT_SYMBOLS_DYNSYM = 2, /* .dynsym, as there is no .symtab: those that others may call */
};

/*
 * What a table of kind AGENT_TABLE_SYMBOLS begins with. Behind it stand, as in
 * the ELF file: SEGMENTS program headers (Elf64_Phdr) of type PT_LOAD, the
 * bytes of the symbol table (Elf64_Sym), the bytes of its strings. Then, to
 * the table's end, struct agent_section of each section with code; an older
 * agent tells none.
 */
struct agent_symbols {
	uint32_t section;  /* enum agent_symbols_section */
	uint32_t segments; /* at most AGENT_SEGMENTS_MAX */
	uint32_t symbols;  /* bytes */
	uint32_t strings;  /* bytes */
};

#define AGENT_SEGMENTS_MAX 16u

/* Of more the last ones are not told. */
#define AGENT_SECTIONS_MAX 32u

/* A symbol that has no size ends with its section at the latest. */
struct agent_section {
	uint64_t start; /* address, as the symbols have it */
	uint64_t size;  /* bytes */
};

#define AGENT_KERNEL_MODULES_MAX 512u

/*
 * What a table of kind AGENT_TABLE_KERNEL begins with. Behind it stand
 * MODULES times struct agent_module, and then, to the table's end,
 * /proc/kallsyms as it is: lines "ADDRESS TYPE NAME[\t[MODULE]]".
 */
struct agent_kernel {
	uint64_t modules_hash; /* of this boot and which modules are where: another one with others,
				  or once one is loaded again; not 0 */
	uint32_t modules; /* at most AGENT_KERNEL_MODULES_MAX: of more the oldest are left out */
	uint32_t build_id_size; /* of the kernel (/sys/kernel/notes), bytes; 0: it has none */
	uint8_t build_id[20];
	uint32_t reserved;
};

struct agent_module {
	char name[64];  /* as in /proc/modules; NUL-terminated */
	uint64_t start; /* guest virtual address of all of it, and */
	uint64_t size;  /* its bytes, both of /proc/modules */
	/* Of its sections (/sys/module/NAME/sections), 0 where there is none: */
	uint64_t text; /* .text */
	uint64_t init; /* .init.text: not there any more once the module has started */
	uint64_t exit; /* .exit.text */
	uint64_t note; /* .note.gnu.build-id */
	uint32_t build_id_size;
	uint8_t build_id[20];
};

#define AGENT_TASKS_MAX         16u
#define AGENT_TASKS_LIFETIME_MS 4000u
#define AGENT_TASK_MARK         16u

struct agent_task {
	uint32_t pid;    /* of the thread, and */
	uint32_t tgid;   /* of its process: in the agent's pid namespace */
	char comm[16];   /* in part drawn by chance, another one for each; NUL-terminated */
	uint64_t marked; /* here, in its process's memory, */
	uint8_t mark[AGENT_TASK_MARK]; /* stands this, drawn by chance, another one in each process
					*/
};

struct agent_tasks {
	int32_t error;  /* negative errno: there are none; 0 */
	uint32_t count; /* at most AGENT_TASKS_MAX */
	struct agent_task tasks[];
};

enum agent_jit_map_flags {
	/* The lines are the first ones of the map: what was told of the process before counts no
	   more. */
	AGENT_JIT_MAP_BEGIN = 1 << 0,
	/* There are more, which are not told yet. Rounds say nothing of this map until a message
	 * without it.
	 */
	AGENT_JIT_MAP_INCOMPLETE = 1 << 1,
	AGENT_JIT_MAP_END = 1 << 2, /* the process has ended: it is the last message of it */
};

struct agent_jit_map {
	/*
	 * ns, the guest's clock: then the lines did not stand in the map; of the first ones, when
	 * the file was made. 0: that is not known.
	 */
	uint64_t since;
	uint64_t time;  /* ns: and now they do */
	uint32_t pid;   /* of the process, in the guest's initial pid namespace */
	uint32_t flags; /* enum agent_jit_map_flags */
	uint32_t size;  /* bytes of lines */
	/*
	 * ms, with AGENT_JIT_MAP_BEGIN: for so long before TIME at least the process has run the
	 * program that it runs now. 0: that is not known, as of older agents.
	 */
	uint32_t program;
	char lines[]; /* of the file, whole, each with its newline */
};

/* What was received and not yet taken. All zero is an empty one that has not found its first
 * message. */
struct agent_stream {
	uint8_t data[2 * AGENT_MESSAGE_MAX] __attribute__((aligned(8)));
	size_t begin, end; /* what is there */
	bool in_step;      /* begin is where a message begins */
};

/* Where to put bytes that are received next, and how many fit: never 0 after agent_stream_next()
 * said 0. */
uint8_t *agent_stream_room(struct agent_stream *stream, size_t *size);
void agent_stream_received(struct agent_stream *stream, size_t size);

/*
 * The next whole message into *MESSAGE, valid until the next call on the
 * stream. 1 with a message; 0 until more is received; -EPROTO where the bytes
 * are none. A stream that is not in step (a new one, and after -EPROTO) throws
 * away what is before a message of type FIRST (AGENT_START or AGENT_HELLO)
 * with AGENT_MAGIC.
 */
int agent_stream_next(struct agent_stream *stream, enum agent_message_type first,
		      const struct agent_message **message);

/* Forgets everything: the other side is a new one. */
void agent_stream_reset(struct agent_stream *stream);

/* Bytes of MESSAGE behind its header. */
static inline size_t agent_payload_size(const struct agent_message *message)
{
	return message->size - sizeof(*message);
}

/* MESSAGE's payload if it has at least SIZE bytes, else NULL. Aligned to 8 bytes. */
static inline const void *agent_payload(const struct agent_message *message, size_t size)
{
	return agent_payload_size(message) >= size ? message->payload : NULL;
}

#endif
