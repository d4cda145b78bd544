/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/shim/test.h"
#include "vmm/kvm/exit_report.h"

#define NAME(...)                                                                                  \
	instruction_name((const uint8_t[]){ __VA_ARGS__ }, sizeof((uint8_t[]){ __VA_ARGS__ }))

TEST(instruction, names_what_the_emulator_lacks)
{
	CHECK_STRING(NAME(0x0f, 0xae, 0x2d, 0, 0, 0, 0), "XRSTOR");
	CHECK_STRING(NAME(0x48, 0x0f, 0xae, 0x2f), "XRSTOR");
	CHECK_STRING(NAME(0x0f, 0x01, 0xcb), "STAC");
	CHECK_STRING(NAME(0x0f, 0x01, 0xca), "CLAC");
	CHECK_STRING(NAME(0xf3, 0x48, 0x0f, 0xb8, 0xc7), "POPCNT");
	CHECK_STRING(NAME(0xf0, 0x48, 0x0f, 0xc7, 0x0e), "CMPXCHG16B");
	CHECK_STRING(NAME(0xcd, 0x80), "INT");
	CHECK_STRING(NAME(0x9b), "FWAIT");
	CHECK_STRING(NAME(0xc5, 0xf8, 0x77), "VEX-encoded instructions (AVX, BMI)");
}

TEST(instruction, does_not_name_others)
{
	CHECK(!NAME(0x90));
	CHECK(!NAME(0x0f, 0xae, 0xe8)); /* LFENCE: XRSTOR's number with a register operand */
	CHECK(!NAME(0x0f, 0xb8, 0xc7)); /* no prefix */
	CHECK(!NAME(0x48, 0x89, 0xe5));
}

TEST(instruction, reads_no_byte_too_many)
{
	CHECK(!NAME(0x0f));
	CHECK(!NAME(0xf3, 0x48));
	CHECK(!NAME(0x0f, 0xae));
	CHECK(!instruction_name(NULL, 0));
}
