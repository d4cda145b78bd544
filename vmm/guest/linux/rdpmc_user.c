// SPDX-License-Identifier: Apache-2.0
#include "vmm/guest/linux/rdpmc_user.h"

#include <Zydis/Zydis.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "shared/error.h"
#include "vmm/guest/linux/kernel_image.h"

#define FUNCTION "get_attr_rdpmc"
#define VARIABLE "x86_pmu"

/* It has some ten instructions. */
#define CODE_MAX 512

#define WIDTH 32 /* bits of an int */

static int find_symbol(const struct guest_kernel *kernel, const char *name, struct symbol *symbol)
{
	if (!symbols_find_name(kernel->symbols, name, symbol))
		return error_set(-ENOENT, "the guest's kernel has no symbol %s", name);
	return 0;
}

/* Does the instruction at AT read an int of VARIABLE? Linux's code has it by RIP, or by its
 * address. */
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

static int disassemble(const struct symbol *function, const uint8_t *code,
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
		return error_set(error, "can not read the guest kernel's function " FUNCTION);
	error = disassemble(&function, code, &variable, address);
	free(code);
	return error;
}
