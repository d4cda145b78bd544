/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that test the machine: its console, the ways it can end, its CPUs and its memory. */
#include "tests/guests/guest.h"

#define PM1_CONTROL      0x604
#define SLEEP_S5         (5u << 10 | 1u << 13)
#define RESET_CONTROL    0xcf9
#define KEYBOARD_COMMAND 0x64
#define PVPANIC          0x505

#define PAGE_OF_OTHER_CPUS 0x2000ull

extern uint8_t other_cpu_start[], other_cpu_end[];
extern volatile uint32_t other_cpu_count;
static volatile uint32_t cpus_up = 1;
static void (*volatile other_cpu_work)(void);
void other_cpu_main(void);

/* Prints its command line. panic=N reports a panic, exit=N is the exit value. */
uint32_t program_hello(void)
{
	uint32_t panic = (uint32_t)option_number("panic", 0);

	print("hello: ");
	print(command_line);
	print("\n");
	if (panic)
		out8(PVPANIC, (uint8_t)panic);
	return (uint32_t)option_number("exit", 42);
}

uint32_t program_power_off(void)
{
	out16(PM1_CONTROL, SLEEP_S5);
	return 1;
}

uint32_t program_reset(void)
{
	if (option_is("by", "acpi"))
		out8(RESET_CONTROL, 6);
	else
		out8(KEYBOARD_COMMAND, 0xfe);
	return 1;
}

/* A triple fault: #UD with an empty IDT. */
uint32_t program_crash(void)
{
	struct {
		uint16_t limit;
		uint64_t base;
	} __attribute__((packed)) nothing = { 0, 0 };

	print("crashing\n");
	__asm__ volatile("lidt %0\n\t"
			 "ud2"
			 :
			 : "m"(nothing), "a"(0x123456789abcdef0));
	return 1;
}

/* An instruction that a KVM that interprets CPL 0 does not support. */
uint32_t program_xrstor(void)
{
	static uint8_t area[1024] __attribute__((aligned(64)));
	uint64_t cr4;

	__asm__ volatile("movq %%cr4, %0" : "=r"(cr4));
	__asm__ volatile("movq %0, %%cr4" : : "r"(cr4 | 1u << 18)); /* OSXSAVE */
	__asm__ volatile("xrstor %0" : : "m"(area), "a"(0), "d"(0));
	return 0;
}

void other_cpu_main(void)
{
	void (*work)(void) = other_cpu_work;

	__atomic_fetch_add(&cpus_up, 1, __ATOMIC_SEQ_CST);
	if (work)
		work();
	__asm__ volatile("cli");
}

static void start_other(uint32_t id, void (*run)(void))
{
	for (size_t i = 0; i < (size_t)(other_cpu_end - other_cpu_start); i++)
		((volatile uint8_t *)PAGE_OF_OTHER_CPUS)[i] = other_cpu_start[i];
	other_cpu_work = run;
	lapic_start_other(id, PAGE_OF_OTHER_CPUS >> 12);
}

void other_cpu_run(uint32_t id, void (*run)(void))
{
	const uint32_t before = cpus_up;

	start_other(id, run);
	while (cpus_up == before)
		__asm__ volatile("pause");
}

void other_cpu_wake(uint32_t id, void (*run)(void))
{
	other_cpu_count = 0;
	start_other(id, run);
}

static void spin(void)
{
	for (uint64_t rounds = option_number("rounds", 0); rounds; rounds--)
		__asm__ volatile("pause");
}

/*
 * Starts cpus=N CPUs one after the other and returns how many are up. Each spins for rounds=N
 * meanwhile.
 */
uint32_t program_cpus(void)
{
	uint32_t cpus = (uint32_t)option_number("cpus", 1);

	lapic_init();
	for (uint32_t id = 1; id < cpus; id++)
		other_cpu_run(id, spin);
	spin();
	return cpus_up;
}

#define CMOS_INDEX      0x70
#define CMOS_DATA       0x71
#define CMOS_BOOTS      0x40 /* a byte that survives a reset */
#define MARK            ((volatile uint64_t *)(48ull << 20))
#define MSR_STAR        0xc0000081
#define LAPIC_SPURIOUS  0xf0
#define LAPIC_LVT_TIMER 0x320
#define LAPIC_COUNT     0x380

static uint64_t read_dr7(void)
{
	uint64_t value;

	__asm__ volatile("movq %%dr7, %0" : "=r"(value));
	return value;
}

static uint64_t read_dr0(void)
{
	uint64_t value;

	__asm__ volatile("movq %%dr0, %0" : "=r"(value));
	return value;
}

static uint64_t read_star(void)
{
	uint32_t low, high;

	__asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(MSR_STAR));
	return low | (uint64_t)high << 32;
}

/*
 * SDM vol. 3A table 10-1, "IA-32 and Intel 64 Processor States Following Power-up, Reset, or INIT".
 * Returns 0 if all registers match.
 */
static uint32_t find_left_over(void)
{
	if (*MARK)
		return 101;
	if (read_dr7() != 0x400 || read_dr0())
		return 102;
	if (lapic_read(LAPIC_LVT_TIMER) != 0x10000 || lapic_read(LAPIC_COUNT) ||
	    lapic_read(LAPIC_SPURIOUS) != 0xff)
		return 103;
	return read_star() ? 104 : 0;
}

static void leave_over(void)
{
	*MARK = 1;
	__asm__ volatile("movq %0, %%dr0" : : "r"(0x123456ull));
	__asm__ volatile("movq %0, %%dr7" : : "r"(0x402ull));
	__asm__ volatile("wrmsr" : : "a"(0x12345678), "d"(0x230010), "c"(MSR_STAR));
	lapic_timer(1000000);
}

/*
 * Resets the machine boots=N times while all of its cpus=N are up. Returns the number of starts, or
 * the state that survived a reset.
 */
uint32_t program_resets(void)
{
	uint32_t cpus = (uint32_t)option_number("cpus", 1), left, boots;

	out8(CMOS_INDEX, CMOS_BOOTS);
	boots = in8(CMOS_DATA);
	left = find_left_over();
	if (left)
		return left;
	if (program_cpus() != cpus)
		return 105;
	leave_over();
	out8(CMOS_INDEX, CMOS_BOOTS);
	out8(CMOS_DATA, (uint8_t)(boots + 1));
	return boots < option_number("boots", 1) ? program_reset() : boots + 1;
}

/* Writes and reads RAM at gpa=ADDRESS, which is a multiple of 2 MiB. */
uint32_t program_memory(void)
{
	uint64_t gpa = option_number("gpa", 0);
	volatile uint64_t *words = (volatile uint64_t *)gpa;

	page_map(page_root, gpa, gpa, PAGE_WRITABLE | PAGE_LARGE);
	for (uint64_t i = 0; i < 512; i += 64)
		words[i] = gpa + i;
	for (uint64_t i = 0; i < 512; i += 64)
		if (words[i] != gpa + i)
			return 1;
	return 0;
}
