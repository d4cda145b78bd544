/* SPDX-License-Identifier: Apache-2.0 */
/* RDPMC contains the bytes 0F 33 (SDM vol. 2B): only functions with them are disassembled. */
#include "vmm/guest/linux/rdpmc_sites.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define OPCODE_FIRST 0x0f
#define OPCODE_LAST  0x33
#define OPCODE_SIZE  2

/* Bytes of text searched at a time; parts overlap by one byte. */
#define PART 65536

/*
 * Bounds the text of kernel and modules, and the disassembled functions. No Linux kernel has more.
 */
#define TEXT_MAX (128ull << 20)

/* The switch: rdpmc_user_find(). */
#define FUNCTION "get_attr_rdpmc"
#define VARIABLE "x86_pmu"
#define CODE_MAX 512 /* bytes; the function has about ten instructions */
#define WIDTH    32  /* bits of an int */

struct search {
	const struct guest_view *view;
	const struct guest_kernel *kernel;
	struct rdpmc_sites *sites;
	uint64_t text_left, functions_left; /* of TEXT_MAX */
	/* The function that is being disassembled. */
	struct symbol function;
	uint8_t *code; /* its bytes; owned */
	uint64_t next; /* GVA of the next instruction */
};

static int consume(uint64_t *left, uint64_t size)
{
	if (size > *left)
		return error_set(-EFBIG,
				 "the guest's kernel claims to have more than %llu MiB of code",
				 TEXT_MAX >> 20);
	*left -= size;
	return 0;
}

static int begin_function(struct search *search, const struct symbol *function)
{
	int error = consume(&search->functions_left, function->end - function->start);

	if (error)
		return error;
	free(search->code);
	search->code = NULL;
	search->function = *function;
	search->next = function->start;
	error = guest_copy_virtual(search->view, &search->kernel->paging, function->start,
				   function->end - function->start, &search->code);
	return error ? error_set(error, "cannot read the guest kernel's function %s",
				 function->name)
		     : 0;
}

static int add(struct rdpmc_sites *sites, const struct rdpmc_site *site)
{
	if (sites->count == RDPMC_SITES_MAX)
		return error_set(-E2BIG,
				 "the guest's kernel executes RDPMC at more than %d addresses",
				 RDPMC_SITES_MAX);
	sites->sites[sites->count++] = *site;
	return 0;
}

/* Disassembles the function up to the instruction with the byte at AT. */
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
				"the guest kernel's function %s cannot be disassembled from %#" PRIx64
				" on, and RDPMC may be at %#" PRIx64,
				function->name, search->next, at);
		if (instruction.mnemonic == ZYDIS_MNEMONIC_RDPMC)
			error = add(
				search->sites,
				&(struct rdpmc_site){ search->next, instruction.length, *bytes });
	}
	return error;
}

/* Checks the opcode's bytes at AT: an RDPMC, or part of another instruction. */
static int check_match(struct search *search, uint64_t at)
{
	struct symbol function;
	int error = 0;

	if (!symbols_find(search->kernel->symbols, at, &function))
		return error_set(-ENOTSUP,
				 "the guest's kernel has code without a symbol at %#" PRIx64
				 ", where RDPMC may be",
				 at);
	/* No instruction spans two functions. */
	if (at + OPCODE_SIZE > function.end)
		return 0;
	if (!search->code || function.start != search->function.start)
		error = begin_function(search, &function);
	return error ? error : disassemble(search, at);
}

/* Searches for the last byte, which is much rarer in code than the first. */
static int search_part(struct search *search, uint64_t start, const uint8_t *bytes, size_t size)
{
	const uint8_t *last = bytes, *end = bytes + size;
	int error = 0;

	while (!error && ++last < end && (last = memchr(last, OPCODE_LAST, (size_t)(end - last))))
		if (last[-1] == OPCODE_FIRST)
			error = check_match(search, start + (uint64_t)(last - 1 - bytes));
	return error;
}

static int search_range(struct search *search, uint64_t start, uint64_t size)
{
	uint64_t end = start + size;
	uint8_t bytes[PART];
	int error = consume(&search->text_left, size);

	for (uint64_t at = start; at + 1 < end && !error; at += PART - 1) {
		size_t part = end - at < PART ? (size_t)(end - at) : PART;

		error = guest_read_virtual(search->view, &search->kernel->paging, at, bytes, part);
		if (error)
			return error_set(error, "cannot read the guest kernel's code at %#" PRIx64,
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

static int find_symbol(const struct guest_kernel *kernel, const char *name, struct symbol *symbol)
{
	if (!symbols_find_name(kernel->symbols, name, symbol))
		return error_set(-ENOENT, "the guest's kernel has no symbol %s", name);
	return 0;
}

/* Does the instruction at AT read an int of VARIABLE, by RIP or by its address? */
static bool reads(const struct symbol *variable, const ZydisDecodedInstruction *instruction,
		  const ZydisDecodedOperand *operands, uint64_t at, uint64_t *address)
{
	for (uint8_t i = 0; i < instruction->operand_count_visible; i++)
		if (operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY && operands[i].size == WIDTH &&
		    operands[i].actions & ZYDIS_OPERAND_ACTION_READ &&
		    ZYAN_SUCCESS(
			    ZydisCalcAbsoluteAddress(instruction, &operands[i], at, address)) &&
		    *address >= variable->start && *address < variable->end &&
		    !(*address % sizeof(uint32_t)))
			return true;
	return false;
}

static int find_read(const struct symbol *function, const uint8_t *code,
		     const struct symbol *variable, uint64_t *result)
{
	const uint64_t size = function->end - function->start;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction instruction;
	ZydisDecoder decoder;
	bool found = false;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (uint64_t at = 0, address; at < size; at += instruction.length) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code + at, size - at,
							 &instruction, operands)))
			break;
		if (!reads(variable, &instruction, operands, function->start + at, &address))
			continue;
		if (found && address != *result)
			return error_set(-ENOTSUP, "the guest kernel's " FUNCTION
						   " reads more than one int of " VARIABLE);
		*result = address;
		found = true;
	}
	return found ? 0
		     : error_set(-ENOTSUP,
				 "the guest kernel's " FUNCTION " reads nothing of " VARIABLE);
}

int rdpmc_user_find(uint64_t *address, const struct guest_view *view,
		    const struct guest_kernel *kernel)
{
	struct symbol function, variable;
	uint8_t *code = NULL;
	int error = find_symbol(kernel, FUNCTION, &function);

	if (!error)
		error = find_symbol(kernel, VARIABLE, &variable);
	if (error)
		return error;
	if (function.end - function.start > CODE_MAX)
		function.end = function.start + CODE_MAX;
	error = guest_copy_virtual(view, &kernel->paging, function.start,
				   function.end - function.start, &code);
	if (error)
		return error_set(error, "cannot read the guest kernel's function " FUNCTION);
	error = find_read(&function, code, &variable, address);
	free(code);
	return error;
}
