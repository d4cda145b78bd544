/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind table of an image, compiled from .eh_frame: for each range of code the rule that finds its
 * caller. 6 bytes a row (a kernel's ORC table has 10); rows share their rules, of which an image
 * has few.
 *
 * Terms are those of DWARF 5, 6.4: the CFA is the caller's stack pointer after the call returns.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_CFI_TABLE_H
#define KVMSCOPE_GUEST_UNWIND_CFI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Registers by their numbers in DWARF (System V ABI, AMD64 supplement, figure 3.36). */
enum dwarf_register {
	DWARF_RAX,
	DWARF_RDX,
	DWARF_RCX,
	DWARF_RBX,
	DWARF_RSI,
	DWARF_RDI,
	DWARF_RBP,
	DWARF_RSP,
	DWARF_R8,
	DWARF_R10 = 10,
	DWARF_R13 = 13,
	DWARF_RIP = 16, /* the return address */
};

enum cfi_cfa {
	CFI_CFA_NONE,     /* no FDE describes the code */
	CFI_CFA_UNKNOWN,  /* an FDE does, with a rule that is none of these */
	CFI_CFA_REGISTER, /* register + offset */
	CFI_CFA_MEMORY,   /* the 8 bytes at register + offset, plus addend */
	CFI_CFA_PLT, /* register + offset, plus 8 from byte `addend` of a 16-byte PLT entry on */
};

/* Location of the caller's RBP, RBX or RIP. */
enum cfi_location {
	CFI_SAME,      /* unchanged in the register */
	CFI_UNDEFINED, /* lost; for RIP: this frame is the outermost */
	CFI_AT_CFA,    /* in memory at CFA + offset */
	CFI_AT_RSP,    /* at RSP + offset */
	CFI_AT_RBP,    /* at RBP + offset */
	CFI_REGISTER,  /* in register number `offset` */
};

/*
 * Only the registers that a frame with callers may use for its CFA are tracked: RSP, RBP, and RBX,
 * which the dynamic linker uses while it looks up a function. Others are used only for some
 * instructions.
 */
struct cfi_rule {
	int32_t cfa_offset;
	int16_t cfa_addend;
	int16_t bp_offset, bx_offset, ip_offset;
	uint8_t cfa;          /* enum cfi_cfa */
	uint8_t cfa_register; /* enum dwarf_register, below RIP */
	uint8_t bp, bx, ip;   /* enum cfi_location */
	uint8_t signal;       /* 1: the caller was interrupted (augmentation S) */
	uint8_t reserved[2];  /* 0 */
};

/* Rows have file offsets, so the table is independent of where the image is mapped. */
struct cfi_table {
	uint32_t count;         /* of rows */
	uint32_t rule_count;    /* rules[0] is for code without an FDE */
	uint32_t *starts;       /* file offset of each row's first byte, ascending */
	uint16_t *rule_of;      /* index into rules, for each row */
	struct cfi_rule *rules; /* all three owned */
};

/* The rule for the code at file OFFSET. Any thread, no lock. */
const struct cfi_rule *cfi_table_find(const struct cfi_table *table, uint64_t offset);

/* False if a table that was received from elsewhere is not as cfi_builder_finish() creates it: rows
 * in order, and the index of each rule and each of its fields in range. */
bool cfi_table_is_valid(const struct cfi_table *table);

/* Bytes of memory that TABLE uses. */
size_t cfi_table_size(const struct cfi_table *table);

/* NULL is a no-op. */
void cfi_table_free(struct cfi_table *table);

/* A table under construction, by one thread. */
struct cfi_builder;

#define CFI_ROWS_MAX  (16u << 20)
#define CFI_RULES_MAX 65536u /* further rules become CFI_CFA_UNKNOWN */

/* NULL: no memory. Released by cfi_builder_finish() or cfi_builder_free(). */
struct cfi_builder *cfi_builder_new(void);

/*
 * Sets RULE for code [start, end). Ranges come in ascending order; a part below the end of an
 * earlier range is ignored. -E2BIG: more rows than CFI_ROWS_MAX, or code above 4 GiB; -ENOMEM.
 */
int cfi_builder_add(struct cfi_builder *builder, uint64_t start, uint64_t end,
		    const struct cfi_rule *rule);

/* Creates the table. Frees BUILDER in any case. -ENOMEM. */
int cfi_builder_finish(struct cfi_builder *builder, struct cfi_table **table);

/* NULL is a no-op. */
void cfi_builder_free(struct cfi_builder *builder);

#endif
