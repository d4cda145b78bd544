/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/tasks_truth.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/rig/debian_recording.h"
#include "tests/rig/perf_script.h"
#include "tests/unit/shim/test.h"
#include "vmm/symbols/elf_symbols.h"

#define TASKS_IMAGE "/bin/tasks"

static const char *const images[TASKS_IMAGES] = { TASKS_IMAGE, JAILED_IMAGE, LAYERED_IMAGE,
						  DELETED_IMAGE, MEMORY_IMAGE };
static const char *const owners_of_copies[TASKS_IMAGES] = { "", "jailed", "layered", "deleted",
							    "memory" };

struct line_sample {
	unsigned int pid, tid;
	char comm[32];
	char owner[32];        /* NAME of run_NAME in its chain; "": none */
	unsigned int of_image; /* addresses in the program's image, and in other files */
	unsigned int of_others;
	char image[64]; /* the image that perf shows for its addresses in the program; "": none */
};

/* Lines of perf script. */
struct reading {
	struct symbols *program;
	struct line_sample sample;
	struct tasks_tally *tally;
};

/* The function run_NAME that contains an address. */
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

const char *tasks_truth_image(const char *name)
{
	for (size_t i = 1; i < TASKS_IMAGES; i++)
		if (!strcmp(name, owners_of_copies[i]))
			return images[i];
	return TASKS_IMAGE;
}

/*
 * The index of the image; TASKS_IMAGES: none. The agent reports these paths in a chroot and before
 * a file is deleted; recordings have the other one for a memfd (docs/perf-data.md).
 */
static size_t image_number(const char *image)
{
	size_t i = 0;

	if (!strcmp(image, "/tmp/deleted"))
		image = DELETED_IMAGE;
	if (!strcmp(image, "/inside"))
		image = JAILED_IMAGE;
	if (!strcmp(image, &MEMORY_IMAGE[1]))
		image = MEMORY_IMAGE;
	while (i < TASKS_IMAGES && strcmp(image, images[i]) != 0)
		i++;
	return i;
}

static bool is_program(const char *image)
{
	return image_number(image) < TASKS_IMAGES;
}

/* LINE ends with "(IMAGE)", which may contain brackets itself. */
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
	if (*sample->image &&
	    image_number(sample->image) != image_number(tasks_truth_image(sample->owner)))
		FAIL_TEST("a sample in run_%s is attributed to %s", sample->owner, sample->image);
}

static void count_sample(const struct line_sample *sample, struct tasks_tally *tally)
{
	if (!*sample->owner)
		return;
	check_copy(sample);
	tally->identified++;
	tally->images_right += sample->of_image;
	tally->images_wrong += sample->of_others;
	if (!strncmp(sample->comm, "vcpu ", 5))
		return;
	tally->known++;
	if (is_right(sample))
		return;
	tally->wrong++;
	printf("a sample in run_%s is attributed to %s, %u/%u\n", sample->owner, sample->comm,
	       sample->pid, sample->tid);
}

/* "COMM PID/TID", where COMM may contain blanks and slashes. */
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

/*
 * In user space: names in brackets are not files. perf prints an address in an image as its offset.
 */
static void read_frame(const struct symbols *program, unsigned long long address, const char *image,
		       struct line_sample *sample)
{
	bool in_program = is_program(image);

	if (in_program)
		snprintf(sample->image, sizeof(sample->image), "%.63s", image);
	sample->of_image += in_program;
	sample->of_others += *image == '/' && strncmp(image, "//anon", 6) != 0 && !in_program;
	find_owner(program, address + (in_program ? TASKS_START : 0), sample->owner,
		   sizeof(sample->owner));
}

static void check_sample(void *context, char *line)
{
	struct reading *reading = context;
	unsigned long long address;
	char image[512];

	if (*line == '\n')
		count_sample(&reading->sample, reading->tally);
	else if (*line == '\t' && sscanf(line, "%llx", &address) == 1 &&
		 read_image(line, image, sizeof(image)))
		read_frame(reading->program, address, image, &reading->sample);
	else if (!read_heading(line, &reading->sample))
		FAIL_TEST("unexpected line of perf script: %s", line);
}

static void check_code(void *context, char *line)
{
	struct reading *reading = context;
	struct tasks_tally *tally = reading->tally;
	unsigned long long address;
	struct symbol symbol;
	char image[512];

	if (sscanf(line, "%llx", &address) != 1 || !read_image(line, image, sizeof(image)) ||
	    !symbols_find(reading->program, address, &symbol))
		return;
	tally->code++;
	if (is_program(image)) {
		tally->code_right++;
		tally->in[image_number(image)]++;
	} else if (strcmp(image, "[unknown]") != 0) {
		FAIL_TEST("%s at %#llx is attributed to %s", symbol.name, address, image);
	}
}

/*
 * NAME is perf's symbol for ADDRESS of the program: one of the function's symbols. The C library
 * has several functions with the same address.
 */
static void check_name(const struct symbols *program, unsigned long long address, const char *name)
{
	struct symbol symbol, called;

	if (!symbols_find(program, address, &symbol) ||
	    (strcmp(symbol.name, name) != 0 &&
	     (!symbols_find_name(program, name, &called) || symbol.start != called.start)))
		FAIL_TEST("%#llx of " TASKS_IMAGE " has the symbol %s", address, name);
}

static void check_symbol(void *context, char *line)
{
	struct reading *reading = context;
	unsigned long long address;
	char name[512], image[512];

	if (sscanf(line, "%llx %511s", &address, name) != 2 ||
	    !read_image(line, image, sizeof(image)) || !is_program(image) ||
	    !strcmp(name, "[unknown]"))
		return;
	reading->tally->named[image_number(image)]++;
	check_name(reading->program, address, name);
}

/* FORMAT makes the command for the directory. */
static void read_lines(const char *directory, const char *format,
		       void (*see)(void *context, char *line), struct tasks_tally *tally)
{
	struct reading reading = { .tally = tally };
	char command[512];

	REQUIRE_EQUAL(elf_symbols_load(&reading.program, TASKS_PROGRAM, ELF_VIRTUAL_ADDRESSES,
				       (struct span){ 0 }),
		      0);
	snprintf(command, sizeof(command), format, directory);
	each_line(command, see, &reading);
	symbols_free(reading.program);
}

void tasks_truth_count_samples(const char *directory, struct tasks_tally *tally)
{
	read_lines(
		directory,
		"perf script -i %s/perf.data -F comm,pid,tid,ip,dso --kallsyms /dev/null 2>/dev/null",
		check_sample, tally);
}

/* Without call chains perf prints absolute addresses. */
void tasks_truth_count_code(const char *directory, struct tasks_tally *tally)
{
	read_lines(directory,
		   "perf script -G -i %s/perf.data -F ip,dso --kallsyms /dev/null 2>/dev/null",
		   check_code, tally);
}

/* With the symbols read from guest memory. */
void tasks_truth_count_symbols(const char *directory, struct tasks_tally *tally)
{
	read_lines(directory,
		   "HOME=%1$s perf script -G -i %1$s/perf.data -F ip,sym,dso 2>/dev/null",
		   check_symbol, tally);
}

void tasks_truth_check_named(const char *what, const struct tasks_tally *tally, bool all)
{
	for (size_t i = 0; i < TASKS_IMAGES; i++) {
		printf("%s: of %lu samples in %s, %lu are symbolized\n", what, tally->in[i],
		       images[i], tally->named[i]);
		CHECK(tally->in[i] > 0);
		CHECK(!all ||
		      tally->in[i] - tally->named[i] <= fmax(2, 0.05 * (double)tally->in[i]));
	}
}

void tasks_truth_check(const char *what, const char *directory)
{
	struct tasks_tally tally = { 0 };

	tasks_truth_count_samples(directory, &tally);
	tasks_truth_count_code(directory, &tally);
	tasks_truth_count_symbols(directory, &tally);
	printf("%s: the chains of %lu samples identify the task; %lu have a task, %lu a wrong one\n",
	       what, tally.identified, tally.known, tally.wrong);
	printf("%s: of %lu samples in the program's code, %lu are in its image; of all addresses, %lu are, %lu in other images\n",
	       what, tally.code, tally.code_right, tally.images_right, tally.images_wrong);
	CHECK(tally.code >= TASKS_ENOUGH / 10);
	tasks_truth_check_named(what, &tally, true);
	CHECK(tally.code_right * 100 >= tally.code * 95);
	CHECK_EQUAL(tally.images_wrong, 0);
	CHECK(tally.identified >= TASKS_ENOUGH);
	CHECK(tally.known * 100 >= tally.identified * 99);
	CHECK_EQUAL(tally.wrong, 0);
}

bool tasks_truth_find(const struct profile_stack *stack, char *name, size_t size)
{
	static const char *const names[] = { "alpha",   "beta",    "thread", "ping",
					     "pong",    "program", "jailed", "layered",
					     "deleted", "memory",  "brief" };
	char comm[32];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(comm, sizeof(comm), "%s-%u", names[i], stack->tid);
		snprintf(name, size, "%s", names[i]);
		if (!strcmp(stack->comm, comm))
			return true;
	}
	return false;
}

/* The cgroup that tests/rig/guest/tasks.c has put it into. */
static void expect_cgroup(const char *name, char *cgroup, size_t size)
{
	if (!strcmp(name, "ping") || !strcmp(name, "pong"))
		snprintf(cgroup, size, "/");
	else
		snprintf(cgroup, size, "/tasks.slice/%s.scope",
			 !strcmp(name, "thread") ? "beta" : name);
}

void tasks_truth_check_cgroups(const char *what, const char *directory)
{
	struct profile_options options = { .threads = true, .event = "0", .vcpu = -1 };
	char input[160], name[16], cgroup[64];
	uint64_t right = 0, unknown = 0;
	struct profile *profile;

	snprintf(input, sizeof(input), "%s/perf.data", directory);
	options.input = input;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	for (size_t i = 0; i < profile_stack_count(profile); i++) {
		const struct profile_stack *stack = profile_stack(profile, i);

		if (!tasks_truth_find(stack, name, sizeof(name)))
			continue;
		expect_cgroup(name, cgroup, sizeof(cgroup));
		right += !strcmp(stack->cgroup, cgroup) ? stack->samples : 0;
		unknown += !*stack->cgroup ? stack->samples : 0;
		if (*stack->cgroup && strcmp(stack->cgroup, cgroup) != 0)
			FAIL_TEST("%s is attributed to %s", stack->comm, stack->cgroup);
	}
	profile_free(profile);
	printf("%s: %llu samples in the right cgroup, %llu unknown\n", what,
	       (unsigned long long)right, (unsigned long long)unknown);
	CHECK(right >= TASKS_ENOUGH);
	/*
	 * A process that ended before the scan has no cgroup any more; the brief processes end all
	 * the time.
	 */
	CHECK(right >= 19 * unknown);
}
