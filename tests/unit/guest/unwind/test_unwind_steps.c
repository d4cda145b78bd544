/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callchains at each instruction of a program without frame pointers. A child
 * of this process is stepped through recursion, frames of all kinds, the C
 * library, PLTs that are bound as they are used, and signal handlers. Truth is
 * the list of its calls and returns, as seen from outside. At each step its
 * registers and its stack are those of a guest, which is unwound.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "tests/unit/flat_guest.h"
#include "tests/unit/shim/test.h"
#include "vmm/guest/unwind/cfi_image.h"
#include "vmm/guest/unwind/unwind.h"

#define GUEST_SIZE  (2u << 20)
#define STACK_SIZE  (256u << 10) /* of each of two that are the guest's memory */
#define DEPTH_MAX   100
#define STEPS_MAX   400000
#define PAGE        4096ull
#define OWN_SLOT    0
#define SIGNAL_SLOT 1

/* --- code of the child -------------------------------------------------------- */

/*
 * Both compilers omit it when they optimize; sanitized builds request it, and gcc has an option
 * for it.
 */
#ifdef __clang__
#define FRAMELESS __attribute__((noinline))
#else
#define FRAMELESS __attribute__((noinline, optimize("omit-frame-pointer")))
#endif

static volatile int sink;
static _Alignas(4096) char signal_stack[64 << 10];

static FRAMELESS int compare(const void *left, const void *right)
{
	return *(const int *)left - *(const int *)right;
}

static FRAMELESS int sort(int n)
{
	int numbers[40];

	for (int i = 0; i < 40; i++)
		numbers[i] = i * 7 % n;
	qsort(numbers, 40, sizeof(int), compare);
	return numbers[n % 40];
}

static FRAMELESS int variable_frame(int n)
{
	char *bytes = __builtin_alloca((size_t)n + 1);

	snprintf(bytes, (size_t)n + 1, "%d %.3f", n, n / 3.0);
	return bytes[0] + sort(n);
}

static FRAMELESS int aligned_frame(int n)
{
	_Alignas(128) volatile char bytes[256];

	bytes[n] = (char)n;
	return bytes[n] + variable_frame(n);
}

static FRAMELESS int recursive(int n)
{
	return n ? recursive(n - 1) + n : aligned_frame(21);
}

static FRAMELESS void handler(int number)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	sink += number + recursive(3) + (int)time.tv_sec;
}

FRAMELESS __attribute__((used)) static int workload(int n)
{
	char *end;

	sink = recursive(n);
	sink += (int)strtod("12.5e3", &end);
	raise(SIGUSR1); /* on this stack */
	raise(SIGUSR2); /* on one of its own */
	return sink;
}

static _Noreturn void run_child(void)
{
	stack_t stack = { .ss_sp = signal_stack, .ss_size = sizeof(signal_stack) };
	struct sigaction here = { .sa_handler = handler },
			 there = { .sa_handler = handler, .sa_flags = SA_ONSTACK };

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &here, NULL);
	sigaction(SIGUSR2, &there, NULL);
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	_exit(workload(8) == 0x12345678);
}

/* --- mappings of the child ---------------------------------------------------- */

struct images {
	struct user_images *images;
	struct cfi_table *tables[USER_MAP_MAX];
	struct user_map map;
};

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	return pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size ? 0 : -EFAULT;
}

/* The child has it at the same address. */
static int read_vdso(void *context, uint64_t offset, void *to, size_t size)
{
	if (offset > 2 * PAGE || size > 2 * PAGE - offset)
		return -EFAULT;
	memcpy(to, (const char *)context + offset, size);
	return 0;
}

static int compile_image(const char *path, uint64_t start, struct cfi_table **table)
{
	struct elf_source memory = { .read = read_vdso, .context = (void *)(uintptr_t)start };
	struct elf_source file = { .read = read_file };
	int descriptor, error;

	if (!strcmp(path, "[vdso]"))
		return cfi_image_compile(table, &memory);
	descriptor = open(path, O_RDONLY | O_CLOEXEC);
	if (descriptor < 0)
		return -errno;
	file.context = &descriptor;
	error = cfi_image_compile(table, &file);
	close(descriptor);
	return error;
}

static bool is_wanted(const char *path)
{
	return strstr(path, "kvmscope-tests") || strstr(path, "/libc.so") ||
	       strstr(path, "/ld-linux") || strstr(path, "/libm.so") || strstr(path, "san.so") ||
	       !strcmp(path, "[vdso]");
}

static void add_mapping(struct images *images, uint64_t start, uint64_t end, uint64_t offset,
			const char *path)
{
	struct user_image_key key = { .kind = USER_IMAGE_FILE, .inode = start };
	struct cfi_table **table = &images->tables[images->map.count];
	struct user_mapping *mapping = &images->map.mappings[images->map.count];

	REQUIRE(images->map.count < USER_MAP_MAX);
	REQUIRE_EQUAL(compile_image(path, start, table), 0);
	*mapping = (struct user_mapping){ .start = start,
					  .end = end,
					  .offset = strcmp(path, "[vdso]") ? offset : 0,
					  .flags = USER_MAPPING_READ | USER_MAPPING_EXEC,
					  .image = user_images_find(images->images, &key) };
	REQUIRE(mapping->image);
	user_image_set_cfi(mapping->image, *table);
	images->map.count++;
}

static void read_mappings(struct images *images, pid_t child)
{
	unsigned long long start, end, offset;
	char path[300], line[600], kind[5];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)child);
	maps = fopen(path, "r");
	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%llx-%llx %4s %llx %*s %*s %299s", &start, &end, kind, &offset,
			   path) == 5 &&
		    kind[2] == 'x' && is_wanted(path))
			add_mapping(images, start, end, offset, path);
	fclose(maps);
}

static void free_images(struct images *images)
{
	for (unsigned int i = 0; i < images->map.count; i++)
		cfi_table_free(images->tables[i]);
	user_images_free(images->images);
}

/* --- truth -------------------------------------------------------------------- */

struct caller {
	uint64_t ip;
	uint64_t sp; /* where it was before the call */
};

struct truth {
	struct caller callers[DEPTH_MAX]; /* outermost first */
	unsigned int depth;
	bool started, ended;
	unsigned int signals; /* handlers that were entered */
};

struct child {
	pid_t pid;
	struct user_regs_struct before, now;
	uint64_t top; /* 8 bytes at RSP, now */
	struct truth truth;
};

static void push(struct truth *truth, uint64_t ip, uint64_t sp)
{
	REQUIRE(truth->depth < DEPTH_MAX);
	truth->callers[truth->depth++] = (struct caller){ .ip = ip, .sp = sp };
}

/* A handler was entered: it returns to the C library's trampoline, which returns to where the child
 * was. */
static void enter_handler(struct child *child)
{
	push(&child->truth, child->before.rip, child->before.rsp);
	push(&child->truth, child->top, child->now.rsp + 8);
	child->truth.signals++;
}

/* Records one instruction. A return is to the innermost caller, with its stack as it was. */
static void follow(struct child *child)
{
	struct truth *truth = &child->truth;
	const struct user_regs_struct *before = &child->before, *now = &child->now;
	const struct caller *last = truth->depth ? &truth->callers[truth->depth - 1] : NULL;

	if (!truth->started) {
		if (now->rip != (uint64_t)(uintptr_t)workload)
			return;
		truth->started = true;
		push(truth, child->top, now->rsp + 8);
	} else if (now->rsp == before->rsp - 8 && child->top - before->rip - 2 <= 5 &&
		   now->rip != child->top) {
		push(truth, child->top, before->rsp);
	} else if (last && now->rip == last->ip && now->rsp == last->sp) {
		truth->depth--;
		truth->ended = !truth->depth;
	} else if (now->rip == (uint64_t)(uintptr_t)handler) {
		enter_handler(child);
	}
}

/* --- the child as a guest ----------------------------------------------------- */

struct stepping {
	struct child child;
	struct images images;
	struct flat_guest guest;
	uint64_t addresses[SAMPLE_CALLCHAIN_MAX];
	uint64_t steps, wrong, bases[2];
	unsigned int deepest;
};

static void take_registers(struct stepping *stepping)
{
	const struct user_regs_struct *from = &stepping->child.now;
	struct guest_paging paging = stepping->guest.registers.paging;

	stepping->guest.registers = (struct guest_registers){
		.rip = from->rip,
		.rsp = from->rsp,
		.rbp = from->rbp,
		.rax = from->rax,
		.rbx = from->rbx,
		.rcx = from->rcx,
		.rdx = from->rdx,
		.rsi = from->rsi,
		.rdi = from->rdi,
		.r8 = from->r8,
		.r9 = from->r9,
		.r10 = from->r10,
		.r11 = from->r11,
		.r12 = from->r12,
		.r13 = from->r13,
		.r14 = from->r14,
		.r15 = from->r15,
		.paging = paging,
		.cpl = 3,
		.long_mode = true,
	};
}

/* [base, base + STACK_SIZE) of the child is the guest's memory at SLOT, and is mapped as it is
 * there. */
static void map_stack(struct stepping *stepping, unsigned int slot, uint64_t base)
{
	for (uint64_t at = 0; at < STACK_SIZE; at += PAGE)
		flat_guest_map(&stepping->guest, stepping->guest.registers.paging.cr3, base + at,
			       (uint64_t)slot * STACK_SIZE + at, PAGE, 4);
	stepping->bases[slot] = base;
}

static unsigned int slot_of(uint64_t sp)
{
	return sp - (uint64_t)(uintptr_t)signal_stack <= sizeof(signal_stack) ? SIGNAL_SLOT
									      : OWN_SLOT;
}

/* The used part of its stack; the other stack is unchanged. */
static void copy_stack(struct stepping *stepping)
{
	unsigned int slot = slot_of(stepping->child.now.rsp);
	uint64_t from = stepping->child.now.rsp & ~(PAGE - 1), base = stepping->bases[slot];
	struct iovec remote = { .iov_base = (void *)(uintptr_t)from,
				.iov_len = base + STACK_SIZE - from };
	struct iovec local = { .iov_base = stepping->guest.memory + (size_t)slot * STACK_SIZE +
					   (from - base),
			       .iov_len = remote.iov_len };

	process_vm_readv(stepping->child.pid, &local, 1, &remote, 1, 0);
}

static void print_chain(const struct stepping *stepping, const struct guest_callchain *chain)
{
	const struct truth *truth = &stepping->child.truth;

	printf("step %llu:\n", (unsigned long long)stepping->steps);
	for (unsigned int i = 0; i <= truth->depth || i < chain->user_depth; i++)
		printf("  %#14llx %#14llx\n",
		       (unsigned long long)(!i ? stepping->child.now.rip
					    : i <= truth->depth
						    ? truth->callers[truth->depth - i].ip
						    : 0),
		       (unsigned long long)(i < chain->user_depth ? chain->addresses[i] : 0));
}

/* The chain continues after the expected part, through main() to the end. */
static bool is_true(const struct stepping *stepping, const struct guest_callchain *chain)
{
	const struct truth *truth = &stepping->child.truth;

	if (chain->flags || chain->kernel_depth || chain->user_depth <= truth->depth + 1 ||
	    chain->addresses[0] != stepping->child.now.rip)
		return false;
	for (unsigned int i = 1; i <= truth->depth; i++)
		if (chain->addresses[i] != truth->callers[truth->depth - i].ip)
			return false;
	return true;
}

static void check_step(struct stepping *stepping)
{
	struct guest_callchain chain = { .addresses = stepping->addresses,
					 .capacity = SAMPLE_CALLCHAIN_MAX };

	take_registers(stepping);
	copy_stack(stepping);
	guest_unwind(NULL, &stepping->guest.view, &stepping->guest.registers, &stepping->images.map,
		     &chain);
	stepping->steps++;
	if (stepping->deepest < stepping->child.truth.depth)
		stepping->deepest = stepping->child.truth.depth;
	if (!is_true(stepping, &chain) && stepping->wrong++ < 5)
		print_chain(stepping, &chain);
}

/* Steps one instruction; the child gets all signals except those of stepping. False: it has ended.
 */
static bool step(struct child *child, int *signal)
{
	int status;

	child->before = child->now;
	if (ptrace(PTRACE_SINGLESTEP, child->pid, NULL, (void *)(uintptr_t)*signal) ||
	    waitpid(child->pid, &status, 0) != child->pid || !WIFSTOPPED(status))
		return false;
	*signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
	if (ptrace(PTRACE_GETREGS, child->pid, NULL, &child->now))
		return false;
	errno = 0;
	child->top = (uint64_t)ptrace(PTRACE_PEEKDATA, child->pid,
				      (void *)(uintptr_t)child->now.rsp, NULL);
	return !errno;
}

static void step_through(struct stepping *stepping)
{
	struct child *child = &stepping->child;
	int signal = 0;

	map_stack(stepping, OWN_SLOT, (child->now.rsp & ~(PAGE - 1)) - STACK_SIZE / 2);
	map_stack(stepping, SIGNAL_SLOT, (uint64_t)(uintptr_t)signal_stack);
	for (uint64_t i = 0; i < STEPS_MAX && !child->truth.ended; i++) {
		if (!step(child, &signal))
			break;
		follow(child);
		if (child->truth.started && !child->truth.ended)
			check_step(stepping);
	}
}

TEST(unwind_steps, chains_at_each_instruction_are_the_calls_that_were_made)
{
	struct stepping *stepping = calloc(1, sizeof(*stepping));
	int status;

	REQUIRE(stepping);
	flat_guest_create(&stepping->guest, GUEST_SIZE);
	REQUIRE_EQUAL(user_images_create(&stepping->images.images), 0);
	fflush(stdout);
	stepping->child.pid = fork();
	if (!stepping->child.pid)
		run_child();
	REQUIRE(stepping->child.pid > 0);
	REQUIRE_EQUAL(waitpid(stepping->child.pid, &status, 0), stepping->child.pid);
	if (WIFSTOPPED(status)) {
		read_mappings(&stepping->images, stepping->child.pid);
		ptrace(PTRACE_GETREGS, stepping->child.pid, NULL, &stepping->child.now);
		step_through(stepping);
		kill(stepping->child.pid, SIGKILL);
		waitpid(stepping->child.pid, &status, 0);
	}
	printf("%llu instructions, %u calls deep, %u handlers, %llu chains that are not the calls\n",
	       (unsigned long long)stepping->steps, stepping->deepest,
	       stepping->child.truth.signals, (unsigned long long)stepping->wrong);
	CHECK(stepping->child.truth.ended);
	CHECK_EQUAL(stepping->child.truth.signals, 2);
	CHECK(stepping->deepest > 15);
	CHECK_EQUAL(stepping->wrong, 0);
	free_images(&stepping->images);
	flat_guest_destroy(&stepping->guest);
	free(stepping);
}
