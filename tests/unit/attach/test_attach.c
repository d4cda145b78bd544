/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers, memory access and the search for page tables, applied to this process. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/kernel_liveness.h"
#include "vmm/attach/kernel_tables.h"
#include "vmm/attach/kvm_debugfs.h"
#include "vmm/attach/memory_layout.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/process.h"

TEST(attach, vcpu_descriptors_are_recognized)
{
	unsigned int id = 77;

	CHECK(proc_parse_vcpu_link("anon_inode:kvm-vcpu:12", &id));
	CHECK_EQUAL(id, 12);
	CHECK(proc_parse_vcpu_link("anon_inode:kvm-vcpu:0", &id));
	CHECK_EQUAL(id, 0);
	CHECK(!proc_parse_vcpu_link("anon_inode:kvm-vcpu:1024", &id));
	CHECK(!proc_parse_vcpu_link("anon_inode:kvm-vcpu:99999999999999999999", &id));
	CHECK(!proc_parse_vcpu_link("anon_inode:kvm-vcpu:1 (deleted)", &id));
	CHECK(!proc_parse_vcpu_link("anon_inode:kvm-vcpu:", &id));
	CHECK(!proc_parse_vcpu_link("anon_inode:kvm-vcpu", &id));
	CHECK(!proc_parse_vcpu_link("anon_inode:kvm-vm", &id));
	CHECK(!proc_parse_vcpu_link("", &id));
}

TEST(attach, threads_are_recognized_by_name)
{
	static const struct {
		const char *name;
		int id;
	} names[] = {
		{ "CPU 0/KVM", 0 }, { "CPU 13/KVM", 13 },  { "vCPU 2", 2 },
		{ "fc_vcpu 3", 3 }, { "crosvm_vcpu5", 5 }, { "kvm-vcpu-7", 7 },
		{ "vcpu0", 0 },     { "CPU 0/TCG", -1 },   { "qemu-system-x86", -1 },
		{ "worker", -1 },   { "cpu", -1 },         { "CPU x/KVM", -1 },
		{ "cpu 4096", -1 }, { "cpu 1 stats", -1 }, { "", -1 },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		unsigned int id = 0;
		bool known = proc_parse_thread_name(names[i].name, &id);

		if (known != (names[i].id >= 0) || (known && (int)id != names[i].id))
			FAIL_TEST("'%s' is taken for %d, not %d", names[i].name,
				  known ? (int)id : -1, names[i].id);
	}
}

/* The third line is of kvm-nx-lpage-recovery, created by a vCPU's thread. */
TEST(attach, threads_are_recognized_by_kvm_run)
{
	int fd = 0;

	CHECK(proc_parse_run_call("16 0xc 0xae80 0x0 0x0 0x0 0x0 0x7ffc00001000 0x7f1200002000\n",
				  &fd));
	CHECK_EQUAL(fd, 12);
	CHECK(!proc_parse_run_call("running\n", &fd));
	CHECK(!proc_parse_run_call("16 0x9 0xae80 0x0 0x0 0x563548276290 0x0 0x0 0x0\n", &fd));
	CHECK(!proc_parse_run_call("16 0xc 0xae81 0x0 0x0 0x0 0x0 0x7ffc00001000 0x7f1200002000\n",
				   &fd));
	CHECK(!proc_parse_run_call("17 0xc 0xae80 0x0 0x0 0x0 0x0 0x7ffc00001000 0x7f1200002000\n",
				   &fd));
	CHECK(!proc_parse_run_call(
		"16 0xffffffffffffffff 0xae80 0x0 0x0 0x0 0x0 0x7ffc00001000 0x7f12\n", &fd));
	CHECK(!proc_parse_run_call("-1 0x7ffc00001000 0x7f1200002000\n", &fd));
	CHECK(!proc_parse_run_call("", &fd));
}

TEST(attach, processes_without_a_vm_are_refused)
{
	struct vmm_process *process;

	CHECK_EQUAL(vmm_process_open(&process, getpid(), 0), -ENOENT);
	CHECK(strstr(error_message(), "runs no VM"));
	CHECK_EQUAL(vmm_process_open(&process, 1 << 30, 0), -ESRCH);
	CHECK(strstr(error_message(), "there is no process"));
}

TEST(attach, mappings_that_can_be_guest_memory)
{
	uint64_t hva = 0, size = 0;
	struct sysinfo host;
	char reserved[96];

	CHECK(memory_layout_parse("7f0000000000-7f0004000000 rw-p 00000000 00:00 0 \n", &hva,
				  &size));
	CHECK_EQUAL(hva, 0x7f0000000000);
	CHECK_EQUAL(size, 0x4000000);
	CHECK(memory_layout_parse(
		"7f0000000000-7f0004000000 rw-s 00000000 00:01 5  /memfd:ram (deleted)\n", &hva,
		&size));
	CHECK(!memory_layout_parse("7f0000000000-7f0000fff000 rw-p 00000000 00:00 0 \n", &hva,
				   &size));
	/* A sanitizer's shadow: scanning its pagemap would take minutes. */
	CHECK(!memory_layout_parse("10007fff8000-7fff80000000 rw-p 00000000 00:00 0 \n", &hva,
				   &size));
	CHECK(!sysinfo(&host));
	snprintf(reserved, sizeof(reserved), "100000000000-%llx rw-p 00000000 00:00 0 \n",
		 0x100000000000ull + 8ull * (host.totalram + host.totalswap) * host.mem_unit);
	CHECK(!memory_layout_parse(reserved, &hva, &size));
	CHECK(!memory_layout_parse("7f0000000000-7f0004000000 r--p 00000000 00:00 0 \n", &hva,
				   &size));
	CHECK(!memory_layout_parse("7f0000000000-7f0004000000 rw-p 00000000 00:00 0 [heap]\n", &hva,
				   &size));
	CHECK(!memory_layout_parse("7f0004000000-7f0000000000 rw-p 00000000 00:00 0 \n", &hva,
				   &size));
	CHECK(!memory_layout_parse("nonsense", &hva, &size));
}

TEST(attach, memory_above_the_hole_is_at_4_gib)
{
	struct vmm_slot slots[2];

	CHECK_EQUAL(memory_layout_split(0x10000, 0x1000, 0xc0000000, slots), 1);
	CHECK_EQUAL(slots[0].size, 0x1000);
	CHECK_EQUAL(memory_layout_split(0x10000, 0xc0000000, 0xc0000000, slots), 1);
	CHECK_EQUAL(memory_layout_split(0x10000, 0xc0001000, 0xc0000000, slots), 2);
	CHECK_EQUAL(slots[0].size, 0xc0000000);
	CHECK_EQUAL(slots[0].hva, 0x10000);
	CHECK_EQUAL(slots[1].gpa, 0x100000000);
	CHECK_EQUAL(slots[1].size, 0x1000);
	CHECK_EQUAL(slots[1].hva, 0xc0010000);
}

/* Guest memory in this process, accessed as if it were another process's. */
struct own_guest {
	struct vmm_process process;
	struct vmm_memory memory;
	uint64_t *words;
};

#define GUEST_SIZE (32ull << 20)
#define GUEST_GPA  0x100000ull /* of its first byte */

static bool open_guest(struct own_guest *guest)
{
	struct vmm_slot slot = { .gpa = GUEST_GPA, .size = GUEST_SIZE };

	guest->words =
		mmap(NULL, GUEST_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	guest->process = (struct vmm_process){
		.pid = getpid(),
		.directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	};
	slot.hva = (uintptr_t)guest->words;
	if (vmm_memory_open(&guest->memory, &guest->process))
		return false;
	vmm_memory_set_slots(&guest->memory, &slot, 1);
	return true;
}

static void close_guest(struct own_guest *guest)
{
	vmm_memory_close(&guest->memory);
	close(guest->process.directory);
	munmap(guest->words, GUEST_SIZE);
}

static void put(struct own_guest *guest, uint64_t table, unsigned int index, uint64_t entry)
{
	guest->words[(table - GUEST_GPA) / 8 + index] = entry;
}

#define ROOT   0x300000ull
#define SECOND 0x301000ull
#define THIRD  0x302000ull
#define OTHER  0x303000ull
#define TABLE  0x67ull
#define LARGE  0xe3ull

static void put_kernel(struct own_guest *guest)
{
	put(guest, ROOT, 511, SECOND | TABLE);
	put(guest, ROOT, 508, OTHER | TABLE);
	put(guest, SECOND, 510, THIRD | TABLE);
	for (unsigned int i = 8; i < 12; i++)
		put(guest, THIRD, i, (0x1000000 + i * 0x200000) | LARGE);
}

TEST(attach, another_process_is_read_by_gpa)
{
	struct own_guest guest;
	uint64_t word = 0;

	REQUIRE(open_guest(&guest));
	put(&guest, ROOT, 3, 4711);
	CHECK_EQUAL(guest_read_physical(&guest.memory.view, ROOT + 24, &word, sizeof(word)), 0);
	CHECK_EQUAL(word, 4711);
	CHECK_EQUAL(guest_read_physical(&guest.memory.view, GUEST_GPA - 1, &word, sizeof(word)),
		    -EFAULT);
	CHECK_EQUAL(guest_read_physical(&guest.memory.view, GUEST_GPA + GUEST_SIZE - 4, &word,
					sizeof(word)),
		    -EFAULT);
	CHECK_EQUAL(guest_read_physical(&guest.memory.view, UINT64_MAX - 3, &word, sizeof(word)),
		    -EFAULT);
	close_guest(&guest);
}

TEST(attach, tables_of_a_kernel_are_found_in_memory)
{
	struct guest_paging paging;
	struct own_guest guest;

	REQUIRE(open_guest(&guest));
	CHECK_EQUAL(kernel_tables_find(&guest.memory, 0, 0, &paging), -ENOENT);
	put_kernel(&guest);
	REQUIRE_EQUAL(kernel_tables_find(&guest.memory, 0, 0, &paging), 0);
	CHECK_EQUAL(paging.cr3, ROOT);
	CHECK_EQUAL(kernel_tables_find(&guest.memory, 1, 0, &paging), -ENOENT);
	/* A process's tables belong to the same kernel. */
	put(&guest, 0x400000, 511, SECOND | TABLE);
	put(&guest, 0x400000, 508, OTHER | TABLE);
	CHECK_EQUAL(kernel_tables_find(&guest.memory, 1, 0, &paging), -ENOENT);
	close_guest(&guest);
}

/* After a reset the tables of the previous kernel are still there, at lower addresses. The
 * running kernel's map its RIP. */
TEST(attach, page_tables_of_the_running_kernel_are_found_after_a_reset)
{
	enum { NEW = 0x100000 };
	const uint64_t old_rip = LINUX_IMAGES_GVA + 9 * 0x200000 + 5,
		       new_rip = LINUX_IMAGES_GVA + 100 * 0x200000;
	struct guest_paging paging;
	struct own_guest guest;

	REQUIRE(open_guest(&guest));
	put_kernel(&guest);
	put(&guest, ROOT + NEW, 511, (SECOND + NEW) | TABLE);
	put(&guest, ROOT + NEW, 508, OTHER | TABLE);
	put(&guest, SECOND + NEW, 510, (THIRD + NEW) | TABLE);
	for (unsigned int i = 99; i < 104; i++)
		put(&guest, THIRD + NEW, i, (0x2000000 + i * 0x200000) | LARGE);
	REQUIRE_EQUAL(kernel_tables_find(&guest.memory, 0, old_rip, &paging), 0);
	CHECK_EQUAL(paging.cr3, ROOT);
	CHECK_EQUAL(kernel_tables_find(&guest.memory, 1, old_rip, &paging), -ENOENT);
	REQUIRE_EQUAL(kernel_tables_find(&guest.memory, 0, new_rip, &paging), 0);
	CHECK_EQUAL(paging.cr3, ROOT + NEW);
	REQUIRE_EQUAL(kernel_tables_find(&guest.memory, 1, 0, &paging), 0);
	CHECK_EQUAL(paging.cr3, ROOT + NEW);
	close_guest(&guest);
}

TEST(attach, page_tables_of_a_kernel_map_a_contiguous_image)
{
	struct guest_paging paging;
	struct own_guest guest;

	REQUIRE(open_guest(&guest));
	put_kernel(&guest);
	put(&guest, THIRD, 10, 0x200000 | LARGE);
	CHECK_EQUAL(kernel_tables_find(&guest.memory, 0, 0, &paging), -ENOENT);
	put_kernel(&guest);
	put(&guest, SECOND, 510, (GUEST_GPA + GUEST_SIZE) | TABLE);
	CHECK_EQUAL(kernel_tables_find(&guest.memory, 0, 0, &paging), -ENOENT);
	close_guest(&guest);
}

TEST(attach, five_level_page_tables_are_detected)
{
	struct guest_paging paging;
	struct own_guest guest;

	REQUIRE(open_guest(&guest));
	put_kernel(&guest);
	REQUIRE_EQUAL(kernel_tables_find(&guest.memory, 0, 0, &paging), 0);
	CHECK(!(paging.cr4 & 1 << 12));
	put(&guest, 0x200000, 511, ROOT | TABLE);
	REQUIRE_EQUAL(kernel_tables_find(&guest.memory, 0, 0, &paging), 0);
	CHECK_EQUAL(paging.cr3, 0x200000);
	CHECK(paging.cr4 & 1 << 12);
	close_guest(&guest);
}

/* Pages that the VMM has not used must not be allocated. */
TEST(attach, a_search_allocates_no_page)
{
	static unsigned char present[GUEST_SIZE / 4096];
	struct guest_paging paging;
	struct own_guest guest;
	size_t count = 0;

	REQUIRE(open_guest(&guest));
	madvise(guest.words, GUEST_SIZE, MADV_NOHUGEPAGE);
	put(&guest, ROOT, 0, 1);
	kernel_tables_find(&guest.memory, 0, 0, &paging);
	REQUIRE_EQUAL(mincore(guest.words, GUEST_SIZE, present), 0);
	for (size_t i = 0; i < sizeof(present); i++)
		count += present[i] & 1;
	CHECK_EQUAL(count, 1);
	close_guest(&guest);
}

#define TEXT 0xffffffff81000000ull
#define BIOS 0xf0000ull

/* An idle guest, or one with interrupts off, does not tick either; firmware code makes the
 * difference. */
TEST(attach, a_reset_is_distinguished_from_an_idle_kernel)
{
	const uint64_t tick = 4000000;
	struct kernel_pulse pulse = { 0 };
	uint64_t time = 1000;

	for (int i = 0; i < 100; i++, time += tick)
		CHECK(kernel_pulse_update(&pulse, time, 77 + (uint64_t)i, true, TEXT));
	for (int i = 0; i < 100; i++, time += tick)
		CHECK(kernel_pulse_update(&pulse, time, 176, true, TEXT));
	CHECK(kernel_pulse_update(&pulse, time, 177, true,
				  BIOS)); /* the sample may be from before the tick */
	for (int i = 0; i < 25; i++, time += tick)
		CHECK(kernel_pulse_update(&pulse, time, 177, true, BIOS));
	CHECK(!kernel_pulse_update(&pulse, time + tick, 177, true, BIOS));
	CHECK(!kernel_pulse_update(&pulse, time + 2 * tick, 177, true, TEXT + 0x1000000));
	CHECK(!kernel_pulse_update(&pulse, time + 2 * tick, 177, false, 0x400000));
	CHECK(kernel_pulse_update(&pulse, time + 3 * tick, 178, true,
				  TEXT)); /* this kernel was not reset */
}

TEST(attach, the_pulse_is_recent_while_time_advances)
{
	struct kernel_pulse pulse = { 0 };
	uint64_t time = 1000;

	CHECK(!kernel_pulse_is_recent(&pulse, time));
	kernel_pulse_update(&pulse, time, 77, true, TEXT);
	CHECK(!kernel_pulse_is_recent(&pulse, time)); /* perhaps for a long time */
	kernel_pulse_update(&pulse, ++time, 78, true, TEXT);
	CHECK(kernel_pulse_is_recent(&pulse, time));
	kernel_pulse_update(&pulse, time + KERNEL_PULSE_RECENT, 78, false, 0x400000);
	CHECK(kernel_pulse_is_recent(&pulse, time + KERNEL_PULSE_RECENT));
	CHECK(!kernel_pulse_is_recent(&pulse, time + KERNEL_PULSE_RECENT + 1));
	kernel_pulse_update(&pulse, time + KERNEL_PULSE_RECENT + 1, 79, false, 0x400000);
	CHECK(kernel_pulse_is_recent(&pulse, time + KERNEL_PULSE_RECENT + 1));
	kernel_pulse_update(&pulse, time + KERNEL_PULSE_RECENT + 2, 79, true, BIOS);
	CHECK(!kernel_pulse_is_recent(&pulse, time + KERNEL_PULSE_RECENT + 2));
}

/* The next kernel uses the memory for something else, and zeroes it before. */
TEST(attach, other_writes_to_a_kernel_s_time_are_not_ticks)
{
	static const uint64_t others[] = { 0, 76, 50000, 0xffffffff81000000 };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct kernel_pulse pulse = { 0 };
		uint64_t time = 1000;

		kernel_pulse_update(&pulse, time, 77, true, TEXT);
		kernel_pulse_update(&pulse, time, 78, true, TEXT);
		kernel_pulse_update(&pulse, time, 78, true, BIOS);
		time += 2 * KERNEL_PULSE_LIMIT;
		CHECK(!kernel_pulse_update(&pulse, time, others[i], false, 0x400000));
		CHECK(!kernel_pulse_is_recent(&pulse, time));
		CHECK(kernel_pulse_update(&pulse, time, others[i] + 1, false, 0x400000));
		CHECK(kernel_pulse_is_recent(&pulse, time));
	}
}

#define PLACE 0x1e02001ull

TEST(attach, a_kernel_ends_when_its_clock_is_unregistered)
{
	struct kernel_clock clock = { 0 };
	uint64_t time = 1000;

	CHECK(kernel_clock_update(&clock, 0x77001, time, 0)); /* the owner is not known yet */
	CHECK(kernel_clock_update(&clock, PLACE, time, time));
	CHECK(kernel_clock_update(&clock, PLACE, time + 1, time));
	CHECK(!kernel_clock_update(&clock, 0, time + 2, time));
	CHECK(!kernel_clock_update(&clock, 0, time + 10 * KERNEL_CLOCK_MOVED, time));
	CHECK(!kernel_clock_update(&clock, PLACE + 4096, time + 10 * KERNEL_CLOCK_MOVED, time));
	/* The next kernel may use the same address. */
	CHECK(!kernel_clock_update(&clock, PLACE, time + 10 * KERNEL_CLOCK_MOVED, time + 2));
}

TEST(attach, a_kernel_whose_time_advances_still_runs)
{
	struct kernel_clock clock = { 0 };
	uint64_t time = 1000, later = time + 1 + KERNEL_CLOCK_MOVED;

	CHECK(kernel_clock_update(&clock, PLACE, time, time));
	CHECK(!kernel_clock_update(&clock, 0, time + 1,
				   time + 2)); /* a CPU that is off has no clock */
	CHECK(kernel_clock_update(&clock, PLACE, time + 3, time + 2));
	/* Another address may be of another kernel, while the known time of this one may be
	 * late. */
	CHECK(!kernel_clock_update(&clock, PLACE + 4096, time + 4, later));
	CHECK(!kernel_clock_update(&clock, PLACE + 4096, later + 3, later + 3));
	CHECK(kernel_clock_update(&clock, PLACE + 4096, later + 4, later + 4));
	CHECK(!kernel_clock_update(&clock, PLACE, later + 5, later + 4));
}

TEST(attach, a_kernel_without_kvmclock_always_runs)
{
	struct kernel_clock clock = { 0 };

	for (uint64_t time = 1; time < 10; time++)
		CHECK(kernel_clock_update(&clock, 0, time, time));
}

/* An idle guest is woken by something other than its tick, and catches up. */
TEST(attach, ticks_after_idle_time_are_accepted)
{
	struct kernel_pulse pulse = { 0 };
	uint64_t time = 1000;

	kernel_pulse_update(&pulse, time, 77, true, TEXT);
	time += 60000000000ull;
	CHECK(kernel_pulse_update(&pulse, time, 77 + 60000, true, TEXT));
	CHECK(kernel_pulse_is_recent(&pulse, time));
}

TEST(attach, user_space_is_in_the_lower_half)
{
	struct kernel_pulse pulse = { 0 };

	for (uint64_t time = 0; time < 10 * KERNEL_PULSE_LIMIT; time += KERNEL_PULSE_LIMIT / 10)
		CHECK(kernel_pulse_update(&pulse, time, 5, false, 0x400000));
}

#define DEBUGFS   "/sys/kernel/debug"
#define NESTED_VM 77 /* its descriptor */

/* A debugfs that only the calling thread sees. */
static bool replace_debugfs(void)
{
	return !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("none", DEBUGFS, "tmpfs", 0, NULL) && !mkdir(DEBUGFS "/kvm", 0700);
}

static void write_count(const char *directory, const char *name, const char *count)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "we");
	REQUIRE(file != NULL);
	fputs(count, file);
	fclose(file);
}

static struct nested_count count_nested(const struct nested_runs *runs, const char *directory,
					const char *entered, const char *inside)
{
	write_count(directory, "nested_run", entered);
	write_count(directory, "guest_mode", inside);
	return nested_runs_read(runs);
}

static void check_counters(int process)
{
	struct nested_count none, still_none, inside, left;
	struct nested_runs runs;
	char directory[64];

	CHECK(!nested_runs_open(&runs, process, NESTED_VM));
	none = nested_runs_read(&runs);
	CHECK(!none.known && !nested_runs_between(&none, &none));
	snprintf(directory, sizeof(directory), DEBUGFS "/kvm/%d-%d", gettid(), NESTED_VM);
	REQUIRE(!mkdir(directory, 0700));
	write_count(directory, "nested_run", "0\n");
	write_count(directory, "guest_mode", "0\n");
	REQUIRE(nested_runs_open(&runs, process, NESTED_VM));
	none = count_nested(&runs, directory, "7\n", "0\n");
	still_none = count_nested(&runs, directory, "7\n", "0\n");
	inside = count_nested(&runs, directory, "8\n", "1\n");
	left = count_nested(&runs, directory, "8\n", "0\n");
	CHECK(!nested_runs_between(&none, &still_none));
	CHECK(nested_runs_between(&none, &inside));
	CHECK(nested_runs_between(&inside, &inside));
	CHECK(nested_runs_between(&inside, &left));
	CHECK(nested_runs_between(&none, &left)); /* entered and left between the readings */
	CHECK(!nested_runs_between(&left, &left));
	nested_runs_close(&runs);
}

/* Creates the VM: the directory in debugfs has the TID of this thread. CONTEXT: no right to mount.
 */
static void *run_creator(void *context)
{
	bool *refused = context;
	int process = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	*refused = !replace_debugfs();
	if (!*refused)
		check_counters(process);
	close(process);
	return NULL;
}

TEST(attach, nested_guests_are_detected_by_kvm_counters)
{
	pthread_t creator;
	bool refused = false;

	REQUIRE(!pthread_create(&creator, NULL, run_creator, &refused));
	pthread_join(creator, NULL);
	if (refused)
		SKIP("a file system cannot be mounted at " DEBUGFS);
}
