/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes samples after the guest has continued: to tasks, mappings and callers. */
#include <string.h>
#include <time.h>

#include "shared/clock_ns.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/user_guest.h"
#include "vmm/attach/user_space.h"
#include "vmm/guest/linux/vma.h"
#include "vmm/guest/page_walk.h"

#define PROGRAM 0x400000ull
#define LIBRARY 0x500000ull
#define PLUGIN  0x600000ull
#define CODE    (VMA_READ | VMA_EXEC)
#define PGD     0x1f0 /* in struct mm_struct, after the fields of user_guest */
#define AT      (USER_GUEST_DIRECT + 0x5000)
#define SET     0x100 /* in struct task_struct, as the following two */
#define USERS   0x108
#define TID     0x110
/* GPAs of their code */
#define PROGRAM_PAGE 0x201000ull
#define LIBRARY_PAGE 0x202000ull
#define PLUGIN_PAGE  0x203000ull
#define OTHER_PAGE   0x204000ull

static const struct user_space_cpu cpu = { .known = true };

/* A program that was called by its library, as seen by a backend. */
struct moment {
	struct user_guest guest;
	uint64_t plugin_vma;
	struct guest_tasks_snapshot tasks;
	struct user_space space;
	struct attach_page pages[3];
	struct attach_guest_state stack;
	struct sample sample;
	uint64_t addresses[8];
	struct guest_callchain chain;
};

static uint64_t file(struct user_guest *guest, const char *name, uint64_t number)
{
	return user_guest_file(guest, guest->root_mount,
			       user_guest_dentry(guest, guest->root, name), number);
}

/* call *%rax that ends at GPA. */
static void put_call(struct moment *moment, uint64_t gpa)
{
	memcpy(moment->guest.guest.memory + gpa - 2, "\xff\xd0", 2);
}

static void map_page(struct moment *moment, uint64_t gva, uint64_t gpa)
{
	flat_guest_map(&moment->guest.guest, moment->guest.kernel.paging.cr3, gva, gpa, 4096, 4);
}

static void map_all(struct moment *moment)
{
	struct user_guest *guest = &moment->guest;

	user_guest_map(guest, PROGRAM, PROGRAM + 0x4000, 0, CODE, file(guest, "program", 1));
	user_guest_map(guest, LIBRARY, LIBRARY + 0x4000, 3, CODE, file(guest, "library", 2));
	moment->plugin_vma =
		user_guest_map(guest, PLUGIN, PLUGIN + 0x4000, 0, CODE, file(guest, "plugin", 3));
	user_guest_build(guest);
	map_page(moment, PROGRAM + 0x1000, PROGRAM_PAGE);
	map_page(moment, LIBRARY, LIBRARY_PAGE);
	map_page(moment, PLUGIN, PLUGIN_PAGE);
	put_call(moment, PLUGIN_PAGE + 0x20);
	put_call(moment, PLUGIN_PAGE + 0x30);
	put_call(moment, LIBRARY_PAGE + 0x10);
}

static void record_state(struct moment *moment)
{
	uint64_t cr3 = moment->guest.kernel.paging.cr3 & ~4095ull;

	moment->tasks.current = (struct guest_task_snapshot){ .at = AT,
							      .stack = USER_GUEST_DIRECT + 0x8000,
							      .mm = moment->guest.mm,
							      .page_table = USER_GUEST_DIRECT + cr3,
							      .tgid = 70,
							      .pid = 71,
							      .comm = "worker" };
	user_guest_put(&moment->guest, moment->guest.mm + PGD, moment->tasks.current.page_table);
	moment->pages[0] = (struct attach_page){ PROGRAM + 0x1000, PROGRAM_PAGE };
	moment->pages[1] = (struct attach_page){ PLUGIN, PLUGIN_PAGE };
	moment->pages[2] = (struct attach_page){ LIBRARY, LIBRARY_PAGE };
	moment->stack = (struct attach_guest_state){ .registers = moment->guest.guest.registers,
						     .tasks = &moment->tasks,
						     .pages = moment->pages,
						     .page_count = 3 };
	moment->stack.registers.cpl = 3;
	moment->stack.registers.rip = PROGRAM + 0x1234;
}

static void make(struct moment *moment)
{
	static const uint64_t chain[] = { PROGRAM + 0x1234, PLUGIN + 0x20, PLUGIN + 0x30,
					  LIBRARY + 0x10 };

	memset(moment, 0, sizeof(*moment));
	user_guest_make(&moment->guest, true);
	moment->guest.kernel.tasks = (struct guest_task_layout){ .known = true,
								 .stack_size = 0x4000,
								 .page_table = PGD };
	map_all(moment);
	record_state(moment);
	memcpy(moment->addresses, chain, sizeof(chain));
	moment->chain = (struct guest_callchain){ .addresses = moment->addresses,
						  .capacity = 8,
						  .user_depth = 4 };
	moment->sample.pid = moment->sample.tid = SAMPLE_TASK_UNKNOWN;
}

static void unmake(struct moment *moment)
{
	user_guest_free(&moment->guest);
}

/* Attributes a sample of TIME. */
static void attribute_at(struct moment *moment, uint64_t time)
{
	moment->sample.time = time;
	user_space_attribute(&cpu, &moment->guest.kernel, &moment->guest.guest.view, &moment->stack,
			     &moment->sample, &moment->chain, &moment->space);
	user_images_load(moment->guest.kernel.images, &moment->guest.kernel,
			 &moment->guest.guest.view);
}

/* Attributes a sample of now. */
static void attribute(struct moment *moment)
{
	attribute_at(moment, clock_ns(CLOCK_MONOTONIC_RAW));
}

static const char *name_of(const struct moment *moment, unsigned int index)
{
	const struct user_mapping *mapping = &moment->space.map.mappings[index];

	return index < moment->space.map.count && mapping->image ? user_image_name(mapping->image)
								 : "";
}

TEST(attach_user_space, a_sample_has_its_task_and_its_images)
{
	FIXTURE(struct moment, moment, make, unmake);
	attribute(&moment);
	CHECK_EQUAL(moment.sample.pid, 70);
	CHECK_EQUAL(moment.sample.tid, 71);
	CHECK_STRING(moment.sample.comm, "worker");
	CHECK_EQUAL(moment.chain.user_depth, 4);
	CHECK_EQUAL(moment.chain.flags, 0);
	CHECK_EQUAL(moment.space.map.count, 3);
	CHECK_STRING(name_of(&moment, 0), "/program");
	CHECK_STRING(name_of(&moment, 1), "/plugin");
	CHECK_STRING(name_of(&moment, 2), "/library");
}

/* Maps another plug-in at the same addresses. */
static void replace_plugin(struct moment *moment)
{
	user_guest_put(&moment->guest, moment->plugin_vma + moment->guest.kernel.vmas.vma_file,
		       file(&moment->guest, "another", 4));
	map_page(moment, PLUGIN, OTHER_PAGE);
}

/* dlclose(), and dlopen() of another one: the VMA has changed. */
TEST(attach_user_space, later_mappings_are_not_used)
{
	FIXTURE(struct moment, moment, make, unmake);
	replace_plugin(&moment);
	attribute(&moment);
	CHECK_EQUAL(moment.sample.pid, 70);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.chain.flags, SAMPLE_USER_TRUNCATED);
	CHECK_EQUAL(moment.space.map.count, 1);
	CHECK_STRING(name_of(&moment, 0), "/program");
}

/* The process has exited, and its mm_struct was reused with other page tables. */
TEST(attach_user_space, memory_of_another_process_is_not_used)
{
	FIXTURE(struct moment, moment, make, unmake);
	user_guest_put(&moment.guest, moment.guest.mm + PGD,
		       moment.tasks.current.page_table + 0x5000);
	attribute(&moment);
	CHECK_EQUAL(moment.sample.pid, 70);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.chain.flags, SAMPLE_USER_TRUNCATED);
	CHECK_EQUAL(moment.space.map.count, 0);
}

TEST(attach_user_space, addresses_without_a_page_have_no_mapping)
{
	FIXTURE(struct moment, moment, make, unmake);
	moment.stack.page_count = 0;
	attribute(&moment);
	CHECK_EQUAL(moment.sample.tid, 71);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.space.map.count, 0);
}

/* The process has exited, and its page tables were reused. */
TEST(attach_user_space, freed_page_tables_are_not_used)
{
	FIXTURE(struct moment, moment, make, unmake);
	moment.stack.registers.paging.cr3 = moment.guest.kernel.paging.cr3 + 0x5000;
	attribute(&moment);
	CHECK_EQUAL(moment.sample.pid, SAMPLE_TASK_UNKNOWN);
	CHECK_EQUAL(moment.space.map.count, 0);
	CHECK_EQUAL(moment.chain.user_depth, 1);
}

/* Without frame pointers, RBP is an arbitrary number. */
TEST(attach_user_space, callers_follow_a_call)
{
	struct moment moment;

	make(&moment);
	moment.addresses[2] += 4;
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 2);
	CHECK_EQUAL(moment.chain.flags, SAMPLE_USER_TRUNCATED);
	user_guest_free(&moment.guest);
	/* With and without a known task. */
	make(&moment);
	moment.addresses[2] += 4;
	moment.stack.tasks = NULL;
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 2);
	CHECK_EQUAL(moment.chain.flags, SAMPLE_USER_TRUNCATED);
	user_guest_free(&moment.guest);
}

/* Code is read once for several samples, but not before a sample was taken. */
TEST(attach_user_space, code_is_read_after_the_sample)
{
	/* With and without a known task. */
	for (int known = 0; known < 2; known++) {
		uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW);
		struct moment moment;

		make(&moment);
		moment.stack.tasks = known ? &moment.tasks : NULL;
		attribute_at(&moment, before);
		CHECK_EQUAL(moment.chain.user_depth, 4);
		memset(moment.guest.guest.memory + PLUGIN_PAGE + 0x2e, 0x90, 2);
		attribute_at(&moment, before);
		CHECK_EQUAL(moment.chain.user_depth, 4);
		attribute(&moment);
		CHECK_EQUAL(moment.chain.user_depth, 2);
		user_guest_free(&moment.guest);
	}
}

/* What existed at the lookup for the first sample existed at the second one, whatever changed
 * later. */
TEST(attach_user_space, a_batch_shares_mappings)
{
	uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW);

	FIXTURE(struct moment, moment, make, unmake);
	attribute_at(&moment, before);
	CHECK_EQUAL(moment.space.map.count, 3);
	replace_plugin(&moment);
	attribute_at(&moment, before);
	CHECK_EQUAL(moment.chain.user_depth, 4);
	CHECK_EQUAL(moment.space.map.count, 3);
	CHECK_STRING(name_of(&moment, 1), "/plugin");
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.space.map.count, 1);
}

/* In the same batch, but the first sample's page tables map it elsewhere. */
TEST(attach_user_space, shared_mappings_need_the_same_pages)
{
	uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW);

	FIXTURE(struct moment, moment, make, unmake);
	attribute_at(&moment, before);
	moment.pages[1].gpa = OTHER_PAGE;
	attribute_at(&moment, before);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.space.map.count, 1);
	CHECK_STRING(name_of(&moment, 0), "/program");
}

/* The other sample is of a process with the same page tables. */
TEST(attach_user_space, shared_mappings_need_the_same_memory)
{
	uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW), root = 0;

	FIXTURE(struct moment, moment, make, unmake);
	attribute_at(&moment, before);
	CHECK_EQUAL(moment.space.map.count, 3);
	moment.tasks.current.mm = user_guest_allocate(&moment.guest, 0x200, 64);
	user_guest_put(&moment.guest, moment.tasks.current.mm + PGD,
		       moment.tasks.current.page_table);
	user_guest_put(&moment.guest, moment.tasks.current.mm + moment.guest.kernel.vmas.mm_root,
		       root);
	attribute_at(&moment, before);
	CHECK_EQUAL(moment.sample.pid, 70);
	CHECK_EQUAL(moment.space.map.count, 0);
}

#define LARGE      0x800000ull /* spans two page tables */
#define LARGE_PAGE 0x205000ull

/* The page table of the second page was not read before the lookup, so the result does not prove
 * anything for it. */
TEST(attach_user_space, shared_mappings_need_page_tables_read_before)
{
	uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW), vma;

	FIXTURE(struct moment, moment, make, unmake);
	vma = user_guest_map(&moment.guest, LARGE, LARGE + 0x400000, 0, CODE,
			     file(&moment.guest, "large", 5));
	user_guest_build(&moment.guest);
	map_page(&moment, LARGE, LARGE_PAGE);
	map_page(&moment, LARGE + 0x200000, LARGE_PAGE + 0x1000);
	moment.pages[0] = (struct attach_page){ LARGE, LARGE_PAGE };
	moment.pages[1] = (struct attach_page){ LARGE + 0x200000, LARGE_PAGE + 0x1000 };
	moment.stack.page_count = moment.chain.user_depth = 1;
	moment.addresses[0] = LARGE;
	attribute_at(&moment, before);
	CHECK_STRING(name_of(&moment, 0), "/large");
	user_guest_put(&moment.guest, vma + moment.guest.kernel.vmas.vma_file,
		       file(&moment.guest, "another", 4));
	attribute_at(&moment, before);
	CHECK_STRING(name_of(&moment, 0), "/large");
	moment.stack.page_count = 2;
	moment.addresses[0] = LARGE + 0x200000;
	attribute_at(&moment, before);
	CHECK_STRING(name_of(&moment, 0), "/another");
}

/* The plug-in's function has no frame pointer and is missing: the library called that one, not
 * the program's. */
TEST(attach_user_space, callers_of_another_function_are_cut)
{
	static const uint8_t call[] = { 0xe8, 0x90, 0xff, 0x0f, 0 }; /* of PLUGIN - 0x60 */

	FIXTURE(struct moment, moment, make, unmake);
	moment.addresses[1] = LIBRARY + 0x10;
	moment.chain.user_depth = 2;
	memcpy(moment.guest.guest.memory + LIBRARY_PAGE + 0x10 - sizeof(call), call, sizeof(call));
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.chain.flags, SAMPLE_USER_TRUNCATED);
}

/* An entry of an i386 PLT has the address of its slot, a 64-bit one the distance to it. */
static void call_through_plt(struct moment *moment, bool long_mode,
			     const struct guest_tasks_snapshot *tasks)
{
	static const uint8_t call[] = { 0xe8, 0xf0, 0, 0, 0 }; /* of LIBRARY + 0x100 */
	static const uint8_t jump[] = {
		0xff, 0x25, 0, 0x30, 0x50, 0
	}; /* the contents of LIBRARY + 0x3000 */
	uint8_t *library = moment->guest.guest.memory + LIBRARY_PAGE;

	moment->addresses[1] = LIBRARY + 0x10;
	moment->chain.user_depth = 2;
	memcpy(library + 0x10 - sizeof(call), call, sizeof(call));
	memcpy(library + 0x100, jump, sizeof(jump));
	moment->stack.registers.long_mode = long_mode;
	moment->stack.tasks = tasks;
	attribute(moment);
}

TEST(attach_user_space, callers_through_a_32_bit_plt_are_kept)
{
	/* With and without a known task. */
	for (int known = 0; known < 2; known++)
		for (int long_mode = 0; long_mode < 2; long_mode++) {
			struct moment moment;

			make(&moment);
			call_through_plt(&moment, long_mode, known ? &moment.tasks : NULL);
			CHECK_EQUAL(moment.sample.pid, known ? 70u : SAMPLE_TASK_UNKNOWN);
			CHECK_EQUAL(moment.chain.user_depth, long_mode ? 1 : 2);
			CHECK_EQUAL(moment.chain.flags, long_mode ? SAMPLE_USER_TRUNCATED : 0);
			user_guest_free(&moment.guest);
		}
}

TEST(attach_user_space, without_a_cpu_or_tasks_nothing_is_attributed)
{
	const struct user_space_cpu unknown = { 0 };

	FIXTURE(struct moment, moment, make, unmake);
	user_space_attribute(&unknown, &moment.guest.kernel, &moment.guest.guest.view,
			     &moment.stack, &moment.sample, &moment.chain, &moment.space);
	CHECK_EQUAL(moment.sample.pid, SAMPLE_TASK_UNKNOWN);
	moment.stack.tasks = NULL;
	attribute(&moment);
	CHECK_EQUAL(moment.sample.pid, SAMPLE_TASK_UNKNOWN);
	CHECK_EQUAL(moment.space.map.count, 0);
}

/* The page tables of an unknown task prove nothing. */
TEST(attach_user_space, callers_by_page_tables_of_an_unknown_task_are_cut)
{
	struct moment moment;

	make(&moment);
	moment.stack.cr3_of_task = true;
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 4);
	user_guest_free(&moment.guest);
	make(&moment);
	moment.stack.cr3_of_task = true;
	moment.stack.tasks = NULL;
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK(moment.chain.flags & SAMPLE_USER_TRUNCATED);
	user_guest_free(&moment.guest);
}

/* The task is known from kernel memory only: firmware or another kernel may run. */
TEST(attach_user_space, code_outside_of_the_task_s_page_tables_is_not_attributed)
{
	FIXTURE(struct moment, moment, make, unmake);
	moment.stack.cr3_of_task = true;
	moment.stack.registers.rip = moment.addresses[0] = PROGRAM + 0x2234;
	attribute(&moment);
	CHECK_EQUAL(moment.sample.pid, SAMPLE_TASK_UNKNOWN);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.space.map.count, 0);
}

static const struct guest_cgroup_layout cgroups = { .known = true,
						    .task_users = USERS,
						    .task_set = SET,
						    .set_cgroup = 0x8,
						    .cgroup_node = 0x10,
						    .node_count = 0,
						    .node_parent = 0x8,
						    .node_name = 0x10,
						    .node_id = 0x18 };

/* A css_set of a new cgroup ID below PARENT, whose node is *NODE. */
static uint64_t make_set(struct moment *moment, uint64_t id, const char *name, uint64_t parent,
			 uint64_t *node)
{
	struct user_guest *guest = &moment->guest;
	uint64_t set = user_guest_allocate(guest, 0x40, 64),
		 group = user_guest_allocate(guest, 0x40, 64);
	uint64_t text = 0;

	*node = user_guest_allocate(guest, 0x40, 64);
	strncpy((char *)&text, name, sizeof(text) - 1);
	user_guest_put(guest, set + cgroups.set_cgroup, group);
	user_guest_put(guest, group + cgroups.cgroup_node, *node);
	user_guest_put(guest, *node + cgroups.node_count, 1);
	user_guest_put(guest, *node + cgroups.node_parent, parent);
	user_guest_put(guest, *node + cgroups.node_name, *node + 0x20);
	user_guest_put(guest, *node + cgroups.node_id, id);
	user_guest_put(guest, *node + 0x20, text);
	return set;
}

/* Moves the sample's task into the cgroup of SET. */
static void enter(struct moment *moment, uint64_t set)
{
	user_guest_put(&moment->guest, AT + SET, set);
	moment->tasks.current.set = set;
}

static void make_cgroups(struct moment *moment, uint64_t sets[2])
{
	uint64_t root, node;

	make(moment);
	moment->guest.kernel.tasks.pid = TID;
	moment->guest.kernel.tasks.cgroups = cgroups;
	REQUIRE_EQUAL(guest_cgroups_create(&moment->guest.kernel.cgroups), 0);
	make_set(moment, 1, "", 0, &root);
	sets[0] = make_set(moment, 17, "system", root, &node);
	sets[1] = make_set(moment, 18, "user", root, &node);
	user_guest_put(&moment->guest, AT + USERS, 1);
	user_guest_put(&moment->guest, AT + TID, 71);
	enter(moment, sets[0]);
}

static void free_cgroups(struct moment *moment)
{
	guest_cgroups_free(moment->guest.kernel.cgroups);
	user_guest_free(&moment->guest);
}

/* Attributes a sample of TIME, in ns. */
static uint64_t cgroup_at(struct moment *moment, uint64_t time)
{
	moment->sample = (struct sample){ 0 };
	attribute_at(moment, time);
	return moment->sample.cgroup;
}

TEST(attach_user_space, a_sample_has_the_cgroup_of_its_task)
{
	struct kernel_memory memory;
	uint64_t sets[2];

	FIXTURE(struct moment, moment, make_cgroups, free_cgroups, sets);
	CHECK_EQUAL(cgroup_at(&moment, 1), 17);
	CHECK_EQUAL(moment.sample.cgroups, guest_cgroups_generation(moment.guest.kernel.cgroups));
	memory = (struct kernel_memory){ .view = &moment.guest.guest.view,
					 .paging = &moment.guest.kernel.paging };
	guest_cgroups_load(moment.guest.kernel.cgroups, &memory, &cgroups);
	CHECK_STRING(guest_cgroups_path(moment.guest.kernel.cgroups, 17), "/system");
	/* It was moved, and then sampled. */
	enter(&moment, sets[1]);
	CHECK_EQUAL(cgroup_at(&moment, 2), 18);
}

TEST(attach_user_space, a_task_that_was_moved_or_has_ended_since_has_no_cgroup)
{
	struct moment moment;
	uint64_t sets[2];

	make_cgroups(&moment, sets);
	user_guest_put(&moment.guest, AT + SET, sets[1]);
	CHECK_EQUAL(cgroup_at(&moment, 1), 0);
	CHECK_EQUAL(moment.sample.cgroups, 0);
	CHECK_EQUAL(moment.sample.pid, 70);
	free_cgroups(&moment);
	make_cgroups(&moment, sets);
	user_guest_put(&moment.guest, AT + USERS, 0);
	CHECK_EQUAL(cgroup_at(&moment, 1), 0);
	free_cgroups(&moment);
	/* Another task has reused its memory and its css_set. */
	make_cgroups(&moment, sets);
	user_guest_put(&moment.guest, AT + TID, 99);
	CHECK_EQUAL(cgroup_at(&moment, 1), 0);
	free_cgroups(&moment);
}

/* Once per second: the result holds for a task with the same css_set. */
TEST(attach_user_space, a_cgroup_is_not_looked_up_for_each_sample)
{
	uint64_t sets[2];

	FIXTURE(struct moment, moment, make_cgroups, free_cgroups, sets);
	CHECK_EQUAL(cgroup_at(&moment, 1000), 17);
	user_guest_put(&moment.guest, AT + USERS, 0);
	CHECK_EQUAL(cgroup_at(&moment, 999999999), 17);
	CHECK_EQUAL(cgroup_at(&moment, 1000001000), 0);
}

/* The task was moved away and into a new cgroup, whose css_set reuses the memory of the old one. */
TEST(attach_user_space, a_reused_css_set_is_looked_up_again)
{
	uint64_t sets[2], group;

	FIXTURE(struct moment, moment, make_cgroups, free_cgroups, sets);
	CHECK_EQUAL(cgroup_at(&moment, 1000), 17);
	group = user_guest_get(&moment.guest, sets[1] + cgroups.set_cgroup);
	user_guest_put(&moment.guest, sets[0] + cgroups.set_cgroup, group);
	CHECK_EQUAL(cgroup_at(&moment, 2000), 18);
}

/* Copied stacks */

#define STACK     0x7ffc0000f000ull
#define STACK_TOP 0x7ffc0000f080ull
#define NXE       (1ull << 11)

static const struct guest_space_state space_state = { .number = 9, .changes = 3 };

static void put_state(struct moment *moment, const struct guest_space_state *state)
{
	const struct guest_vma_layout *vmas = &moment->guest.kernel.vmas;

	user_guest_put(&moment->guest, moment->guest.mm + vmas->mm_space, state->number);
	user_guest_put(&moment->guest, moment->guest.mm + vmas->mm_changes, state->changes);
}

/* The frames of the chain of make(), in COPY. The stack itself is not in guest memory. */
static void copy_stack(struct moment *moment, uint64_t copy[16])
{
	memset(copy, 0, 16 * sizeof(copy[0]));
	copy[2] = STACK + 0x30;
	copy[3] = PLUGIN + 0x20;
	copy[6] = STACK + 0x60;
	copy[7] = PLUGIN + 0x30;
	copy[13] = LIBRARY + 0x10;
	memset(moment->guest.guest.memory + PROGRAM_PAGE, 0x90, 4096);
	moment->stack.registers.rsp = STACK;
	moment->stack.registers.rbp = STACK + 0x10;
	moment->stack.registers.paging.efer |= NXE;
	moment->stack.registers.long_mode = true;
	moment->stack.copied = true;
	moment->stack.page_count = 1;
	moment->stack.stacks[ATTACH_STACK_USER] =
		(struct attach_stack){ STACK, 16 * sizeof(copy[0]), (const uint8_t *)copy };
	moment->tasks.current.space = space_state;
	put_state(moment, &space_state);
}

static void make_copied(struct moment *moment)
{
	static uint64_t copy[16];

	make(moment);
	copy_stack(moment, copy);
	attribute(moment);
	/* The images are known now: they have no tables, but frame pointers. */
	for (unsigned int i = 0; i < moment->space.map.count; i++)
		user_image_set_cfi(moment->space.map.mappings[i].image, NULL);
}

/* Each attribution finds the tables of one more image. */
static void attribute_copied(struct moment *moment)
{
	for (int i = 0; i < 4; i++) {
		attribute(moment);
		for (unsigned int j = 0; j < moment->space.map.count; j++)
			user_image_set_cfi(moment->space.map.mappings[j].image, NULL);
	}
}

TEST(attach_user_space, a_copied_stack_is_unwound)
{
	static const uint64_t callers[] = { PROGRAM + 0x1234, PLUGIN + 0x20, PLUGIN + 0x30,
					    LIBRARY + 0x10 };

	FIXTURE(struct moment, moment, make_copied, unmake);
	CHECK_EQUAL(moment.chain.user_depth, 4); /* no table was tried yet */
	attribute_copied(&moment);
	REQUIRE_EQUAL(moment.chain.user_depth, 4);
	CHECK(!memcmp(moment.addresses, callers, sizeof(callers)));
	CHECK_EQUAL(moment.chain.flags, 0);
	CHECK_EQUAL(moment.space.map.count, 3);
	/* What is not in the copy cannot be read. */
	moment.stack.stacks[ATTACH_STACK_USER].size = 0x40;
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 3);
	CHECK_EQUAL(moment.chain.flags, SAMPLE_USER_TRUNCATED);
}

TEST(attach_user_space, mappings_of_a_changed_address_space_are_not_used)
{
	static const struct {
		struct guest_space_state now;
		uint16_t depth;
		unsigned int mappings;
	} cases[] = { { { 9, 3 }, 4, 3 },    /* unchanged */
		      { { 9, 4 }, 1, 1 },    /* only RIP's page was recorded */
		      { { 10, 3 }, 1, 0 } }; /* another address space */

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FIXTURE(struct moment, moment, make_copied, unmake);
		attribute_copied(&moment);
		moment.space.known_count = 0;
		put_state(&moment, &cases[i].now);
		attribute(&moment);
		CHECK_EQUAL(moment.chain.user_depth, cases[i].depth);
		CHECK_EQUAL(moment.space.map.count, cases[i].mappings);
		/* The page of RIP has moved. */
		moment.space.known_count = 0;
		moment.stack.pages = &(const struct attach_page){ PROGRAM + 0x1000, OTHER_PAGE };
		attribute(&moment);
		CHECK_EQUAL(moment.chain.user_depth, i ? 1 : 4);
		CHECK_EQUAL(moment.space.map.count, i ? 0 : 3);
	}
}

/* Where the pages of the three mappings are. */
static void record_pages(struct moment *moment, struct attach_page pages[3])
{
	static const uint64_t addresses[] = { PROGRAM + 0x1000, PLUGIN, LIBRARY };

	for (unsigned int i = 0; i < 3; i++) {
		struct guest_translation now;

		pages[i].gva = addresses[i];
		REQUIRE(!guest_translate(&moment->guest.guest.view, &moment->stack.registers.paging,
					 addresses[i], &now));
		pages[i].gpa = now.gpa & ~4095ull;
	}
	moment->stack.pages = pages;
	moment->stack.page_count = 3;
}

TEST(attach_user_space, recorded_pages_show_the_mappings_of_a_changed_address_space)
{
	const struct guest_space_state later = { .number = 9, .changes = 7 };
	struct attach_page pages[3];

	FIXTURE(struct moment, moment, make_copied, unmake);
	attribute_copied(&moment);
	record_pages(&moment, pages);
	put_state(&moment, &later);
	/* Found after the sample, and known from the one before. */
	for (int i = 0; i < 2; i++) {
		moment.space.known_count = 0;
		attribute(&moment);
		CHECK_EQUAL(moment.chain.user_depth, 4);
		CHECK_EQUAL(moment.space.map.count, 3);
		moment.tasks.current.space.changes = 5;
	}
	/* There was another plug-in. */
	pages[1].gpa = OTHER_PAGE;
	moment.tasks.current.space.changes = 6;
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 1);
	CHECK_EQUAL(moment.space.map.mappings[0].start, PROGRAM);
}

/* A mapping that is known in the state of the sample needs no lookup. */
TEST(attach_user_space, mappings_of_an_earlier_sample_are_used)
{
	const struct guest_space_state later = { .number = 9, .changes = 7 };

	FIXTURE(struct moment, moment, make_copied, unmake);
	attribute_copied(&moment);
	put_state(&moment, &later);
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 4);
	moment.tasks.current.space.changes = 4;
	attribute(&moment);
	CHECK_EQUAL(moment.chain.user_depth, 1);
}

TEST(attach_user_space, a_chain_cut_by_its_copy_requests_a_larger_one)
{
	static uint64_t copy[BPF_USER_STACK_FIRST / 8];
	struct attach_stack *user;

	FIXTURE(struct moment, moment, make_copied, unmake);
	attribute_copied(&moment);
	attribute(&moment);
	CHECK(!moment.space.updated);
	user = &moment.stack.stacks[ATTACH_STACK_USER];
	memcpy(copy, user->bytes, user->size);
	copy[12] = STACK + sizeof(copy) + 0x100; /* one more frame */
	*user = (struct attach_stack){ STACK, sizeof(copy), (const uint8_t *)copy };
	attribute(&moment);
	REQUIRE(moment.space.updated);
	CHECK_EQUAL(moment.space.updated->mm, moment.guest.mm);
	CHECK_EQUAL(moment.space.updated->size, BPF_USER_STACK_MAX);
}

TEST(attach_user_space, a_sample_has_the_process_of_its_task)
{
	FIXTURE(struct moment, moment, make, unmake);
	moment.tasks.current.process =
		(struct guest_process_state){ .started = 1234, .parent = 60, .comm = "leader" };
	attribute(&moment);
	CHECK_EQUAL(moment.sample.started, 1234);
	CHECK_EQUAL(moment.sample.parent, 60);
	CHECK_STRING(moment.sample.process_comm, "leader");
}
