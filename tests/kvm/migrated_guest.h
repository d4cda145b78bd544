/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest of the migration tests. By default it is the test guest, which every KVM can run. On a
 * standard KVM, tests/rig/test_migration.c selects a Linux through the environment:
 *
 * 	KVMSCOPE_MIGRATION_KERNEL its bzImage, a relative path
 * 	KVMSCOPE_MIGRATION_INITRD made by tests/rig/initrd
 *
 * Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_MIGRATED_GUEST_H
#define KVMSCOPE_TESTS_KVM_MIGRATED_GUEST_H

#include <stdbool.h>

struct migrated_guest {
	const char *kernel, *initrd; /* relative paths; NULL: the test guest, which needs none */
	const char *command_line;
	const char *banner; /* printed on its console when it works */
};

/* It works without pause until it is ended. */
const struct migrated_guest *migrated_guest(void);

/*
 * The check fails unless the recording PATH of that Linux has samples of its kernel, nearly all of
 * them symbolized, and of its only program if their process is known: right after attaching no
 * process is known yet. Symbols are looked up as kvmscope report does.
 */
void migrated_guest_check_names(const char *path);

#endif
