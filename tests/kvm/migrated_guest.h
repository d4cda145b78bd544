/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest that the tests of migration move. What any KVM of these tests can run is the test
 *guest; where it is a standard one, tests/rig/test_migration.c has the environment name a Linux:
 *
 *	KVMSCOPE_MIGRATION_KERNEL	its bzImage, path from here
 *	KVMSCOPE_MIGRATION_INITRD	as tests/rig/initrd makes them
 *
 * Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_MIGRATED_GUEST_H
#define KVMSCOPE_TESTS_KVM_MIGRATED_GUEST_H

#include <stdbool.h>

struct migrated_guest {
	const char *kernel,
		*initrd; /* paths from here; NULL: it needs none, and is the test guest */
	const char *command_line;
	const char *says; /* on its console, when it works */
};

/* It always works, until it is ended. */
const struct migrated_guest *migrated_guest(void);

/*
 * A failed check unless the recording PATH of that Linux has samples of its kernel, nearly all with
 * the names of functions, and of its one program where their process is known: who has just
 * attached knows none yet. Names are looked for as kvmscope report does.
 */
void migrated_guest_check_names(const char *path);

#endif
