/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ORC: for each range of kernel text, how to find the caller's stack pointer
 * and frame pointer (arch/x86/include/asm/orc_types.h). Tables are read where
 * they lie in guest RAM, or from a copy: they may change at any time, so
 * each value is read once and checked.
 */
#ifndef KVMSCOPE_GUEST_LINUX_ORC_TABLE_H
#define KVMSCOPE_GUEST_LINUX_ORC_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORC_ENTRY_SIZE 6

/* How the last 16 bits of an entry are cut and numbered; two register numbers come first in all of
 * them. */
enum orc_format {
	ORC_FORMAT_UNKNOWN,
	ORC_FORMAT_NO_END,     /* 4.14 until end was added: type in 2 bits */
	ORC_FORMAT_END,        /* to 6.2: type in 2 bits, end in 1 */
	ORC_FORMAT_SIGNAL_END, /* 6.3: type in 2 bits, signal, end */
	ORC_FORMAT_SIGNAL,     /* from 6.4: type in 3 bits, signal */
	ORC_FORMAT_RENUMBERED, /* 7.2: the same, with other numbers of the registers */
};

/* The base from which an address is computed. */
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

/* The first are numbered as 3 bits of the newer formats number them. */
enum orc_type {
	ORC_TYPE_NONE,         /* the stack can not be walked from here */
	ORC_TYPE_END,          /* the outermost frame */
	ORC_TYPE_CALL,         /* a return address lies below the caller's stack pointer */
	ORC_TYPE_REGS,         /* a struct pt_regs lies there */
	ORC_TYPE_REGS_PARTIAL, /* of it only what the CPU pushes */
	ORC_TYPE_NONE_OR_END,  /* nothing to walk or the outermost frame: the table does not say */
};

struct orc_entry {
	int16_t sp_offset, bp_offset;
	enum orc_register sp_register, bp_register;
	enum orc_type type;
	bool signal; /* the return address is an instruction that was interrupted, not one after a
			call */
};

struct orc_table {
	uint64_t start, end;    /* text that it describes: [start, end) */
	uint64_t ips_gva;       /* each of ips is relative to where it stands */
	const uint8_t *ips;     /* COUNT of 4 bytes, ascending */
	const uint8_t *entries; /* COUNT of ORC_ENTRY_SIZE bytes */
	uint32_t count;
};

/* Tells the format from how often the values of the fields occur. Any thread. */
enum orc_format orc_detect_format(const struct orc_table *table);

/* The address at which entry INDEX (below count) begins. */
uint64_t orc_address(const struct orc_table *table, uint32_t index);

/* The entry for IP; false if the table does not describe it. Any thread, no lock. */
bool orc_find(const struct orc_table *table, enum orc_format format, uint64_t ip,
	      struct orc_entry *entry);

#endif
