/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causes exits for SECONDS (1st argument), each kind in a function of its own: CPUID, writes to a
 * port, and sleeps, in which the vCPU is halted if nothing else runs. Prints the number of each.
 */
#include <sys/io.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define ROUNDS 20
#define PORT   0x80 /* Linux delays by it (arch/x86/include/asm/io.h, slow_down_io()) */

static void __attribute__((noinline)) execute_cpuid(void)
{
	unsigned int a = 0, b, c = 0, d;

	for (int i = 0; i < ROUNDS; i++)
		__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
}

static void __attribute__((noinline)) write_port(void)
{
	for (int i = 0; i < ROUNDS; i++)
		outb(0, PORT);
}

static void __attribute__((noinline)) halt_vcpu(void)
{
	usleep(20000);
}

int main(int count, char **arguments)
{
	double end = now() + (count > 1 ? atof(arguments[1]) : 1);
	unsigned long rounds = 0;

	check(!iopl(3), "iopl");
	while (now() < end) {
		execute_cpuid();
		write_port();
		if (rounds++ % 16 == 0)
			halt_vcpu();
	}
	printf("exits: %lu rounds\n", rounds);
	return 0;
}
