/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer of AML, ACPI's byte code, for a static DSDT (ACPI 6.4, chapter 20 for terms, 6.4 for
 * resource descriptors). Writes to a buffer of the caller; bytes that do not fit are dropped and
 * `full` is set. One thread at a time; owns nothing.
 */
#ifndef KVMSCOPE_BOOT_AML_H
#define KVMSCOPE_BOOT_AML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aml {
	uint8_t *data;
	size_t capacity;
	size_t size;
	bool full;
};

/* An open object, for aml_end(), innermost first. */
typedef size_t aml_mark;

/* NAME is one segment of up to 4 characters, with a leading '\' for one in the root. */
aml_mark aml_scope(struct aml *aml, const char *name);
aml_mark aml_device(struct aml *aml, const char *name);

/* A package of COUNT elements, which follow until aml_end(). */
aml_mark aml_package(struct aml *aml, uint8_t count);
void aml_end(struct aml *aml, aml_mark mark);

/* Name(NAME, the next object written). */
void aml_name(struct aml *aml, const char *name);
void aml_integer(struct aml *aml, uint64_t value);
void aml_string(struct aml *aml, const char *text);

/* EISAID(ID): three capital letters and four hexadecimal digits, as in "PNP0501". */
void aml_eisa_id(struct aml *aml, const char *id);

/* A resource template; descriptors follow until aml_resources_end(). */
aml_mark aml_resources(struct aml *aml);
void aml_resources_end(struct aml *aml, aml_mark mark);

/* SIZE ports from START, decoded with 16 bits. */
void aml_resource_io(struct aml *aml, uint16_t start, uint8_t size);
/* ISA interrupt 0 to 15, edge triggered, active high. */
void aml_resource_irq(struct aml *aml, unsigned int irq);
/* Fixed memory, read and write. */
void aml_resource_memory(struct aml *aml, uint32_t start, uint32_t size);
/* Interrupt by its GSI, level triggered, active high, exclusive. */
void aml_resource_interrupt(struct aml *aml, uint32_t gsi);

#endif
