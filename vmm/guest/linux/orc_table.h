/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ORC: for each range of kernel text, how to find the caller's stack pointer and frame pointer
 * (arch/x86/include/asm/orc_types.h). Tables are read in guest RAM, where they may change at any
 * time, or from a copy: each value is read once and checked.
 */
#ifndef KVMSCOPE_GUEST_LINUX_ORC_TABLE_H
#define KVMSCOPE_GUEST_LINUX_ORC_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/symbol_table.h"

#define ORC_ENTRY_SIZE 6

/* Encoding of the last 16 bits of an entry. All start with two register numbers. */
enum orc_format {
	ORC_FORMAT_UNKNOWN,
	ORC_FORMAT_NO_END,     /* 4.14 until end was added: type in 2 bits */
	ORC_FORMAT_END,        /* until 6.2: type in 2 bits, end in 1 */
	ORC_FORMAT_SIGNAL_END, /* 6.3: type in 2 bits, signal, end */
	ORC_FORMAT_SIGNAL,     /* since 6.4: type in 3 bits, signal */
	ORC_FORMAT_RENUMBERED, /* 7.2: the same, with other register numbers */
};

/* The base of an address. */
enum orc_register {
	ORC_UNDEFINED,
	ORC_PREVIOUS_SP,
	ORC_DX,
	ORC_DI,
	ORC_BP,
	ORC_SP,
	ORC_R10,
	ORC_R13,
	ORC_BP_INDIRECT,
	ORC_SP_INDIRECT,
	ORC_UNKNOWN,
};

/* All but the last have the numbers of the newer 3-bit formats. */
enum orc_type {
	ORC_TYPE_NONE,         /* the stack cannot be unwound from here */
	ORC_TYPE_END,          /* the outermost frame */
	ORC_TYPE_CALL,         /* a return address is below the caller's stack pointer */
	ORC_TYPE_REGS,         /* a struct pt_regs is there */
	ORC_TYPE_REGS_PARTIAL, /* the part of it that the CPU pushes */
	ORC_TYPE_NONE_OR_END,  /* the format does not distinguish the two */
};

struct orc_entry {
	int16_t sp_offset, bp_offset;
	enum orc_register sp_register, bp_register;
	enum orc_type type;
	bool signal; /* the caller's address is an interrupted instruction, not after a call */
};

struct orc_table {
	uint64_t start, end;    /* described text: [start, end) */
	uint64_t ips_gva;       /* each of ips is relative to its own address */
	const uint8_t *ips;     /* COUNT of 4 bytes, ascending */
	const uint8_t *entries; /* COUNT of ORC_ENTRY_SIZE bytes */
	uint32_t count;
};

/* Detects the format by the frequency of field values. Any thread. */
enum orc_format orc_detect_format(const struct orc_table *table);

/* The address at which entry INDEX (below count) begins. */
uint64_t orc_address(const struct orc_table *table, uint32_t index);

/* The entry for IP; false if the table does not describe it. Any thread, no lock. */
bool orc_find(const struct orc_table *table, enum orc_format format, uint64_t ip,
	      struct orc_entry *entry);

/* Data that guest_unwind() needs of a kernel: ORC tables, and a CR3 that maps every kernel stack.
 * Immutable once created; any number of threads. */
struct kernel_orc {
	struct guest_paging paging;
	enum orc_format format;
	struct orc_table *tables; /* [0] the kernel's, then those of modules in address order */
	size_t table_count;
	uint8_t **copies; /* of tables that are not read in guest RAM */
	size_t copy_count;
};

/*
 * Creates the tables of the kernel with the finished SYMBOLS, and of its MODULES. -ENOENT: the
 * kernel has no ORC tables, or in an unknown format; -ENOMEM.
 */
int kernel_orc_create(struct kernel_orc **orc, const struct guest_view *view,
		      const struct guest_paging *paging, const struct symbols *symbols,
		      const struct module_list *modules);
/* NULL is a no-op. */
void kernel_orc_free(struct kernel_orc *orc);

/* The table that describes the code at IP, or NULL. Any thread, no lock. */
const struct orc_table *kernel_orc_table(const struct kernel_orc *orc, uint64_t ip);

#endif
