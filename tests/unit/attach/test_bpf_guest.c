/* SPDX-License-Identifier: Apache-2.0 */
/* Reads guest memory with the source of the BPF program: page tables, callers, copies of stacks,
 * and the page tables of the current task if the processor's are unknown. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/bpf_on_host.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/bpf/guest_stack.h"
#include "vmm/attach/bpf/guest_tasks.h"
#include "vmm/attach/bpf/sample_period.h"
#include "vmm/attach/bpf/stack_copies.h"

#define RAM      0x100000ull
#define KERNEL   0x1000ull /* GPAs: top tables of the kernel and of a process */
#define PROCESS  0x2000ull
#define TABLES   0x3000ull /* lower tables, one after the other */
#define USER_GVA 0x7f0000000000ull
#define CODE_GVA 0x400000ull
#define DIRECT   0xffff888000000000ull
#define WRITABLE 2ull
#define LARGE    PTE_LARGE

static uint8_t *ram;
static uint64_t next_table;
static struct scratch *scratch;
static struct bpf_whole_sample *sample;

static void write_word(uint64_t gpa, uint64_t word)
{
	memcpy(ram + gpa, &word, sizeof(word));
}

static uint64_t read_word(uint64_t gpa)
{
	uint64_t word;

	memcpy(&word, ram + gpa, sizeof(word));
	return word;
}

/* Maps the range of an entry of SHIFT bits. */
static void map(uint64_t root, uint64_t gva, uint64_t gpa, unsigned int shift, unsigned int levels)
{
	uint64_t table = root;

	for (unsigned int level = PAGE_SHIFT + 9 * (levels - 1); level > shift; level -= 9) {
		uint64_t entry = table + (gva >> level & 511) * 8;

		if (!read_word(entry)) {
			write_word(entry, next_table | PTE_PRESENT | WRITABLE);
			next_table += 4096;
		}
		table = read_word(entry) & PTE_ADDRESS;
	}
	write_word(table + (gva >> shift & 511) * 8,
		   gpa | PTE_PRESENT | (shift > PAGE_SHIFT ? LARGE : 0));
}

static void make(void)
{
	ram = aligned_alloc(4096, RAM);
	scratch = calloc(1, sizeof(*scratch));
	sample = calloc(1, sizeof(*sample));
	if (!ram || !scratch || !sample)
		abort();
	memset(ram, 0, RAM);
	next_table = TABLES;
	host_user.start = ram;
	host_user.size = RAM;
	host_user.reads = 0;
	scratch->vcpu.slots = (struct bpf_slots){ .count = 1, .generation = 2 };
	scratch->vcpu.slots.slot[0].size = RAM;
	scratch->vcpu.slots.slot[0].hva = (uintptr_t)ram;
}

static void unmake(void)
{
	free(ram);
	free(scratch);
	free(sample);
}

static uint64_t page_of(uint64_t gva)
{
	return gpa_of(&scratch->space, &scratch->vcpu.slots, gva);
}

TEST(bpf_guest, a_page_is_found_by_each_size_of_page_and_number_of_levels)
{
	make();
	map(PROCESS, CODE_GVA, 0x40000, 12, 4);
	map(PROCESS, USER_GVA, 0x200000, 21, 4);
	map(PROCESS, USER_GVA + (1ull << 30), 0x40000000, 30, 4);
	open_space(&scratch->space, PROCESS, 4);
	CHECK_EQUAL(page_of(CODE_GVA + 0x123), 0x40000);
	CHECK_EQUAL(page_of(CODE_GVA + 0x1000), BPF_NO_PAGE);
	CHECK_EQUAL(page_of(USER_GVA + 0x12345), 0x212000);
	CHECK_EQUAL(page_of(USER_GVA + (1ull << 30) + 0x2345678), 0x42345000);
	CHECK_EQUAL(page_of(USER_GVA + (1ull << 39)), BPF_NO_PAGE);
	unmake();
	make();
	map(PROCESS, CODE_GVA | 1ull << 50, 0x40000, 12, 5);
	open_space(&scratch->space, PROCESS, 5);
	CHECK_EQUAL(page_of(CODE_GVA | 1ull << 50), 0x40000);
	unmake();
}

/* Cached entries are read again at their addresses, which is less than a new walk, and never
 * stale. */
TEST(bpf_guest, cached_walks_are_verified)
{
	unsigned int reads;

	make();
	map(PROCESS, CODE_GVA, 0x40000, 12, 4);
	map(KERNEL, CODE_GVA, 0x50000, 12, 4);
	open_space(&scratch->space, PROCESS, 4);
	CHECK_EQUAL(page_of(CODE_GVA), 0x40000);
	reads = host_user.reads;
	CHECK_EQUAL(page_of(CODE_GVA), 0x40000);
	CHECK_EQUAL(host_user.reads, reads + 1);
	/* Another process at the same address. */
	open_space(&scratch->space, KERNEL, 4);
	CHECK_EQUAL(page_of(CODE_GVA), 0x50000);
	/* Another table below the same CR3. */
	open_space(&scratch->space, PROCESS, 4);
	CHECK_EQUAL(page_of(CODE_GVA), 0x40000);
	write_word(PROCESS + (CODE_GVA >> 39 & 511) * 8,
		   read_word(KERNEL + (CODE_GVA >> 39 & 511) * 8));
	open_space(&scratch->space, PROCESS, 4);
	CHECK_EQUAL(page_of(CODE_GVA), 0x50000);
	unmake();
}

TEST(bpf_guest, moved_memory_is_not_read_at_its_old_address)
{
	make();
	map(PROCESS, CODE_GVA, 0x40000, 12, 4);
	open_space(&scratch->space, PROCESS, 4);
	CHECK_EQUAL(page_of(CODE_GVA), 0x40000);
	scratch->vcpu.slots.generation = 3;
	CHECK_EQUAL(page_of(CODE_GVA), BPF_NO_PAGE);
	scratch->vcpu.slots.generation = 4;
	scratch->vcpu.slots.slot[0].size = PROCESS;
	CHECK_EQUAL(page_of(CODE_GVA), BPF_NO_PAGE);
	unmake();
}

static void put_frame(uint64_t gpa, uint64_t next, uint64_t caller)
{
	write_word(gpa, next);
	write_word(gpa + 8, caller);
}

/* RBP of user code, with a stack of two pages whose second begins with the outermost frame. */
static struct walk at_frame(uint64_t rbp)
{
	map(PROCESS, CODE_GVA, 0x40000, 12, 4);
	map(PROCESS, USER_GVA, 0x60000, 12, 4);
	map(PROCESS, USER_GVA + 0x1000, 0x70000, 12, 4);
	put_frame(0x60f00, USER_GVA + 0xff8, CODE_GVA + 0x10);
	write_word(0x60ff8, USER_GVA + 0x1800);
	write_word(0x70000, CODE_GVA + 0x20);
	put_frame(0x70800, 0, CODE_GVA + 0x30);
	sample->head.rip = CODE_GVA;
	sample->head.rbp = rbp;
	sample->head.cr3 = PROCESS;
	sample->head.flags = BPF_TASKS_KNOWN;
	return (struct walk){ .scratch = scratch, .sample = sample };
}

static void check_callers(void)
{
	CHECK_EQUAL(sample->head.addresses, 4);
	for (uint32_t i = 0; i < sample->head.addresses; i++) {
		CHECK_EQUAL(sample->addresses[i].gva, CODE_GVA + i * 0x10);
		CHECK_EQUAL(sample->addresses[i].page, 0x40000);
	}
	CHECK(!(sample->head.flags & BPF_CHAIN_CUT));
}

TEST(bpf_guest, callers_are_those_of_the_frames_above_the_stack_pointer)
{
	struct walk walk;

	make();
	walk = at_frame(USER_GVA + 0xf00);
	sample->head.rsp = USER_GVA + 0xe00;
	sample->head.flags |= BPF_RSP_KNOWN;
	open_space(&scratch->space, PROCESS, 4);
	read_addresses(&walk, 1);
	check_callers();
	sample->head.rsp = USER_GVA + 0xf10;
	read_addresses(&walk, 1);
	CHECK_EQUAL(sample->head.addresses, 1);
	CHECK(sample->head.flags & BPF_CHAIN_CUT);
	unmake();
}

/* Mappings are not looked up without a task. */
TEST(bpf_guest, code_pages_need_a_known_task)
{
	struct walk walk;

	make();
	walk = at_frame(USER_GVA + 0xf00);
	sample->head.rsp = USER_GVA + 0xe00;
	sample->head.flags = BPF_RSP_KNOWN;
	open_space(&scratch->space, PROCESS, 4);
	read_addresses(&walk, 1);
	CHECK_EQUAL(sample->head.addresses, 4);
	for (uint32_t i = 0; i < sample->head.addresses; i++)
		CHECK_EQUAL(sample->addresses[i].page, BPF_NO_PAGE);
	unmake();
}

TEST(bpf_guest, without_rsp_callers_begin_at_rbp)
{
	struct walk walk;

	make();
	walk = at_frame(USER_GVA + 0xf00);
	sample->head.rsp = 0xdead; /* stale */
	open_space(&scratch->space, PROCESS, 4);
	read_addresses(&walk, 1);
	check_callers();
	/* Frames have to be higher, aligned, and within the maximum distance. */
	put_frame(0x70800, USER_GVA + 0xf00, CODE_GVA + 0x30);
	read_addresses(&walk, 1);
	CHECK_EQUAL(sample->head.addresses, 4);
	CHECK(sample->head.flags & BPF_CHAIN_CUT);
	sample->head.rbp = USER_GVA + 0xf04;
	read_addresses(&walk, 1);
	CHECK_EQUAL(sample->head.addresses, 1);
	unmake();
}

TEST(bpf_guest, a_kernel_stack_needs_known_page_tables)
{
	struct walk walk;

	make();
	walk = (struct walk){ .scratch = scratch, .sample = sample };
	map(0, DIRECT, 0x60000, 12, 4); /* what is found with CR3 0 */
	sample->head.rsp = DIRECT + 0x800;
	sample->head.flags = BPF_RSP_KNOWN;
	open_space(&scratch->space, sample->head.cr3, 4);
	copy_stacks(&walk);
	CHECK_EQUAL(sample->head.copied, 0);
	CHECK(sample->head.flags & BPF_CHAIN_CUT);
	sample->head.flags = BPF_RSP_KNOWN | BPF_CR3_KNOWN;
	copy_stacks(&walk);
	CHECK_EQUAL(sample->head.copied, 0x800);
	CHECK_EQUAL(sample->head.stacks[BPF_STACK_IN_USE].size, 0x800);
	unmake();
}

/* Other memory that the kernel has mapped: the page tables of this process, before guest memory. */
#define HOST_MEMORY 0x100000ull
#define HOST_PGD    0x1000ull
#define HOST_TABLES 0x2000ull

static uint8_t *host;

/* Maps the VMM's page at HVA to the host's physical page. */
static void map_host(uint64_t hva, uint64_t physical, unsigned int shift, unsigned int levels,
		     uint64_t flags)
{
	static uint64_t next;
	uint64_t table = HOST_PGD, entry, word;

	if (!kernel_word((uintptr_t)host + HOST_PGD + (hva >> (3 + 9 * levels) & 511) * 8))
		next = HOST_TABLES;
	for (unsigned int level = 12 + 9 * (levels - 1); level > shift; level -= 9) {
		entry = table + (hva >> level & 511) * 8;
		memcpy(&word, host + entry, sizeof(word));
		if (!word) {
			word = next | HOST_PRESENT;
			memcpy(host + entry, &word, sizeof(word));
			next += 4096;
		}
		table = word & HOST_ADDRESS;
	}
	word = physical | HOST_PRESENT | flags | (shift > 12 ? HOST_LARGE : 0);
	memcpy(host + table + (hva >> shift & 511) * 8, &word, sizeof(word));
}

static void make_host(unsigned int levels)
{
	host = aligned_alloc(4096, HOST_MEMORY + RAM);
	if (!host)
		abort();
	memset(host, 0, HOST_MEMORY + RAM);
	host_kernel.start = host;
	host_kernel.size = HOST_MEMORY + RAM;
	host_kernel.hole = NULL;
	direct_map = (struct direct_map){ (uintptr_t)host, HOST_MEMORY + RAM, levels };
}

static void unmake_host(void)
{
	free(host);
	memset(&host_kernel, 0, sizeof(host_kernel));
	memset(&direct_map, 0, sizeof(direct_map));
}

static uint64_t host_page_of(uint64_t hva)
{
	uint64_t page = host_page((uintptr_t)host + HOST_PGD, hva);

	return page ? page - (uintptr_t)host : 0;
}

TEST(bpf_guest, a_page_of_the_vmm_is_found_in_the_host_s_memory)
{
	for (unsigned int levels = 4; levels <= 5; levels++) {
		make_host(levels);
		map_host(0x7f1234567000, 0x30000, 12, levels, 0);
		map_host(0x7f1234569000, 0x31000, 12, levels, HOST_SPECIAL);
		map_host(0x7f123456a000, HOST_MEMORY + RAM, 12, levels, 0);
		map_host(0x7f1234600000, 0, 21, levels, 1ull << 12 | 1ull << 63);
		map_host(0x7f1280000000, 0, 30, levels, 0);
		CHECK_EQUAL(host_page_of(0x7f1234567890), 0x30000);
		CHECK_EQUAL(host_page_of(0x7f1234568000), 0);
		CHECK_EQUAL(host_page_of(0x7f1234569000), 0);
		CHECK_EQUAL(host_page_of(0x7f123456a000), 0);
		CHECK_EQUAL(host_page_of(0x7f1234645678), 0x45000);
		CHECK_EQUAL(host_page_of(0x7f1280123456), 0x123000);
		CHECK_EQUAL(host_page_of(0x7f1280223456), 0);
		CHECK_EQUAL(host_page_of(0x7f0000000000), 0);
		unmake_host();
	}
}

/* The VMM's memory of the guest is in the direct map, in one state. */
static void share_memory(void)
{
	make_host(4);
	memcpy(host + HOST_MEMORY, ram, RAM);
	free(ram);
	ram = host + HOST_MEMORY;
	host_user.start = ram;
	scratch->vcpu.slots.slot[0].hva = (uintptr_t)ram;
	for (uint64_t gpa = 0; gpa < RAM; gpa += 4096)
		map_host((uintptr_t)ram + gpa, HOST_MEMORY + gpa, 12, 4, 0);
	scratch->space.mappings.pgd = (uintptr_t)host + HOST_PGD;
	scratch->space.state = 1;
}

static void unshare_memory(void)
{
	ram = NULL;
	unmake();
	unmake_host();
}

/* As a sample of process ROOT. Returns the number of reads of the VMM's address space. */
static unsigned int take_callers_of(struct walk *walk, uint64_t root)
{
	unsigned int reads = host_user.reads;

	sample->head.addresses = 0;
	sample->head.flags = BPF_TASKS_KNOWN | BPF_RSP_KNOWN;
	sample->head.rsp = USER_GVA + 0xe00;
	open_space(&scratch->space, root, 4);
	read_addresses(walk, 1);
	return host_user.reads - reads;
}

static unsigned int take_callers(struct walk *walk)
{
	return take_callers_of(walk, PROCESS);
}

TEST(bpf_guest, what_the_kernel_has_mapped_is_read_there)
{
	struct walk walk;

	make();
	walk = at_frame(USER_GVA + 0xf00);
	share_memory();
	CHECK(take_callers(&walk) > 6);
	check_callers();
	take_callers(&walk);
	check_callers();
	/* Except for the frame across two pages. */
	CHECK(take_callers(&walk) <= 3);
	check_callers();
	/* Another process with a stack of one page. */
	map(KERNEL, USER_GVA, 0xa0000, 12, 4);
	map(KERNEL, CODE_GVA, 0x40000, 12, 4);
	put_frame(0xa0f00, 0, CODE_GVA + 0x10);
	for (int i = 0; i < 3; i++) {
		take_callers(&walk);
		check_callers();
		take_callers_of(&walk, KERNEL);
		CHECK_EQUAL(sample->head.addresses, 2);
		CHECK(!(sample->head.flags & BPF_CHAIN_CUT));
	}
	/* The guest changes its page tables and its stack. */
	map(PROCESS, USER_GVA + 0x1000, 0x80000, 12, 4);
	write_word(0x80000, CODE_GVA + 0x20);
	put_frame(0x80800, 0, CODE_GVA + 0x30);
	memset(ram + 0x70000, 0, 4096);
	take_callers(&walk);
	check_callers();
	/* A page of the VMM has moved, and KVM was notified. */
	memcpy(ram + 0x90000, ram + 0x60000, 4096);
	map_host((uintptr_t)ram + 0x60000, HOST_MEMORY + 0x90000, 12, 4, 0);
	scratch->space.state = 2;
	take_callers(&walk);
	put_frame(0x60f00, 0, 0);
	take_callers(&walk);
	check_callers();
	put_frame(0x90f00, 0, 0);
	take_callers(&walk);
	CHECK_EQUAL(sample->head.addresses, 1);
	unshare_memory();
}

static uint64_t word_of_stack(void)
{
	uint64_t word = 0;

	CHECK(read_space(&scratch->space, &scratch->vcpu.slots, USER_GVA, &word, sizeof(word)));
	return word;
}

/* By another vCPU, between opening the page and reading it. */
TEST(bpf_guest, a_concurrently_remapped_page_is_not_confused)
{
	make();
	map(PROCESS, USER_GVA, 0x60000, 12, 4);
	write_word(0x60000, 6);
	write_word(0x70000, 7);
	share_memory();
	open_space(&scratch->space, PROCESS, 4);
	CHECK(open_page(&scratch->space, &scratch->vcpu.slots, USER_GVA));
	map(PROCESS, USER_GVA, 0x70000, 12, 4);
	CHECK_EQUAL(word_of_stack(), 6);
	open_space(&scratch->space, PROCESS, 4);
	CHECK_EQUAL(word_of_stack(), 7);
	unshare_memory();
}

/* Reads as 0, which is not the end of a chain. */
TEST(bpf_guest, an_unreadable_stack_cuts_the_chain)
{
	struct walk walk;

	make();
	walk = at_frame(USER_GVA + 0xf00);
	share_memory();
	take_callers(&walk);
	take_callers(&walk);
	check_callers();
	host_kernel.hole = ram + 0x70000;
	take_callers(&walk);
	CHECK(sample->head.addresses < 4);
	CHECK(sample->head.flags & BPF_CHAIN_CUT);
	/* Page tables are read through the address space then. */
	host_kernel.hole = ram + PROCESS;
	take_callers(&walk);
	check_callers();
	unshare_memory();
}

#define CURRENT (DIRECT + 0x80000)
#define TASK    (DIRECT + 0x81000)
#define MM      (DIRECT + 0x82000)

/* The kernel maps all memory from DIRECT on. */
static struct walk with_task(uint64_t mm)
{
	struct bpf_cpu *cpu = &scratch->vcpu.cpu;

	map(KERNEL, DIRECT, 0, 21, 4);
	*cpu = (struct bpf_cpu){
		.cr3 = KERNEL, .levels = 4, .tasks = { CURRENT }, .generation = 7
	};
	for (__u32 word = BPF_TASK_AT; word < BPF_TASK_WORDS; word++) {
		cpu->offsets[word] = word * 8;
		cpu->sizes[word] = 8;
	}
	write_word(CURRENT - DIRECT, TASK);
	write_word(TASK - DIRECT + BPF_TASK_MM * 8, mm);
	write_word(MM - DIRECT + BPF_TASK_PAGE_TABLE * 8, DIRECT + PROCESS);
	sample->head.flags = BPF_IN_GUEST | BPF_RIP_KNOWN;
	return (struct walk){ .scratch = scratch, .sample = sample };
}

TEST(bpf_guest, page_tables_of_the_current_task_are_those_of_user_code)
{
	struct walk walk;

	make();
	walk = with_task(MM);
	read_tasks(&walk);
	CHECK(sample->head.flags & BPF_TASKS_KNOWN);
	CHECK_EQUAL(sample->head.generation, 7);
	read_cr3_of_task(&walk);
	CHECK(sample->head.flags & BPF_CR3_OF_TASK);
	CHECK_EQUAL(sample->head.cr3, PROCESS);
	unmake();
}

TEST(bpf_guest, tasks_are_read_where_the_kernel_has_them)
{
	struct walk walk;
	unsigned int first;

	make();
	walk = with_task(MM);
	share_memory();
	for (__u32 word = BPF_TASK_AT + 1; word < BPF_TASK_WORDS; word++) {
		if (word != BPF_TASK_MM)
			write_word(TASK - DIRECT + word * 8, 1000 + word);
		if (word != BPF_TASK_PAGE_TABLE)
			write_word(MM - DIRECT + word * 8, 2000 + word);
	}
	write_word(TASK - DIRECT + BPF_TASK_LEADER * 8, TASK);
	write_word(TASK - DIRECT + BPF_TASK_PARENT * 8, MM);
	read_tasks(&walk);
	first = host_user.reads;
	for (int i = 0; i < 3; i++) {
		memset(&sample->head.tasks, 0xff, sizeof(sample->head.tasks));
		read_tasks(&walk);
		CHECK(sample->head.flags & BPF_TASKS_KNOWN);
		CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_AT], TASK);
		CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_MM], MM);
		CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_PID], 1000 + BPF_TASK_PID);
		CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_PAGE_TABLE], DIRECT + PROCESS);
		CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_CHANGES], 2000 + BPF_TASK_CHANGES);
		CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_STARTED], 1000 + BPF_TASK_STARTED);
		CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_PARENT_TGID],
			    2000 + BPF_TASK_PARENT_TGID);
		first = i ? first : host_user.reads;
	}
	CHECK_EQUAL(host_user.reads, first);
	/* A 0 is read again through the VMM's address space: a kernel thread has no mm_struct. */
	write_word(TASK - DIRECT + BPF_TASK_MM * 8, 0);
	read_tasks(&walk);
	CHECK_EQUAL(sample->head.tasks.words[0][BPF_TASK_MM], 0);
	CHECK(host_user.reads > first);
	CHECK(sample->head.flags & BPF_TASKS_KNOWN);
	unshare_memory();
}

TEST(bpf_guest, kernel_threads_and_unreadable_tasks_have_no_page_tables)
{
	struct walk walk;

	make();
	walk = with_task(0);
	read_tasks(&walk);
	read_cr3_of_task(&walk);
	CHECK(!(sample->head.flags & BPF_CR3_OF_TASK));
	walk = with_task(DIRECT + 4 * RAM);
	read_tasks(&walk);
	read_cr3_of_task(&walk);
	CHECK(!(sample->head.flags & (BPF_TASKS_KNOWN | BPF_CR3_OF_TASK)));
	scratch->vcpu.cpu.cr3 = 0; /* no kernel is known */
	walk = with_task(MM);
	scratch->vcpu.cpu.cr3 = 0;
	read_tasks(&walk);
	CHECK(!(sample->head.flags & BPF_TASKS_KNOWN));
	unmake();
}

/* A task with page tables of its own, whose user stack is on two pages. */
static struct walk with_stack(void)
{
	struct walk walk = with_task(MM);

	map(KERNEL, USER_GVA, 0x60000, 12, 4);
	map(KERNEL, USER_GVA + 0x1000, 0x70000, 12, 4);
	write_word(0x60f00, 11);
	write_word(0x70000, 22);
	scratch->vcpu.cpu.copies = 1;
	scratch->vcpu.cpu.stack_size = 0x4000;
	write_word(TASK - DIRECT + BPF_TASK_STACK * 8, DIRECT + 0x90000);
	read_tasks(&walk);
	sample->head.flags |= BPF_CR3_KNOWN | BPF_RSP_KNOWN;
	open_space(&scratch->space, KERNEL, 4);
	return walk;
}

static uint64_t copied_word(enum bpf_stack_kind kind, size_t offset)
{
	uint64_t word;

	memcpy(&word, sample->stack + sample->head.stacks[kind].at + offset, sizeof(word));
	return word;
}

TEST(bpf_guest, a_user_stack_is_copied_page_by_page_up_to_its_size)
{
	const struct bpf_stack *copy;
	struct walk walk;

	make();
	copy = &sample->head.stacks[BPF_STACK_USER];
	walk = with_stack();
	REQUIRE(has_user_stack(&walk));
	begin_copies(&walk);
	copy_user_stack(&walk, CODE_GVA, USER_GVA + 0xf00);
	CHECK_EQUAL(copy->gva, USER_GVA + 0xf00);
	CHECK_EQUAL(copy->size, BPF_USER_STACK_FIRST);
	CHECK_EQUAL(sample->head.copied, BPF_USER_STACK_FIRST);
	CHECK_EQUAL(copied_word(BPF_STACK_USER, 0), 11);
	CHECK_EQUAL(copied_word(BPF_STACK_USER, 0x100), 22);
	/* The reader's size; the next page is not mapped. */
	scratch->vcpu.processes[BPF_PROCESS_INDEX(MM)].mm_size = MM << 16 | BPF_USER_STACK_MAX;
	begin_copies(&walk);
	sample->head.copied = 0;
	copy_user_stack(&walk, CODE_GVA, USER_GVA + 0xf00);
	CHECK_EQUAL(copy->size, 0x1100);
	scratch->vcpu.processes[BPF_PROCESS_INDEX(MM)].mm_size = (MM + 1) << 16 | 512;
	sample->head.copied = 0;
	copy_user_stack(&walk, CODE_GVA, USER_GVA);
	CHECK_EQUAL(copy->size, BPF_USER_STACK_FIRST);
	scratch->vcpu.processes[BPF_PROCESS_INDEX(MM)].mm_size = MM << 16 | 512;
	sample->head.copied = 0;
	copy_user_stack(&walk, CODE_GVA, USER_GVA);
	CHECK_EQUAL(copy->size, 512);
	/* Not without a reader that can unwind it. */
	scratch->vcpu.cpu.copies = 0;
	CHECK(!has_user_stack(&walk));
	unmake();
}

TEST(bpf_guest, all_stacks_of_an_interrupted_system_call_are_copied)
{
	const struct bpf_stack *stacks;
	struct walk walk;

	/* With and without padding for FRED. */
	for (uint64_t padding = 0; padding <= FRED_PADDING; padding += FRED_PADDING) {
		uint64_t frame = 0x94000 - 40 - padding;

		make();
		stacks = sample->head.stacks;
		walk = with_stack();
		scratch->vcpu.cpu.irq_top = DIRECT + 0x9c000;
		write_word(0x9c000 - 8, DIRECT + 0x93800);
		write_word(0x93800, 33);
		write_word(frame, CODE_GVA + 5);
		write_word(frame + 8, CS_USER);
		write_word(frame + 24, USER_GVA + 0xf00);
		sample->head.rsp = DIRECT + 0x9c000 - 0x108;
		copy_stacks(&walk);
		CHECK_EQUAL(stacks[BPF_STACK_IN_USE].size, 0x108);
		CHECK_EQUAL(stacks[BPF_STACK_BELOW].gva, DIRECT + 0x93800);
		CHECK_EQUAL(stacks[BPF_STACK_BELOW].size, 0x800);
		CHECK_EQUAL(copied_word(BPF_STACK_BELOW, 0), 33);
		CHECK_EQUAL(stacks[BPF_STACK_USER].gva, USER_GVA + 0xf00);
		CHECK_EQUAL(copied_word(BPF_STACK_USER, 0), 11);
		CHECK_EQUAL(sample->code[0].gva, CODE_GVA + 5);
		CHECK_EQUAL(sample->head.copied, 0x108 + 0x800 + BPF_USER_STACK_FIRST);
		unmake();
	}
}

/* The CPU has pushed FRAME at the end of a stack, of which RSP is in use. */
static void enter(uint64_t end, uint64_t rip, uint64_t cs, uint64_t rsp)
{
	const uint64_t frame[ENTRY_FRAME] = { rip, cs, 0, rsp, 0 };

	for (unsigned int i = 0; i < ENTRY_FRAME; i++)
		write_word(end - sizeof(frame) + i * 8, frame[i]);
}

/* Maps the page at GPA as that of an entry stack; returns its GVA. */
static uint64_t map_entry_stack(uint64_t gpa)
{
	uint64_t gva = ENTRY_AREA + 0x1000;

	map(KERNEL, gva, gpa, 12, 4);
	return gva;
}

TEST(bpf_guest, the_user_stack_is_found_from_an_entry_stack)
{
	static const uint64_t sizes[] = { 0x1000, SMALL_ENTRY_STACK };

	for (size_t i = 0; i < 2; i++) {
		struct walk walk;
		uint64_t stack;

		make();
		walk = with_stack();
		stack = map_entry_stack(0x9a000);
		enter(0x9a000 + sizes[i], CODE_GVA + 7, CS_USER, USER_GVA + 0xf00);
		enter(0x94000, CODE_GVA + 5, CS_USER, USER_GVA); /* of an earlier entry */
		sample->head.rsp = stack + sizes[i] - 0x40;
		copy_stacks(&walk);
		CHECK_EQUAL(sample->head.stacks[BPF_STACK_IN_USE].size, 0x40);
		CHECK_EQUAL(sample->head.stacks[BPF_STACK_INTERRUPTED].size, 0);
		CHECK_EQUAL(sample->head.stacks[BPF_STACK_USER].gva, USER_GVA + 0xf00);
		CHECK_EQUAL(sample->code[0].gva, CODE_GVA + 7);
		unmake();
	}
}

TEST(bpf_guest, the_stack_below_that_of_an_exception_is_copied)
{
	const struct bpf_stack *stacks;
	struct walk walk;
	uint64_t stack;

	make();
	stacks = sample->head.stacks;
	walk = with_stack();
	stack = map_entry_stack(0x9a000);
	enter(0x9b000, DIRECT, CS_KERNEL, DIRECT + 0x93800);
	enter(0x94000, CODE_GVA + 5, CS_USER, USER_GVA + 0xf00);
	sample->head.rsp = stack + 0x1000 - 0x100;
	copy_stacks(&walk);
	CHECK_EQUAL(stacks[BPF_STACK_IN_USE].size, 0x100);
	CHECK_EQUAL(stacks[BPF_STACK_INTERRUPTED].gva, DIRECT + 0x93800);
	CHECK_EQUAL(stacks[BPF_STACK_INTERRUPTED].size, 0x800);
	CHECK_EQUAL(stacks[BPF_STACK_USER].gva, USER_GVA + 0xf00);
	unmake();
}

/* During a switch the stack is already that of the next task. */
TEST(bpf_guest, the_user_stack_is_that_of_the_task_whose_stack_is_in_use)
{
	uint64_t *next;
	struct walk walk;

	make();
	walk = with_stack();
	next = (uint64_t *)sample->head.tasks.words[1];
	memcpy(next, sample->head.tasks.words[0], sizeof(sample->head.tasks.words[0]));
	next[BPF_TASK_STACK] = DIRECT + 0x98000;
	enter(0x94000, CODE_GVA + 5, CS_USER, USER_GVA);
	enter(0x98000 + scratch->vcpu.cpu.stack_size, CODE_GVA + 9, CS_USER, USER_GVA + 0xf00);
	sample->head.rsp = DIRECT + 0x98800;
	copy_stacks(&walk);
	CHECK_EQUAL(sample->code[0].gva, CODE_GVA + 9);
	CHECK_EQUAL(sample->head.stacks[BPF_STACK_USER].gva, USER_GVA + 0xf00);
	unmake();
}

TEST(bpf_guest, a_sample_in_an_unknown_state_wakes_the_reader_and_has_the_pages)
{
	struct bpf_process *process;
	struct walk walk;

	make();
	walk = with_stack();
	process = &scratch->vcpu.processes[BPF_PROCESS_INDEX(MM)];
	sample->head.tasks.words[0][BPF_TASK_SPACE] = 9;
	sample->head.tasks.words[0][BPF_TASK_CHANGES] = 3;
	scratch->wakes = 0;
	begin_copies(&walk);
	copy_user_stack(&walk, CODE_GVA, USER_GVA);
	CHECK(scratch->wakes); /* a process that the reader does not know */
	CHECK_EQUAL(sample->head.addresses, 1);
	*process = (struct bpf_process){ .mm_size = MM << 16 | 512,
					 .number = 9,
					 .changes = 3,
					 .pages = { CODE_GVA, USER_GVA } };
	scratch->wakes = 0;
	begin_copies(&walk);
	copy_user_stack(&walk, CODE_GVA, USER_GVA);
	CHECK(!scratch->wakes);
	CHECK_EQUAL(sample->head.addresses, 1);
	process->changes = 2;
	begin_copies(&walk);
	copy_user_stack(&walk, CODE_GVA, USER_GVA);
	CHECK(scratch->wakes);
	CHECK_EQUAL(sample->head.addresses, 3);
	CHECK_EQUAL(sample->code[1].page, sample->code[0].page);
	CHECK_EQUAL(sample->code[2].gva, USER_GVA);
	CHECK(sample->code[2].page != BPF_NO_PAGE);
	unmake();
}

TEST(bpf_guest, skipped_periods_are_part_of_the_next_sample)
{
	static const struct {
		uint64_t counter, passed;
	} samples[] = {
		{ 1000, 1000 }, { 2010, 1000 },
		{ 2990, 1000 }, { 4000, 1000 },
		{ 7900, 3000 }, { 8100, 1000 },
		{ 9000, 1000 }, /* the event is opened anew: */ { 1005, 1000 },
		{ 3000, 2000 },
	};

	make();
	for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
		CHECK_EQUAL(passed_periods(scratch, samples[i].counter, 1000), samples[i].passed);
	unmake();
}
