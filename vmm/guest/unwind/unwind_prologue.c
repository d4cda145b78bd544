/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does interrupted code with a frame pointer have its frame? Before the frame is set up and after
 * it is torn down, bp is the caller's, and following it would skip a caller. There is no table for
 * such code, so its bytes decide.
 */
#include <string.h>

#include "vmm/guest/page_walk.h"
#include "vmm/guest/unwind/unwind_step.h"

#define PAGE 4096ull
/* Bytes of checks before the frame is set up (V8: whether the code is still valid). */
#define PREAMBLE 32u

/* Bytes between teardown and return (HotSpot: safepoint poll; V8: pops arguments). */
#define EPILOGUE 16u

#define REX_W      0x48
#define PUSH_BP    0x55
#define POP_BP     0x5d
#define LEAVE      0xc9
#define RETURN     0xc3
#define RETURN_POP 0xc2 /* with a 16-bit number of bytes */
#define TRAP       0xcc /* padding between functions */
#define ENDBR64    "\xf3\x0f\x1e\xfa"
#define REP_RETURN "\xf3\xc3"

/*
 * The code of _fini, which is in every program and library without an FDE: sub $8, %rsp; add $8,
 * %rsp; ret (glibc, sysdeps/x86_64/crti.S, crtn.S).
 */
#define FINI      "\x48\x83\xec\x08" FINI_REST
#define FINI_REST "\x48\x83\xc4\x08\xc3"

/* Zeroes where unreadable. */
struct code {
	uint8_t before[EPILOGUE]; /* the bytes before ip */
	uint8_t at[PREAMBLE + 8];
	bool whole; /* `at` was read completely */
};

static bool read_bytes(const struct unwind_state *state, uint64_t gva, uint8_t *to, size_t size)
{
	if (!guest_read_virtual(state->stack.view, state->stack.paging, gva, to, size))
		return true;
	memset(to, 0, size);
	return false;
}

/* If the next page is unreadable, reads the bytes in this one. */
static bool read_code(const struct unwind_state *state, struct code *code)
{
	size_t here = state->ip % PAGE, left = PAGE - here;

	if (!read_bytes(state, state->ip - EPILOGUE, code->before, EPILOGUE) && here < EPILOGUE)
		read_bytes(state, state->ip - here, code->before + EPILOGUE - here, here);
	code->whole = read_bytes(state, state->ip, code->at, sizeof(code->at));
	return code->whole ||
	       (left < sizeof(code->at) && read_bytes(state, state->ip, code->at, left));
}

/* mov %rsp, %rbp, in either encoding; without REX in 32-bit code. */
static bool is_move(const uint8_t *code)
{
	const uint8_t *opcode = code + (*code == REX_W);

	return !memcmp(opcode, "\x89\xe5", 2) || !memcmp(opcode, "\x8b\xec", 2);
}

static bool is_begin(const uint8_t *code)
{
	return code[0] == PUSH_BP && is_move(code + 1);
}

static bool is_marked_begin(const uint8_t *code)
{
	return !memcmp(code, ENDBR64, 4) && is_begin(code + 4);
}

/* With or without a number of bytes to pop. */
static bool is_return(const uint8_t *code)
{
	return code[0] == RETURN || code[0] == RETURN_POP || !memcmp(code, REP_RETURN, 2);
}

/* Size of a padding instruction, or 1 for a prefix of one (SDM vol. 2B, NOP); 0: no padding. */
static size_t padding_size(const uint8_t *code)
{
	if (code[0] == TRAP || code[0] == 0x90 || code[0] == 0x66 || code[0] == 0x2e)
		return 1;
	if (code[0] != 0x0f || code[1] != 0x1f)
		return 0;
	switch (code[2]) {
	case 0x00:
		return 3;
	case 0x40:
		return 4;
	case 0x44:
		return 5;
	case 0x80:
		return 7;
	default:
		return code[2] == 0x84 ? 8 : 0;
	}
}

static bool is_padding(const struct code *code, size_t from, size_t to)
{
	while (from < to) {
		size_t size = padding_size(code->at + from);

		if (!size)
			return false;
		from += size;
	}
	return from == to;
}

/*
 * Does the function at ip end before the one that begins at BEGIN? Any byte may look like a return:
 * a real one is followed only by padding.
 */
static bool ends_before(const struct code *code, size_t begin)
{
	for (size_t i = 0; i < begin; i++) {
		if ((code->at[i] == RETURN || code->at[i] == TRAP) &&
		    is_padding(code, i + 1, begin))
			return true;
		if (code->at[i] == RETURN_POP && i + 3 <= begin && is_padding(code, i + 3, begin))
			return true;
	}
	return false;
}

/* Is ip before the prologue of its function? */
static bool is_before_prologue(const struct code *code)
{
	for (size_t i = 0; i < PREAMBLE; i++)
		if (is_begin(code->at + i) || is_marked_begin(code->at + i))
			return !ends_before(code, i);
	return false;
}

static bool is_jump(const uint8_t *code)
{
	return code[0] == 0xe9 || code[0] == 0xeb || (code[0] == 0xff && (code[1] >> 3 & 7) == 4);
}

/* By a return, or a jump to another function. */
static bool is_end_ahead(const struct code *code)
{
	for (size_t i = 0; i < EPILOGUE; i++)
		if (is_return(code->at + i) || is_jump(code->at + i))
			return true;
	return false;
}

/* Is the byte the operand of an instruction rather than an opcode? */
static bool is_operand(const uint8_t *code, size_t at)
{
	return at && code[at - 1] && strchr("\x31\x33\x39\x3b\x85\x89\x8b\x8d", code[at - 1]);
}

/* May ip be after the teardown of the frame, before the return? */
static bool is_after_teardown(const struct code *code)
{
	uint8_t last = code->before[EPILOGUE - 1];

	if (last == POP_BP || last == LEAVE)
		return true;
	if (!is_end_ahead(code))
		return false;
	for (size_t i = EPILOGUE - 1; i-- > 0;) {
		const uint8_t *byte = code->before + i;

		if (i + 4 <= EPILOGUE && is_begin(byte))
			return false;
		if ((*byte == POP_BP || *byte == LEAVE) && byte[1] != RETURN &&
		    !is_operand(code->before, i))
			return true;
	}
	return false;
}

/* Only the return address is on the stack: before the prologue or after the epilogue. */
static bool has_no_frame(const struct code *code)
{
	return is_return(code->at) || is_begin(code->at) || is_marked_begin(code->at) ||
	       !memcmp(code->at, FINI, sizeof(FINI) - 1) ||
	       !memcmp(code->at, ENDBR64 FINI, sizeof(ENDBR64 FINI) - 1);
}

static bool has_pushed(const struct code *code)
{
	return (is_move(code->at) && code->before[EPILOGUE - 1] == PUSH_BP) ||
	       !memcmp(code->at, FINI_REST, sizeof(FINI_REST) - 1);
}

enum unwind_frame unwind_frame_of(const struct unwind_state *state)
{
	struct code code;

	if (!read_code(state, &code))
		return UNWIND_FRAME_UNKNOWN;
	if (has_no_frame(&code))
		return UNWIND_FRAME_NONE;
	if (has_pushed(&code))
		return UNWIND_FRAME_PUSHED;
	if (!code.whole || is_before_prologue(&code) || is_after_teardown(&code))
		return UNWIND_FRAME_UNKNOWN;
	return UNWIND_FRAME_MADE;
}
