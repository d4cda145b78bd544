// SPDX-License-Identifier: Apache-2.0
/*
 * Each RDPMC has the bytes 0F 33 (SDM vol. 2B, RDPMC), so only functions that
 * have them somewhere are disassembled.
 */
#include "vmm/guest/linux/rdpmc_sites.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define OPCODE_FIRST 0x0f
#define OPCODE_LAST  0x33
#define OPCODE_SIZE  2

/* The opcode's bytes are searched in parts of the text, each with the last byte of the one before.
 */
#define PART 65536

/* Of kernel and modules together, and of the functions that are disassembled; more is no Linux, and
 * not worth the time. */
#define TEXT_MAX (128ull << 20)

struct search {
	const struct guest_view *view;
	const struct guest_kernel *kernel;
	struct rdpmc_sites *sites;
	uint64_t text_left, functions_left; /* of TEXT_MAX */
	/* The function that is being disassembled, and how far it is. */
	struct symbol function;
	uint8_t *code; /* of it; owned */
	uint64_t next; /* GVA of the next instruction */
};

static int take_from(uint64_t *left, uint64_t size)
{
	if (size > *left)
		return error_set(-EFBIG,
				 "the guest's kernel says that it has more than %llu MiB of code",
				 TEXT_MAX >> 20);
	*left -= size;
	return 0;
}

static int begin_function(struct search *search, const struct symbol *function)
{
	int error = take_from(&search->functions_left, function->end - function->start);

	if (error)
		return error;
	free(search->code);
	search->code = NULL;
	search->function = *function;
	search->next = function->start;
	error = guest_copy_virtual(search->view, &search->kernel->paging, function->start,
				   function->end - function->start, &search->code);
	return error ? error_set(error, "can not read the guest kernel's function %s",
				 function->name)
		     : 0;
}

static int add(struct rdpmc_sites *sites, const struct rdpmc_site *site)
{
	if (sites->count == RDPMC_SITES_MAX)
		return error_set(-E2BIG, "the guest's kernel executes RDPMC in more than %d places",
				 RDPMC_SITES_MAX);
	sites->sites[sites->count++] = *site;
	return 0;
}

/* Disassembles the function until the byte at AT is behind it. */
static int disassemble(struct search *search, uint64_t at)
{
	const struct symbol *function = &search->function;
	ZydisDecodedInstruction instruction;
	ZydisDecoder decoder;
	int error = 0;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (; search->next <= at && !error; search->next += instruction.length) {
		const uint8_t *bytes = search->code + (search->next - function->start);

		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(
			    &decoder, NULL, bytes, function->end - search->next, &instruction)))
			return error_set(
				-ENOTSUP,
				"the guest kernel's function %s can not be disassembled from %#" PRIx64
				" on, and RDPMC may be at %#" PRIx64,
				function->name, search->next, at);
		if (instruction.mnemonic == ZYDIS_MNEMONIC_RDPMC)
			error = add(
				search->sites,
				&(struct rdpmc_site){ search->next, instruction.length, *bytes });
	}
	return error;
}

/* The opcode's bytes are at AT, be they an instruction or part of one. */
static int look_at(struct search *search, uint64_t at)
{
	struct symbol function;
	int error = 0;

	if (!symbols_find(search->kernel->symbols, at, &function))
		return error_set(-ENOTSUP,
				 "the guest's kernel has code of no function at %#" PRIx64
				 ", where RDPMC may be",
				 at);
	/* Bytes of two functions are no instruction. */
	if (at + OPCODE_SIZE > function.end)
		return 0;
	if (!search->code || function.start != search->function.start)
		error = begin_function(search, &function);
	return error ? error : disassemble(search, at);
}

/* The last byte is looked for: it is much rarer in code than the first. */
static int search_part(struct search *search, uint64_t start, const uint8_t *bytes, size_t size)
{
	const uint8_t *last = bytes, *end = bytes + size;
	int error = 0;

	while (!error && ++last < end && (last = memchr(last, OPCODE_LAST, (size_t)(end - last))))
		if (last[-1] == OPCODE_FIRST)
			error = look_at(search, start + (uint64_t)(last - 1 - bytes));
	return error;
}

static int search_range(struct search *search, uint64_t start, uint64_t size)
{
	uint64_t end = start + size;
	uint8_t bytes[PART];
	int error = take_from(&search->text_left, size);

	for (uint64_t at = start; at + 1 < end && !error; at += PART - 1) {
		size_t part = end - at < PART ? (size_t)(end - at) : PART;

		error = guest_read_virtual(search->view, &search->kernel->paging, at, bytes, part);
		if (error)
			return error_set(error, "can not read the guest kernel's code at %#" PRIx64,
					 at);
		error = search_part(search, at, bytes, part);
	}
	return error;
}

int rdpmc_sites_find(struct rdpmc_sites *sites, const struct guest_view *view,
		     const struct guest_kernel *kernel)
{
	struct search search = { .view = view,
				 .kernel = kernel,
				 .sites = sites,
				 .text_left = TEXT_MAX,
				 .functions_left = TEXT_MAX };
	int error;

	sites->count = 0;
	error = search_range(&search, kernel->text_start, kernel->text_end - kernel->text_start);
	for (size_t i = 0; i < kernel->module_count && !error; i++)
		error = search_range(&search, kernel->modules[i].start, kernel->modules[i].size);
	free(search.code);
	return error;
}
