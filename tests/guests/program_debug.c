/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that uses its debug registers in every possible way and prints a line for each case and
 * for each #DB. The output is the same if the host has breakpoints at debug_code and debug_data.
 */
#include "tests/guests/debug.h"
#include "tests/guests/guest.h"

#define LOG_SIZE 16

void debug_code(uint64_t count, const volatile void *read);
extern const uint8_t debug_code_here[], debug_data_written[], debug_stepped[], debug_detected[];
volatile uint64_t debug_data, other_data;

/* shared=1: the guest watches debug_data as well. QEMU reports only one watchpoint per access. */
static volatile uint64_t *watched;

/* Canonical, and not mapped by our page tables. */
#define UNMAPPED ((const void *)0x7e0000000000)

static struct {
	unsigned int count, undefined;
	unsigned int faults, stepped_faults; /* the latter with TF in the flags that the
					      * processor pushed */
	bool skip_fault;
	unsigned int steps; /* number of steps after which TF is cleared */
	bool keep_dr6;
	struct {
		uint64_t rip, dr6, dr7, rflags;
	} log[LOG_SIZE];
} seen;

/* How often a host with breakpoints at debug_code_here and debug_data must be hit by each. */
static uint64_t host_code, host_data;

/* True if a register that DR6 reports has R/W = 0. */
static bool is_fault(uint64_t dr6, uint64_t dr7)
{
	for (unsigned int slot = 0; slot < 4; slot++)
		if (dr6 >> slot & 1 && !(dr7 >> (16 + 4 * slot) & 3))
			return true;
	return false;
}

static void on_debug(struct frame *frame)
{
	uint64_t dr6 = read_dr6(), dr7 = read_dr7();

	if (seen.count < LOG_SIZE) {
		seen.log[seen.count].rip = frame->rip;
		seen.log[seen.count].dr6 = dr6;
		seen.log[seen.count].dr7 = dr7;
		seen.log[seen.count].rflags = frame->rflags & (RFLAGS_TF | RFLAGS_RF);
	}
	seen.count++;
	if (!seen.keep_dr6)
		write_dr6(DR6_NOTHING);
	if (seen.steps && !--seen.steps)
		frame->rflags &= ~RFLAGS_TF;
	if (is_fault(dr6, dr7))
		frame->rflags |= RFLAGS_RF;
}

/* MOV DR4 or DR5 with CR4.DE: 3 bytes. */
static void on_undefined(struct frame *frame)
{
	seen.undefined++;
	frame->rip += 3;
}

#define FAULT_SPINS 10000000

/* The execution time of debug_code_here. It is long, so that the host can intervene in between. */
static void on_page_fault(struct frame *frame)
{
	seen.faults++;
	seen.stepped_faults += (frame->rflags & RFLAGS_TF) != 0;
	for (volatile unsigned int i = 0; i < FAULT_SPINS; i++)
		;
	if (seen.skip_fault)
		frame->rip += 2;
	else
		frame->rsi = (uint64_t)&other_data;
}

static void print_place(uint64_t rip)
{
	static const struct {
		const char *name;
		const uint8_t *place;
	} places[] = { { "code", debug_code_here },
		       { "written", debug_data_written },
		       { "stepped", debug_stepped },
		       { "detected", debug_detected } };

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		uint64_t offset = rip - (uint64_t)places[i].place;

		if (offset >= 32)
			continue;
		print(places[i].name);
		print("+");
		print_number(offset);
		return;
	}
	print("elsewhere");
}

static void print_bits(const char *name, uint64_t value)
{
	print(name);
	print_hex(value);
}

static void end_case(const char *name)
{
	write_dr7(DR7_FIXED);
	/* DR6 must not report disabled registers either (SDM vol. 3B 18.2.3). */
	write_dr0(0);
	write_dr1(0);
	write_dr2(0);
	write_dr3(0);
	print("case ");
	print(name);
	print(": ");
	print_number(seen.count);
	print("\n");
	for (unsigned int i = 0; i < seen.count && i < LOG_SIZE; i++) {
		print("  ");
		print_place(seen.log[i].rip);
		print_bits(" dr6=", seen.log[i].dr6);
		print_bits(" dr7=", seen.log[i].dr7);
		print_bits(" rflags=", seen.log[i].rflags);
		print("\n");
	}
	seen.count = 0;
	seen.keep_dr6 = false;
	write_dr6(DR6_NOTHING);
}

/* A loop around an instruction at which both sides may have a breakpoint. */
__asm__(".globl debug_code\n"
	"debug_code:\n"
	".globl debug_code_here\n"
	"debug_code_here: movb (%rsi), %al\n"
	"	decq %rdi\n"
	"	jnz debug_code\n"
	"	ret\n");

static void run_code(uint64_t count)
{
	host_code += count;
	debug_code(count, (const void *)&other_data);
}

__attribute__((noinline)) static void write_data(void)
{
	host_data++;
	__asm__ volatile("movq $1, debug_data\n"
			 ".globl debug_data_written\n"
			 "debug_data_written: nop"
			 :
			 :
			 : "memory");
}

static void executes(void)
{
	write_dr0((uint64_t)debug_code_here);
	write_dr7(DR7_FIXED | DR7_LOCAL(0));
	run_code(3);
	end_case("breakpoint at the same instruction");
}

static void writes(void)
{
	write_dr1((uint64_t)watched);
	write_dr7(DR7_FIXED | DR7_LOCAL(1) | DR7_WRITE_8(1));
	write_data();
	end_case("watchpoint");
}

/*
 * The guest's two breakpoints beside the host's two, in the registers that the host would use
 * first.
 */
static void uses_two(void)
{
	write_dr0((uint64_t)&other_data);
	write_dr1((uint64_t)debug_code_here);
	write_dr7(DR7_FIXED | DR7_LOCAL(0) | DR7_WRITE_8(0) | DR7_LOCAL(1));
	run_code(2);
	write_data();
	__asm__ volatile("movq $2, other_data\n\tnop" : : : "memory");
	end_case("two registers");
}

/*
 * Single-steps the instructions in between. One of the host's breakpoints is on one of them, and
 * another one writes its data.
 */
__asm__(".globl debug_step\n"
	"debug_step:\n"
	"	pushfq\n"
	"	orq $0x100, (%rsp)\n"
	"	movl $1, %edi\n"
	"	movl $other_data, %esi\n"
	"	popfq\n"
	".globl debug_stepped\n"
	"debug_stepped:\n"
	"	call debug_code\n"
	"	movq $3, debug_data\n"
	"	movq %dr6, %rax\n"
	"	nop\n"
	"	ret\n");
void debug_step(void);

static void steps(void)
{
	host_code++;
	host_data++;
	seen.steps = 8;
	debug_step();
	end_case("single steps over the host's");
}

static void steps_over_own(void)
{
	write_dr2((uint64_t)watched);
	write_dr3((uint64_t)debug_code_here);
	write_dr7(DR7_FIXED | DR7_LOCAL(2) | DR7_WRITE_8(2) | DR7_LOCAL(3));
	host_code++;
	host_data++;
	seen.steps = 9;
	debug_step();
	end_case("single steps over both sides'");
}

__attribute__((noinline)) static void detects(void)
{
	uint64_t value;

	write_dr0(0x123456789a);
	write_dr7(DR7_FIXED | DR7_GD);
	__asm__ volatile(".globl debug_detected\n"
			 "debug_detected: movq %%dr0, %0"
			 : "=r"(value));
	end_case("general detect");
	print_bits("  dr0=", value);
	print("\n");
}

/* Only the guest clears the other bits of DR6. */
static void keeps_dr6(void)
{
	seen.keep_dr6 = true;
	write_dr6(DR6_NOTHING | DR6_BS | 4);
	write_dr0((uint64_t)debug_code_here);
	write_dr7(DR7_FIXED | DR7_LOCAL(0));
	run_code(1);
	end_case("DR6 is not cleared");
}

/* The guest sets RF without a preceding #DB: neither side gets an event (SDM vol. 3B 18.3.1.1). */
static void resumes(void)
{
	write_dr0((uint64_t)debug_code_here);
	write_dr7(DR7_FIXED | DR7_LOCAL(0));
	__asm__ volatile("movq %%ss, %%rax\n\t"
			 "pushq $1f\n\t" /* the return address of debug_code */
			 "movq %%rsp, %%rdx\n\t"
			 "pushq %%rax\n\t"
			 "pushq %%rdx\n\t"
			 "pushfq\n\t"
			 "orq $0x10000, (%%rsp)\n\t"
			 "movq %%cs, %%rax\n\t"
			 "pushq %%rax\n\t"
			 "pushq $debug_code\n\t"
			 "movl $1, %%edi\n\t"
			 "movl $other_data, %%esi\n\t"
			 "iretq\n"
			 "1:"
			 :
			 :
			 : "rax", "rdx", "rdi", "rsi", "memory", "cc");
	end_case("RF of the guest's own");
}

/* The instruction faults. It is first retried, then skipped. The guest never set TF. */
static void faults(void)
{
	for (unsigned int i = 0; i < 2; i++) {
		host_code++;
		seen.skip_fault = i;
		debug_code(1, UNMAPPED);
	}
	print("faults: ");
	print_number(seen.faults);
	print(", single-stepped ");
	print_number(seen.stepped_faults);
	print("\n");
	end_case("faults");
}

static void reads_back(void)
{
	write_dr0(0x1000);
	write_dr1(0x2000);
	write_dr2(0x3000);
	write_dr3(0x4000);
	write_dr7(DR7_FIXED | 0x300);
	print_bits("own: ", read_dr0());
	print_bits(" ", read_dr1());
	print_bits(" ", read_dr2());
	print_bits(" ", read_dr3());
	print_bits(" ", read_dr6());
	print_bits(" ", read_dr7());
	print("\n");
	end_case("registers are its own");
}

#define CR4_DE 8ull

static uint64_t read_cr4(void)
{
	uint64_t value;

	__asm__ volatile("movq %%cr4, %0" : "=r"(value));
	return value;
}

static void write_cr4(uint64_t value)
{
	__asm__ volatile("movq %0, %%cr4" : : "r"(value));
}

/*
 * DR4 and DR5 are aliases of DR6 and DR7 without CR4.DE, and raise #UD with it (SDM vol. 3B
 * 18.2.2).
 */
static void uses_aliases(void)
{
	uint64_t dr4, dr5;

	__asm__ volatile(".byte 0x0f, 0x21, 0xe0" : "=a"(dr4));
	__asm__ volatile(".byte 0x0f, 0x21, 0xe8" : "=a"(dr5));
	print_bits("aliases: ", dr4);
	print_bits(" ", dr5);
	write_cr4(read_cr4() | CR4_DE);
	__asm__ volatile(".byte 0x0f, 0x21, 0xe0" : "+a"(dr4));
	write_cr4(read_cr4() & ~CR4_DE);
	print(", undefined with DE: ");
	print_number(seen.undefined);
	print("\n");
}

/* All four registers: the host's breakpoints must make room. */
static void uses_four(void)
{
	write_dr0((uint64_t)&other_data);
	write_dr1((uint64_t)&other_data);
	write_dr2((uint64_t)debug_code_here);
	write_dr3((uint64_t)&debug_data);
	write_dr7(DR7_FIXED | 0x55 | DR7_WRITE_8(0) | DR7_WRITE_8(1) | DR7_WRITE_8(3));
	debug_code(1, (const void *)&other_data);
	write_data();
	host_data--;
	end_case("four registers");
	run_code(1);
	write_data();
}

uint32_t program_debug(void)
{
	watched = option_number("shared", 0) ? &debug_data : &other_data;
	trap_set(VECTOR_DB, on_debug);
	trap_set(VECTOR_UD, on_undefined);
	trap_set(VECTOR_PF, on_page_fault);
	write_dr6(DR6_NOTHING);
	executes();
	writes();
	uses_two();
	steps();
	steps_over_own();
	detects();
	keeps_dr6();
	resumes();
	faults();
	reads_back();
	uses_aliases();
	uses_four();
	print("host: code ");
	print_number(host_code);
	print(", data ");
	print_number(host_data);
	print("\n");
	return 0;
}
