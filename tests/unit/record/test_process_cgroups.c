/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup of a process, from reports of a guest that may be hostile. */
#include "vmm/record/process_cgroups.h"

#include <string.h>

#include "tests/unit/shim/test.h"

#define PARENT 7u
#define CHILD  8u

struct record {
	struct sideband_cgroup cgroup;
	char path[64];
};

static struct sideband head(uint16_t type, uint32_t pid, uint64_t time)
{
	return sideband_head(type, sizeof(struct sideband), time, pid);
}

static struct record cgroup(uint32_t pid, uint64_t time, uint64_t id)
{
	struct record record = { .cgroup = { .head = head(SIDEBAND_CGROUP, pid, time), .id = id },
				 .path = "/system.slice" };

	record.cgroup.head.size = sizeof(record);
	return record;
}

static void enter(struct process_cgroups *cgroups, uint32_t pid, uint64_t time, uint64_t id)
{
	const struct record record = cgroup(pid, time, id);

	process_cgroups_apply(cgroups, &record.cgroup.head);
}

static void fork_child(struct process_cgroups *cgroups, uint64_t time)
{
	struct sideband_fork fork = { .head = head(SIDEBAND_FORK, CHILD, time),
				      .parent_pid = PARENT,
				      .parent_tid = PARENT };

	process_cgroups_apply(cgroups, &fork.head);
}

static void exec_child(struct process_cgroups *cgroups, uint64_t time)
{
	struct sideband_comm exec = { .head = head(SIDEBAND_COMM, CHILD, time), .comm = "x" };

	exec.head.flags = SIDEBAND_COMM_EXEC;
	process_cgroups_apply(cgroups, &exec.head);
}

/* Only the bit that marks generated IDs. */
TEST(process_cgroups, no_id_of_a_guest_is_none)
{
	struct record wrong = cgroup(PARENT, 1, 1ull << 63), old = cgroup(PARENT, 1, 0);

	CHECK(process_cgroups_id(&wrong.cgroup));
	CHECK(process_cgroups_id_is_made(process_cgroups_id(&wrong.cgroup)));
	CHECK(process_cgroups_id_is_made(process_cgroups_id(&old.cgroup)));
	CHECK(!sideband_check(span_of(&wrong, sizeof(wrong))));
	CHECK(sideband_check(span_of(&old, sizeof(old))));
}

/* It may have been moved before. */
TEST(process_cgroups, a_new_program_is_in_its_parents_cgroup_only_if_reported)
{
	struct process_cgroups *cgroups = process_cgroups_new(NULL);

	enter(cgroups, PARENT, 1, 100);
	fork_child(cgroups, 2);
	CHECK_EQUAL(process_cgroups_of(cgroups, CHILD), 100);
	exec_child(cgroups, 3);
	CHECK_EQUAL(process_cgroups_of(cgroups, CHILD), 0);
	enter(cgroups, CHILD, 3, 200);
	CHECK_EQUAL(process_cgroups_of(cgroups, CHILD), 200);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 100);
	process_cgroups_free(cgroups);
}

TEST(process_cgroups, an_ended_process_has_none)
{
	struct process_cgroups *cgroups = process_cgroups_new(NULL);
	struct sideband thread = head(SIDEBAND_EXIT, PARENT, 2),
			process = head(SIDEBAND_EXIT, PARENT, 3);

	thread.tid = PARENT + 1;
	enter(cgroups, PARENT, 1, 100);
	process_cgroups_apply(cgroups, &thread);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 100);
	process_cgroups_apply(cgroups, &process);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 0);
	process_cgroups_free(cgroups);
}

/* It may have run another program since, elsewhere. */
TEST(process_cgroups, cgroups_are_unknown_after_a_loss)
{
	struct process_cgroups *cgroups = process_cgroups_new(NULL);
	struct sideband_lost lost = { .head = head(SIDEBAND_LOST, 0, 5), .count = 1, .until = 5 };

	enter(cgroups, PARENT, 5, 100);
	process_cgroups_apply(cgroups, &lost.head);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 0);
	fork_child(cgroups, 6);
	CHECK_EQUAL(process_cgroups_of(cgroups, CHILD), 0);
	enter(cgroups, PARENT, 7, 200);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 200);
	lost.head.time = lost.until = 4; /* one that is reported late */
	process_cgroups_apply(cgroups, &lost.head);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 200);
	process_cgroups_free(cgroups);
}

/* Lost events of another processor may have ended what this one reports. */
TEST(process_cgroups, cgroups_reported_during_a_loss_are_unknown)
{
	struct process_cgroups *cgroups = process_cgroups_new(NULL);
	struct sideband_lost lost = { .head = head(SIDEBAND_LOST, 0, 5), .count = 1, .until = 8 };

	process_cgroups_apply(cgroups, &lost.head);
	enter(cgroups, PARENT, 8, 100);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 0);
	fork_child(cgroups, 9);
	CHECK_EQUAL(process_cgroups_of(cgroups, CHILD), 0);
	enter(cgroups, PARENT, 9, 200);
	CHECK_EQUAL(process_cgroups_of(cgroups, PARENT), 200);
	process_cgroups_free(cgroups);
}

TEST(process_cgroups, what_comes_late_changes_nothing)
{
	struct process_cgroups *cgroups = process_cgroups_new(NULL);

	enter(cgroups, PARENT, 1, 100);
	enter(cgroups, CHILD, 5, 200);
	fork_child(cgroups, 4);
	CHECK_EQUAL(process_cgroups_of(cgroups, CHILD), 200);
	exec_child(cgroups, 4);
	CHECK_EQUAL(process_cgroups_of(cgroups, CHILD), 200);
	process_cgroups_free(cgroups);
}
