/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's own perf record --call-graph dwarf stores the user registers and a copy of the stack
 * with each sample, and perf unwinds them when it reads the file. This test unwinds them with our
 * code, in a fake guest that has the stack and the code in its memory: both have the same bytes and
 * the same files, so each chain must be identical in every frame.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/rig/debian_recording.h"
#include "tests/rig/perf_script.h"
#include "tests/rig/rig.h"
#include "tests/unit/flat_guest.h"
#include "vmm/guest/unwind/cfi_image.h"
#include "vmm/guest/unwind/unwind.h"
#include "vmm/perf_data/perf_data_reader.h"

#define IMAGES_MAX   64
#define MAPPINGS_MAX 16384
#define SAMPLES_MAX  65536

/* Guest memory: the stack, followed by the files, and the page tables at its end. */
#define PAGE        4096ull
#define STACK_SIZE  (64u << 10)
#define TABLES_SIZE (1u << 20)
#define MEMORY_SIZE (128u << 20)

struct image {
	char name[128];
	struct user_image *image;
	struct cfi_table *table;
	uint64_t gpa, size; /* GPA of the file in guest memory */
};

/* Mapped code of a process. */
struct mapping {
	uint32_t pid;
	const struct image *image;
	uint64_t start, end, offset;
};

struct frame {
	uint64_t address; /* in the image; of a caller, that of its call, as in perf */
	const char *image, *symbol;
};

struct chain {
	uint32_t tid;
	bool is_program; /* of the user land, whose files are all available */
	unsigned int depth;
	struct frame frames[SCRIPT_DEPTH_MAX];
};

struct recording {
	struct image images[IMAGES_MAX];
	unsigned int image_count;
	struct user_images *known;
	struct flat_guest guest;
	uint64_t free;                         /* GPA after the last file */
	struct mapping mappings[MAPPINGS_MAX]; /* in order of creation */
	unsigned int mapping_count;
	struct chain *chains; /* of all samples */
	size_t chain_count;
	uint64_t time; /* of the last sample */
};

/* --- the mappings of the processes --------------------------------------------------- */

static int read_file(void *context, uint64_t offset, void *to, size_t size)
{
	return pread(*(int *)context, to, size, (off_t)offset) == (ssize_t)size ? 0 : -EFAULT;
}

static void load_code(struct recording *recording, struct image *image, int file)
{
	struct stat status;

	REQUIRE_EQUAL(fstat(file, &status), 0);
	image->size = (uint64_t)status.st_size;
	image->gpa = recording->free;
	recording->free += (image->size + PAGE - 1) & ~(PAGE - 1);
	REQUIRE(recording->free <= MEMORY_SIZE - TABLES_SIZE);
	REQUIRE_EQUAL(read_file(&file, 0, recording->guest.memory + image->gpa, image->size), 0);
}

/* No code without a file: [vdso], and files that only the guest has. */
static void load_image(struct recording *recording, struct image *image)
{
	char path[256];
	int file;

	snprintf(path, sizeof(path), USERLAND_FILES "%s", image->name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return;
	REQUIRE_EQUAL(cfi_image_compile(&image->table, &(struct elf_source){ .read = read_file,
									     .context = &file }),
		      0);
	load_code(recording, image, file);
	close(file);
	user_image_set_cfi(image->image, image->table);
}

static const struct image *find_image(struct recording *recording, const char *name)
{
	struct image *image = recording->images;
	struct user_image_key key = { .kind = USER_IMAGE_FILE };

	for (; image < recording->images + recording->image_count; image++)
		if (!strcmp(image->name, name))
			return image;
	if (recording->image_count == IMAGES_MAX)
		return NULL;
	key.inode = ++recording->image_count;
	snprintf(image->name, sizeof(image->name), "%s", name);
	image->image = user_images_find(recording->known, &key);
	load_image(recording, image);
	return image;
}

static int add_mapping(struct recording *recording, const struct mapping *mapping)
{
	if (!mapping->image || recording->mapping_count == MAPPINGS_MAX)
		return -E2BIG;
	recording->mappings[recording->mapping_count++] = *mapping;
	return 0;
}

/* The mappings of PID in [start, end) are gone. */
static void forget(struct recording *recording, uint32_t pid, uint64_t start, uint64_t end)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < recording->mapping_count; i++) {
		const struct mapping *mapping = &recording->mappings[i];

		if (mapping->pid != pid || mapping->end <= start || mapping->start >= end)
			recording->mappings[kept++] = *mapping;
	}
	recording->mapping_count = kept;
}

static int add_file_mapping(void *context, const struct perf_data_mapping_event *event)
{
	struct recording *recording = context;
	struct mapping mapping = { .pid = (uint32_t)event->pid,
				   .start = event->start,
				   .end = event->start + event->size,
				   .offset = event->offset };

	if (event->pid <= 0)
		return 0;
	forget(recording, mapping.pid, mapping.start, mapping.end);
	if (event->is_data)
		return 0;
	mapping.image = find_image(recording, event->name);
	return add_mapping(recording, &mapping);
}

static int add_exec(void *context, uint32_t pid, uint64_t time)
{
	forget(context, pid, 0, UINT64_MAX);
	return 0;
}

static int add_fork(void *context, uint32_t pid, uint32_t tid, uint32_t parent_pid,
		    uint32_t parent_tid, uint64_t time, bool before)
{
	struct recording *recording = context;
	unsigned int count;
	int error = 0;

	if (pid == parent_pid)
		return 0;
	add_exec(context, pid, time);
	count = recording->mapping_count;
	for (unsigned int i = 0; i < count && !error; i++) {
		struct mapping copy = recording->mappings[i];

		copy.pid = pid;
		if (recording->mappings[i].pid == parent_pid)
			error = add_mapping(recording, &copy);
	}
	return error;
}

/* --- the chains ---------------------------------------------------------------------- */

/* AX BX CX DX SI DI BP SP IP FLAGS CS SS R8 ... R15 (arch/x86/include/uapi/asm/perf_regs.h). */
#define REGISTERS      0xff0fffull
#define REGISTER_COUNT 20
#define SAMPLE_TYPE                                                                                \
	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR |                  \
	 PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_PERIOD | PERF_SAMPLE_REGS_USER |                      \
	 PERF_SAMPLE_STACK_USER | PERF_SAMPLE_DATA_SRC)

static void set_registers(struct guest_registers *registers, const uint64_t *of)
{
	struct guest_paging paging = registers->paging;

	*registers = (struct guest_registers){ .rax = of[0],
					       .rbx = of[1],
					       .rcx = of[2],
					       .rdx = of[3],
					       .rsi = of[4],
					       .rdi = of[5],
					       .rbp = of[6],
					       .rsp = of[7],
					       .rip = of[8],
					       .r8 = of[12],
					       .r9 = of[13],
					       .r10 = of[14],
					       .r11 = of[15],
					       .r12 = of[16],
					       .r13 = of[17],
					       .r14 = of[18],
					       .r15 = of[19],
					       .paging = paging,
					       .cpl = 3,
					       .long_mode = true };
}

/* SIZE bytes at the stack pointer are available. */
static void set_stack(struct flat_guest *guest, const void *stack, uint64_t size)
{
	uint64_t sp = guest->registers.rsp, first = sp & ~(PAGE - 1);

	REQUIRE(sp - first + size <= STACK_SIZE);
	for (uint64_t page = first; page < sp + size; page += PAGE)
		flat_guest_map(guest, guest->registers.paging.cr3, page, page - first, PAGE, 4);
	memset(guest->memory, 0, STACK_SIZE);
	memcpy(guest->memory + (sp - first), stack, size);
}

static void map_code(struct flat_guest *guest, const struct mapping *mapping)
{
	const struct image *image = mapping->image;

	for (uint64_t page = mapping->start; page < mapping->end; page += PAGE) {
		uint64_t offset = page - mapping->start + mapping->offset;

		if (offset < image->size)
			flat_guest_map(guest, guest->registers.paging.cr3, page,
				       image->gpa + offset, PAGE, 4);
	}
}

/* The memory of PID except its stack. */
static void set_code(struct recording *recording, uint32_t pid)
{
	flat_guest_unmap_all(&recording->guest);
	for (unsigned int i = 0; i < recording->mapping_count; i++)
		if (recording->mappings[i].pid == pid)
			map_code(&recording->guest, &recording->mappings[i]);
}

static struct user_map map_of(const struct recording *recording, uint32_t pid)
{
	struct user_map map = { 0 };

	for (unsigned int i = recording->mapping_count; i-- && map.count < USER_MAP_MAX;) {
		const struct mapping *mapping = &recording->mappings[i];

		if (mapping->pid == pid)
			map.mappings[map.count++] =
				(struct user_mapping){ .start = mapping->start,
						       .end = mapping->end,
						       .offset = mapping->offset,
						       .flags = USER_MAPPING_READ |
								USER_MAPPING_EXEC,
						       .image = mapping->image->image };
	}
	return map;
}

static struct frame frame_of(const struct recording *recording, uint32_t pid, uint64_t address)
{
	for (unsigned int i = 0; i < recording->mapping_count; i++) {
		const struct mapping *mapping = &recording->mappings[i];

		if (mapping->pid == pid && address >= mapping->start && address < mapping->end)
			return (struct frame){ address - mapping->start + mapping->offset,
					       mapping->image->name, NULL };
	}
	return (struct frame){ address, "[unknown]", NULL };
}

/* REGISTERS, followed by the stack: its size, its bytes, and the number of valid ones. */
static void unwind(struct recording *recording, struct chain *chain, uint32_t pid,
		   const uint64_t *registers)
{
	const uint64_t *stack = registers + REGISTER_COUNT;
	uint64_t addresses[SCRIPT_DEPTH_MAX];
	struct guest_callchain found = { .addresses = addresses, .capacity = SCRIPT_DEPTH_MAX };
	struct user_map map = map_of(recording, pid);
	struct flat_guest *guest = &recording->guest;

	set_code(recording, pid);
	set_registers(&guest->registers, registers);
	if (stack[0])
		set_stack(guest, stack + 1, stack[1 + stack[0] / 8]);
	guest_unwind(NULL, &guest->view, &guest->registers, &map, &found);
	/* Otherwise it is the program before, while the kernel loads this one. */
	if (user_map_find(&map, guest->registers.rip))
		chain->depth = found.user_depth;
	for (unsigned int i = 0; i < chain->depth; i++)
		chain->frames[i] = frame_of(recording, pid, addresses[i] - (i > 0));
}

static bool is_program(const struct recording *recording, uint32_t pid)
{
	for (unsigned int i = 0; i < recording->mapping_count; i++)
		if (recording->mappings[i].pid == pid &&
		    !strncmp(recording->mappings[i].image->name, "/mnt/bin/", 9))
			return true;
	return false;
}

/* The registers are after the callchain: a flag whether they exist, then the values. */
static int add_sample(void *context, const struct perf_data_sample *sample)
{
	struct recording *recording = context;
	struct chain *chain = &recording->chains[recording->chain_count];
	const uint64_t *registers = sample->callchain + sample->callchain_size;

	if (++recording->chain_count == SAMPLES_MAX)
		return -E2BIG;
	/* Of one CPU: the file is in order of time, as is perf script. */
	CHECK(sample->time >= recording->time);
	recording->time = sample->time;
	*chain = (struct chain){ .tid = sample->tid,
				 .is_program = is_program(recording, sample->pid) };
	if (registers[0])
		unwind(recording, chain, sample->pid, registers + 1);
	return 0;
}

static void read_recording(struct recording *recording, const char *file)
{
	const struct perf_data_events events = { .sample = add_sample,
						 .mapping = add_file_mapping,
						 .exec = add_exec,
						 .fork = add_fork,
						 .context = recording };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(user_images_create(&recording->known), 0);
	flat_guest_create(&recording->guest, MEMORY_SIZE);
	recording->free = STACK_SIZE;
	recording->chains = calloc(SAMPLES_MAX, sizeof(recording->chains[0]));
	REQUIRE(recording->chains);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, file), 0);
	REQUIRE_EQUAL(perf_data_reader_event(reader, 0)->sample_type, SAMPLE_TYPE);
	REQUIRE_EQUAL(perf_data_reader_event(reader, 0)->registers_user, REGISTERS);
	REQUIRE_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
}

static void free_recording(struct recording *recording)
{
	user_images_free(recording->known);
	for (unsigned int i = 0; i < recording->image_count; i++)
		cfi_table_free(recording->images[i].table);
	flat_guest_destroy(&recording->guest);
	free(recording->chains);
	free(recording);
}

/* --- comparison with perf ------------------------------------------------------------- */

struct comparison {
	const struct recording *recording;
	size_t next;
	unsigned long samples, frames, same, misread;
	unsigned long missing; /* those for which perf has no frame at all */
};

/*
 * perf's user frames. At the end of the stack's copy perf adds the caller at -1; after losing its
 * way, an address at which nothing is mapped.
 */
static struct chain chain_of(const struct script_sample *sample)
{
	struct chain chain = { .tid = sample->tid };

	for (size_t i = 0; i < sample->depth; i++) {
		const struct script_frame *frame = &sample->frames[i];

		if (!(frame->address >> 63))
			chain.frames[chain.depth++] =
				(struct frame){ frame->address, frame->image, frame->symbol };
	}
	if (chain.depth > 1 && !strcmp(chain.frames[chain.depth - 1].image, "[unknown]"))
		chain.depth--;
	return chain;
}

static bool is_same(const struct chain *perf, const struct chain *ours)
{
	if (perf->depth != ours->depth)
		return false;
	for (size_t i = 0; i < ours->depth; i++)
		if (perf->frames[i].address != ours->frames[i].address ||
		    strcmp(perf->frames[i].image, ours->frames[i].image) != 0)
			return false;
	return true;
}

static void print_chain(const char *who, const struct chain *chain)
{
	printf("  %s:", who);
	for (size_t i = 0; i < chain->depth; i++)
		printf(" %s(%s+%#llx)", chain->frames[i].symbol ? chain->frames[i].symbol : "",
		       chain->frames[i].image, (unsigned long long)chain->frames[i].address);
	printf("\n");
}

/*
 * Forked by storm, and executed: perf still assumes storm's libraries at their addresses, and reads
 * the tables of each relative to the lower address. Its chains omit frames and end before the
 * program's beginning.
 */
static bool is_misread(const struct script_sample *sample)
{
	return !strcmp(sample->comm, "brief");
}

static void compare(void *context, const struct script_sample *sample)
{
	struct comparison *comparison = context;
	const struct chain *ours = &comparison->recording->chains[comparison->next++];
	struct chain perf = chain_of(sample);

	REQUIRE(comparison->next <= comparison->recording->chain_count);
	REQUIRE_EQUAL(perf.tid, ours->tid);
	if (!ours->is_program || (!perf.depth && !ours->depth))
		return;
	if (is_misread(sample)) {
		comparison->misread++;
		return;
	}
	if (!perf.depth) {
		comparison->missing++;
		return;
	}
	comparison->samples++;
	comparison->frames += ours->depth;
	if (is_same(&perf, ours)) {
		comparison->same++;
		return;
	}
	printf("%s %u:\n", sample->comm, sample->tid);
	print_chain("perf", &perf);
	print_chain("ours", ours);
}

/* A kernel with so few compared samples proves nothing. */
#define ENOUGH 200

static void check_chains(const char *version)
{
	const char *directory;
	struct recording *recording;
	struct comparison comparison = { 0 };
	char file[128], environment[128], options[256];

	RIG_REQUIRED();
	directory = debian_recording(version, "off");
	if (!directory)
		return;
	snprintf(file, sizeof(file), "%s/disk", directory);
	snprintf(environment, sizeof(environment), "HOME=$PWD/%s", directory);
	snprintf(options, sizeof(options),
		 "--symfs " USERLAND_FILES " --kallsyms %s/.debug/\\[kernel.kallsyms]/*/kallsyms",
		 directory);
	recording = calloc(1, sizeof(*recording));
	REQUIRE(recording);
	read_recording(recording, file);
	comparison.recording = recording;
	perf_script_read(environment, file, options, compare, &comparison);
	CHECK_EQUAL(comparison.next, recording->chain_count);
	printf("Linux %s: %lu samples with %lu frames in user space, %lu (%.2f %%) with the same chain; %lu of brief "
	       "are left out, and %lu of which perf tells nothing\n",
	       version, comparison.samples, comparison.frames, comparison.same,
	       100.0 * (double)comparison.same / (double)comparison.samples, comparison.misread,
	       comparison.missing);
	CHECK(comparison.samples >= ENOUGH);
	CHECK(comparison.missing * 20 <= comparison.samples);
	CHECK(comparison.frames >= 4 * comparison.samples);
	/* Nearly all others are in _fini, where perf reports the caller's caller as the caller. */
	CHECK(comparison.same * 100 >= comparison.samples * 99);
	free_recording(recording);
}

TEST(userland, chains_of_debian_5_10_equal_perf_on_the_same_registers_and_stack)
{
	check_chains("5.10");
}

TEST(userland, chains_of_debian_6_1_equal_perf_on_the_same_registers_and_stack)
{
	check_chains("6.1");
}

TEST(userland, chains_of_debian_6_12_equal_perf_on_the_same_registers_and_stack)
{
	check_chains("6.12");
}

TEST(userland, chains_of_debian_7_2_equal_perf_on_the_same_registers_and_stack)
{
	check_chains("7.2");
}
