// SPDX-License-Identifier: Apache-2.0
/*
 * The guest's task of each sample, and the images of its addresses, in Debian's kernels, against an oracle in
 * the samples themselves: tasks of tests/rig/guest/tasks.c have the function
 * run_NAME in their callchains and are called "NAME-TID"; their code is at addresses that nothing else has.
 * Read by perf.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/sample.h"
#include "tests/rig/debian_recording.h"
#include "tests/rig/remap_truth.h"
#include "tests/rig/rig.h"
#include "tests/rig/without_btf.h"
#include "vmm/guest/btf.h"
#include "vmm/profile/btf_file.h"
#include "vmm/profile/elf_symbols.h"
#include "vmm/profile/perf_data_reader.h"
#include "vmm/profile/profile.h"

#define ENOUGH 300

#define TASKS_IMAGE "/bin/tasks"

/* The program, and the copies of it: each a build of its own. */
static const char *const images[] = { TASKS_IMAGE, JAILED_IMAGE, LAYERED_IMAGE, DELETED_IMAGE, MEMORY_IMAGE };
static const char *const owners_of_copies[] = { "", "jailed", "layered", "deleted", "memory" };
#define IMAGES (sizeof(images) / sizeof(images[0]))

struct line_sample {
	unsigned int pid, tid;
	char comm[32];
	char owner[32];        /* NAME of run_NAME in its chain, "" for none */
	unsigned int of_image; /* addresses of it in the program's image, and in those of other files */
	unsigned int of_others;
	char image[64]; /* that its addresses in the program are in; "" for none */
};

struct tally {
	unsigned long told, known, wrong;         /* told: whose owner the chain tells */
	unsigned long images_right, images_wrong; /* addresses of theirs */
	unsigned long code, code_right;           /* samples in the program's own code */
	unsigned long in[IMAGES], named[IMAGES]; /* of those, in each; by a function's name, which is right */
};

/* run_NAME for an address in it. */
static void find_owner(const struct symbols *program, uint64_t address, char *owner, size_t size)
{
	struct symbol symbol;

	if (symbols_find(program, address, &symbol) && !strncmp(symbol.name, "run_", 4))
		snprintf(owner, size, "%s", symbol.name + 4);
}

static bool is_right(const struct line_sample *sample)
{
	char expected[64];

	snprintf(expected, sizeof(expected), "%s-%u", sample->owner, sample->tid);
	return !strcmp(sample->comm, expected) &&
	       (sample->pid == sample->tid || !strcmp(sample->owner, "thread"));
}

/* What /proc/PID/maps says of the owner's program. */
static const char *image_of(const char *owner)
{
	for (size_t i = 1; i < IMAGES; i++)
		if (!strcmp(owner, owners_of_copies[i]))
			return images[i];
	return TASKS_IMAGE;
}

/* Which of the images; IMAGES: none. In a chroot, and before its name went, an agent's guest calls it so; of
 * memory, recordings do (docs/perf-data.md). */
static size_t image_number(const char *image)
{
	size_t i = 0;

	if (!strcmp(image, "/tmp/deleted"))
		image = DELETED_IMAGE;
	if (!strcmp(image, "/inside"))
		image = JAILED_IMAGE;
	if (!strcmp(image, &MEMORY_IMAGE[1]))
		image = MEMORY_IMAGE;
	while (i < IMAGES && strcmp(image, images[i]) != 0)
		i++;
	return i;
}

static bool is_program(const char *image)
{
	return image_number(image) < IMAGES;
}

/* LINE ends with "(IMAGE)", which may have brackets itself. */
static bool read_image(const char *line, char *image, size_t size)
{
	const char *start = strstr(line, " ("), *end = strrchr(line, ')');

	if (!start || !end)
		return false;
	snprintf(image, size, "%.*s", (int)(end - start - 2), start + 2);
	return true;
}

static void check_copy(const struct line_sample *sample)
{
	if (*sample->image && image_number(sample->image) != image_number(image_of(sample->owner)))
		FAIL_TEST("a sample in run_%s is said to be in %s", sample->owner, sample->image);
}

static void count_sample(const struct line_sample *sample, struct tally *tally)
{
	if (!*sample->owner)
		return;
	check_copy(sample);
	tally->told++;
	tally->images_right += sample->of_image;
	tally->images_wrong += sample->of_others;
	if (!strncmp(sample->comm, "vcpu ", 5))
		return;
	tally->known++;
	if (is_right(sample))
		return;
	tally->wrong++;
	printf("a sample in run_%s is said to be of %s, %u/%u\n", sample->owner, sample->comm, sample->pid,
	       sample->tid);
}

/* "COMM PID/TID", where COMM may have blanks and slashes. */
static bool read_heading(const char *line, struct line_sample *sample)
{
	const char *id = strrchr(line, '/');

	*sample = (struct line_sample){ 0 };
	while (id && id > line && id[-1] != ' ')
		id--;
	if (!id || sscanf(id, "%u/%u", &sample->pid, &sample->tid) != 2)
		return false;
	while (id > line && id[-1] == ' ')
		id--;
	snprintf(sample->comm, sizeof(sample->comm), "%.*s", (int)(id - line), line);
	return true;
}

/* Of user space: whatever perf shows in brackets is no file. An address in an image is shown by its offset.
 */
static void take_frame(const struct symbols *program, unsigned long long address, const char *image,
		       struct line_sample *sample)
{
	bool in_program = is_program(image);

	if (in_program)
		snprintf(sample->image, sizeof(sample->image), "%.63s", image);
	sample->of_image += in_program;
	sample->of_others += *image == '/' && strncmp(image, "//anon", 6) != 0 && !in_program;
	find_owner(program, address + (in_program ? TASKS_START : 0), sample->owner, sizeof(sample->owner));
}

static struct tally read_samples(const char *directory, const struct symbols *program)
{
	struct line_sample sample = { 0 };
	struct tally tally = { 0 };
	unsigned long long address;
	char command[512], line[1024], image[512];
	FILE *perf;

	snprintf(command, sizeof(command),
		 "perf script -i %s/perf.data -F comm,pid,tid,ip,dso --kallsyms /dev/null 2>/dev/null",
		 directory);
	perf = popen(command, "r");
	while (perf && fgets(line, sizeof(line), perf)) {
		if (*line == '\n')
			count_sample(&sample, &tally);
		else if (*line == '\t' && sscanf(line, "%llx", &address) == 1 &&
			 read_image(line, image, sizeof(image)))
			take_frame(program, address, image, &sample);
		else if (!read_heading(line, &sample))
			FAIL_TEST("not as perf script writes it: %s", line);
	}
	CHECK(perf && !pclose(perf));
	return tally;
}

/* Without callchains perf shows whole addresses: those of the program's code are nobody else's. */
static void read_code(const char *directory, const struct symbols *program, struct tally *tally)
{
	char command[512], line[1024], image[512];
	unsigned long long address;
	struct symbol symbol;
	FILE *perf;

	snprintf(command, sizeof(command),
		 "perf script -G -i %s/perf.data -F ip,dso --kallsyms /dev/null 2>/dev/null", directory);
	perf = popen(command, "r");
	while (perf && fgets(line, sizeof(line), perf)) {
		if (sscanf(line, "%llx", &address) != 1 || !read_image(line, image, sizeof(image)) ||
		    !symbols_find(program, address, &symbol))
			continue;
		tally->code++;
		if (is_program(image)) {
			tally->code_right++;
			tally->in[image_number(image)]++;
		}
		if (!is_program(image) && strcmp(image, "[unknown]") != 0)
			FAIL_TEST("%s at %#llx is said to be in %s", symbol.name, address, image);
	}
	CHECK(perf && !pclose(perf));
}

/*
 * NAME is what perf calls ADDRESS of the program: one of the names that the function there has. The C library
 * has several functions of one name.
 */
static void check_name(const struct symbols *program, unsigned long long address, const char *name)
{
	struct symbol symbol, called;

	if (!symbols_find(program, address, &symbol) ||
	    (strcmp(symbol.name, name) != 0 &&
	     (!symbols_find_name(program, name, &called) || symbol.start != called.start)))
		FAIL_TEST("%#llx of " TASKS_IMAGE " is called %s", address, name);
}

/* With the names that were read out of the guest's memory. */
static void read_names(const char *directory, const struct symbols *program, struct tally *tally)
{
	char command[512], line[1024], name[512], image[512];
	unsigned long long address;
	FILE *perf;

	snprintf(command, sizeof(command), "HOME=%s perf script -G -i %s/perf.data -F ip,sym,dso 2>/dev/null",
		 directory, directory);
	perf = popen(command, "r");
	while (perf && fgets(line, sizeof(line), perf)) {
		if (sscanf(line, "%llx %511s", &address, name) != 2 ||
		    !read_image(line, image, sizeof(image)) || !is_program(image) ||
		    !strcmp(name, "[unknown]"))
			continue;
		tally->named[image_number(image)]++;
		check_name(program, address, name);
	}
	CHECK(perf && !pclose(perf));
}

/* All are in the guest's memory as a whole, whatever file system they are of, and whether it has a name for
 * them: each by itself, for none has the build id of another. Of few samples, those of before their names are
 * read are many. */
static void check_named(const char *what, const struct tally *tally, bool all)
{
	for (size_t i = 0; i < IMAGES; i++) {
		printf("%s: of %lu samples in %s %lu are named\n", what, tally->in[i], images[i],
		       tally->named[i]);
		CHECK(tally->in[i] > 0);
		CHECK(!all || tally->in[i] - tally->named[i] <= fmax(2, 0.05 * (double)tally->in[i]));
	}
}

static void check_recording(const char *what, const char *directory)
{
	struct symbols *program;
	struct tally tally;

	REQUIRE_EQUAL(elf_symbols_load(&program, TASKS_PROGRAM, ELF_VIRTUAL_ADDRESSES, NULL, 0), 0);
	tally = read_samples(directory, program);
	read_code(directory, program, &tally);
	read_names(directory, program, &tally);
	symbols_free(program);
	printf("%s: the chains of %lu samples tell the task; %lu are named, %lu wrongly\n", what, tally.told,
	       tally.known, tally.wrong);
	printf("%s: of %lu samples in the program's code %lu are in its image; of all addresses %lu are, %lu in others\n",
	       what, tally.code, tally.code_right, tally.images_right, tally.images_wrong);
	CHECK(tally.code >= ENOUGH / 10);
	check_named(what, &tally, true);
	CHECK(tally.code_right * 100 >= tally.code * 95);
	CHECK_EQUAL(tally.images_wrong, 0);
	CHECK(tally.told >= ENOUGH);
	CHECK(tally.known * 100 >= tally.told * 99);
	CHECK_EQUAL(tally.wrong, 0);
}

/* Of a task by the name that it took, behind which its id stands; false: it is none of them. */
static bool find_task(const struct profile_stack *stack, char *name, size_t size)
{
	static const char *const names[] = { "alpha",  "beta",    "thread",  "ping",   "pong", "program",
					     "jailed", "layered", "deleted", "memory", "brief" };
	char comm[32];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(comm, sizeof(comm), "%s-%u", names[i], stack->tid);
		snprintf(name, size, "%s", names[i]);
		if (!strcmp(stack->comm, comm))
			return true;
	}
	return false;
}

/* Which tests/rig/guest/tasks.c has put it into. */
static void expect_cgroup(const char *name, char *cgroup, size_t size)
{
	if (!strcmp(name, "ping") || !strcmp(name, "pong"))
		snprintf(cgroup, size, "/");
	else
		snprintf(cgroup, size, "/tasks.slice/%s.scope", !strcmp(name, "thread") ? "beta" : name);
}

static void check_cgroups(const char *what, const char *directory)
{
	struct profile_options options = { .threads = true, .event = "0", .vcpu = -1 };
	char input[160], name[16], cgroup[64];
	uint64_t right = 0, untold = 0;
	struct profile *profile;

	snprintf(input, sizeof(input), "%s/perf.data", directory);
	options.input = input;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		if (!find_task(stack, name, sizeof(name)))
			continue;
		expect_cgroup(name, cgroup, sizeof(cgroup));
		right += !strcmp(stack->cgroup, cgroup) ? stack->samples : 0;
		untold += !*stack->cgroup ? stack->samples : 0;
		if (*stack->cgroup && strcmp(stack->cgroup, cgroup) != 0)
			FAIL_TEST("%s is said to be in %s", stack->comm, stack->cgroup);
	}
	profile_free(profile);
	printf("%s: %llu samples in the right cgroup, %llu not told\n", what, (unsigned long long)right,
	       (unsigned long long)untold);
	CHECK(right >= ENOUGH);
	/* A process that ended before the look has none any more, as one that another begins all the time. */
	CHECK(right >= 19 * untold);
}

struct told_lives {
	uint32_t parents[1 << 16]; /* by process */
	unsigned int forks, threads;
	uint32_t tasks; /* their parent: alpha's */
};

static int see_fork(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid, uint32_t parent_tid,
		    uint64_t time, bool before)
{
	struct told_lives *lives = context;

	lives->forks++;
	lives->threads += pid != tid && parent_pid == pid;
	if (pid == tid && pid < 1 << 16)
		lives->parents[pid] = parent_pid;
	return 0;
}

static int see_name(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct told_lives *lives = context;
	char name[32];

	snprintf(name, sizeof(name), "alpha-%u", tid);
	if (!strcmp(comm, name))
		lives->tasks = lives->parents[pid];
	snprintf(name, sizeof(name), "program-%u", tid);
	if (!strcmp(comm, name) && lives->tasks)
		CHECK_EQUAL(lives->parents[pid], lives->tasks);
	return 0;
}

/* All are children of one process; the two threads are told to be such. */
static void check_lives(const char *what, const char *directory)
{
	struct told_lives *lives = calloc(1, sizeof(*lives));
	struct perf_data_events events = { .fork = see_fork, .comm = see_name, .context = lives };
	struct perf_data_reader *reader;
	char path[160];

	REQUIRE(lives);
	snprintf(path, sizeof(path), "%s/perf.data", directory);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	printf("%s: %u processes and threads are told of, %u of them threads\n", what, lives->forks,
	       lives->threads);
	CHECK(lives->forks > 8);
	CHECK(lives->threads >= 2);
	CHECK(lives->tasks > 1);
	free(lives);
}

struct counter {
	uint64_t address, value, hits;
	uint64_t missed; /* numbers that no sample has */
	uint64_t gaps;   /* places where values do not follow each other as the numbers do */
};

struct counters {
	struct counter each[2];
	uint64_t lost; /* samples, as the recording says */
};

static int see_loss(void *context, uint64_t count)
{
	((struct counters *)context)->lost += count;
	return 0;
}

static int see_hit(void *context, const struct perf_data_sample *sample)
{
	const struct perf_data_hit_values *values = &sample->values;
	struct counter *counter;
	uint64_t missed;

	if (!sample->event)
		return 0;
	if (sample->cpu > 1 || !sample->has_values)
		return -EINVAL;
	counter = &((struct counters *)context)->each[sample->cpu];
	missed = values->hits - counter->hits - 1;
	/* Before the first hit it has no value of before. */
	if (counter->hits)
		counter->gaps +=
			values->before != counter->value + missed || sample->address != counter->address;
	if (counter->hits || missed)
		counter->gaps += values->after != values->before + 1 ||
				 values->flags != (SAMPLE_HIT_BEFORE | SAMPLE_HIT_AFTER);
	else
		counter->gaps += values->flags != SAMPLE_HIT_AFTER;
	counter->missed += missed;
	counter->address = sample->address;
	counter->value = values->after;
	counter->hits = values->hits;
	return 0;
}

/* Of DEBIAN_WATCHED: each CPU's own, so each value that it had was seen, but for samples that were told to be
 * lost. */
static void check_counters(const char *what, const char *directory, unsigned long long hits)
{
	struct counters all = { 0 };
	const struct counter *counters = all.each;
	struct perf_data_reader *reader;
	char path[160];

	snprintf(path, sizeof(path), "%s/perf.data", directory);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &(struct perf_data_events){ .sample = see_hit,
									     .lost = see_loss,
									     .context = &all }),
		    0);
	perf_data_reader_close(reader);
	printf("%s: the per-CPU counter was written %llu times on vCPU 0 at %#llx, %llu times on vCPU 1 at %#llx\n",
	       what, (unsigned long long)counters[0].hits, (unsigned long long)counters[0].address,
	       (unsigned long long)counters[1].hits, (unsigned long long)counters[1].address);
	CHECK(counters[0].hits > 20 && counters[1].hits > 20);
	CHECK(counters[0].address != counters[1].address);
	CHECK_EQUAL(counters[0].gaps, 0);
	CHECK_EQUAL(counters[1].gaps, 0);
	CHECK(counters[0].missed + counters[1].missed <= all.lost);
	/* Each vCPU may have one more between the count and its end. */
	if (hits)
		CHECK(counters[0].hits + counters[1].hits - hits <= 2);
}

/* With nothing in the guest: mappings change from moment to moment, and none is named wrongly. */
static void check_remapped(const char *what, const char *directory)
{
	struct remap_truth truth;
	char file[160];

	snprintf(file, sizeof(file), "%s/perf.data", directory);
	truth = remap_truth_read(file, directory);
	printf("%s, remapped: %lu samples in the right image, %lu in a wrong one, %lu not told\n", what,
	       truth.right, truth.wrong, truth.untold);
	CHECK(truth.right > 0);
	CHECK_EQUAL(truth.wrong, 0);
	CHECK_EQUAL(truth.misnamed, 0);
	CHECK(truth.right >= 19 * truth.untold);
}

static void names_tasks(const char *version, const char *pti)
{
	const char *directory;
	char what[64];

	RIG_REQUIRED();
	directory = debian_recording(version, pti);
	if (!directory)
		return;
	snprintf(what, sizeof(what), "%s, pti=%s", version, pti);
	check_recording(what, directory);
	check_cgroups(what, directory);
	check_lives(what, directory);
	if (!strcmp(pti, "on") && !rig_debug_registers_unavailable_reason())
		check_counters(what, directory, 0);
	if (!strcmp(pti, "off"))
		check_remapped(what, directory);
}

/*
 * In a run that begins without a watch, and has none any more at its end; process $run is kvmscope. Its guest
 * begins when there is one, and ends behind it: each waits for a line from the console.
 */
#define WATCH_FOR_A_WHILE                                                                                    \
	"ctl=\"build/kvmscope ctl --name tasks\"; "                                                          \
	"until $ctl status 2>&1 | grep -q Linux; do kill -0 $run || break; sleep 0.2; done; "                \
	"$ctl bp add " DEBIAN_WATCHED "; echo >&3; sleep 5; $ctl bp remove " DEBIAN_WATCHED

/* *HITS: those that the watch had when it was removed. */
static bool record_with_agent(const char *directory, unsigned long long *hits)
{
	const char *kernel = rig_kernel("6.1"), *initrd = debian_recording_initrd("6.1");
	struct rig_result result;
	const char *removed;
	bool recorded;

	if (!kernel || !initrd)
		return false;
	rig_run_on(&result, RIG_TRUSTED_TSC, 240,
		   "d=$PWD/%s; rm -rf $d; mkdir -p $d; mkfifo /tmp/console; "
		   "HOME=$d build/kvmscope run --pmu off --timeout 200 --mem 256M --cpus 2 "
		   "-F 499 --agent=initrd -o $d/perf.data --kernel %s --initrd %s --name tasks "
		   "--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT
		   " kvmscope.run=read+line;tasks+10;read+line' "
		   "< /tmp/console & run=$!; exec 3> /tmp/console; %s; echo >&3; wait $run",
		   directory, kernel, initrd,
		   rig_debug_registers_unavailable_reason() ? "echo >&3" : WATCH_FOR_A_WHILE);
	recorded = !result.status && strstr(result.output, "guest-init: status 0");
	if (!recorded)
		FAIL_TEST("%s\n%s", result.output, result.errors);
	removed = strstr(result.output, "removed; it had ");
	if (!removed || sscanf(removed, "removed; it had %llu hits", hits) != 1)
		*hits = 0;
	rig_result_free(&result);
	return recorded;
}

/* Its file's name when it was executed. */
static const char *program_of(const char *name)
{
	return !strcmp(name, "deleted") ? "deleted" : strrchr(image_of(name), '/') + 1;
}

/* By the symbols that the agent sent, while the programs ran that nobody else has; it is not asked for those
 * whose beginning was MISSED. */
static void check_names_by_agent(const char *directory, uint64_t missed)
{
	struct tally tally = { 0 };
	struct symbols *program;

	REQUIRE_EQUAL(elf_symbols_load(&program, TASKS_PROGRAM, ELF_VIRTUAL_ADDRESSES, NULL, 0), 0);
	read_code(directory, program, &tally);
	read_names(directory, program, &tally);
	symbols_free(program);
	check_named("with the agent", &tally, !missed);
}

struct charges {
	uint64_t samples;
	uint64_t right;   /* in the program */
	uint64_t unknown; /* it is not known which program that is */
};

static struct charges count_charges(const struct profile *profile)
{
	struct charges charges = { 0 };
	char name[16];

	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		if (!find_task(stack, name, sizeof(name)))
			continue;
		charges.samples += stack->samples;
		charges.right += !strcmp(stack->app, program_of(name)) ? stack->samples : 0;
		charges.unknown += !strcmp(stack->app, stack->comm) ? stack->samples : 0;
	}
	return charges;
}

/* Events that came too late for samples, or never: of programs that began then nothing is known. */
static uint64_t count_missed(const struct profile *profile)
{
	const struct losses *losses = &profile_summary(profile)->losses;

	return losses->counts[SIDEBAND_MISSED] + losses->counts[SIDEBAND_LATE];
}

/*
 * With an agent in the guest it is known which file was executed, whatever its threads call themselves. One
 * that has no time beside a busy machine tells of some of it too late; what it is not known of is called as
 * its threads are.
 */
TEST(tasks, are_charged_to_their_program)
{
	static const char directory[] = "build/rig/tasks-agent";
	struct profile_options options = { .input = "build/rig/tasks-agent/perf.data",
					   .buildid_dir = "build/rig/tasks-agent/.debug",
					   .threads = true,
					   .event = "0",
					   .vcpu = -1 };
	unsigned long long hits;
	struct charges charges;
	struct profile *profile;
	uint64_t missed;

	RIG_REQUIRED();
	if (!record_with_agent(directory, &hits))
		return;
	if (!rig_debug_registers_unavailable_reason()) {
		CHECK(hits > 0);
		check_counters("6.1, watched for a while", directory, hits);
	}
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	charges = count_charges(profile);
	missed = count_missed(profile);
	profile_free(profile);
	check_names_by_agent(directory, missed);
	printf("%llu of %llu samples are charged to the program, of %llu it is not known; %llu events were missed\n",
	       (unsigned long long)charges.right, (unsigned long long)charges.samples,
	       (unsigned long long)charges.unknown, (unsigned long long)missed);
	CHECK(charges.right >= ENOUGH);
	CHECK(missed || !charges.unknown);
	/* Behind a loss the program before an execve is believed until the agent has told of all anew. */
	CHECK(missed || charges.right == charges.samples);
}

TEST(tasks, of_debian_5_10)
{
	names_tasks("5.10", "off");
}

TEST(tasks, of_debian_5_10_with_isolated_page_tables)
{
	names_tasks("5.10", "on");
}

TEST(tasks, of_debian_6_1)
{
	names_tasks("6.1", "off");
}

TEST(tasks, of_debian_6_1_with_isolated_page_tables)
{
	names_tasks("6.1", "on");
}

TEST(tasks, of_debian_6_12)
{
	names_tasks("6.12", "off");
}

TEST(tasks, of_debian_6_12_with_isolated_page_tables)
{
	names_tasks("6.12", "on");
}

TEST(tasks, of_debian_7_2)
{
	names_tasks("7.2", "off");
}

TEST(tasks, of_debian_7_2_with_isolated_page_tables)
{
	names_tasks("7.2", "on");
}

#define LATE "build/rig/late-look"

#define LATE_GUEST                                                                                           \
	"console=ttyS0 quiet panic=-1 " QUICK_BOOT " kvmscope.run=echo+tasks:+begin;sleep+4;tasks+4"

static void check_late(const char *what, const char *directory)
{
	struct rig_result report;

	check_cgroups(what, directory);
	rig_run_here(&report, 60,
		     "build/kvmscope report --json -i %s/perf.data | grep -o '\"look_cut\": [0-9]*'",
		     directory);
	printf("%s", report.output);
	rig_result_free(&report);
}

/*
 * Each look ends behind the first address: the rest is looked up by the collector. A flight recorder's too,
 * whose file is written when the guest panics.
 */
TEST(tasks, have_their_cgroups_where_the_stop_had_no_time)
{
	const char *kernel, *initrd;
	struct rig_result result;

	RIG_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = kernel ? debian_recording_initrd("6.1") : NULL;
	if (!initrd)
		return;
	rig_run(&result, 300,
		"rm -rf " LATE "; late() { d=$PWD/" LATE
		"/$1 end=$2; shift 2; mkdir -p $d; HOME=$d build/kvmscope "
		"run --pmu off --timeout 120 --mem 256M -F 999 --stack-time 1us -o $d/perf.data --kernel %s "
		"--initrd %s --append \"" LATE_GUEST " $end\" \"$@\" < /dev/null; }; "
		"late run '' --from-line 'tasks: begin' && late flight kvmscope.end=panic --flight 60s",
		kernel, initrd);
	if (result.status)
		FAIL_TEST("%s\n%s", result.output, result.errors);
	check_late("behind the stop", LATE "/run");
	check_late("behind the stop, of a flight recorder", LATE "/flight");
	rig_result_free(&result);
}

/*
 * Four times: without any other BTF, with its own in a file, as objcopy takes it out and in the ELF file, and
 * with another kernel's. Each guest begins when its kernel is known; process $run is kvmscope. Once more with
 * the agent, when its tasks have been found.
 */
#define RECORD_WITHOUT_BTF                                                                                   \
	"d=$PWD/" WITHOUT_BTF "; for btf in none raw elf another; do o=\"--btf $d/$btf\"; "                  \
	"[ $btf != none ] || o=; mkdir -p $d/of-$btf; mkfifo /tmp/$btf; "                                    \
	"HOME=$d/of-$btf build/kvmscope run --pmu off --timeout 90 --mem 256M -F 999 --stack-time 100ms $o " \
	"--from-line 'guest-init: up' -o $d/of-$btf/perf.data --kernel $d/kernel --initrd %s --name $btf "   \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT                                                 \
	" kvmscope.run=read+line;tasks+2' < /tmp/$btf & run=$!; "                                            \
	"exec 3> /tmp/$btf; until build/kvmscope ctl --name $btf status 2>&1 | grep -q Linux; do "           \
	"kill -0 $run || break; sleep 0.5; done; echo >&3; wait $run || exit; done; "                        \
	"mkdir -p $d/of-agent; HOME=$d/of-agent tests/rig/begin-when-known --said '" FOUND "' "              \
	"build/kvmscope run --verbose --pmu off --agent --timeout 90 --mem 256M -F 999 --stack-time 100ms "  \
	"--from-line 'guest-init: waits' -o $d/of-agent/perf.data --kernel $d/kernel --initrd %s "           \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT " kvmscope.wait kvmscope.run=tasks+2'"
#define FOUND "found by those of its agent"

static bool record_without_btf(struct rig_result *result, const char *initrd)
{
	rig_run(result, 500, RECORD_WITHOUT_BTF, initrd, initrd);
	if (!result->status)
		return true;
	FAIL_TEST("%s\n%s", result->output, result->errors);
	rig_result_free(result);
	return false;
}

/* No task and no file, where nothing tells of them. */
static void check_nothing_told(const char *what, const char *directory)
{
	struct symbols *program;
	struct tally tally;

	REQUIRE_EQUAL(elf_symbols_load(&program, TASKS_PROGRAM, ELF_VIRTUAL_ADDRESSES, NULL, 0), 0);
	tally = read_samples(directory, program);
	read_code(directory, program, &tally);
	symbols_free(program);
	printf("%s: %lu samples in the program's code, %lu of them in its image, %lu named\n", what,
	       tally.code, tally.code_right, tally.known);
	CHECK(tally.code >= ENOUGH / 10);
	CHECK_EQUAL(tally.code_right + tally.images_wrong + tally.known, 0);
}

/* Where the guest's tasks were FOUND, as it was said, is where its BTF says that they are. */
static void check_found(const char *said)
{
	static const char *const names[] = { "pid", "tgid", "comm", "mm", "stack", "tasks" };
	const char *found = strstr(said, FOUND);
	uint32_t offsets[6], table, offset;
	struct btf btf;
	uint8_t *data;
	size_t size;

	REQUIRE(found && sscanf(found, FOUND ": pid %u, tgid %u, comm %u, mm %u, stack %u, tasks %u; pgd %u",
				&offsets[0], &offsets[1], &offsets[2], &offsets[3], &offsets[4], &offsets[5],
				&table) == 7);
	REQUIRE_EQUAL(btf_file_load(WITHOUT_BTF_RAW, &data, &size), 0);
	REQUIRE_EQUAL(btf_open(&btf, span_of(data, size)), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CHECK(btf_find_offset(&btf, "task_struct", names[i], 4, &offset));
		CHECK_EQUAL(offsets[i], offset);
	}
	CHECK(btf_find_offset(&btf, "mm_struct", "pgd", 8, &offset));
	CHECK_EQUAL(table, offset);
	btf_close(&btf);
	free(data);
}

/*
 * Without BTF nobody says what the runqueue is about to run, so within a switch some have no task. Their
 * images are told by events, and looked at in other tests.
 */
static void check_tasks(const char *what, const char *directory)
{
	struct symbols *program;
	struct tally tally;
	double told;

	REQUIRE_EQUAL(elf_symbols_load(&program, TASKS_PROGRAM, ELF_VIRTUAL_ADDRESSES, NULL, 0), 0);
	tally = read_samples(directory, program);
	told = (double)tally.told;
	symbols_free(program);
	printf("%s: the chains of %lu samples tell the task; %lu are named, %lu wrongly\n", what, tally.told,
	       tally.known, tally.wrong);
	CHECK(tally.told >= ENOUGH / 10);
	CHECK((double)tally.known / told >= 0.98 - 5 * sqrt(0.02 * 0.98 / told));
	CHECK_EQUAL(tally.wrong, 0);
}

TEST(tasks, of_a_kernel_without_btf_are_told_by_a_file_of_its_own_or_by_the_agent_alone)
{
	struct rig_result result;
	const char *initrd;

	RIG_REQUIRED();
	initrd = without_btf_make() ? debian_recording_initrd(WITHOUT_BTF_VERSION) : NULL;
	if (!initrd || !record_without_btf(&result, initrd))
		return;
	printf("%s\n", result.errors);
	check_nothing_told("without BTF", WITHOUT_BTF "/of-none");
	check_nothing_told("with another's BTF", WITHOUT_BTF "/of-another");
	check_recording("with its BTF in a file", WITHOUT_BTF "/of-raw");
	check_cgroups("with its BTF in a file", WITHOUT_BTF "/of-raw");
	check_recording("with its BTF in an ELF file", WITHOUT_BTF "/of-elf");
	check_tasks("with the agent", WITHOUT_BTF "/of-agent");
	check_found(result.errors);
	CHECK(strstr(result.errors, "has no BTF that says where its processes are"));
	CHECK(strstr(result.errors, "/another is not used: it is not of the kernel that the guest runs"));
	rig_result_free(&result);
}
