// SPDX-License-Identifier: Apache-2.0
/*
 * kvmscope attach on a standard KVM (kvm_amd), by each of its ways: the shares of our own VMM's guest and of
 * Debian's kernel in QEMU against the truth, and their callers. One start of the rig for all of it.
 */
#include <math.h>
#include <stdio.h>

#include "shared/sample.h"
#include "tests/rig/rig.h"
#include "vmm/profile/elf_symbols.h"
#include "vmm/profile/profile.h"

#define DIRECTORY "build/rig/attach"

enum way { PERF, BPF, PTRACE, WAYS };
static const char *const ways[] = { "perf", "bpf", "ptrace" };

#define PARTS 3

/* Samples that are of one of the parts that are known. */
struct shares {
	double of[PARTS], all;         /* ns */
	double squares;                /* sum of the squares of the samples' ns */
	uint64_t samples, with_caller; /* of those parts; of those, with the caller that they have */
	uint64_t host;                 /* outside of the guest */
};

/* Which part a stack is of, or -1; *CALLER: its caller is there. */
typedef int part_of(const struct profile_stack *stack, bool *caller);

static bool is_host(const struct profile_stack *stack)
{
	return stack->frames[0]->symbol && !strcmp(stack->frames[0]->symbol, "[host]");
}

static void add_stack(struct shares *shares, const struct profile_stack *stack, part_of *which)
{
	bool caller = false;
	int part = which(stack, &caller);
	double weight = (double)stack->weight;

	shares->host += is_host(stack) ? stack->samples : 0;
	if (part < 0)
		return;
	shares->of[part] += weight;
	shares->all += weight;
	shares->squares += weight * weight / (double)stack->samples;
	shares->samples += stack->samples;
	shares->with_caller += caller ? stack->samples : 0;
}

static bool read_shares(struct shares *shares, const char *vm, enum way way, part_of *which)
{
	char input[64];
	const struct profile_options options = { .input = input,
						 .buildid_dir = DIRECTORY "/.debug",
						 .vcpu = -1 };
	struct profile *profile;

	*shares = (struct shares){ 0 };
	snprintf(input, sizeof(input), DIRECTORY "/%s-%s.data", vm, ways[way]);
	if (profile_load(&profile, &options))
		return false;
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		add_stack(shares, profile_stack(profile, i), which);
	profile_free(profile);
	return true;
}

/* So few that nothing can be said of what they have: a machine that has much other work. */
#define FEW  100
#define MANY 4000

static double effective(const struct shares *shares)
{
	return shares->squares > 0 ? shares->all * shares->all / shares->squares : 0;
}

static double share_of(const struct shares *shares, int part)
{
	return shares->all > 0 ? 100 * shares->of[part] / shares->all : 0;
}

static void show_shares(const char *vm, enum way way, const struct shares *shares)
{
	printf("%-5s %-6s %6.1f %6.1f %6.1f %%  %6.0f effective samples, %llu of %llu with their caller, %llu of "
	       "the host\n",
	       vm, ways[way], share_of(shares, 0), share_of(shares, 1), share_of(shares, 2),
	       effective(shares), (unsigned long long)shares->with_caller,
	       (unsigned long long)shares->samples, (unsigned long long)shares->host);
}

/*
 * Points that a share may be off, by as many samples of equal weight as would tell as much (Kish's effective
 * sample size). Where the machine has other work they are fewer, and not of whole rounds of the guest's.
 */
static double bound_for(const struct shares *shares)
{
	return effective(shares) >= MANY ? 3 : 12;
}

static void check_shares(const char *vm, enum way way, const struct shares *shares, const double *truth)
{
	show_shares(vm, way, shares);
	for (int i = 0; i < PARTS && effective(shares) >= FEW; i++)
		if (fabs(share_of(shares, i) - truth[i]) > bound_for(shares))
			FAIL_TEST("%s by %s: part %d has %.1f %% of the samples, %.1f %% is true", vm,
				  ways[way], i, share_of(shares, i), truth[i]);
}

/* Once, for both tests; false: it failed, which is theirs. */
static bool run_in_rig(void)
{
	static struct rig_result result;
	const char *kernel, *initrd;

	if (!result.output) {
		kernel = rig_kernel("6.1");
		initrd = rig_initrd("6.1");
		if (!kernel || !initrd)
			return false;
		rig_run(&result, 280, "tests/rig/attach-host " DIRECTORY " %s %s", kernel, initrd);
	}
	if (result.status)
		FAIL_TEST("attaching in the rig failed: %.2000s%.2000s", result.output, result.errors);
	return !result.status;
}

/* Of the test guest's loops, and of the time slices of Debian's workload. */
static const double truth[] = { 60, 30, 10 };

static struct symbols *guest_symbols; /* of the test guest's image */

static bool is_in(uint64_t address, const char *name)
{
	struct symbol symbol;

	return symbols_find(guest_symbols, address, &symbol) && !strcmp(symbol.name, name);
}

/* The test guest's loops, which user_works() calls. */
static int loop_of(const struct profile_stack *stack, bool *caller)
{
	static const char *const loops[] = { "share_sixty", "share_thirty", "share_ten" };

	*caller = stack->depth > 1 && is_in(stack->frames[1]->address - 1, "user_works");
	for (int i = 0; i < PARTS; i++)
		if (is_in(stack->frames[0]->address, loops[i]))
			return i;
	return -1;
}

TEST(attach_rig, our_own_vmm_s_guest_by_each_way)
{
	bool told = true;

	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	REQUIRE_EQUAL(
		elf_symbols_load(&guest_symbols, "build/guests/guest.elf", ELF_VIRTUAL_ADDRESSES, NULL, 0),
		0);
	for (enum way way = PERF; way < WAYS; way++) {
		struct shares shares;

		REQUIRE(read_shares(&shares, "own", way, loop_of));
		check_shares("own", way, &shares, truth);
		/* The first instruction of a function and its last have no frame. */
		if (way == BPF && shares.samples > FEW)
			CHECK(shares.with_caller >= shares.samples * 99 / 100);
		told &= effective(&shares) >= FEW;
	}
	symbols_free(guest_symbols);
	if (!told)
		SKIP("this machine has too much other work to measure shares in the rig: see the samples above");
}

static const char *const calls[] = { "__x64_sys_getrandom", "ksys_read", "__x64_sys_pread64" };

/* Of the system calls of Debian's workload, as the callers tell; they have to reach the kernel's entry. */
static int call_of(const struct profile_stack *stack, bool *caller)
{
	const char *outermost = "";
	int part = -1;

	for (size_t i = 0; i < stack->depth && stack->frames[i]->kernel; i++) {
		outermost = stack->frames[i]->symbol ? stack->frames[i]->symbol : "";
		for (int call = 0; call < PARTS; call++)
			if (!strcmp(outermost, calls[call]))
				part = call;
	}
	*caller = !strncmp(outermost, "entry_SYSCALL", strlen("entry_SYSCALL"));
	return part;
}

static const char *const leaves[] = { "chacha_", "clear_user", "copy_user" };

/* The innermost functions of the same calls, which also perf tells: not the same shares. */
static int leaf_of(const struct profile_stack *stack, bool *caller)
{
	const struct profile_frame *leaf = stack->frames[0];

	*caller = stack->depth > 1;
	for (int i = 0; i < PARTS; i++)
		if (leaf->kernel && leaf->symbol && !strncmp(leaf->symbol, leaves[i], strlen(leaves[i])))
			return i;
	return -1;
}

TEST(attach_rig, debian_in_qemu_by_each_way)
{
	struct shares shares[WAYS], leaf[WAYS];
	bool told = true;

	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	for (enum way way = PERF; way < WAYS; way++) {
		REQUIRE(read_shares(&leaf[way], "qemu", way, leaf_of));
		if (way == PERF)
			continue;
		REQUIRE(read_shares(&shares[way], "qemu", way, call_of));
		check_shares("qemu", way, &shares[way], truth);
		if (shares[way].samples > FEW)
			CHECK(shares[way].with_caller >= shares[way].samples * 95 / 100);
		told &= effective(&shares[way]) >= FEW;
	}
	/* perf knows no callers; what was innermost, all tell. */
	for (enum way way = PERF; way < WAYS; way++)
		show_shares("leaf", way, &leaf[way]);
	if (!told)
		SKIP("this machine has too much other work to measure shares in the rig: see the samples above");
}

/* What is known of whose the samples are. */
struct places {
	uint64_t calls, of_workload; /* in the system calls of the workload; as its own */
	uint64_t in_user,
		in_program; /* in user space, by a process of that name; in its program, with a function */
	uint64_t wrong;     /* under another name than can be */
};

/* It is linked statically, and calls nothing else in user space but the vDSO. */
static bool is_of_workload(const struct profile_frame *frame)
{
	return strstr(frame->image, "workload") || !strcmp(frame->image, "[vdso]");
}

static void add_place(struct places *places, const struct profile_stack *stack)
{
	const struct profile_frame *leaf = stack->frames[0];
	bool of_workload = !strcmp(stack->comm, "workload"), ends_there;

	if (call_of(stack, &ends_there) >= 0) {
		places->calls += stack->samples;
		places->of_workload += of_workload ? stack->samples : 0;
		places->wrong += stack->pid != SAMPLE_TASK_LIMIT && !of_workload ? stack->samples : 0;
	}
	if (leaf->kernel || is_host(stack) || !of_workload)
		return;
	places->in_user += stack->samples;
	places->in_program += is_of_workload(leaf) && leaf->symbol ? stack->samples : 0;
	if (strcmp(leaf->image, "[unknown]") != 0 && !is_of_workload(leaf))
		places->wrong += stack->samples;
}

static bool read_places(struct places *places, enum way way)
{
	char input[64];
	const struct profile_options options = { .input = input,
						 .buildid_dir = DIRECTORY "/.debug",
						 .vcpu = -1 };
	struct profile *profile;

	*places = (struct places){ 0 };
	snprintf(input, sizeof(input), DIRECTORY "/qemu-%s.data", ways[way]);
	if (profile_load(&profile, &options))
		return false;
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		add_place(places, profile_stack(profile, i));
	profile_free(profile);
	return true;
}

/* Nothing was installed in that guest, and nobody else told. */
TEST(attach_rig, debian_in_qemu_s_processes_and_programs)
{
	struct places places;

	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	for (enum way way = BPF; way < WAYS; way++) {
		REQUIRE(read_places(&places, way));
		printf("%-6s %llu of %llu samples in system calls of its process, %llu of %llu in user space of its "
		       "program, %llu wrong\n",
		       ways[way], (unsigned long long)places.of_workload, (unsigned long long)places.calls,
		       (unsigned long long)places.in_program, (unsigned long long)places.in_user,
		       (unsigned long long)places.wrong);
		CHECK_EQUAL(places.wrong, 0);
		if (places.calls > FEW)
			CHECK(places.of_workload >= places.calls * 95 / 100);
		if (places.in_user > FEW)
			CHECK(places.in_program >= places.in_user * 95 / 100);
	}
}
