/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbol tables of the guest's programs, libraries and kernel, as the guest's
 * agent sends them on request (docs/agent-protocol.md, "Tables"): what is asked
 * for, one at a time, and what has come. The guest is hostile: what it sends
 * is of its account. One thread at a time: agent_client.c holds its lock.
 */
#ifndef KVMSCOPE_AGENT_AGENT_TABLES_H
#define KVMSCOPE_AGENT_AGENT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"

/* What waits to be asked for; more is not taken. */
#define AGENT_TABLES_WAITING 2048u

/* An image that is mapped in a process of the guest. */
struct agent_image {
	uint32_t pid;
	uint64_t start, end; /* GVA */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	size_t build_id_size; /* bytes, 1 to SIDEBAND_BUILD_ID_MAX */
	const char *path;     /* as the guest says it */
};

/* A table that came whole, as the guest made it: struct agent_symbols and so on, or of the kernel
 * struct agent_kernel, not checked. */
struct agent_image_table {
	struct agent_image_table *next;
	struct guest_account *account; /* that it is of, */
	size_t taken;                  /* with so many bytes */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	size_t build_id_size; /* 0: of the kernel */
	size_t size;          /* bytes */
	uint8_t bytes[] __attribute__((aligned(8)));
};

struct agent_tables_statistics {
	uint64_t asked;   /* images whose tables were asked for */
	uint64_t come;    /* tables that came whole */
	uint64_t without; /* images of which the guest says that they have no symbols, or can not be
			     read */
	uint64_t refused; /* tables that were none, stopped half-way, or were too large */
	uint64_t dropped; /* that came, and went for others before anybody took them */
	uint64_t waiting; /* images whose tables did not come yet */
	/* Of all these the kernel's is none. */
	uint64_t kernels;     /* tables of the kernel that came whole */
	int32_t kernel_error; /* negative errno of the latest that did not; 0 */
};

struct agent_tables;

/* NULL without memory. What comes and waits is of ACCOUNT, which outlives it and its tables. */
struct agent_tables *agent_tables_new(struct guest_account *account);
/* NULL is a no-op. */
void agent_tables_free(struct agent_tables *tables);

/* Wants the table of IMAGE, which is copied. -EAGAIN: too many are waiting; -ENOMEM. */
int agent_tables_request(struct agent_tables *tables, const struct agent_image *image);

/*
 * Wants the kernel's table, before all others, unless its modules are those of MODULES_HASH: see
 * AGENT_TABLE_KERNEL. Nothing comes then. -EALREADY: it is asked for; -ENOMEM.
 */
int agent_tables_request_kernel(struct agent_tables *tables, uint64_t modules_hash);

/*
 * The AGENT_REQUEST to be sent at TIME (ns, of any clock that goes on), a whole
 * message valid until the next call; NULL: none. One that does not end within
 * AGENT_TABLES_PATIENCE of its latest part is given up.
 */
#define AGENT_TABLES_PATIENCE 60000000000ull
const struct agent_message *agent_tables_next(struct agent_tables *tables, uint64_t time);

/* Takes MESSAGE, of type AGENT_TABLE. False: it can not be. */
bool agent_tables_receive(struct agent_tables *tables, const struct agent_message *message,
			  uint64_t time);

/* The guest forgot what it was asked: it is to be asked again. */
void agent_tables_session_ended(struct agent_tables *tables);

/* Lets the oldest tables of images that came go until SIZE bytes are there in the account,
 * or none is left. */
void agent_tables_drop(struct agent_tables *tables, size_t size);

/* NULL is a no-op. Any thread. */
void agent_image_table_free(struct agent_image_table *table);

/* The oldest table of an image that came, the caller's to agent_image_table_free(); NULL: none. */
struct agent_image_table *agent_tables_pop(struct agent_tables *tables);

/* The kernel's that came last, if it was not taken yet. */
struct agent_image_table *agent_tables_pop_kernel(struct agent_tables *tables);

void agent_tables_statistics(const struct agent_tables *tables,
			     struct agent_tables_statistics *statistics);

#endif
