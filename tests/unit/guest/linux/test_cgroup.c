/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/guest_cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/btf_image.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/task_guest.h"
#include "vmm/guest/linux/btf_types.h"

#define LAYOUT (&task_guest_layout.cgroups)

struct fixture {
	struct task_guest guest;
	struct kernel_memory memory;
	struct guest_cgroups *cgroups;
};

/* "/", "/system.slice", "/system.slice/docker-0123.scope": 0, 1 and 2. */
static void make(struct fixture *fixture)
{
	task_guest_make(&fixture->guest);
	fixture->memory = (struct kernel_memory){ .view = &fixture->guest.guest.view,
						  .paging = &fixture->guest.kernel };
	task_guest_put_cgroup(&fixture->guest, 0, 0, 1, "");
	task_guest_put_cgroup(&fixture->guest, 1, 0, 17, "system.slice");
	task_guest_put_cgroup(&fixture->guest, 2, 1, 0x200000011, "docker-0123.scope");
	REQUIRE_EQUAL(guest_cgroups_create(&fixture->cgroups), 0);
}

static void free_fixture(struct fixture *fixture)
{
	guest_cgroups_free(fixture->cgroups);
	task_guest_free(&fixture->guest);
}

static struct guest_cgroup load_cgroup(struct fixture *fixture)
{
	struct guest_cgroup cgroup;

	fixture->memory = (struct kernel_memory){ .view = &fixture->guest.guest.view,
						  .paging = &fixture->guest.kernel };
	guest_cgroup_read(&fixture->memory, LAYOUT, DIRECT + TASK(1), &cgroup);
	return cgroup;
}

/* The path of the cgroup of node N in a new table. */
static const char *name_of(struct fixture *fixture, unsigned int n)
{
	struct guest_cgroup cgroup;

	task_guest_enter_cgroup(&fixture->guest, 1, n);
	cgroup = load_cgroup(fixture);
	guest_cgroups_free(fixture->cgroups);
	CHECK_EQUAL(guest_cgroups_create(&fixture->cgroups), 0);
	guest_cgroups_enter(fixture->cgroups, &cgroup);
	CHECK(!guest_cgroups_path(fixture->cgroups, cgroup.id));
	guest_cgroups_load(fixture->cgroups, &fixture->memory, LAYOUT);
	return guest_cgroups_path(fixture->cgroups, cgroup.id);
}

TEST(cgroup, of_a_task_is_found)
{
	FIXTURE(struct fixture, fixture, make, free_fixture);
	task_guest_enter_cgroup(&fixture.guest, 1, 2);
	CHECK_EQUAL(load_cgroup(&fixture).id, 0x200000011);
	CHECK_EQUAL(load_cgroup(&fixture).node, DIRECT + NODE(2));
	task_guest_enter_cgroup(&fixture.guest, 1, 0);
	CHECK_EQUAL(load_cgroup(&fixture).id, 1);
	task_guest_put(&fixture.guest, CGROUP(0) + LAYOUT->cgroup_node, 0x1234);
	CHECK_EQUAL(load_cgroup(&fixture).id, 0);
	CHECK_EQUAL(load_cgroup(&fixture).node, 0);
}

TEST(cgroup, path_is_read)
{
	FIXTURE(struct fixture, fixture, make, free_fixture);
	CHECK_STRING(name_of(&fixture, 0), "/");
	CHECK_STRING(name_of(&fixture, 1), "/system.slice");
	CHECK_STRING(name_of(&fixture, 2), "/system.slice/docker-0123.scope");
}

/* Between the stop and the load: its memory may have been reused. */
TEST(cgroup, removed_one_has_no_path)
{
	struct guest_cgroup cgroup;

	FIXTURE(struct fixture, fixture, make, free_fixture);
	task_guest_enter_cgroup(&fixture.guest, 1, 2);
	cgroup = load_cgroup(&fixture);
	guest_cgroups_enter(fixture.cgroups, &cgroup);
	task_guest_put(&fixture.guest, NODE(2) + LAYOUT->node_count, 0);
	guest_cgroups_load(fixture.cgroups, &fixture.memory, LAYOUT);
	CHECK(!guest_cgroups_path(fixture.cgroups, cgroup.id));
	task_guest_put_cgroup(&fixture.guest, 2, 1, 99, "another.scope");
	guest_cgroups_enter(fixture.cgroups, &cgroup);
	guest_cgroups_load(fixture.cgroups, &fixture.memory, LAYOUT);
	CHECK(!guest_cgroups_path(fixture.cgroups, cgroup.id));
}

TEST(cgroup, invalid_path_is_refused)
{
	char name[0x100] = "";

	FIXTURE(struct fixture, fixture, make, free_fixture);
	task_guest_put_cgroup(&fixture.guest, 1, 2, 17, "round");
	CHECK(!name_of(&fixture, 2));
	task_guest_put_cgroup(&fixture.guest, 1, 0, 17, "a/b");
	CHECK(!name_of(&fixture, 2));
	task_guest_put_cgroup(&fixture.guest, 1, 0, 17, "");
	CHECK(!name_of(&fixture, 2));
	task_guest_put(&fixture.guest, NODE(1) + LAYOUT->node_parent, 0x7777777777);
	CHECK(!name_of(&fixture, 2));
	/* A name of the maximum length, and one that is a letter longer. */
	memset(name, 'n', 255);
	task_guest_put_cgroup(&fixture.guest, 1, 0, 17, name);
	CHECK_EQUAL(strlen(name_of(&fixture, 1)), 256);
	fixture.guest.guest.memory[NODE(1) + 0x100 + 255] = 'n';
	CHECK(!name_of(&fixture, 1));
}

/* A guest can make up as many as it likes. */
TEST(cgroup, tables_are_bounded)
{
	struct guest_cgroup cgroup;
	unsigned int named = 0;

	FIXTURE(struct fixture, fixture, make, free_fixture);
	task_guest_enter_cgroup(&fixture.guest, 1, 1);
	for (uint64_t id = 1; id <= 3ull * GUEST_CGROUPS_MAX; id++) {
		cgroup = (struct guest_cgroup){ .id = id, .node = DIRECT + NODE(1) };
		guest_cgroups_enter(fixture.cgroups, &cgroup);
	}
	for (unsigned int i = 0; i < GUEST_CGROUPS_MAX; i += GUEST_CGROUPS_LOAD_MAX)
		guest_cgroups_load(fixture.cgroups, &fixture.memory, LAYOUT);
	for (uint64_t id = 1; id <= 3ull * GUEST_CGROUPS_MAX; id++)
		named += guest_cgroups_path(fixture.cgroups, id) != NULL;
	CHECK_EQUAL(named, 1); /* the one that the node has: 17 */
}

/* Also after those that a guest made up. */
TEST(cgroup, paths_are_read_some_at_a_time)
{
	struct guest_cgroup cgroup = { .node = DIRECT + NODE(1) };

	FIXTURE(struct fixture, fixture, make, free_fixture);
	for (cgroup.id = 1000; cgroup.id < 1000 + GUEST_CGROUPS_LOAD_MAX; cgroup.id++)
		guest_cgroups_enter(fixture.cgroups, &cgroup);
	cgroup.id = 17;
	guest_cgroups_enter(fixture.cgroups, &cgroup);
	guest_cgroups_load(fixture.cgroups, &fixture.memory, LAYOUT);
	CHECK(!guest_cgroups_path(fixture.cgroups, 17));
	guest_cgroups_load(fixture.cgroups, &fixture.memory, LAYOUT);
	CHECK_STRING(guest_cgroups_path(fixture.cgroups, 17), "/system.slice");
}

static void add_types(struct btf_image *image, const char *parent)
{
	btf_image_start(image);
	btf_image_add_struct(image, "task_struct", 0x1000,
			     (struct btf_image_member[]){
				     { "usage", 0x28 }, { "cgroups", 0xb00 }, { NULL, 0 } });
	btf_image_add_struct(image, "css_set", 0x200,
			     (struct btf_image_member[]){ { "dfl_cgrp", 0x88 }, { NULL, 0 } });
	btf_image_add_struct(image, "cgroup", 0x800,
			     (struct btf_image_member[]){ { "kn", 0xf0 }, { NULL, 0 } });
	btf_image_add_struct(image, "kernfs_node", 0x80,
			     (struct btf_image_member[]){ { "count", 0 },
							  { parent, 8 },
							  { "name", 16 },
							  { "id", 0x60 },
							  { NULL, 0 } });
}

TEST(cgroup, layouts_of_older_and_newer_kernels_are_read)
{
	static const char *const parents[] = { "parent", "__parent" };
	struct guest_cgroup_layout read;
	struct btf_image image;
	struct btf btf;

	for (size_t i = 0; i < 2; i++) {
		add_types(&image, parents[i]);
		REQUIRE_EQUAL(btf_open(&btf, btf_image_finish(&image)), 0);
		CHECK_EQUAL(guest_cgroup_layout_read(&read, &btf), 0);
		CHECK(read.known);
		CHECK_EQUAL(read.task_users, 0x28);
		CHECK_EQUAL(read.task_set, 0xb00);
		CHECK_EQUAL(read.node_parent, 8);
		CHECK_EQUAL(read.node_id, 0x60);
		btf_close(&btf);
	}
	add_types(&image, "ancestor");
	REQUIRE_EQUAL(btf_open(&btf, btf_image_finish(&image)), 0);
	CHECK_EQUAL(guest_cgroup_layout_read(&read, &btf), -ENOENT);
	CHECK(!read.known);
	btf_close(&btf);
}
