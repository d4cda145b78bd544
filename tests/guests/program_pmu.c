/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the PMU, Intel's or AMD's as CPUID says: its registers, what core cycles count, and
 * overflows. Overflows are period=CYCLES apart, as with perf: the delay of a PMI belongs to the
 * next period. If the host pauses the guest for longer than a period, that overflow is missed, and
 * the guest counts it as missed.
 */
#include "tests/guests/guest.h"

#define VECTOR_NMI 2
#define VECTOR_GP  13
#define VECTOR_PMI 0x50

#define LVT_PC    0x340
#define LVT_NMI   0x400u
#define LVT_FIXED 0u
#define LVT_MASK  0x10000u

#define WIDTH_MASK 0xffffffffffffull

#define MSR_APIC_BASE    0x1b
#define APIC_BASE_X2APIC 0x400ull
#define MSR_X2APIC       0x800
#define MSR_PMC          0xc1
#define MSR_SELECT       0x186
#define MSR_DEBUGCTL     0x1d9
#define MSR_FIXED        0x309
#define MSR_FIXED_CTRL   0x38d
#define MSR_STATUS       0x38e
#define MSR_GLOBAL_CTRL  0x38f
#define MSR_OVF_CTRL     0x390
#define MSR_FULL_PMC     0x4c1
#define MSR_AMD_SELECT   0xc0010000
#define MSR_AMD_PMC      0xc0010004
#define FREEZE_ON_PMI    0x1000ull
#define FIXED_CORE       (1ull << 33)
#define GENERAL_0        1ull
#define SELECT_INTEL     0x43003cull /* core cycles, of USR and OS, enabled */
#define SELECT_AMD       0x430076ull
#define SELECT_INTERRUPT (1ull << 20)

static bool is_intel;
static volatile uint32_t faults, pmis, missed, surprises;
static uint64_t period;
static bool masks_itself; /* LVTPC at delivery is masked, as on Intel processors */
USER_DATA static volatile uint64_t user_loops;
USER_DATA static volatile uint32_t user_pmis, user_pmis_target;

static inline uint64_t read_msr(uint32_t index)
{
	uint32_t low, high;

	__asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(index));
	return (uint64_t)high << 32 | low;
}

static inline void write_msr(uint32_t index, uint64_t value)
{
	__asm__ volatile("wrmsr"
			 :
			 : "c"(index), "a"((uint32_t)value), "d"((uint32_t)(value >> 32))
			 : "memory");
}

static bool x2apic;

static uint32_t read_lvt_pc(void)
{
	return x2apic ? (uint32_t)read_msr(MSR_X2APIC + LVT_PC / 16) : lapic_read(LVT_PC);
}

static void write_lvt_pc(uint32_t value)
{
	if (x2apic)
		write_msr(MSR_X2APIC + LVT_PC / 16, value);
	else
		lapic_write(LVT_PC, value);
}

static void end_of_interrupt(void)
{
	if (x2apic)
		write_msr(MSR_X2APIC + 0xb, 0);
	else
		lapic_end_of_interrupt();
}

static void expect(bool truth, const char *what)
{
	if (truth)
		return;
	print("not so: ");
	print(what);
	print("\n");
	surprises++;
}

/* RDMSR and WRMSR are two bytes long. */
static void skip_fault(struct frame *frame)
{
	faults++;
	frame->rip += 2;
}

static bool write_faults(uint32_t index, uint64_t value)
{
	uint32_t before = faults;

	write_msr(index, value);
	return faults != before;
}

static bool read_faults(uint32_t index)
{
	uint32_t before = faults;

	read_msr(index);
	return faults != before;
}

static uint32_t cpuid(uint32_t function, uint32_t *b, uint32_t *c, uint32_t *d)
{
	uint32_t a = function;

	*c = 0;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(*b), "+c"(*c), "=d"(*d));
	return a;
}

static void find_vendor(void)
{
	uint32_t b, c, d;

	cpuid(0, &b, &c, &d);
	is_intel = b == 0x756e6547; /* "Genu" */
}

static void check_intel_cpuid(void)
{
	uint32_t b, c, d, a = cpuid(0xa, &b, &c, &d);

	expect(a == (2 | 4 << 8 | 48 << 16 | 7u << 24),
	       "CPUID 0AH EAX: version 2, 4 counters of 48 bits");
	expect(b == 0x7a, "EBX: only core and bus cycles are available");
	expect(d == (3 | 48 << 5), "EDX: 3 fixed counters of 48 bits");
	cpuid(1, &b, &c, &d);
	expect(c & 1u << 15, "PDCM");
}

static void check_intel_registers(void)
{
	check_intel_cpuid();
	for (uint32_t i = 0; i < 4; i++) {
		expect(!write_faults(MSR_PMC + i, 0x7fff1234ull), "a counter");
		expect(read_msr(MSR_PMC + i) == 0x7fff1234ull, "what was written to it");
		write_msr(MSR_PMC + i, read_msr(MSR_PMC + i) ^ 0xffff);
		expect(read_msr(MSR_FULL_PMC + i) == 0x7fffedcbull, "the other address of it");
		expect(write_faults(MSR_FULL_PMC + i, 1ull << 48), "#GP beyond the width");
		expect(!write_faults(MSR_SELECT + i, 0x3cull), "a select");
		expect(write_faults(MSR_SELECT + i, 1ull << 32),
		       "#GP for a reserved bit of a select");
		expect(read_msr(MSR_SELECT + i) == 0x3c, "a select after #GP");
	}
	for (uint32_t i = 0; i < 3; i++)
		expect(!write_faults(MSR_FIXED + i, 5) && read_msr(MSR_FIXED + i) == 5,
		       "a fixed counter");
	expect(read_msr(MSR_GLOBAL_CTRL) == 0xf, "GLOBAL_CTRL at reset");
	expect(write_faults(MSR_STATUS, 0), "#GP: GLOBAL_STATUS is read-only");
	expect(write_faults(MSR_GLOBAL_CTRL, 1ull << 35), "#GP: there is no fourth fixed counter");
	expect(!write_faults(MSR_OVF_CTRL, 3ull << 62), "OVF_CTRL");
	expect(read_faults(MSR_PMC + 4) && write_faults(MSR_SELECT + 4, 0),
	       "#GP: there is no fifth counter");
	expect(!write_faults(MSR_DEBUGCTL, FREEZE_ON_PMI) &&
		       read_msr(MSR_DEBUGCTL) == FREEZE_ON_PMI,
	       "DEBUGCTL's freeze bit");
	write_msr(MSR_DEBUGCTL, 0);
}

static void check_amd_registers(void)
{
	for (uint32_t i = 0; i < 4; i++) {
		expect(!write_faults(MSR_AMD_PMC + i, 0x7fff1234ull), "a counter");
		expect(read_msr(MSR_AMD_PMC + i) == 0x7fff1234ull, "what was written to it");
		expect(!write_faults(MSR_AMD_SELECT + i, 0x76 | 1ull << 63), "a select");
		expect(read_msr(MSR_AMD_SELECT + i) == 0x76, "its reserved bits");
	}
}

static void show(const char *name, uint64_t number)
{
	print(name);
	print(" ");
	print_number(number);
	print("\n");
}

/* Counts core cycles in counter 0 from VALUE on; FLAGS are bits of its event select. */
static void start_counter(uint64_t value, uint64_t flags)
{
	if (is_intel) {
		write_msr(MSR_GLOBAL_CTRL, 0); /* so that all of them start with one write */
		write_msr(MSR_FULL_PMC, value);
		write_msr(MSR_SELECT, SELECT_INTEL | flags);
		write_msr(MSR_FIXED_CTRL, 0x330); /* core and reference cycles */
		write_msr(MSR_GLOBAL_CTRL, GENERAL_0 | FIXED_CORE | FIXED_CORE << 1);
	} else {
		write_msr(MSR_AMD_PMC, value);
		write_msr(MSR_AMD_SELECT, SELECT_AMD | flags);
	}
}

static void stop_counter(void)
{
	if (is_intel)
		write_msr(MSR_GLOBAL_CTRL, 0);
	else
		write_msr(MSR_AMD_SELECT, 0);
}

USER_TEXT static void user_loops_on(void)
{
	for (uint64_t i = user_loops; i; i--)
		__asm__ volatile("");
	user_exit();
}

/* Counts while rounds of loops=N run at CPL 3, which is all that is counted. Prints the count. */
static void count(void)
{
	user_loops = option_number("loops", 1000000000);
	start_counter(0, 0);
	user_call(user_loops_on, false);
	stop_counter();
	show("cycles", read_msr(is_intel ? MSR_FULL_PMC : MSR_AMD_PMC));
	if (!is_intel)
		return;
	expect(read_msr(MSR_FIXED + 1) == read_msr(MSR_FULL_PMC),
	       "the fixed counter shows the same");
	expect(read_msr(MSR_FIXED + 2) == read_msr(MSR_FULL_PMC), "and reference cycles here, too");
	expect(read_msr(MSR_FIXED) == 0, "instructions stand still");
}

/* Counts across halts, each ended by a timer: idle time counts no cycles. */
static void halt(void)
{
	lapic_timer(10000000);
	start_counter(0, 0);
	for (unsigned int i = 0; i < option_number("halts", 20); i++)
		__asm__ volatile("sti\n\thlt\n\tcli" : : : "memory");
	stop_counter();
	lapic_timer(0);
	show("cycles", read_msr(is_intel ? MSR_FULL_PMC : MSR_AMD_PMC));
}

static void ignore(struct frame *frame)
{
	end_of_interrupt();
}

/* The counter continued from 0. */
static void on_pmi(struct frame *frame)
{
	uint64_t over;

	stop_counter();
	over = read_msr(is_intel ? MSR_FULL_PMC : MSR_AMD_PMC);
	pmis++;
	user_pmis++;
	missed += (uint32_t)(over / period);
	over %= period;
	if (is_intel) {
		expect(read_msr(MSR_STATUS) == GENERAL_0, "GLOBAL_STATUS has the overflow");
		write_msr(MSR_OVF_CTRL, GENERAL_0);
		expect(read_msr(MSR_STATUS) == 0, "OVF_CTRL clears it");
	}
	expect(!(read_lvt_pc() & LVT_MASK) == !masks_itself, "LVTPC's mask bit");
	write_lvt_pc(read_lvt_pc() & ~LVT_MASK);
	if (frame->vector == VECTOR_PMI)
		end_of_interrupt();
	if (pmis < user_pmis_target)
		start_counter((over - period) & WIDTH_MASK, SELECT_INTERRUPT);
}

USER_TEXT static void user_waits(void)
{
	while (user_pmis < user_pmis_target)
		;
	user_exit();
}

/*
 * Waits for pmis=N, at CPL 3 or with cpl=0 at CPL 0. They arrive as NMIs with interrupts off, or
 * with by=vector as a vector with interrupts on.
 */
static void overflow(void)
{
	const bool by_vector = option_is("by", "vector");

	period = option_number("period", 2000000);
	user_pmis_target = (uint32_t)option_number("pmis", 50);
	trap_set(VECTOR_NMI, on_pmi);
	trap_set(VECTOR_PMI, on_pmi);
	write_lvt_pc(by_vector ? LVT_FIXED | VECTOR_PMI : LVT_NMI);
	start_counter(-period & WIDTH_MASK, SELECT_INTERRUPT);
	if (!option_is("cpl", "0"))
		user_call(user_waits, by_vector);
	else if (by_vector)
		__asm__ volatile("sti");
	while (pmis < user_pmis_target)
		;
	__asm__ volatile("cli");
	show("pmis", pmis);
	show("missed", missed);
	if (is_intel)
		show("periods", read_msr(MSR_FIXED + 1) / period);
}

static void enter_x2apic(void)
{
	write_msr(MSR_APIC_BASE, read_msr(MSR_APIC_BASE) | APIC_BASE_X2APIC);
}

static volatile bool other_is_done;

/* Runs on CPU 1, which has its own PMU and LAPIC. */
static void overflow_on_other(void)
{
	traps_load();
	lapic_init();
	if (x2apic)
		enter_x2apic();
	overflow();
	other_is_done = true;
}

/* CPU 1's overflows interrupt CPU 1 only, and CPU 0's counter continues meanwhile. */
static void others(void)
{
	uint64_t before;

	user_loops = 10000000;
	start_counter(0, SELECT_INTERRUPT);
	user_call(user_loops_on, false);
	before = read_msr(is_intel ? MSR_FULL_PMC : MSR_AMD_PMC);
	other_cpu_run(1, overflow_on_other);
	if (x2apic)
		enter_x2apic();
	while (!other_is_done)
		__asm__ volatile("pause");
	expect(read_msr(is_intel ? MSR_FULL_PMC : MSR_AMD_PMC) > before, "CPU 0 counts on");
	stop_counter();
	expect(read_lvt_pc() & LVT_MASK, "CPU 0's LVTPC as at reset");
}

/*
 * LVTPC is masked: the overflow is in the status, and no interrupt is delivered, not even after
 * unmasking.
 */
static void masked(void)
{
	trap_set(VECTOR_NMI, on_pmi);
	write_lvt_pc(LVT_NMI | LVT_MASK);
	user_loops = 10000000;
	start_counter(-1ull & WIDTH_MASK, SELECT_INTERRUPT);
	user_call(user_loops_on, false);
	stop_counter();
	if (is_intel)
		expect(read_msr(MSR_STATUS) == GENERAL_0, "GLOBAL_STATUS has the overflow");
	expect(read_msr(is_intel ? MSR_FULL_PMC : MSR_AMD_PMC) < 1ull << 47,
	       "it went from all ones to 0");
	write_lvt_pc(LVT_NMI);
	user_call(user_loops_on, false);
	expect(pmis == 0, "no PMI");
}

static uint64_t frozen_at;

static void on_freezing_pmi(struct frame *frame)
{
	pmis++;
	user_pmis++;
	expect(read_msr(MSR_GLOBAL_CTRL) == 0, "GLOBAL_CTRL is clear");
	frozen_at = read_msr(MSR_FIXED + 1);
	write_msr(MSR_OVF_CTRL, GENERAL_0);
}

/* Freeze_PerfMon_On_PMI: all counters stop at the overflow until GLOBAL_CTRL is written. */
static void freeze(void)
{
	trap_set(VECTOR_NMI, on_freezing_pmi);
	write_lvt_pc(LVT_NMI);
	write_msr(MSR_DEBUGCTL, FREEZE_ON_PMI);
	user_loops = 10000000;
	user_pmis_target = 1;
	start_counter(-1000000ull & WIDTH_MASK, SELECT_INTERRUPT);
	user_call(user_waits, false);
	user_call(user_loops_on, false);
	/* Exact to one nanosecond, which may be several cycles. */
	expect(read_msr(MSR_FULL_PMC) < 10, "the counter stands where it overflowed");
	expect(frozen_at == read_msr(MSR_FULL_PMC) + 1000000, "and so do the others");
	expect(read_msr(MSR_FIXED + 1) == frozen_at, "since the PMI");
	write_msr(MSR_GLOBAL_CTRL, GENERAL_0 | FIXED_CORE);
	user_call(user_loops_on, false);
	stop_counter();
	expect(read_msr(MSR_FULL_PMC) > 0 && read_msr(MSR_FIXED + 1) > frozen_at, "they go on");
	expect(pmis == 1, "one PMI");
}

/*
 * Redirection entry 0 of the I/O APIC (82093AA datasheet, 3.2.4) is unmasked. No interrupt comes:
 * the PIT is off.
 */
static void open_pit_pin(void)
{
	volatile uint32_t *select = (volatile uint32_t *)0xfec00000ull;

	*select = 0x10;
	select[4] = VECTOR_TIMER;
}

/*
 * Runs the part named by pmu=NAME, with apic=x2 in x2APIC mode. Returns the number of failed
 * checks.
 */
uint32_t program_pmu(void)
{
	find_vendor();
	trap_set(VECTOR_GP, skip_fault);
	trap_set(VECTOR_TIMER, ignore);
	lapic_init();
	x2apic = option_is("apic", "x2");
	if (option_is("pit", "open"))
		open_pit_pin();
	/*
	 * Not possible with more CPUs or an interrupt from the PIT in xAPIC mode: vmm/kvm/lapic.h.
	 */
	masks_itself =
		is_intel && (x2apic || !(option_is("pmu", "others") || option_is("pit", "open")));
	if (x2apic && !option_is("pmu", "others"))
		enter_x2apic();
	if (option_is("pmu", "registers"))
		is_intel ? check_intel_registers() : check_amd_registers();
	else if (option_is("pmu", "count"))
		count();
	else if (option_is("pmu", "halt"))
		halt();
	else if (option_is("pmu", "overflow"))
		overflow();
	else if (option_is("pmu", "others"))
		others();
	else if (option_is("pmu", "masked"))
		masked();
	else if (option_is("pmu", "freeze"))
		freeze();
	else
		return 0xff;
	return surprises;
}
