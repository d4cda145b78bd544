/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "vmm/report/symbolizer_state.h"
#include "vmm/symbols/symbol_paths.h"

/* A frame and its identity within the image. */
struct frame {
	struct profile_frame shown;
	const struct profile_image *image; /* NULL: unmapped */
	uint64_t start;                    /* of the symbol, or the address, in the image's table */
};

/* Strings of inlined functions and files are unique in the pool. */
static bool same_frame(const void *item, const void *key)
{
	const struct frame *a = item, *b = key;

	return a->image == b->image && a->start == b->start &&
	       !a->shown.symbol == !b->shown.symbol && a->shown.kernel == b->shown.kernel &&
	       a->shown.inlined == b->shown.inlined &&
	       (!a->shown.inlined || a->shown.function == b->shown.function) &&
	       a->shown.file == b->shown.file && a->shown.line == b->shown.line;
}

/* NULL without memory. */
static const char *build_id_text(struct symbolizer *symbolizer, const struct profile_image *image)
{
	char hex[BUILD_ID_HEX_MAX];

	if (!image || !image->build_id_size)
		return symbolizer->none;
	return pool_string(&symbolizer->pool, symbol_paths_hex(hex, image_build_id(image)));
}

static const struct profile_frame *keep_frame(struct symbolizer *symbolizer, struct frame *frame)
{
	uint64_t hash = hash_mix(hash_pointer(frame->image), frame->start);
	struct frame *kept;

	if (frame->shown.inlined)
		hash = hash_mix(hash, (uintptr_t)frame->shown.function);
	hash = hash_mix(hash, frame->shown.line);
	kept = hash_table_find(&symbolizer->frames, hash, same_frame, frame);
	if (kept)
		return &kept->shown;
	kept = pool_alloc(&symbolizer->pool, sizeof(*kept));
	if (!kept)
		return NULL;
	if (frame->shown.symbol)
		frame->shown.symbol = pool_string(&symbolizer->pool, frame->shown.symbol);
	if (!frame->shown.inlined)
		frame->shown.function = frame->shown.symbol;
	frame->shown.build_id = build_id_text(symbolizer, frame->image);
	if (!frame->shown.build_id)
		return NULL;
	*kept = *frame;
	if (hash_table_add(&symbolizer->frames, hash, kept))
		return NULL;
	return &kept->shown;
}

/* The frame of a function inlined into INTO; NULL without memory. */
static const struct profile_frame *inlined_frame(struct symbolizer *symbolizer,
						 const struct profile_image *image,
						 const struct frame *into,
						 const struct dwarf_function *function)
{
	struct frame frame = {
		.shown = { .image = image->name,
			   .address = into->shown.address,
			   .kernel = into->shown.kernel,
			   .inlined = true,
			   .function = pool_string(&symbolizer->pool, function->name),
			   .line = function->line },
		.image = image,
	};
	char *shown;

	if (function->file)
		frame.shown.file = pool_string(&symbolizer->pool, function->file);
	if (!frame.shown.function || (function->file && !frame.shown.file) ||
	    asprintf(&shown, "%s (inlined)", frame.shown.function) < 0)
		return NULL;
	frame.shown.symbol = shown;
	into = (const struct frame *)keep_frame(symbolizer, &frame);
	free(shown);
	return into ? &into->shown : NULL;
}

/* Stores the frames of the COUNT inlined FUNCTIONS that have names. -ENOMEM. */
static int keep_inlined(struct symbolizer *symbolizer, const struct profile_image *image,
			const struct frame *into, const struct dwarf_function *functions,
			size_t count, struct profile_frame_cache_entry *entry)
{
	const struct profile_frame **frames =
		pool_alloc(&symbolizer->pool, count * sizeof(struct profile_frame *));

	if (!frames)
		return -ENOMEM;
	entry->inlined = frames;
	for (size_t i = 0; i < count; i++) {
		if (!functions[i].name)
			continue;
		frames[entry->inlined_count] =
			inlined_frame(symbolizer, image, into, &functions[i]);
		if (!frames[entry->inlined_count++])
			return -ENOMEM;
	}
	return 0;
}

/*
 * Stores inlined functions at the address in ENTRY, and the source line in FRAME. For a return
 * address it uses the preceding call instruction, because the next instruction may belong to
 * another inlined function. -ENOMEM.
 */
static int find_inlined(struct symbolizer *symbolizer, struct profile_image *image,
			const struct symbol *symbol, struct frame *frame,
			struct profile_frame_cache_entry *entry)
{
	struct dwarf_function functions[DWARF_INLINES_MAX];
	uint64_t at = entry->caller && entry->own > symbol->start ? entry->own - 1 : entry->own;
	size_t count = image_inlines_find(image, &symbolizer->options, at, functions);

	if (!count)
		return 0;
	frame->shown.line = functions[count - 1].line;
	if (functions[count - 1].file)
		frame->shown.file = pool_string(&symbolizer->pool, functions[count - 1].file);
	return count > 1 ? keep_inlined(symbolizer, image, frame, functions, count - 1, entry) : 0;
}

int symbolizer_resolve(struct symbolizer *symbolizer, const struct profile_space *space,
		       bool kernel, struct profile_frame_cache_entry *entry)
{
	const struct profile_mapping *mapping =
		space ? profile_space_find(space, entry->epoch, entry->address) : NULL;
	struct frame frame = {
		.shown = { .image = symbolizer->unknown,
			   .address = entry->address,
			   .kernel = kernel },
	};
	struct symbol symbol;
	int error = 0;

	entry->own = entry->address;
	if (mapping) {
		frame.image = mapping->image;
		frame.shown.image = mapping->image->name;
	}
	if (mapping &&
	    profile_image_symbol(mapping->image, &symbolizer->options, mapping->start,
				 mapping->offset, entry->address, &entry->own, &symbol)) {
		frame.shown.symbol = symbol.name;
		frame.start = symbol.start;
		if (symbolizer->options.inlined)
			error = find_inlined(symbolizer, mapping->image, &symbol, &frame, entry);
	} else {
		frame.start = entry->own;
	}
	entry->frame = error ? NULL : keep_frame(symbolizer, &frame);
	return entry->frame ? 0 : -ENOMEM;
}

const struct profile_frame *symbolizer_host_frame(struct symbolizer *symbolizer)
{
	struct frame frame = { .shown = { .symbol = "[host]", .image = PROFILE_HOST_IMAGE } };

	return keep_frame(symbolizer, &frame);
}

const struct profile_frame *symbolizer_reason_frame(struct symbolizer *symbolizer,
						    const char *reason)
{
	struct frame frame = { .shown = { .image = PROFILE_HOST_IMAGE } };
	char text[80];

	snprintf(text, sizeof(text), "[%s]", reason);
	frame.shown.symbol = pool_string(&symbolizer->pool, text);
	frame.start = (uintptr_t)frame.shown.symbol; /* one string per reason */
	return frame.shown.symbol ? keep_frame(symbolizer, &frame) : NULL;
}

static const struct frame *whole(const struct symbolized_frame *frame)
{
	return (const struct frame *)((const char *)frame->frame - offsetof(struct frame, shown));
}

uint64_t symbolized_frame_offset(const struct symbolized_frame *frame)
{
	return frame->frame->symbol && !frame->frame->inlined ? frame->own - whole(frame)->start
							      : 0;
}

uint64_t symbolized_frame_address(const struct symbolized_frame *frame)
{
	const struct profile_image *image = whole(frame)->image;

	return image && image->kind == IMAGE_KERNEL ? frame->own - image->kernel->moved
						    : frame->own;
}

const char *symbolized_frame_path(const struct symbolized_frame *frame)
{
	const struct profile_image *image = whole(frame)->image;

	if (!image || image->kind == IMAGE_KERNEL)
		return frame->frame->image;
	return image->path;
}
