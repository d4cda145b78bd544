/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for the symbol tables of the guest's images and kernel, sent to the guest agent one at a
 * time (docs/agent-protocol.md, "Tables"), and the tables that arrived. The guest is hostile: all
 * memory is charged to its account. One thread at a time: agent_client.c holds its lock.
 */
#ifndef KVMSCOPE_AGENT_AGENT_TABLES_H
#define KVMSCOPE_AGENT_AGENT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/agent_protocol.h"
#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"

/* Most requests in the queue. */
#define AGENT_TABLES_WAITING 2048u

/* An image that is mapped in a process of the guest. */
struct agent_image {
	uint32_t pid;
	uint64_t start, end; /* GVA */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	size_t build_id_size; /* bytes, 1 to SIDEBAND_BUILD_ID_MAX */
	const char *path;     /* as the guest reported it */
};

/* A complete table as the guest sent it, not checked: it starts with struct agent_symbols, or
 * struct agent_kernel for the kernel. */
struct agent_image_table {
	struct agent_image_table *next;
	struct guest_account *account; /* charged */
	size_t charged;                /* with this number of bytes */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	size_t build_id_size; /* 0: of the kernel */
	size_t size;          /* bytes */
	uint8_t bytes[] __attribute__((aligned(8)));
};

struct agent_tables_statistics {
	uint64_t requested; /* images whose tables were requested */
	uint64_t complete;  /* complete tables that arrived */
	uint64_t without;   /* images without symbols or unreadable, as reported by the guest */
	uint64_t refused;   /* tables that were invalid, incomplete or too large */
	uint64_t dropped;   /* tables dropped for lack of memory before they were used */
	uint64_t waiting;   /* images whose tables have not arrived yet */
	/* The counts above exclude the kernel's table. */
	uint64_t kernels;     /* complete tables of the kernel that arrived */
	int32_t kernel_error; /* negative errno of the latest failure, or 0 */
};

struct agent_tables;

/* NULL without memory. Requests and tables are charged to ACCOUNT, which must outlive them. */
struct agent_tables *agent_tables_new(struct guest_account *account);
/* NULL is a no-op. */
void agent_tables_free(struct agent_tables *tables);

/* Queues a request for IMAGE's table; IMAGE is copied. -EAGAIN: the queue is full; -ENOMEM. */
int agent_tables_request(struct agent_tables *tables, const struct agent_image *image);

/* Queues a request for the kernel's table before all others. No table arrives if its modules still
 * have MODULES_HASH: see AGENT_TABLE_KERNEL. -EALREADY: a request is pending; -ENOMEM.
 */
int agent_tables_request_kernel(struct agent_tables *tables, uint64_t modules_hash);

/* Returns the AGENT_REQUEST to send at TIME (ns of any monotonic clock), valid until the next call,
 * or NULL. A request without a new part for AGENT_TABLES_PATIENCE is cancelled.
 */
#define AGENT_TABLES_PATIENCE 60000000000ull
const struct agent_message *agent_tables_next(struct agent_tables *tables, uint64_t time);

/* Handles MESSAGE, of type AGENT_TABLE. False if it is invalid. */
bool agent_tables_receive(struct agent_tables *tables, const struct agent_message *message,
			  uint64_t time);

/* The session ended: a pending request will be sent again. */
void agent_tables_session_ended(struct agent_tables *tables);

/* Drops the oldest image tables until the account has SIZE bytes left, or no table remains. */
void agent_tables_drop(struct agent_tables *tables, size_t size);

/* NULL is a no-op. Any thread. */
void agent_image_table_free(struct agent_image_table *table);

/* The oldest image table, for agent_image_table_free(), or NULL. */
struct agent_image_table *agent_tables_pop(struct agent_tables *tables);

/* The latest kernel table, once; else NULL. */
struct agent_image_table *agent_tables_pop_kernel(struct agent_tables *tables);

void agent_tables_statistics(const struct agent_tables *tables,
			     struct agent_tables_statistics *statistics);

#endif
