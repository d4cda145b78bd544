/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile guest: writes random values to all debug registers and performance counter MSRs on all
 * CPUs at once for some seconds. Then it stops, and each CPU calls a function in which the host may
 * have a breakpoint.
 */
#include "tests/guests/debug.h"
#include "tests/guests/guest.h"

#define RTC_INDEX 0x70
#define RTC_DATA  0x71

/* The local APIC's LVT entry for counters (SDM vol. 3A 11.5.1): vector, fixed or NMI, mask. */
#define LVTPC       (*(volatile uint32_t *)0xfee00340ull)
#define LVTPC_POKED 0x104ffu
#define LVT_MASKED  0x10000u

#define VECTOR_NMI  2
#define FIRST_STATE 0x9e3779b97f4a7c15ull
#define CALLS       1000

void hostile_call(void);

static volatile uint64_t victim[64];
static volatile uint32_t quiet, called, finished;

/* xorshift64 */
static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* SDM vol. 4 2.1 (architectural), APM vol. 2 13.2.1 (legacy and core): first MSR and count. */
static uint32_t choose_msr(uint64_t random)
{
	static const struct {
		uint32_t first, count;
	} ranges[] = { { 0x0c1, 8 },      { 0x186, 8 },      { 0x309, 4 },      { 0x345, 1 },
		       { 0x38d, 4 },      { 0x3f1, 1 },      { 0x4c1, 8 },      { 0x600, 1 },
		       { 0xc0000300, 4 }, { 0xc0010000, 8 }, { 0xc0010200, 12 } };
	uint32_t range = (uint32_t)(random % (sizeof(ranges) / sizeof(*ranges)));

	return ranges[range].first + (uint32_t)(random >> 32) % ranges[range].count;
}

static void poke_msr(uint64_t *state)
{
	uint64_t value = next(state), random = next(state);
	uint32_t low, high;

	/* Small values are valid more often. */
	value >>= random >> 8 & 63;
	if (random >> 16 & 1)
		__asm__ volatile("wrmsr"
				 :
				 : "c"(choose_msr(random)), "a"((uint32_t)value), "d"(value >> 32));
	else
		__asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(choose_msr(random)));
}

static void poke_rdpmc(uint64_t *state)
{
	uint32_t low, high, counter = (uint32_t)next(state);

	__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(counter & 0x40000007));
}

/* Often one of our variables. Never our code: the handler of #DB could not leave it. */
static uint64_t choose_address(uint64_t random)
{
	if (random & 1)
		return (uint64_t)victim + (random >> 8) % sizeof(victim);
	return (random & 2 ? random : random >> 20) | 1ull << 40;
}

static void poke_debug_register(uint64_t *state)
{
	uint64_t value = next(state), address = choose_address(next(state));

	switch (next(state) % 9) {
	case 0:
		write_dr0(address);
		break;
	case 1:
		write_dr1(address);
		break;
	case 2:
		write_dr2(address);
		break;
	case 3:
		write_dr3(address);
		break;
	case 4:
		write_dr6(value & 8 ? value : (uint32_t)value);
		break;
	case 5:
		write_dr7(value & 8 ? value : (uint32_t)value);
		break;
	case 6:
		read_dr6();
		break;
	case 7:
		read_dr7();
		break;
	default:
		read_dr3();
	}
}

/*
 * The instructions that may fault here: MOV DR is 0f 21 or 0f 23 and a byte, with or without a REX
 * prefix; the others are 0f xx.
 */
static void skip(struct frame *frame)
{
	const uint8_t *code = (const uint8_t *)frame->rip;

	if ((*code & 0xf0) == 0x40)
		code++;
	code += code[1] == 0x21 || code[1] == 0x23 ? 3 : 2;
	frame->rip = (uint64_t)code;
}

static void ignore(struct frame *frame)
{
}

/* General detect repeats until DR7.GD is 0; the processor clears it on each #DB. */
static void on_debug(struct frame *frame)
{
	frame->rflags &= ~RFLAGS_TF;
	frame->rflags |= RFLAGS_RF;
}

static void poke(uint64_t *state)
{
	uint64_t random = next(state);

	victim[random % 64] = random;
	if (random >> 8 & 1)
		poke_debug_register(state);
	else if (random >> 9 & 7)
		poke_msr(state);
	else if (random >> 12 & 1)
		poke_rdpmc(state);
	else
		LVTPC = (uint32_t)(random >> 16) & LVTPC_POKED;
	if (!(random >> 40 & 0xff))
		__asm__ volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tnop"
				 :
				 :
				 : "memory", "cc");
}

static unsigned int rtc_second(void)
{
	uint8_t digits;

	out8(RTC_INDEX, 0);
	digits = in8(RTC_DATA);
	return (digits >> 4) * 10u + (digits & 15);
}

/* Calls WORK repeatedly for the given number of seconds. */
static void work_for(uint64_t seconds, void (*work)(uint64_t *state), uint64_t *state)
{
	unsigned int before = rtc_second();

	for (uint64_t passed = 0; passed < seconds;) {
		unsigned int now;

		for (int i = 0; i < 256; i++)
			work(state);
		now = rtc_second();
		passed += (now + 60 - before) % 60;
		before = now;
	}
}

static void pause(uint64_t *state)
{
	__asm__ volatile("pause");
}

static void leave_alone(void)
{
	LVTPC = LVT_MASKED;
	write_dr7(DR7_FIXED);
}

static void call_all(void)
{
	for (uint32_t i = 0; i < CALLS; i++)
		hostile_call();
	__atomic_fetch_add(&finished, 1, __ATOMIC_SEQ_CST);
}

static void run_other(void)
{
	static uint64_t others;
	uint64_t state = FIRST_STATE * (1 + __atomic_add_fetch(&others, 1, __ATOMIC_SEQ_CST));

	traps_load();
	while (!quiet)
		poke(&state);
	leave_alone();
	while (!called)
		__asm__ volatile("pause");
	call_all();
}

/* seconds=N on cpus=N. Returns 0 after each CPU has called hostile_call() CALLS times. */
uint32_t program_hostile(void)
{
	uint32_t cpus = (uint32_t)option_number("cpus", 1);
	uint64_t state = FIRST_STATE;

	trap_set(VECTOR_DB, on_debug);
	trap_set(VECTOR_NMI, ignore);
	trap_set(VECTOR_UD, skip);
	trap_set(VECTOR_GP, skip);
	lapic_init();
	for (uint32_t id = 1; id < cpus; id++)
		other_cpu_run(id, run_other);
	work_for(option_number("seconds", 1), poke, &state);
	quiet = 1;
	leave_alone();
	/* Gives a host that polls the registers only now and then time to do so. */
	work_for(2, pause, &state);
	called = 1;
	call_all();
	while (finished != cpus)
		__asm__ volatile("pause");
	print("hostile: each CPU has called\n");
	return 0;
}

/* The host's breakpoint is here. */
__asm__(".globl hostile_call\n"
	"hostile_call: ret\n");
