/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that run at CPL 3: faults and interrupts, address spaces, and known shares of CPU time.
 */
#include "tests/guests/guest.h"
#include "tests/guests/spin_loop.h"

/* Nothing is mapped here until a fault requests it. Each address space has its own page here. */
#define WINDOW       0x8000000000ull
#define WINDOW_PAGES 8

#define FAULT_USER 4ull

static volatile uint32_t kernel_faults, user_faults, ticks;
USER_DATA static volatile uint32_t user_ticks_target;
USER_DATA static volatile uint32_t user_ticks;
USER_DATA static volatile uint64_t user_rounds;
USER_DATA static volatile uint64_t user_chunk;

static void map_on_fault(struct frame *frame)
{
	uint64_t address = read_cr2();

	if (address < WINDOW || address >= WINDOW + 2 * WINDOW_PAGES * 4096)
		debug_exit(0xfb);
	if (frame->error & FAULT_USER)
		user_faults++;
	else
		kernel_faults++;
	page_map(page_root, address & ~0xfffull, (uint64_t)page_new(), PAGE_WRITABLE | PAGE_USER);
}

USER_TEXT static void user_touches_pages(void)
{
	for (uint64_t i = 0; i < WINDOW_PAGES; i++)
		*(volatile uint64_t *)(WINDOW + i * 4096) = i;
	user_exit();
}

/*
 * Page faults at CPL 3 and CPL 0: each handler maps the page, and the access is retried. Returns 0.
 */
uint32_t program_faults(void)
{
	trap_set(VECTOR_PF, map_on_fault);
	user_call(user_touches_pages, false);
	for (uint64_t i = 0; i < WINDOW_PAGES; i++)
		if (*(volatile uint64_t *)(WINDOW + i * 4096) != i)
			return 1;
	if (user_faults != WINDOW_PAGES || kernel_faults)
		return 2;
	*(volatile uint64_t *)(WINDOW + WINDOW_PAGES * 4096) = 1;
	return kernel_faults == 1 ? 0 : 3;
}

static void on_tick(struct frame *frame)
{
	ticks++;
	if ((frame->cs & 3) == 3)
		user_ticks++;
	lapic_end_of_interrupt();
}

USER_TEXT static void user_waits_for_ticks(void)
{
	while (user_ticks < user_ticks_target)
		;
	user_exit();
}

static void start_timer(uint32_t hz)
{
	trap_set(VECTOR_TIMER, on_tick);
	lapic_init();
	lapic_timer(1000000000 / hz);
}

/* Timer interrupts at CPL 3, then at CPL 0 in HLT: ticks=N of each. Returns 0. */
uint32_t program_timer(void)
{
	uint32_t target = (uint32_t)option_number("ticks", 20);

	user_ticks_target = target;
	start_timer(100);
	user_call(user_waits_for_ticks, true);
	if (user_ticks < target)
		return 1;
	for (ticks = 0; ticks < target;)
		__asm__ volatile("sti\n\thlt\n\tcli" : : : "memory");
	lapic_timer(0);
	return 0;
}

USER_TEXT static void user_spins(void)
{
	for (;;)
		__asm__ volatile("");
}

/* Spins forever at CPL 3, or with cpl=0 at CPL 0, with timer=HZ interrupts a second. */
uint32_t program_spin(void)
{
	uint32_t hz = (uint32_t)option_number("timer", 0);

	print("spinning\n");
	if (hz)
		start_timer(hz);
	if (!option_is("cpl", "0"))
		user_call(user_spins, hz != 0);
	for (;;)
		__asm__ volatile("");
}

SPIN_LOOP(share_sixty, section(".user.text"))
SPIN_LOOP(share_thirty, section(".user.text"))
SPIN_LOOP(share_ten, section(".user.text"))

USER_TEXT static void user_works(void)
{
	for (uint64_t round = 0; round < user_rounds; round++) {
		share_sixty(6 * user_chunk);
		share_thirty(3 * user_chunk);
		share_ten(user_chunk);
	}
	user_exit();
}

SPIN_LOOP(share_kernel, section(".text"))

/* Alternates between a round at CPL 3 and KERNEL chunks at CPL 0. */
static void work_at_both_levels(uint64_t rounds, uint64_t kernel, bool interrupts)
{
	user_rounds = 1;
	for (uint64_t round = 0; round < rounds; round++) {
		user_call(user_works, interrupts);
		share_kernel(kernel * user_chunk);
	}
}

/*
 * Spends 60, 30 and 10 % of CPL 3's time in three functions: rounds=N of 10 chunk=N loops;
 * timer=HZ. With kernel=N, each 10 chunks are followed by N at CPL 0, in share_kernel(). Returns 0.
 */
uint32_t program_shares(void)
{
	uint32_t hz = (uint32_t)option_number("timer", 0);
	uint64_t kernel = option_number("kernel", 0);

	user_rounds = option_number("rounds", 100);
	user_chunk = option_number("chunk", 1000000);
	if (hz)
		start_timer(hz);
	print("working\n");
	if (kernel)
		work_at_both_levels(user_rounds, kernel, hz != 0);
	else
		user_call(user_works, hz != 0);
	return 0;
}

/* In TSC ticks: the length of the gap in which it did not run, and the present time. */
USER_DATA static volatile struct {
	uint64_t lost, now;
} gap_record;
USER_DATA static volatile uint64_t gap_longest;

#define GAP_LEAST 2048 /* the loop takes about ten */

static inline uint64_t read_tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

USER_TEXT static void user_adds_up_gaps(void)
{
	for (uint64_t before = read_tsc(), now;; before = now) {
		now = read_tsc();
		if (now - before >= GAP_LEAST && now - before < gap_longest)
			gap_record.lost += now - before;
		gap_record.now = now;
	}
}

/*
 * Adds up the gaps of less than longest=TICKS in which CPL 3 did not run and prints where the sum
 * is. Never ends.
 */
uint32_t program_gaps(void)
{
	gap_longest = option_number("longest", 1000000);
	print("gaps at ");
	print_hex((uint64_t)&gap_record);
	print("\n");
	user_call(user_adds_up_gaps, false);
	return 0;
}

USER_TEXT static void user_works_in_space(void)
{
	share_ten(*(volatile uint64_t *)WINDOW);
	*(volatile uint64_t *)WINDOW = 0;
	user_exit();
}

/* An address space that shares everything but the window with the boot tables. */
static uint64_t *new_space(volatile uint64_t **page)
{
	uint64_t *root = page_new(), *own = page_new();

	root[0] = page_root[0];
	page_map(root, WINDOW, (uint64_t)own, PAGE_WRITABLE | PAGE_USER);
	*page = own;
	return root;
}

/* Two address spaces with the same code alternate, with 70 and 30 % of the time. Returns 0. */
uint32_t program_spaces(void)
{
	uint64_t rounds = option_number("rounds", 100), chunk = option_number("chunk", 1000000);
	volatile uint64_t *first, *second;
	uint64_t *first_root = new_space(&first), *second_root = new_space(&second);

	for (uint64_t round = 0; round < rounds; round++) {
		*first = 7 * chunk;
		*second = 3 * chunk;
		write_cr3((uint64_t)first_root);
		user_call(user_works_in_space, false);
		if (*first || *second != 3 * chunk)
			return 1;
		write_cr3((uint64_t)second_root);
		user_call(user_works_in_space, false);
		if (*second)
			return 2;
	}
	return 0;
}

USER_DATA static volatile uint64_t user_sum;

/* The result depends on every step: a corrupted register or a skipped step changes it. */
USER_TEXT static void user_sums(void)
{
	uint64_t sum = 1, other = 2, third = 3;

	for (uint64_t i = 0; i < user_chunk; i++) {
		sum = sum * 6364136223846793005ull + other;
		other ^= sum >> 29;
		third += other ^ i;
	}
	user_sum = sum ^ third;
	user_exit();
}

/* Halts until the next interrupt. A halted vCPU has its RIP at sums_halted. */
static void sums_rest(void)
{
	__asm__ volatile("sti\n\t"
			 "hlt\n"
			 ".globl sums_halted\n"
			 "sums_halted:\n\t"
			 "cli"
			 :
			 :
			 : "memory");
}

/*
 * Computes the same sum forever and reports each correct result. chunk=N steps, timer=HZ; with
 * rest=1 it halts in between.
 */
uint32_t program_sums(void)
{
	uint32_t hz = (uint32_t)option_number("timer", 0);
	uint64_t first = 0;

	user_chunk = option_number("chunk", 1000000);
	if (hz)
		start_timer(hz);
	for (;;) {
		user_call(user_sums, hz != 0);
		if (!first)
			first = user_sum;
		if (user_sum != first)
			return 1;
		print("right\n");
		if (option_is("rest", "1"))
			sums_rest();
	}
}
