/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/eh_frame.h"

#include <errno.h>
#include <stdlib.h>

#include "shared/array.h"
#include "vmm/guest/unwind/cfi_program.h"
#include "vmm/guest/unwind/dwarf_cursor.h"

#define HEADER_VERSION   1
#define AUGMENTATION_MAX 16 /* letters; five are known */
/* The largest known programs have fewer. */
#define FDES_MAX (2u << 20)
/*
 * An instruction has at least one byte; those of a CIE are run again for each of its FDEs. Programs
 * need about half a step for each byte. STEPS_MAX bounds the time for hostile content.
 */
#define STEPS_LEAST    100000
#define STEPS_PER_BYTE 1
#define STEPS_MAX      (32u << 20)

struct fde {
	uint64_t offset; /* in the file, of the code's start */
	uint64_t at;     /* in .eh_frame */
};

struct fde_list {
	struct fde *fdes;
	size_t count, capacity;
};

/* The content of a CIE that its FDEs use. */
struct cie {
	uint64_t at; /* in .eh_frame */
	bool valid, has_augmentation_data;
	uint8_t pointer_encoding;
	struct cfi_program program; /* without the parts of the FDE */
};

struct compiler {
	const struct eh_frame *eh_frame;
	struct cie cie; /* last one read: neighbouring FDEs mostly share it */
	struct fde_list list;
	uint64_t steps;
};

struct header {
	uint64_t frames_address;
	uint64_t count; /* of FDEs in the table that follows; 0: no table */
	uint8_t table_encoding;
	struct dwarf_cursor cursor; /* at the table */
};

static bool read_header(struct span bytes, uint64_t address, struct header *header)
{
	struct dwarf_cursor *cursor = &header->cursor;
	uint8_t frames_encoding, count_encoding;

	*cursor = (struct dwarf_cursor){ .bytes = bytes, .address = address };
	if (dwarf_fixed(cursor, 1) != HEADER_VERSION)
		return false;
	frames_encoding = (uint8_t)dwarf_fixed(cursor, 1);
	count_encoding = (uint8_t)dwarf_fixed(cursor, 1);
	header->table_encoding = (uint8_t)dwarf_fixed(cursor, 1);
	header->frames_address = dwarf_pointer(cursor, frames_encoding, address);
	header->count = 0;
	if (count_encoding != POINTER_OMITTED && header->table_encoding != POINTER_OMITTED)
		header->count = dwarf_pointer(cursor, count_encoding, address);
	return !cursor->failed;
}

int eh_frame_address(struct span header, uint64_t address, uint64_t *frames_address)
{
	struct header read;

	if (!read_header(header, address, &read))
		return -EINVAL;
	*frames_address = read.frames_address;
	return 0;
}

/*
 * Opens the entry (CIE or FDE) at AT. CURSOR covers it, after its length and *ID, the distance of
 * its CIE (0: it is a CIE). *NEXT is the offset of the next entry. False: no entry, or the end.
 */
static bool open_entry(const struct eh_frame *eh_frame, uint64_t at, struct dwarf_cursor *cursor,
		       uint64_t *id, uint64_t *next)
{
	uint64_t length;

	*cursor = (struct dwarf_cursor){ .bytes = eh_frame->frames,
					 .address = eh_frame->frames_address,
					 .at = at };
	length = dwarf_fixed(cursor, 4);
	if (length == UINT32_MAX)
		length = dwarf_fixed(cursor, 8);
	if (cursor->failed || !length || !span_contains(eh_frame->frames, cursor->at, length))
		return false;
	*next = cursor->at + length;
	cursor->bytes.size = *next;
	*id = dwarf_fixed(cursor, 4);
	return !cursor->failed;
}

static void read_letters(struct dwarf_cursor *cursor, char letters[AUGMENTATION_MAX])
{
	size_t count = 0;

	do {
		letters[count] = (char)dwarf_fixed(cursor, 1);
	} while (letters[count] && ++count < AUGMENTATION_MAX);
	if (count == AUGMENTATION_MAX) {
		cursor->failed = true;
		letters[0] = '\0';
	}
}

/* Skips the pointer to a personality routine, after its encoding. */
static void skip_pointer(struct dwarf_cursor *cursor)
{
	uint8_t encoding = (uint8_t)dwarf_fixed(cursor, 1);

	if (encoding == POINTER_OMITTED)
		return;
	encoding &= POINTER_BASE | POINTER_FORMAT;
	dwarf_pointer(cursor, encoding == POINTER_ALIGNED ? encoding : encoding & POINTER_FORMAT,
		      0);
}

/* Parses the letters after the z, and their data. */
static void read_augmentation(struct dwarf_cursor *cursor, const char *letters, struct cie *cie)
{
	uint64_t size = dwarf_uleb128(cursor), end = cursor->at + size;

	if (cursor->failed || !span_contains(cursor->bytes, cursor->at, size)) {
		cursor->failed = true;
		return;
	}
	for (; *letters && !cursor->failed; letters++) {
		switch (*letters) {
		case 'R':
			cie->pointer_encoding = (uint8_t)dwarf_fixed(cursor, 1);
			break;
		case 'L':
			dwarf_fixed(cursor, 1);
			break;
		case 'P':
			skip_pointer(cursor);
			break;
		case 'S':
			cie->program.signal = true;
			break;
		case 'B': /* without data; AArch64 */
			break;
		default:
			cursor->failed = true;
		}
	}
	cursor->failed |= cursor->at > end;
	cursor->at = end;
}

/* DWARF 5, 6.4.1. Version 1 is DWARF 2, and the usual one in .eh_frame. */
static bool read_cie_fields(struct dwarf_cursor *cursor, struct cie *cie)
{
	uint64_t version = dwarf_fixed(cursor, 1);
	char letters[AUGMENTATION_MAX];
	const char *augmentation = letters;

	read_letters(cursor, letters);
	if (version != 1 && version != 3 && version != 4)
		return false;
	if (augmentation[0] == 'e' &&
	    augmentation[1] == 'h') { /* gcc 2: a pointer to exception data */
		dwarf_fixed(cursor, 8);
		augmentation += 2;
	}
	/* Sizes of an address and of a segment selector. */
	if (version == 4 && (dwarf_fixed(cursor, 1) != 8 || dwarf_fixed(cursor, 1)))
		return false;
	cie->program.code_alignment = dwarf_uleb128(cursor);
	cie->program.data_alignment = dwarf_sleb128(cursor);
	cie->program.return_register =
		version == 1 ? dwarf_fixed(cursor, 1) : dwarf_uleb128(cursor);
	cie->has_augmentation_data = augmentation[0] == 'z';
	if (cie->has_augmentation_data)
		read_augmentation(cursor, augmentation + 1, cie);
	else if (augmentation[0])
		return false;
	return !cursor->failed;
}

static void read_cie(struct compiler *compiler, uint64_t at)
{
	struct cie *cie = &compiler->cie;
	struct dwarf_cursor cursor;
	uint64_t id, next;

	*cie = (struct cie){ .at = at, .pointer_encoding = POINTER_ABSOLUTE };
	if (!open_entry(compiler->eh_frame, at, &cursor, &id, &next) || id ||
	    !read_cie_fields(&cursor, cie))
		return;
	cie->program.initial_address = cursor.address + cursor.at;
	cie->program.initial = dwarf_block(&cursor, next - cursor.at);
	cie->program.pointer_encoding = cie->pointer_encoding;
	cie->program.steps = &compiler->steps;
	cie->valid = true;
}

/* File offset of code [start, end); false: not entirely in one segment. */
static bool find_offset(const struct eh_frame *eh_frame, uint64_t start, uint64_t end,
			uint64_t *offset)
{
	for (size_t i = 0; i < eh_frame->segment_count; i++) {
		const struct eh_segment *segment = &eh_frame->segments[i];

		if (start < segment->address || end < start ||
		    end - segment->address > segment->size)
			continue;
		*offset = segment->offset + (start - segment->address);
		return true;
	}
	return false;
}

/*
 * Reads the FDE at AT; *NEXT becomes the offset of the next entry. The start of its code is an
 * encoded pointer, and the size has the same format. False: not a usable FDE.
 */
static bool read_fde(struct compiler *compiler, uint64_t at, struct cfi_program *program,
		     uint64_t *next)
{
	struct dwarf_cursor cursor;
	uint64_t id, id_at, size;
	uint8_t encoding;

	if (!open_entry(compiler->eh_frame, at, &cursor, &id, next))
		return false;
	id_at = cursor.at - 4;
	if (!id || id > id_at)
		return false;
	if (!compiler->cie.valid || compiler->cie.at != id_at - id)
		read_cie(compiler, id_at - id);
	if (!compiler->cie.valid)
		return false;
	*program = compiler->cie.program;
	encoding = compiler->cie.pointer_encoding;
	program->start = dwarf_pointer(&cursor, encoding, 0);
	size = dwarf_pointer(&cursor, encoding & POINTER_FORMAT, 0);
	program->end = program->start + size;
	if (compiler->cie.has_augmentation_data)
		dwarf_block(&cursor, dwarf_uleb128(&cursor));
	program->instructions_address = cursor.address + cursor.at;
	program->instructions = dwarf_block(&cursor, *next - cursor.at);
	return !cursor.failed && size &&
	       find_offset(compiler->eh_frame, program->start, program->end,
			   &program->offset_of_start);
}

static int append(struct fde_list *list, uint64_t offset, uint64_t at)
{
	if (list->count == FDES_MAX)
		return -E2BIG;
	if (array_reserve(&list->fdes, &list->capacity, list->count + 1))
		return -ENOMEM;
	list->fdes[list->count++] = (struct fde){ .offset = offset, .at = at };
	return 0;
}

/* Adds the FDE at AT, if it is one. *NEXT is 0 at the end. */
static int list_one(struct compiler *compiler, uint64_t at, uint64_t *next)
{
	struct cfi_program program;

	*next = 0;
	return read_fde(compiler, at, &program, next)
		       ? append(&compiler->list, program.offset_of_start, at)
		       : 0;
}

/* By the header's table, which unwinders in the guest use. */
static int list_by_header(struct compiler *compiler, struct header *header)
{
	const struct eh_frame *eh_frame = compiler->eh_frame;
	int error = 0;

	for (uint64_t i = 0; i < header->count && !error; i++) {
		uint64_t address, next;

		dwarf_pointer(&header->cursor, header->table_encoding, eh_frame->header_address);
		address = dwarf_pointer(&header->cursor, header->table_encoding,
					eh_frame->header_address);
		if (header->cursor.failed)
			break;
		error = list_one(compiler, address - eh_frame->frames_address, &next);
	}
	return error;
}

/* From the first entry to the end, or to the terminator of length 0. */
static int list_all(struct compiler *compiler)
{
	uint64_t at = 0, next;
	int error;

	do {
		error = list_one(compiler, at, &next);
		at = next;
	} while (at && !error);
	return error;
}

static int list_fdes(struct compiler *compiler)
{
	const struct eh_frame *eh_frame = compiler->eh_frame;
	struct header header = { 0 };

	if (eh_frame->header.size &&
	    !read_header(eh_frame->header, eh_frame->header_address, &header))
		return -EINVAL;
	return header.count ? list_by_header(compiler, &header) : list_all(compiler);
}

static int compare_fdes(const void *left, const void *right)
{
	const struct fde *a = left, *b = right;

	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

static int compile_fdes(struct compiler *compiler, struct cfi_builder *builder)
{
	const struct fde_list *list = &compiler->list;
	int error = 0;

	for (size_t i = 0; i < list->count && !error; i++) {
		struct cfi_program program;
		uint64_t next;

		if (read_fde(compiler, list->fdes[i].at, &program, &next))
			error = cfi_program_run(&program, builder);
	}
	return error;
}

static int compile(struct compiler *compiler, struct cfi_table **table)
{
	struct cfi_builder *builder;
	int error = list_fdes(compiler);

	if (error)
		return error;
	if (compiler->list.count)
		qsort(compiler->list.fdes, compiler->list.count, sizeof(struct fde), compare_fdes);
	builder = cfi_builder_new();
	if (!builder)
		return -ENOMEM;
	error = compile_fdes(compiler, builder);
	if (!error)
		return cfi_builder_finish(builder, table);
	cfi_builder_free(builder);
	return error;
}

static uint64_t steps_for(size_t size)
{
	uint64_t steps = STEPS_LEAST + STEPS_PER_BYTE * (uint64_t)size;

	return steps < STEPS_MAX ? steps : STEPS_MAX;
}

int eh_frame_compile(struct cfi_table **table, const struct eh_frame *eh_frame)
{
	struct compiler compiler = { .eh_frame = eh_frame,
				     .steps = steps_for(eh_frame->frames.size) };
	int error;

	*table = NULL;
	error = compile(&compiler, table);
	free(compiler.list.fdes);
	return error;
}
