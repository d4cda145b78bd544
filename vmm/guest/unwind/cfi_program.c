/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/cfi_program.h"

#include "vmm/guest/unwind/cfi_expression.h"
#include "vmm/guest/unwind/dwarf_cursor.h"

#define REMEMBERED_MAX 16 /* compilers use one or two */

/* DW_CFA_*: DWARF 5, table 7.29; LSB 5.0, Generic Part, 10.2 for those of GNU. */
enum {
	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC2 = 0x03,
	CFA_ADVANCE_LOC4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d,
	CFA_DEF_CFA_OFFSET = 0x0e,
	CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_EXTENDED_SF = 0x11,
	CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_MIPS_ADVANCE_LOC8 = 0x1d,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
	CFA_ADVANCE_LOC = 0x40, /* these three have their operand in the low six bits */
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,
};

enum kind { UNSPECIFIED, UNDEFINED, SAME_VALUE, AT_OFFSET, IN_REGISTER, BY_EXPRESSION, AS_VALUE };

/* Where the caller's value of a register is. */
struct location {
	enum kind kind;
	int64_t offset; /* or the register's number */
	struct span expression;
};

/* One row: the CFA, and the tracked registers. */
struct row {
	bool by_expression;
	uint64_t cfa_register;
	int64_t cfa_offset;
	struct span cfa_expression;
	struct location bp, bx, sp, ip;
};

struct machine {
	const struct cfi_program *program;
	struct cfi_builder *builder;
	struct dwarf_cursor code;
	uint64_t at; /* code address at which the row begins */
	struct row row, initial;
	struct row remembered[REMEMBERED_MAX];
	unsigned int depth; /* of remembered */
	int error;
};

static bool fits(int64_t value)
{
	return value >= INT16_MIN && value <= INT16_MAX;
}

static enum cfi_location location_of_base(uint64_t reg)
{
	return reg == DWARF_RSP ? CFI_AT_RSP : reg == DWARF_RBP ? CFI_AT_RBP : CFI_UNDEFINED;
}

/* Encodes LOCATION for a rule; false: not possible. */
static bool encode_location(const struct location *location, enum cfi_location *encoded,
			    int16_t *offset)
{
	uint64_t base;
	int64_t from = location->offset;

	*encoded = CFI_SAME;
	*offset = 0;
	switch (location->kind) {
	case UNSPECIFIED:
	case SAME_VALUE:
		return true;
	case UNDEFINED:
		*encoded = CFI_UNDEFINED;
		return true;
	case AT_OFFSET:
		*encoded = CFI_AT_CFA;
		break;
	case IN_REGISTER:
		*encoded = CFI_REGISTER;
		if (from < 0 || from >= DWARF_RIP)
			return false;
		break;
	case BY_EXPRESSION:
		if (!cfi_expression_address(location->expression, &base, &from))
			return false;
		*encoded = location_of_base(base);
		if (*encoded == CFI_UNDEFINED)
			return false;
		break;
	case AS_VALUE:
		return false;
	}
	*offset = (int16_t)from;
	return fits(from);
}

static bool set_cfa(const struct row *row, struct cfi_rule *rule)
{
	if (row->by_expression)
		return cfi_expression_cfa(row->cfa_expression, rule);
	rule->cfa = CFI_CFA_REGISTER;
	rule->cfa_register = (uint8_t)row->cfa_register;
	rule->cfa_offset = (int32_t)row->cfa_offset;
	return row->cfa_register < DWARF_RIP && row->cfa_offset == rule->cfa_offset;
}

/* The caller's RSP is the CFA. Signal frames repeat it as the address that the CFA is read from. */
static bool sp_is_cfa(const struct location *sp, const struct cfi_rule *rule)
{
	uint64_t base;
	int64_t offset;

	if (sp->kind == UNSPECIFIED)
		return true;
	return sp->kind == BY_EXPRESSION &&
	       cfi_expression_address(sp->expression, &base, &offset) &&
	       rule->cfa == CFI_CFA_MEMORY && !rule->cfa_addend && base == rule->cfa_register &&
	       offset == rule->cfa_offset;
}

/* A register that cannot be encoded is lost, which matters only if a later CFA depends on it. */
static uint8_t location_or_none(const struct location *location, int16_t *offset)
{
	enum cfi_location encoded;

	if (encode_location(location, &encoded, offset))
		return (uint8_t)encoded;
	*offset = 0;
	return CFI_UNDEFINED;
}

static void encode(const struct machine *machine, struct cfi_rule *rule)
{
	const struct row *row = &machine->row;
	enum cfi_location ip;

	*rule = (struct cfi_rule){ .signal = machine->program->signal };
	if (!set_cfa(row, rule) || !encode_location(&row->ip, &ip, &rule->ip_offset) ||
	    ip == CFI_SAME || !sp_is_cfa(&row->sp, rule)) {
		*rule = (struct cfi_rule){ .cfa = CFI_CFA_UNKNOWN };
		return;
	}
	rule->ip = (uint8_t)ip;
	rule->bp = location_or_none(&row->bp, &rule->bp_offset);
	rule->bx = location_or_none(&row->bx, &rule->bx_offset);
	/* One rule for all outermost frames, not one for each CFA. */
	if (ip == CFI_UNDEFINED)
		*rule = (struct cfi_rule){ .cfa = CFI_CFA_REGISTER,
					   .cfa_register = DWARF_RSP,
					   .ip = CFI_UNDEFINED };
}

static void add(struct machine *machine, uint64_t end, const struct cfi_rule *rule)
{
	const struct cfi_program *program = machine->program;

	machine->error = cfi_builder_add(machine->builder,
					 program->offset_of_start + (machine->at - program->start),
					 program->offset_of_start + (end - program->start), rule);
	machine->at = end;
}

/* Ends the row at TO. */
static bool advance_to(struct machine *machine, uint64_t to)
{
	struct cfi_rule rule;

	if (to < machine->at || to > machine->program->end)
		return false;
	if (to == machine->at)
		return true;
	encode(machine, &rule);
	add(machine, to, &rule);
	return !machine->error;
}

static bool advance(struct machine *machine, uint64_t by)
{
	uint64_t distance;

	return !__builtin_mul_overflow(by, machine->program->code_alignment, &distance) &&
	       distance <= machine->program->end - machine->at &&
	       advance_to(machine, machine->at + distance);
}

/* The location of a register in ROW; NULL if it is not tracked. */
static struct location *location_of(const struct machine *machine, struct row *row, uint64_t reg)
{
	if (reg == machine->program->return_register)
		return &row->ip;
	switch (reg) {
	case DWARF_RBP:
		return &row->bp;
	case DWARF_RBX:
		return &row->bx;
	case DWARF_RSP:
		return &row->sp;
	default:
		return NULL;
	}
}

static bool set(struct machine *machine, uint64_t reg, enum kind kind, int64_t offset)
{
	struct location *location = location_of(machine, &machine->row, reg);

	if (location)
		*location = (struct location){ .kind = kind, .offset = offset };
	return true;
}

static bool set_expression(struct machine *machine, enum kind kind)
{
	uint64_t reg = dwarf_uleb128(&machine->code);
	struct span expression = dwarf_block(&machine->code, dwarf_uleb128(&machine->code));
	struct location *location = location_of(machine, &machine->row, reg);

	if (location)
		*location = (struct location){ .kind = kind, .expression = expression };
	return true;
}

static int64_t factored(const struct machine *machine, int64_t offset)
{
	return (int64_t)((uint64_t)offset * (uint64_t)machine->program->data_alignment);
}

/* Reads both operands in the program's order. */
static bool set_offset(struct machine *machine, enum kind kind, bool is_signed)
{
	uint64_t reg = dwarf_uleb128(&machine->code);
	int64_t offset =
		is_signed ? dwarf_sleb128(&machine->code) : (int64_t)dwarf_uleb128(&machine->code);

	return set(machine, reg, kind, factored(machine, offset));
}

static bool restore(struct machine *machine, uint64_t reg)
{
	struct location *location = location_of(machine, &machine->row, reg);

	if (location)
		*location = *location_of(machine, &machine->initial, reg);
	return true;
}

static bool remember(struct machine *machine)
{
	if (machine->depth == REMEMBERED_MAX)
		return false;
	machine->remembered[machine->depth++] = machine->row;
	return true;
}

static bool restore_state(struct machine *machine)
{
	if (!machine->depth)
		return false;
	machine->row = machine->remembered[--machine->depth];
	return true;
}

static bool define_cfa(struct machine *machine, uint64_t reg, int64_t offset)
{
	machine->row.by_expression = false;
	machine->row.cfa_register = reg;
	machine->row.cfa_offset = offset;
	return true;
}

/* Changes half of the definition; the current one must not be an expression. */
static bool define_half(struct machine *machine, uint64_t reg, int64_t offset)
{
	return !machine->row.by_expression && define_cfa(machine, reg, offset);
}

static bool define_cfa_expression(struct machine *machine)
{
	machine->row.by_expression = true;
	machine->row.cfa_expression = dwarf_block(&machine->code, dwarf_uleb128(&machine->code));
	return true;
}

/* Instructions that say where the caller's value of a register is. False: another instruction. */
static bool execute_location(struct machine *machine, uint8_t instruction)
{
	struct dwarf_cursor *code = &machine->code;
	uint64_t reg;

	switch (instruction) {
	case CFA_OFFSET_EXTENDED:
		return set_offset(machine, AT_OFFSET, false);
	case CFA_OFFSET_EXTENDED_SF:
		return set_offset(machine, AT_OFFSET, true);
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		reg = dwarf_uleb128(code);
		return set(machine, reg, AT_OFFSET,
			   factored(machine, (int64_t)-dwarf_uleb128(code)));
	case CFA_VAL_OFFSET:
		return set_offset(machine, AS_VALUE, false);
	case CFA_VAL_OFFSET_SF:
		return set_offset(machine, AS_VALUE, true);
	case CFA_EXPRESSION:
		return set_expression(machine, BY_EXPRESSION);
	case CFA_VAL_EXPRESSION:
		return set_expression(machine, AS_VALUE);
	case CFA_RESTORE_EXTENDED:
		return restore(machine, dwarf_uleb128(code));
	case CFA_UNDEFINED:
		return set(machine, dwarf_uleb128(code), UNDEFINED, 0);
	case CFA_SAME_VALUE:
		return set(machine, dwarf_uleb128(code), SAME_VALUE, 0);
	case CFA_REGISTER:
		reg = dwarf_uleb128(code);
		return set(machine, reg, IN_REGISTER, (int64_t)dwarf_uleb128(code));
	default:
		return false;
	}
}

/* Instructions with their operands in the following bytes. False: the rest is unknown. */
static bool execute_long(struct machine *machine, uint8_t instruction)
{
	struct dwarf_cursor *code = &machine->code;
	const struct row *row = &machine->row;
	uint64_t reg;

	switch (instruction) {
	case CFA_NOP:
		return true;
	case CFA_SET_LOC:
		return advance_to(machine,
				  dwarf_pointer(code, machine->program->pointer_encoding, 0));
	case CFA_ADVANCE_LOC1:
		return advance(machine, dwarf_fixed(code, 1));
	case CFA_ADVANCE_LOC2:
		return advance(machine, dwarf_fixed(code, 2));
	case CFA_ADVANCE_LOC4:
		return advance(machine, dwarf_fixed(code, 4));
	case CFA_MIPS_ADVANCE_LOC8:
		return advance(machine, dwarf_fixed(code, 8));
	case CFA_REMEMBER_STATE:
		return remember(machine);
	case CFA_RESTORE_STATE:
		return restore_state(machine);
	case CFA_DEF_CFA:
		reg = dwarf_uleb128(code);
		return define_cfa(machine, reg, (int64_t)dwarf_uleb128(code));
	case CFA_DEF_CFA_SF:
		reg = dwarf_uleb128(code);
		return define_cfa(machine, reg, factored(machine, dwarf_sleb128(code)));
	case CFA_DEF_CFA_REGISTER:
		return define_half(machine, dwarf_uleb128(code), row->cfa_offset);
	case CFA_DEF_CFA_OFFSET:
		return define_half(machine, row->cfa_register, (int64_t)dwarf_uleb128(code));
	case CFA_DEF_CFA_OFFSET_SF:
		return define_half(machine, row->cfa_register,
				   factored(machine, dwarf_sleb128(code)));
	case CFA_DEF_CFA_EXPRESSION:
		return define_cfa_expression(machine);
	case CFA_GNU_ARGS_SIZE: /* for exception handling */
		dwarf_uleb128(code);
		return true;
	default:
		return execute_location(machine, instruction);
	}
}

static bool execute(struct machine *machine)
{
	uint8_t instruction = (uint8_t)dwarf_fixed(&machine->code, 1), operand = instruction & 0x3f;

	switch (instruction & 0xc0) {
	case CFA_ADVANCE_LOC:
		return advance(machine, operand);
	case CFA_OFFSET:
		return set(machine, operand, AT_OFFSET,
			   factored(machine, (int64_t)dwarf_uleb128(&machine->code)));
	case CFA_RESTORE:
		return restore(machine, operand);
	default:
		return execute_long(machine, instruction);
	}
}

static bool run(struct machine *machine, struct span instructions, uint64_t address)
{
	uint64_t *steps = machine->program->steps;

	machine->code = (struct dwarf_cursor){ .bytes = instructions, .address = address };
	while (machine->code.at < instructions.size) {
		if (!*steps || !execute(machine) || machine->code.failed)
			return false;
		--*steps;
	}
	return true;
}

int cfi_program_run(const struct cfi_program *program, struct cfi_builder *builder)
{
	static const struct cfi_rule unknown = { .cfa = CFI_CFA_UNKNOWN };
	struct machine machine = { .program = program, .builder = builder, .at = program->start };
	bool good = run(&machine, program->initial, program->initial_address);

	machine.initial = machine.row;
	good = good && run(&machine, program->instructions, program->instructions_address) &&
	       advance_to(&machine, program->end);
	if (!good && !machine.error && machine.at < program->end)
		add(&machine, program->end, &unknown);
	return machine.error;
}
