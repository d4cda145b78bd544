/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/migrated_guest.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/sample_record.h"
#include "tests/kvm/guest_run.h"
#include "tests/unit/quick_boot.h"
#include "tests/unit/shim/test.h"
#include "vmm/report/profile_stacks.h"

static const struct migrated_guest test_guest = {
	.kernel = GUEST_IMAGE_MULTIBOOT,
	.command_line = "program=shares rounds=1000000",
	.banner = "working",
};

const struct migrated_guest *migrated_guest(void)
{
	static struct migrated_guest debian = {
		.command_line = "console=ttyS0 quiet mitigations=off " QUICK_BOOT
				" kvmscope.run=workload+shares+10000",
		.banner = "guest-init: up",
	};

	debian.kernel = getenv("KVMSCOPE_MIGRATION_KERNEL");
	debian.initrd = getenv("KVMSCOPE_MIGRATION_INITRD");
	return debian.kernel && debian.initrd ? &debian : &test_guest;
}

/* Samples of the guest's kernel. */
struct seen {
	uint64_t all, named, of_workload,
		of_others; /* the last two of those with a known process */
};

static void see_stack(struct seen *seen, const struct profile_stack *stack)
{
	const struct profile_frame *leaf = stack->frames[0];

	if (!leaf->kernel || (leaf->symbol && !strcmp(leaf->symbol, "[host]")))
		return;
	seen->all += stack->samples;
	seen->named += leaf->symbol ? stack->samples : 0;
	if (stack->pid == SAMPLE_TASK_LIMIT)
		return;
	if (strcmp(stack->comm, "workload") != 0)
		seen->of_others += stack->samples;
	else
		seen->of_workload += stack->samples;
}

void migrated_guest_check_names(const char *path)
{
	const struct profile_options options = { .input = path, .vcpu = -1 };
	struct seen seen = { 0 };
	struct profile *profile;

	if (profile_load(&profile, &options)) {
		FAIL_TEST("%s: %s", path, error_message());
		return;
	}
	for (size_t i = 0; i < profile_stack_count(profile); i++)
		see_stack(&seen, profile_stack(profile, i));
	printf("%s: %llu samples of the guest's kernel, %llu named, %llu of the workload, %llu of other processes%s%s\n",
	       path, (unsigned long long)seen.all, (unsigned long long)seen.named,
	       (unsigned long long)seen.of_workload, (unsigned long long)seen.of_others,
	       *profile_note(profile) ? "; " : "", profile_note(profile));
	CHECK(seen.all > 0);
	CHECK(seen.named >= seen.all * 9 / 10);
	CHECK(seen.of_workload > 0);
	CHECK(seen.of_others <= seen.of_workload / 10);
	profile_free(profile);
}
