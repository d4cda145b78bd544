/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shared/sample_record.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/flame_graph.h"

static const struct flame_node *child_named(const struct flame_node *node, const char *name)
{
	for (const struct flame_node *child = node ? node->child : NULL; child;
	     child = child->sibling)
		if (!strcmp(child->frame->name, name))
			return child;
	FAIL_TEST("no %s in %s", name, node ? node->frame->name : "nothing");
	return NULL;
}

static const struct flame_function *function_named(const struct flame_tree *tree,
						   const struct flame_function *functions,
						   const char *name)
{
	for (size_t i = 0; i < tree->frame_count; i++)
		if (!strcmp(functions[i].frame->name, name))
			return &functions[i];
	FAIL_TEST("no function %s", name);
	return &functions[0];
}

static void check_places(const struct flame_tree *tree)
{
	const struct flame_node *vcpu = child_named(tree->root, "vcpu 0"), *middle, *leaf;

	CHECK_EQUAL(tree->root->samples, 10);
	CHECK_EQUAL(tree->root->weight, 10 * SMALL_PERIOD);
	REQUIRE(vcpu);
	CHECK_EQUAL(vcpu->samples, 9);
	CHECK_EQUAL(vcpu->frame->kind, FLAME_PROCESS);
	middle = child_named(child_named(vcpu, "middle"), "middle");
	leaf = child_named(middle, "leaf");
	REQUIRE(middle && leaf);
	CHECK_EQUAL(middle->self, 0);
	CHECK_EQUAL(leaf->self, 6 * SMALL_PERIOD);
	CHECK_EQUAL(leaf->frame->kind, FLAME_KERNEL);
	CHECK(child_named(tree->root, "vcpu;1"));
}

static void check_functions(const struct flame_tree *tree)
{
	struct flame_function *functions = flame_tree_functions(tree);

	REQUIRE(functions);
	CHECK_STRING(functions[0].frame->name, "leaf");
	CHECK_EQUAL(functions[0].self, 10 * SMALL_PERIOD);
	CHECK_EQUAL(functions[0].total, 10 * SMALL_PERIOD);
	/* A recursive function counts once. */
	CHECK_EQUAL(function_named(tree, functions, "middle")->total, 6 * SMALL_PERIOD);
	CHECK_EQUAL(function_named(tree, functions, "middle")->self, 0);
	free(functions);
}

TEST(flame_graph_tree, groups_processes_by_cgroup)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	const struct flame_node *cgroup;
	struct profile *profile;
	struct flame_tree tree;

	small_recording_make(&recording);
	options.input = recording.path;
	options.kallsyms = recording.kallsyms;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	REQUIRE_EQUAL(flame_tree_build(&tree, NULL, profile, 0, FOLDED_BY_CGROUP), 0);
	CHECK_EQUAL(tree.root->samples, 10);
	cgroup = child_named(tree.root, "/system.slice/a;b.service");
	REQUIRE(cgroup);
	CHECK_EQUAL(cgroup->samples, 9);
	CHECK_EQUAL(cgroup->self, 0);
	CHECK(child_named(cgroup, "vcpu 0"));
	CHECK(child_named(child_named(tree.root, "[unknown cgroup]"), "vcpu;1"));
	flame_tree_free(&tree);
	profile_free(profile);
	small_recording_free(&recording);
}

TEST(flame_graph_tree, holds_each_stack_from_the_outside_in)
{
	struct small_recording recording;
	struct profile_options options = { .vcpu = -1 };
	struct profile *profile;
	struct flame_tree tree;

	small_recording_make(&recording);
	options.input = recording.path;
	options.kallsyms = recording.kallsyms;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	REQUIRE_EQUAL(flame_tree_build(&tree, NULL, profile, 0, FOLDED_PLAIN), 0);
	check_places(&tree);
	check_functions(&tree);
	flame_tree_free(&tree);
	profile_free(profile);
	small_recording_free(&recording);
}

/* One sample from outside the guest. */
static void record_host(const char *path)
{
	const struct perf_data_options options = { .path = path,
						   .frequency = 1000,
						   .host_samples = true,
						   .vcpus = 1,
						   .vmm_pid = 100,
						   .command_line = "test",
						   .release = "6.1.0" };
	const struct sample sample = { .time = 1000,
				       .period = SMALL_PERIOD,
				       .rip = 0x400000,
				       .host_tid = 100,
				       .pid = 100,
				       .tid = 100,
				       .flags = SAMPLE_HOST };
	struct perf_data_writer *writer;

	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	CHECK_EQUAL(perf_data_writer_comm(writer, 0, 100, 100, "vcpu 0"), 0);
	CHECK_EQUAL(perf_data_writer_sample(writer, &sample), 0);
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
}

TEST(flame_graph_tree, separates_the_host_from_user_space)
{
	struct profile_options options = { .vcpu = -1 };
	const struct flame_node *host;
	struct profile *profile;
	struct flame_tree tree;
	char path[64];

	snprintf(path, sizeof(path), "build/host-%d.data", getpid());
	record_host(path);
	options.input = path;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	REQUIRE_EQUAL(flame_tree_build(&tree, NULL, profile, 0, FOLDED_PLAIN), 0);
	host = child_named(child_named(tree.root, "vcpu 0"), "[host]");
	REQUIRE(host);
	CHECK_EQUAL(host->frame->kind, FLAME_HOST);
	flame_tree_free(&tree);
	profile_free(profile);
	unlink(path);
}
