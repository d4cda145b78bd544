/* SPDX-License-Identifier: Apache-2.0 */
/* Our own guests on the local KVM: each boot protocol, traps, CPUs, memory, and each way to end. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"

static void says_hello(enum boot_protocol protocol, const char *image)
{
	struct guest_run run = { .protocol = protocol,
				 .image = image,
				 .append = "program=hello exit=17" };

	guest_run(&run);
	CHECK_EQUAL(guest_run_value(&run), 17);
	CHECK(strstr(run.console, "hello: "));
	CHECK(strstr(run.console, "program=hello exit=17\n"));
}

TEST(boot, guest_by_pvh)
{
	GUEST_REQUIRED();
	says_hello(BOOT_PVH, GUEST_IMAGE);
}

TEST(boot, guest_by_64_bit_entry)
{
	GUEST_REQUIRED();
	says_hello(BOOT_ELF64, GUEST_IMAGE);
}

TEST(boot, guest_by_multiboot_elf32)
{
	GUEST_REQUIRED();
	says_hello(BOOT_MULTIBOOT, GUEST_IMAGE_MULTIBOOT);
}

TEST(boot, guest_by_multiboot_elf64)
{
	GUEST_REQUIRED();
	says_hello(BOOT_MULTIBOOT, GUEST_IMAGE_MULTIBOOT64);
}

TEST(boot, guest_below_1_mib)
{
	GUEST_REQUIRED();
	says_hello(BOOT_PVH, "build/guests/guest-low.elf");
	says_hello(BOOT_ELF64, "build/guests/guest-low.elf");
	says_hello(BOOT_MULTIBOOT, "build/guests/guest-low-multiboot.elf");
}

TEST(boot, protocol_is_detected)
{
	GUEST_REQUIRED();
	says_hello(BOOT_AUTO, GUEST_IMAGE);
	says_hello(BOOT_AUTO, GUEST_IMAGE_MULTIBOOT);
}

TEST(boot, debug_exit_value_is_complete)
{
	struct guest_run run = { .append = "program=hello exit=0xdeadbeef" };

	GUEST_REQUIRED();
	guest_run(&run);
	CHECK_EQUAL((unsigned int)guest_run_value(&run), 0xdeadbeef);
}

static void ends_with_zero(const char *append, unsigned int cpus, uint64_t memory_size)
{
	struct guest_run run = { .append = append, .cpus = cpus, .memory_size = memory_size };

	guest_run(&run);
	CHECK_EQUAL(guest_run_value(&run), 0);
}

TEST(boot, page_faults_at_both_privileges)
{
	GUEST_REQUIRED();
	ends_with_zero("program=faults", 1, 0);
}

TEST(boot, timer_interrupts_at_both_privileges)
{
	GUEST_REQUIRED();
	ends_with_zero("program=timer ticks=20", 1, 0);
}

TEST(boot, address_spaces_are_apart)
{
	GUEST_REQUIRED();
	ends_with_zero("program=spaces rounds=5 chunk=1000", 1, 0);
}

TEST(boot, memory_above_4_gib)
{
	GUEST_REQUIRED();
	ends_with_zero("program=memory gpa=0x100000000", 1, 5ull << 30);
	ends_with_zero("program=memory gpa=0x17fe00000", 1, 5ull << 30); /* its last 2 MiB */
	ends_with_zero("program=memory gpa=0xbfe00000", 1,
		       5ull << 30); /* the last 2 MiB below the hole */
}

static void starts_cpus(unsigned int cpus)
{
	char append[64];
	struct guest_run run = { .append = append, .cpus = cpus };

	snprintf(append, sizeof(append), "program=cpus cpus=%u", cpus);
	guest_run(&run);
	CHECK_EQUAL(guest_run_value(&run), (int)cpus);
}

TEST(boot, one_and_four_cpus)
{
	GUEST_REQUIRED();
	starts_cpus(1);
	starts_cpus(4);
}

TEST(boot, sixty_four_cpus)
{
	GUEST_REQUIRED();
	starts_cpus(64);
}

static void ends_by(const char *append, enum vcpu_end end, const char *message)
{
	struct guest_run run = { .append = append };

	guest_run(&run);
	CHECK_EQUAL(run.error, 0);
	CHECK_EQUAL(run.result.end, end);
	if (!strstr(run.result.message, message))
		FAIL_TEST("guest '%s': no '%s' in: %s", append, message, run.result.message);
}

TEST(boot, ends_by_power_off)
{
	GUEST_REQUIRED();
	ends_by("program=power_off", VCPU_END_POWER_OFF, "");
}

TEST(boot, ends_by_reset)
{
	GUEST_REQUIRED();
	ends_by("program=reset", VCPU_END_RESET, "");
	ends_by("program=reset by=acpi", VCPU_END_RESET, "");
}

/*
 * CPUs wait for INIT and SIPI again. Memory, debug registers, LAPIC and MSRs are as at the first
 * start.
 */
TEST(boot, resets_restart_it)
{
	struct guest_run run = { .append = "program=resets cpus=3 boots=3",
				 .cpus = 3,
				 .resets = true };

	GUEST_REQUIRED();
	guest_run(&run);
	CHECK_EQUAL(guest_run_value(&run), 4);
}

TEST(boot, triple_fault_is_reported_with_registers)
{
	GUEST_REQUIRED();
	ends_by("program=crash", VCPU_END_SHUTDOWN, "triple fault");
	ends_by("program=crash", VCPU_END_SHUTDOWN, "rax 123456789abcdef0");
}

TEST(boot, unknown_instruction_is_reported)
{
	struct guest_run run = { .append = "program=xrstor" };

	GUEST_REQUIRED();
	guest_run(&run);
	if (run.result.end == VCPU_END_DEBUG_EXIT)
		SKIP("this KVM runs guest kernel code natively: XRSTOR at CPL 0 does not fail");
	CHECK_EQUAL(run.result.end, VCPU_END_INTERNAL_ERROR);
	CHECK(strstr(run.result.message, "does not know XRSTOR; see kvmscope doctor"));
	CHECK(strstr(run.result.message, "bytes: 0f ae"));
}

TEST(boot, missing_kernel_is_an_error)
{
	struct machine_options options = { .boot.kernel = "tests/guests/none.elf",
					   .boot.append = "",
					   .cpus = 1,
					   .memory_size = 64ull << 20,
					   .console_output = -1,
					   .console_input = -1 };
	struct machine *machine;

	GUEST_REQUIRED();
	CHECK(machine_create(&machine, &options) < 0);
	CHECK(!machine);
}

/* A guest that spins with interrupts off receives nothing: only a stop ends it. */
static void is_stopped(const char *append, unsigned int rounds)
{
	struct machine_options options = { .boot = { .kernel = GUEST_IMAGE, .append = append },
					   .cpus = 2,
					   .memory_size = 64ull << 20,
					   .console_output = -1,
					   .console_input = -1 };

	for (unsigned int round = 0; round < rounds; round++) {
		struct machine_result result;
		struct machine *machine;

		REQUIRE_EQUAL(machine_create(&machine, &options), 0);
		REQUIRE_EQUAL(machine_start(machine), 0);
		usleep(round * 2000); /* from before its first instruction until it runs */
		CHECK(!machine_power_button(machine));
		machine_stop(machine);
		machine_wait(machine, &result);
		CHECK_EQUAL(result.end, VCPU_END_STOPPED);
		machine_destroy(machine);
	}
}

TEST(boot, spinning_guest_is_stopped)
{
	GUEST_REQUIRED();
	is_stopped("program=spin", 20);
	is_stopped("program=spin cpl=0", 10);
	is_stopped("program=spin timer=1000", 10);
}

/*
 * Whatever it accesses, it ends or completes, and the machine stays intact (and the sanitizers
 * silent).
 */
TEST(boot, hostile_guest_ends_like_any_other)
{
	GUEST_REQUIRED();
	for (unsigned int seed = 1; seed <= 8; seed++) {
		char append[64];
		struct guest_run run = { .append = append,
					 .disk = { GUEST_IMAGE, .read_only = true } };
		int sockets[2];

		REQUIRE_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
		run.agent_fd = sockets[0];
		snprintf(append, sizeof(append), "program=poke count=5000 seed=%u", seed);
		guest_run(&run);
		CHECK_EQUAL(run.error, 0);
		CHECK(!run.timed_out);
		if (run.result.end != VCPU_END_DEBUG_EXIT && run.result.end != VCPU_END_RESET &&
		    run.result.end != VCPU_END_POWER_OFF)
			FAIL_TEST("seed %u: end %d: %s", seed, run.result.end, run.result.message);
		close(sockets[0]);
		close(sockets[1]);
	}
}
