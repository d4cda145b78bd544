/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope attach on a standard KVM (kvm_amd) with each backend: the shares of a guest of kvmscope
 * run and of Debian's kernel in a libvirt domain, their call chains, and the cost, in one table;
 * across a reset, with a vCPU that is hot-plugged, unplugged and plugged again, and with the guest
 * agent; and kvmscoped with that domain. One start of the rig, one VM of ours and one domain for
 * everything.
 *
 * Each backend samples until the shares of both VMs are accurate to 3 points; ptrace, which takes
 * ten times as long for each sample, to 5. KVMSCOPE_ATTACH_SAMPLES is the number of user-space
 * samples of a VM (3400): set it for a more precise table.
 */
#include <jansson.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/sample_record.h"
#include "tests/e2e/flame_page.h"
#include "tests/e2e/perf_recording.h"
#include "tests/rig/rig.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/report/profile_stacks.h"
#include "vmm/symbols/elf_symbols.h"

#define DIRECTORY "build/rig/attach"

enum way { PERF, BPF, PTRACE, QMP, WAYS };
static const char *const ways[] = { "perf", "bpf", "ptrace", "qmp" };

#define PARTS 3

/* Samples in one of the known parts. */
struct shares {
	double of[PARTS], all;         /* ns */
	double squares;                /* sum of the squares of the samples' ns */
	uint64_t samples, with_caller; /* in those parts; those with the expected caller */
};

/* The part of a stack, or -1; *CALLER: it has the expected caller. */
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
						 .sources.buildid_dir = DIRECTORY "/.debug",
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

/* Too few to check their contents: the machine is busy. */
#define FEW 100

/* Number of samples of equal weight with the same precision (Kish). */
static double effective(const struct shares *shares)
{
	return shares->squares > 0 ? shares->all * shares->all / shares->squares : 0;
}

static double share_of(const struct shares *shares, int part)
{
	return shares->all > 0 ? 100 * shares->of[part] / shares->all : 0;
}

static double percent(uint64_t part, uint64_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

/* us of object NAME in SUMMARY; "-" if it has none. */
static void show_us(const json_t *summary, const char *name, const char *key)
{
	const json_t *number = json_object_get(json_object_get(summary, name), key);

	if (number)
		printf(" %10.0f", json_number_value(number));
	else
		printf(" %10s", "-");
}

static void show_head(void)
{
	printf("%-7s%-7s%24s%9s%7s%8s%11s%11s%11s\n", "VM", "backend", "shares (60/30/10)",
	       "samples", "worth", "whole", "cost us", "stop us", "longest us");
}

static json_t *read_summary(const char *vm, enum way way)
{
	json_t *summary;
	char path[64];

	snprintf(path, sizeof(path), DIRECTORY "/%s-%s.json", vm, ways[way]);
	summary = json_load_file(path, 0, NULL);
	CHECK(summary != NULL);
	return summary;
}

/* A line of the table: SHARES, and the statistics of kvmscope attach. */
static void show_shares(const char *vm, enum way way, const struct shares *shares)
{
	json_t *summary = read_summary(vm, way);

	printf("%-7s%-7s   %6.1f %6.1f %6.1f %9llu%7.0f%7.1f%%", vm, ways[way], share_of(shares, 0),
	       share_of(shares, 1), share_of(shares, 2), (unsigned long long)shares->samples,
	       effective(shares), percent(shares->with_caller, shares->samples));
	show_us(summary, "cost", "mean_us");
	show_us(summary, "stops", "mean_us");
	show_us(summary, "stops", "max_us");
	printf("\n");
	json_decref(summary);
}

/* Shares of the loops, by their count in any interval. */
static const double truth[] = { 60, 30, 10 };

/* With fewer samples a share proves nothing: perf, BPF and ptrace have some thousands. */
#define LEAST 300

/*
 * Allowed deviation of a share in points: 3, or five standard deviations if there are too few
 * samples.
 */
static double bound_for(const struct shares *shares, double is)
{
	return fmax(3, 5 * sqrt(is * (100 - is) / effective(shares)));
}

/*
 * qmp makes some ten queries per second here, and the guest only runs between them: few samples
 * prove nothing.
 */
#define ENOUGH_BY_QMP 300

static void check_shares(const char *vm, enum way way, const struct shares *shares)
{
	double least = way == QMP ? ENOUGH_BY_QMP : 1;

	for (int i = 0; i < PARTS && effective(shares) >= least; i++)
		if (fabs(share_of(shares, i) - truth[i]) > bound_for(shares, truth[i]))
			FAIL_TEST(
				"%s with %s: part %d has %.1f %% of the samples, the truth is %.1f %%",
				vm, ways[way], i, share_of(shares, i), truth[i]);
}

/* PCI virtio, as libvirt configures it. */
#define INITRD "build/initrd/attach-agent.cpio"
#define MAKE_INITRD                                                                                        \
	"flock build tests/rig/initrd --kernel 6.1 --modules 'virtio_pci virtio_console' --output " INITRD \
	" build/rig/workload build/agent/kvmscope-agent > /dev/null"

/* The confinement that Debian applies to libvirt. */
#define FETCH_APPARMOR                                                                             \
	"tests/rig/fetch-packages apparmor apparmor libvirt-daemon-system > /dev/null"

/* Once for all tests; false: it failed, which fails each of them. */
static bool run_in_rig(void)
{
	const char *samples = getenv("KVMSCOPE_ATTACH_SAMPLES");
	static struct rig_result result;
	const char *kernel;

	if (!result.output) {
		kernel = rig_kernel("6.1");
		if (!kernel)
			return false;
		CHECK(!system(MAKE_INITRD));  /* NOLINT(cert-env33-c): fixed words */
		if (system(FETCH_APPARMOR)) { /* NOLINT(cert-env33-c) */
			FAIL_TEST("cannot fetch AppArmor's packages");
			return false;
		}
		rig_run_on(&result, RIG_TRUSTED_TSC, 1200,
			   "tests/rig/attach-host " DIRECTORY " %s %s " INITRD
			   " build/cache/apparmor/files",
			   samples ? samples : "3400", kernel);
		printf("%s", result.output);
	}
	if (result.status)
		FAIL_TEST("attaching in the rig failed: %.2000s", result.errors);
	return !result.status;
}

static struct symbols *program; /* the test guest's image, or Debian's workload */

static bool is_in(uint64_t address, const char *name)
{
	struct symbol symbol;

	return symbols_find(program, address, &symbol) && !strcmp(symbol.name, name);
}

/*
 * The loops, which user_works() calls in both. By address, because perf and qmp have no other
 * information on user space.
 */
static int loop_of(const struct profile_stack *stack, bool *caller)
{
	static const char *const loops[] = { "share_sixty", "share_thirty", "share_ten" };

	*caller = stack->depth > 1 && is_in(stack->frames[1]->address - 1, "user_works");
	for (int i = 0; i < PARTS; i++)
		if (is_in(stack->frames[0]->address, loops[i]))
			return i;
	return -1;
}

/* The process of the loops, its program, and the last backend that is attached to it. */
static const struct vm {
	const char *name, *image;
	enum way last;
} own = { "own", "build/guests/guest.elf", PTRACE },
  domain = { "domain", "build/rig/workload", QMP };

static bool read_loops(struct shares *shares, const struct vm *vm, enum way way)
{
	bool read;

	if (elf_symbols_load(&program, vm->image, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }))
		return false;
	read = read_shares(shares, vm->name, way, loop_of);
	symbols_free(program);
	return read;
}

static void check_loops(const struct vm *vm)
{
	show_head();
	for (enum way way = PERF; way <= vm->last; way++) {
		struct shares shares;

		REQUIRE(read_loops(&shares, vm, way));
		show_shares(vm->name, way, &shares);
		check_shares(vm->name, way, &shares);
		CHECK(shares.samples >= (way == QMP ? 1 : LEAST));
		/* There is no frame at a function's first and last instruction. */
		if (way == BPF)
			CHECK(shares.with_caller >= shares.samples * 99 / 100);
	}
}

TEST(attach_rig, every_backend_profiles_a_guest_of_kvmscope_run)
{
	RIG_REQUIRED();
	if (run_in_rig())
		check_loops(&own);
}

TEST(attach_rig, every_backend_profiles_debian_in_a_libvirt_domain)
{
	RIG_REQUIRED();
	if (run_in_rig())
		check_loops(&domain);
}

static void add_shares(struct shares *all, const struct shares *some)
{
	for (int i = 0; i < PARTS; i++)
		all->of[i] += some->of[i];
	all->all += some->all;
	all->squares += some->squares;
}

/* Combined they are more precise than each alone: the truth is the same. */
TEST(attach_rig, every_backend_measures_the_shares_of_both_guests)
{
	RIG_REQUIRED();
	for (enum way way = PERF; way <= PTRACE && run_in_rig(); way++) {
		struct shares both, more;

		REQUIRE(read_loops(&both, &own, way));
		REQUIRE(read_loops(&more, &domain, way));
		add_shares(&both, &more);
		printf("both with %s: %.1f %.1f %.1f %% of %.0f samples\n", ways[way],
		       share_of(&both, 0), share_of(&both, 1), share_of(&both, 2),
		       effective(&both));
		check_shares("both", way, &both);
	}
}

/* The whole file NAME, to be freed; a failed check and NULL without it. */
static char *read_file(const char *name)
{
	char path[64], *text = NULL;
	size_t size = 0;
	FILE *file;

	snprintf(path, sizeof(path), DIRECTORY "/%s", name);
	file = fopen(path, "re");
	if (!file || getdelim(&text, &size, '\0', file) < 0) {
		FAIL_TEST("cannot read %s", path);
		free(text);
		text = NULL;
	}
	if (file)
		fclose(file);
	return text;
}

static void check_file_has(const char *name, const char *words)
{
	char *text = read_file(name);

	if (text && !strstr(text, words))
		FAIL_TEST("%s has no '%s':\n%s", name, words, text);
	free(text);
}

/* As described in README.md. */
TEST(attach_rig, daemon_writes_a_flame_graph_of_debian_in_a_domain)
{
	struct flame_page *page;
	char *text;

	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	check_file_has("status", "/etc/libvirt/hooks/qemu.d/kvmscope: installed\n");
	check_file_has("status", "daemon:   process ");
	check_file_has("web-status", "profile:  sampling by bpf at 99 Hz\n");
	check_file_has("web-status", "guest:    Linux 6.1.");
	check_file_has("daemon.log", "libvirt: domain web: started"); /* from the hook */
	check_file_has("exits", "[exit ");
	text = read_file("flame.html");
	REQUIRE(text != NULL);
	page = flame_page_read(text);
	free(text);
	REQUIRE(page != NULL);
	CHECK(flame_page_samples_in(page, NULL, "do_syscall_64", FLAME_PAGE_KERNEL) > 0);
	printf("the daemon's flame graph has %lu samples, %lu of them in system calls, %lu of the workload's\n",
	       flame_page_samples(page, NULL),
	       flame_page_samples_in(page, NULL, "do_syscall_64", FLAME_PAGE_KERNEL),
	       flame_page_samples(page, "workload"));
	flame_page_free(page);
}

static const char *const calls[] = { "__x64_sys_getrandom", "ksys_read", "__x64_sys_pread64" };

/*
 * Shares of the system calls of Debian's workload, from their callers; chains have to reach the
 * kernel's entry.
 */
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

/* The innermost functions of the same calls, which perf records as well: their shares differ. */
static int leaf_of(const struct profile_stack *stack, bool *caller)
{
	const struct profile_frame *leaf = stack->frames[0];

	*caller = stack->depth > 1;
	for (int i = 0; i < PARTS; i++)
		if (leaf->kernel && leaf->symbol &&
		    !strncmp(leaf->symbol, leaves[i], strlen(leaves[i])))
			return i;
	return -1;
}

/* The number of monitor queries, which is the number of samples, and their duration. */
static void show_asking(void)
{
	FILE *log = fopen(DIRECTORY "/domain-qmp.log", "re");
	char line[256];

	while (log && fgets(line, sizeof(line), log))
		if (strstr(line, "queries per second"))
			printf("with qmp: %s", line);
	if (log)
		fclose(log);
}

/*
 * Call chains reach the kernel's entry if a backend has them, and each backend has the innermost
 * functions. The shares of the calls are valid for the workload's whole run.
 */
TEST(attach_rig, system_calls_of_debian_in_a_domain_have_call_chains)
{
	struct shares shares;

	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	show_head();
	for (enum way way = BPF; way <= PTRACE; way++) {
		REQUIRE(read_shares(&shares, "domain", way, call_of));
		show_shares("domain", way, &shares);
		CHECK(shares.samples > 0);
		if (shares.samples > FEW)
			CHECK(shares.with_caller >= shares.samples * 95 / 100);
	}
	for (enum way way = PERF; way < WAYS; way++) {
		REQUIRE(read_shares(&shares, "domain", way, leaf_of));
		show_shares("domain", way, &shares);
		CHECK(shares.samples > 0 || way == QMP); /* a tenth of its few samples */
	}
	show_asking();
}

/* The attribution of samples. */
struct places {
	uint64_t calls, of_workload; /* in system calls of the workload; as its own */
	uint64_t in_user,
		in_program; /* in user space, as its own; in its program, with a function */
	uint64_t wrong;     /* with an impossible name */
	uint64_t in_cgroup; /* in its calls and loops, and in their cgroup */
	uint64_t of_cgroups;
};

/* The program is static, and calls nothing else in user space but the vDSO. */
static bool is_of_workload(const struct profile_frame *frame)
{
	return strstr(frame->image, "workload") || !strcmp(frame->image, "[vdso]");
}

/*
 * The guest reboots, runs a shell, which waits for the vCPU, and the agent: they make the same
 * calls.
 */
static bool may_call(const struct profile_stack *stack)
{
	static const char *const others[] = { "init", "insmod", "cat",   "setsid",        "grep",
					      "sh",   "exe",    "sleep", "kvmscope-agent" };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(stack->comm, others[i]))
			return true;
	return false;
}

static void count_wrong(struct places *places, const struct profile_stack *stack)
{
	const struct profile_frame *leaf = stack->frames[0];

	places->wrong += stack->samples;
	printf("wrong: %llu samples of %s, process %d, in %s of %s, cgroup %s\n",
	       (unsigned long long)stack->samples, stack->comm, (int)stack->pid,
	       leaf->symbol ? leaf->symbol : "?", leaf->image, stack->cgroup);
}

/* The cgroup of the workload's processes in CALL or LOOP; -1 if it is none. */
static void add_cgroup(struct places *places, const struct profile_stack *stack, int call, int loop)
{
	const char *expected = call >= 0 ? "/calls" : "/loops";

	if (call < 0 && loop < 0)
		return;
	places->of_cgroups += stack->samples;
	places->in_cgroup += !strcmp(stack->cgroup, expected) ? stack->samples : 0;
	if (*stack->cgroup && strcmp(stack->cgroup, expected) != 0)
		count_wrong(places, stack);
}

static void add_address(struct places *places, const struct profile_stack *stack)
{
	const struct profile_frame *leaf = stack->frames[0];
	bool of_workload = !strcmp(stack->comm, "workload"), ends_there;
	int call = call_of(stack, &ends_there);

	if (of_workload)
		add_cgroup(places, stack, call, loop_of(stack, &ends_there));
	if (call >= 0 && !may_call(stack)) {
		places->calls += stack->samples;
		places->of_workload += of_workload ? stack->samples : 0;
		if (stack->pid != SAMPLE_TASK_LIMIT && !of_workload)
			count_wrong(places, stack);
	}
	if (leaf->kernel || is_host(stack) || !of_workload)
		return;
	places->in_user += stack->samples;
	places->in_program += is_of_workload(leaf) && leaf->symbol ? stack->samples : 0;
	if (strcmp(leaf->image, "[unknown]") != 0 && !is_of_workload(leaf))
		count_wrong(places, stack);
}

static bool read_addresses(struct places *places, const char *path)
{
	const struct profile_options options = { .input = path,
						 .sources.buildid_dir = DIRECTORY "/.debug",
						 .vcpu = -1 };
	struct profile *profile;

	*places = (struct places){ 0 };
	if (elf_symbols_load(&program, "build/rig/workload", ELF_VIRTUAL_ADDRESSES,
			     (struct span){ 0 }))
		return false;
	if (profile_load(&profile, &options)) {
		symbols_free(program);
		return false;
	}
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		add_address(places, profile_stack(profile, i));
	profile_free(profile);
	symbols_free(program);
	printf("%s: %llu of %llu samples in system calls of its process, %llu of %llu in user space of its program, "
	       "%llu of %llu in its cgroup, %llu wrong\n",
	       path, (unsigned long long)places->of_workload, (unsigned long long)places->calls,
	       (unsigned long long)places->in_program, (unsigned long long)places->in_user,
	       (unsigned long long)places->in_cgroup, (unsigned long long)places->of_cgroups,
	       (unsigned long long)places->wrong);
	return true;
}

static void check_addresses(const char *path)
{
	struct places places;

	REQUIRE(read_addresses(&places, path));
	CHECK_EQUAL(places.wrong, 0);
	if (places.calls > FEW)
		CHECK(places.of_workload >= places.calls * 95 / 100);
	if (places.in_user > FEW)
		CHECK(places.in_program >= places.in_user * 95 / 100);
	if (places.of_cgroups > FEW)
		CHECK(places.in_cgroup >= places.of_cgroups * 95 / 100);
}

/* Nothing of ours runs in that guest, and no other source reports processes. */
TEST(attach_rig, processes_and_programs_of_debian_in_a_domain_are_attributed)
{
	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	check_addresses(DIRECTORY "/domain-bpf.data");
	check_addresses(DIRECTORY "/domain-ptrace.data");
}

static void check_agent(const char *vm, enum way way)
{
	json_t *summary = read_summary(vm, way), *agent = json_object_get(summary, "agent");

	printf("%s-%s: the agent sent %lld records, its clock is accurate to %.0f us\n", vm,
	       ways[way], (long long)json_integer_value(json_object_get(agent, "records")),
	       json_number_value(json_object_get(agent, "clock_error_us")));
	CHECK(json_integer_value(json_object_get(agent, "sessions")) > 0);
	CHECK(json_integer_value(json_object_get(agent, "records")) > 0);
	json_decref(summary);
}

/* A vCPU that is plugged in while bpf samples, and before ptrace attaches. */
TEST(attach_rig, agent_in_a_domain_works_with_bpf_and_ptrace)
{
	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	check_agent("life", BPF);
	check_agent("agent", PTRACE);
	check_addresses(DIRECTORY "/life-bpf.data.1");
	check_addresses(DIRECTORY "/life-ptrace.data.1");
	check_addresses(DIRECTORY "/agent-ptrace.data");
}

/* Across a reset, and with a hot-plugged vCPU. */

struct life {
	uint64_t text; /* of the kernel in the recording */
	uint64_t named, wrong,
		second; /* samples with a function of its kernel; elsewhere; on the second vCPU */
	uint64_t firmware, of_process; /* in the first megabyte; those with a process, not idle */
};

#define IMAGE_MAX (64ull << 20)
#define MODULES   0xffffffffc0000000ull
#define FIRMWARE  (1ull << 20)

static int add_mapping(void *context, const struct perf_data_mapping_event *mapping)
{
	struct life *life = context;

	if (!strcmp(mapping->name, "[kernel.kallsyms]_text"))
		life->text = mapping->start;
	return 0;
}

static void read_text(const char *path, struct life *life)
{
	const struct perf_data_events events = { .mapping = add_mapping, .context = life };

	recording_replay(path, &events);
}

/* Frames with kernel functions must be at addresses of that kernel or its modules. */
static void add_life_stack(struct life *life, const struct profile_stack *stack)
{
	const struct profile_frame *leaf = stack->frames[0];

	life->second += stack->vcpu == 1 ? stack->samples : 0;
	if (!strcmp(leaf->image, "[unknown]") && leaf->address < FIRMWARE) {
		life->firmware += stack->samples;
		/* The kernel's trampoline, in which a plugged vCPU starts, is of its idle task. */
		if (stack->pid < SAMPLE_TASK_LIMIT && (stack->pid || stack->vcpu == 0))
			life->of_process += stack->samples;
	}
	if (!leaf->kernel || !leaf->symbol || is_host(stack))
		return;
	life->named += stack->samples;
	if (leaf->address - life->text >= IMAGE_MAX && leaf->address < MODULES)
		life->wrong += stack->samples;
}

static void read_lifetime(const char *path, struct life *life)
{
	const struct profile_options options = { .input = path,
						 .sources.buildid_dir = DIRECTORY "/.debug",
						 .vcpu = -1 };
	struct profile *profile;

	*life = (struct life){ 0 };
	read_text(path, life);
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		add_life_stack(life, profile_stack(profile, i));
	profile_free(profile);
}

/*
 * Samples of the two vCPUs before the second one was unplugged, while it was unplugged, and after
 * that.
 */
struct turns {
	uint64_t gone, back; /* ns */
	uint64_t of[2][3];
};

static int count_turn(void *context, const struct perf_data_sample *sample)
{
	struct turns *turns = context;

	if (sample->cpu < 2)
		turns->of[sample->cpu]
			 [(sample->time > turns->gone) + (sample->time > turns->back)]++;
	return 0;
}

static void check_turns(const char *path)
{
	struct turns turns = { 0 };
	const struct perf_data_events events = { .sample = count_turn, .context = &turns };
	FILE *file = fopen(DIRECTORY "/life-without", "re");
	double gone, back;

	REQUIRE(file && fscanf(file, "%lf %lf", &gone, &back) == 2);
	fclose(file);
	turns.gone = (uint64_t)(gone * 1e9);
	turns.back = (uint64_t)(back * 1e9);
	recording_replay(path, &events);
	for (int vcpu = 0; vcpu < 2; vcpu++)
		printf("%s: vCPU %d has %llu samples before, %llu while the second one was unplugged, %llu after\n",
		       path, vcpu, (unsigned long long)turns.of[vcpu][0],
		       (unsigned long long)turns.of[vcpu][1],
		       (unsigned long long)turns.of[vcpu][2]);
	CHECK(turns.of[0][0] > 0 && turns.of[0][1] > 0 && turns.of[0][2] > 0);
	CHECK(turns.of[1][0] > 0 && turns.of[1][2] > 0);
	CHECK_EQUAL(turns.of[1][1], 0);
}

/* The same vCPU is plugged in again, with another thread. */
TEST(attach_rig, unplugged_and_replugged_vcpu_is_followed)
{
	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	check_turns(DIRECTORY "/life-bpf.data.1");
	check_turns(DIRECTORY "/life-perf.data.1");
	check_turns(DIRECTORY "/life-ptrace.data.1");
}

/* The addresses that the domain's two kernels printed. */
static bool read_texts(uint64_t text[2])
{
	FILE *console = fopen(DIRECTORY "/domain.out", "re");
	char line[256];
	int count = 0;

	while (console && count < 2 && fgets(line, sizeof(line), console))
		if (strstr(line, " _text"))
			text[count++] = strtoull(line, NULL, 16);
	if (console)
		fclose(console);
	return count == 2;
}

static void check_lifetime(const char *path, uint64_t text, bool has_second)
{
	struct life life;

	read_lifetime(path, &life);
	printf("%s: %llu samples with a symbol of its kernel, %llu on the second vCPU, %llu in firmware\n",
	       path, (unsigned long long)life.named, (unsigned long long)life.second,
	       (unsigned long long)life.firmware);
	CHECK_EQUAL(life.text, text);
	CHECK_EQUAL(life.wrong, 0);
	CHECK_EQUAL(life.of_process, 0);
	CHECK(life.named > 0);
	CHECK(life.second > 0 || !has_second);
}

/* The kernel after the reset has another address. */
TEST(attach_rig, reset_and_hot_plugged_vcpu_are_followed)
{
	uint64_t text[2];

	RIG_REQUIRED();
	if (!run_in_rig())
		return;
	REQUIRE(read_texts(text));
	CHECK(text[0] != text[1]);
	check_lifetime(DIRECTORY "/life-bpf.data", text[0], false);
	check_lifetime(DIRECTORY "/life-bpf.data.1", text[1], true);
	check_lifetime(DIRECTORY "/life-perf.data", text[0], false);
	check_lifetime(DIRECTORY "/life-perf.data.1", text[1], true);
	check_lifetime(DIRECTORY "/life-ptrace.data", text[0], false);
	check_lifetime(DIRECTORY "/life-ptrace.data.1", text[1], true);
}
