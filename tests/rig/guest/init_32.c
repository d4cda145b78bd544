/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /init of guests with a 32-bit kernel, without a C library: for some seconds it computes and lets
 * the kernel make random bytes, under a name of its own, and then it powers off.
 */
#define NR_WRITE     4
#define NR_TIME      13
#define NR_REBOOT    88
#define NR_PRCTL     172
#define NR_GETRANDOM 355

#define SET_NAME       15
#define REBOOT_MAGIC   ((long)0xfee1dead)
#define REBOOT_MAGIC_2 672274793
#define POWER_OFF      0x4321fedc

#define SECONDS 6

static char bytes[4096];

static long system_call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "0"(number), "b"(a), "c"(b), "d"(c)
			 : "memory");
	return result;
}

static void write_text(const char *text, long size)
{
	system_call(NR_WRITE, 1, (long)text, size);
}

__attribute__((noinline)) static void compute(void)
{
	for (volatile int i = 0; i < 1000000; i++)
		;
}

/* More than once, so that the compiler does not jump to the function it calls last. */
__attribute__((noinline)) static void work_in_user_space(void)
{
	compute();
	compute();
	__asm__ volatile("");
}

__attribute__((noinline)) static void work_in_kernel(void)
{
	for (int i = 0; i < 100; i++)
		system_call(NR_GETRANDOM, (long)bytes, sizeof(bytes), 0);
}

__attribute__((used)) static void run(void)
{
	long begin = system_call(NR_TIME, 0, 0, 0);

	system_call(NR_PRCTL, SET_NAME, (long)"thirty-two", 0);
	write_text("init_32: up\n", 12);
	while (system_call(NR_TIME, 0, 0, 0) - begin < SECONDS) {
		work_in_user_space();
		work_in_kernel();
	}
	write_text("init_32: end\n", 13);
	__asm__ volatile("int $0x80"
			 :
			 : "a"(NR_REBOOT), "b"(REBOOT_MAGIC), "c"(REBOOT_MAGIC_2), "d"(POWER_OFF),
			   "S"(0)
			 : "memory");
}

/* The outermost frame has no caller. */
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tcall run\n\thlt\n");
