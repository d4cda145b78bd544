/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes that are busy in BPF programs (socket filters) with names of their own:
 *
 *	bpf SECONDS
 *
 * "north" runs programs called north, "south" those called south. Each replaces its program every
 * second, so that code is loaded and unloaded at addresses that the other process used before.
 * Prints "bpf: NAME loaded COUNT".
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#ifndef SO_ATTACH_BPF
#define SO_ATTACH_BPF 50
#endif

#define INSTRUCTIONS 300  /* largest number in a round: a socket may have 20 KiB of programs */
#define ROUNDS       12   /* the kernel verifies each of them, which takes longer than running it */
#define LIFE         1.0  /* s, least lifetime of a program */
#define WRITES_MIN   3000 /* runs of a program, and programs, even if the machine stalls */
#define PROGRAMS_MIN 3

static void fail(const char *what)
{
	fprintf(stderr, "bpf: %s: %m\n", what);
	exit(1);
}

/* Multiplies in a loop, and drops the packet. Its size varies, so that addresses shift. */
static int load(const char *name, unsigned int size)
{
	struct bpf_insn code[INSTRUCTIONS + 6], *next = code;
	union bpf_attr attribute;
	int program;

	*next++ = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 3 };
	*next++ = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K,
				     .dst_reg = 2,
				     .imm = ROUNDS };
	for (unsigned int i = 0; i < size; i++)
		*next++ = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MUL | BPF_K,
					     .imm = (int32_t)(3 + i % 7) };
	*next++ = (struct bpf_insn){ .code = BPF_ALU64 | BPF_SUB | BPF_K, .dst_reg = 2, .imm = 1 };
	*next++ = (struct bpf_insn){ .code = BPF_JMP | BPF_JNE | BPF_K,
				     .dst_reg = 2,
				     .off = (int16_t)(-2 - (int)size) };
	*next++ = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K };
	*next++ = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
	memset(&attribute, 0, sizeof(attribute));
	attribute.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attribute.insns = (uint64_t)(uintptr_t)code;
	attribute.insn_cnt = (uint32_t)(next - code);
	attribute.license = (uint64_t)(uintptr_t) "GPL";
	strcpy(attribute.prog_name, name);
	program = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attribute, sizeof(attribute));
	if (program < 0)
		fail("BPF_PROG_LOAD");
	return program;
}

static void filter(const char *name, double until)
{
	unsigned int loaded = 0;
	int ends[2];

	prctl(PR_SET_NAME, name);
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends))
		fail("socketpair");
	while (now() < until || loaded < PROGRAMS_MIN) {
		int program = load(name, INSTRUCTIONS / 2 + 7 * (loaded++ % 20));
		double end = now() + LIFE;

		if (setsockopt(ends[1], SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof(program)))
			fail("SO_ATTACH_BPF");
		close(program);
		for (int writes = 0; now() < end || writes < WRITES_MIN; writes++)
			if (write(ends[0], "x", 1) != 1)
				fail("write");
	}
	printf("bpf: %s loaded %u\n", name, loaded);
	exit(0);
}

static void switch_compiler_on(void)
{
	FILE *file = fopen("/proc/sys/net/core/bpf_jit_enable", "w");

	if (file) {
		fputs("1", file);
		fclose(file);
	}
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "north", "south" };
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	double until = now() + (argc > 1 ? atof(argv[1]) : 0);
	bool failed = false;
	int status;

	setrlimit(RLIMIT_MEMLOCK, &unlimited);
	switch_compiler_on();
	for (int i = 0; i < 2; i++)
		if (!fork())
			filter(names[i], until);
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
