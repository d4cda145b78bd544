/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope run --watch with symbols of a guest that is not Linux. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kvm/bare_guest.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/machine/host_probe.h"

#define RUN      "run --mem 64M --timeout 60 --no-buildid-cache -o /dev/null "
#define PROGRAM  " --append program=hello_exit=0"
#define STRIPPED "build/guest-stripped.elf"

static bool has_breakpoints(void)
{
	struct probe_row row;

	return !probe_one("debug.breakpoint", &row) && row.works & PROBE_IN_KERNEL &&
	       !probe_one("debug.single_step", &row) && row.works & PROBE_IN_KERNEL;
}

#define BREAKPOINTS_REQUIRED()                                                                     \
	do {                                                                                       \
		BARE_GUEST_REQUIRED();                                                             \
		if (!has_breakpoints())                                                            \
			SKIP("this KVM does not report breakpoints in kernel code");               \
	} while (0)

/* The guest prints three texts. */
TEST(watch_image, symbol_of_the_guest_s_elf_is_watched_from_the_start)
{
	BREAKPOINTS_REQUIRED();
	program_expect(RUN "--kernel build/guests/guest.elf --watch print:x" PROGRAM, 0,
		       "mem:print:x: 3 hits, ");
	program_expect(RUN "--kernel build/guests/guest-multiboot.elf --watch print:x" PROGRAM, 0,
		       "mem:print:x: 3 hits, ");
}

TEST(watch_image, symbol_of_vmlinux_is_watched_from_the_start)
{
	BREAKPOINTS_REQUIRED();
	REQUIRE_EQUAL(system("strip -o " STRIPPED " build/guests/guest.elf"), 0);
	program_expect(RUN "--kernel " STRIPPED
			   " --vmlinux build/guests/guest.elf --watch print:x" PROGRAM,
		       0, "mem:print:x: 3 hits, ");
	remove(STRIPPED);
}

TEST(watch_image, watch_that_was_never_armed_is_an_error)
{
	BREAKPOINTS_REQUIRED();
	program_expect(
		RUN "--kernel build/guests/guest.elf --watch missing:x" PROGRAM, 1,
		"mem:missing:x is not watched: build/guests/guest.elf has no symbol missing; it "
		"waits for Linux");
	program_expect(RUN "--kernel build/guests/guest.elf --watch missing:x" PROGRAM, 1,
		       "mem:missing:x was never watched");
	/* The guest's own status is kept. */
	program_expect(RUN "--kernel build/guests/guest.elf --watch missing:x --append "
			   "program=hello_exit=7",
		       7, "mem:missing:x was never watched");
}
