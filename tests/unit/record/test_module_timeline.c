/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/module_timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/record/collector_modules.h"

#define PLACE 0xffffffffc0100000ull

/* Scan N lasts from 10 N to 10 N + 1. */
static struct collector_scan scan(unsigned int number)
{
	return (struct collector_scan){ 10ull * number, 10ull * number + 1 };
}

static struct guest_module module(const char *name, uint64_t start, uint8_t build_id)
{
	struct guest_module module = { .start = start, .size = 0x2000, .build_id = { build_id } };

	module.build_id_size = build_id ? sizeof(module.build_id) : 0;
	strcpy(module.name, name);
	return module;
}

static bool is_shared(const struct module_timeline *places, const struct guest_module *module)
{
	struct module_spans spans;
	bool shared;

	CHECK_EQUAL(module_timeline_spans(places, &spans), 0);
	shared = module_timeline_is_shared(places, &spans, module);
	module_spans_close(&spans);
	return shared;
}

static void see_all(struct module_timeline *places, unsigned int number,
		    const struct guest_module *loaded, size_t count)
{
	const struct collector_scan latest = scan(number - 1), now = scan(number);

	CHECK_EQUAL(module_timeline_update(places, loaded, count, &latest, &now), 0);
}

/* One module is loaded, or none: NULL. */
static void see(struct module_timeline *places, unsigned int number,
		const struct guest_module *loaded)
{
	see_all(places, number, loaded, loaded ? 1 : 0);
}

static void check_place(const struct module_timeline *places, size_t index, const char *name,
			bool end, uint64_t time)
{
	REQUIRE(index < places->count);
	CHECK_STRING(places->bounds[index].module.name, name);
	CHECK_EQUAL(places->bounds[index].end, end);
	CHECK_EQUAL(places->bounds[index].time, time);
}

TEST(module_timeline, modules_that_stay_are_there_since_ever)
{
	const struct guest_module both[] = { module("a", PLACE, 1),
					     module("b", PLACE + 0x2000, 2) };
	const struct collector_scan first = scan(1), second = scan(2);
	struct module_timeline places = { 0 };

	see(&places, 1, &both[0]);
	CHECK_EQUAL(module_timeline_update(&places, both, 2, &first, &second), 0);
	CHECK_EQUAL(places.count, 2);
	check_place(&places, 0, "a", false, 0);
	check_place(&places, 1, "b", false, 0);
	CHECK(!is_shared(&places, &both[0]));
	CHECK(!is_shared(&places, &both[1]));
	module_timeline_free(&places);
}

/*
 * A sample of an earlier program at its address, which no scan found, may be checked when that one
 * is unloaded.
 */
TEST(module_timeline, a_bpf_program_begins_with_the_scan_that_found_it)
{
	struct guest_module both[] = { module("a", PLACE, 0), module("b", PLACE + 0x2000, 0) };
	const struct collector_scan first = scan(1), second = scan(2);
	struct module_timeline places = { 0 };

	both[0].program = PLACE + 0x10000;
	both[1].program = PLACE + 0x11000;
	see(&places, 1, &both[0]);
	places.programs_listed = true;
	CHECK_EQUAL(module_timeline_update(&places, both, 2, &first, &second), 0);
	CHECK_EQUAL(places.count, 2);
	check_place(&places, 0, "a", false, 0);
	check_place(&places, 1, "b", false, 21);
	module_timeline_free(&places);
}

TEST(module_timeline, time_between_two_modules_at_one_address_stays_open)
{
	const struct guest_module a = module("a", PLACE, 1), b = module("b", PLACE + 0x1000, 2);
	struct module_timeline places = { 0 };

	see(&places, 1, &a);
	see(&places, 2, &b);
	CHECK_EQUAL(places.count, 3);
	check_place(&places, 1, "a", true, 10);
	check_place(&places, 2, "b", false, 21);
	CHECK(is_shared(&places, &a));
	CHECK(is_shared(&places, &b));
	module_timeline_free(&places);
}

TEST(module_timeline, a_place_that_was_empty_for_a_while_was_anybody_s)
{
	const struct guest_module a = module("a", PLACE, 1), b = module("b", PLACE, 2);
	struct module_timeline places = { 0 };

	see(&places, 1, &a);
	see(&places, 2, NULL);
	see(&places, 3, NULL);
	see(&places, 4, &b);
	CHECK_EQUAL(places.count, 3);
	check_place(&places, 1, "a", true, 10);
	check_place(&places, 2, "b", false, 41);
	module_timeline_free(&places);
}

/* Its end is not before its beginning, which readers would take for no end. */
TEST(module_timeline, a_module_that_one_scan_found_ends)
{
	const struct guest_module a = module("a", PLACE, 1), b = module("b", PLACE, 2);
	struct module_timeline places = { 0 };

	see(&places, 1, &a);
	see(&places, 2, &b);
	see(&places, 3, NULL);
	CHECK_EQUAL(places.count, 4);
	check_place(&places, 2, "b", false, 21);
	check_place(&places, 3, "b", true, 21);
	module_timeline_free(&places);
}

TEST(module_timeline, a_module_is_there_as_long_as_samples_found_it)
{
	const struct guest_module a = module("a", PLACE, 1), b = module("b", PLACE, 2);
	struct module_timeline places = { 0 };

	see(&places, 1, &a);
	module_timeline_confirm(&places, &a, 17);
	module_timeline_confirm(&places, &a, 15);
	module_timeline_confirm(&places, &b, 19);
	see(&places, 2, &b);
	check_place(&places, 1, "a", true, 18);
	check_place(&places, 2, "b", false, 21);
	module_timeline_free(&places);
}

TEST(module_timeline, the_same_build_in_the_same_place_keeps_its_names)
{
	const struct guest_module a = module("a", PLACE, 1), other = module("a", PLACE, 2);
	struct module_timeline places = { 0 };

	see(&places, 1, &a);
	see(&places, 2, NULL);
	see(&places, 3, &a);
	CHECK_EQUAL(places.count, 3);
	CHECK(places.bounds[2].written);
	CHECK(!is_shared(&places, &a));
	see(&places, 4, &other);
	CHECK_EQUAL(places.count, 5);
	CHECK(!places.bounds[4].written); /* it has the name of another one */
	CHECK(is_shared(&places, &a));
	module_timeline_free(&places);
}

TEST(module_timeline, modules_without_a_build_id_cannot_be_compared)
{
	const struct guest_module a = module("a", PLACE, 0);
	struct module_timeline places = { 0 };

	see(&places, 1, &a);
	see(&places, 2, NULL);
	see(&places, 3, &a);
	CHECK(!places.bounds[2].written);
	CHECK(is_shared(&places, &a));
	module_timeline_free(&places);
}

TEST(module_timeline, end_when_the_list_becomes_unreadable)
{
	const struct guest_module a = module("a", PLACE, 1), b = module("b", PLACE, 2);
	const struct collector_scan latest = scan(5);
	struct module_timeline places = { 0 };

	see(&places, 1, &a);
	CHECK_EQUAL(module_timeline_stop(&places, &latest), 0);
	check_place(&places, 1, "a", true, 50);
	see(&places, 7, &b);
	CHECK_EQUAL(places.count, 2);
	module_timeline_free(&places);
}

/* Programs in one scan, which takes longer the more there are. */
#define AT_ONCE 16

TEST(module_timeline, number_of_modules_is_limited)
{
	struct module_timeline places = { 0 };

	for (unsigned int i = 1; i < MODULE_TIMELINE_MAX && !places.stopped; i++) {
		struct guest_module loaded[AT_ONCE];

		for (unsigned int j = 0; j < AT_ONCE; j++)
			loaded[j] =
				module(j % 2 ? "a" : "b", PLACE + (i * AT_ONCE + j) * 0x2000ull, 1);
		see_all(&places, i, loaded, AT_ONCE);
	}
	CHECK(places.stopped);
	CHECK(places.count <= MODULE_TIMELINE_MAX + 2 * AT_ONCE);
	for (size_t i = 0; i < places.count; i++)
		CHECK(places.bounds[i].end || places.bounds[i].over);
	module_timeline_free(&places);
}

#define PLACES (3 * AT_ONCE)

/* Programs that come and go, one in the place of another, with their names. */
static struct guest_module program(unsigned int number)
{
	struct guest_module program = module("", PLACE + number % PLACES * 0x1000ull, 0);

	program.program = 0xffff888000000000ull + number * 64ull;
	program.size = 0x800;
	snprintf(program.name, sizeof(program.name), "bpf_prog_0123456789abcdef_%u", number);
	return program;
}

#define MANY (MODULE_TIMELINE_MAX / AT_ONCE)

/* Scan NUMBER finds the next programs; returns the last of them. */
static struct guest_module see_programs(struct module_timeline *places, unsigned int number)
{
	struct guest_module seen[AT_ONCE];

	for (unsigned int i = 0; i < AT_ONCE; i++)
		seen[i] = program(number * AT_ONCE + i);
	see_all(places, number, seen, AT_ONCE);
	return seen[AT_ONCE - 1];
}

TEST(module_timeline, ended_bpf_programs_are_forgotten_except_for_their_addresses)
{
	const struct guest_module early = module("early", PLACE + 0x1000, 1);
	const struct guest_module late = module("late", PLACE + (PLACES + 1) * 0x1000ull, 1);
	const struct collector_scan first = scan(MANY), second = scan(MANY + 1);
	struct module_timeline places = { .programs_listed = true };
	size_t reported = 0;

	for (unsigned int i = 1; i < MANY; i++) {
		struct guest_module last;

		REQUIRE(module_timeline_has_room_for_programs(&places, &reported));
		last = see_programs(&places, i);
		REQUIRE(places.count <=
			MODULE_TIMELINE_MAX - MODULE_TIMELINE_MODULES_MAX + 2 * (size_t)AT_ONCE);
		REQUIRE(!places.stopped && reported <= places.count);
		check_place(&places, places.count - 1, last.name, false, 10ull * i + 1);
		reported = places.count;
	}
	CHECK_EQUAL(places.forgotten.count, 1);
	CHECK(is_shared(&places, &early));
	CHECK(!is_shared(&places, &late));
	CHECK_EQUAL(module_timeline_update(&places, &early, 1, &first, &second), 0);
	check_place(&places, places.count - 1, "early", false, second.ended);
	see(&places, MANY + 2, &late);
	check_place(&places, places.count - 1, "late", false, 0);
	module_timeline_free(&places);
}

/* What is left is in the same order, each beginning with its own end. */
TEST(module_timeline, those_that_are_left_are_as_they_were)
{
	const size_t room = MODULE_TIMELINE_MAX - MODULE_TIMELINE_MODULES_MAX;
	struct module_timeline places = { .programs_listed = true };
	size_t reported = room / 2, before;

	for (unsigned int i = 1; places.count < room; i++) {
		const struct guest_module seen = program(i);

		see(&places, i, &seen);
	}
	before = places.count;
	CHECK(module_timeline_has_room_for_programs(&places, &reported));
	CHECK(places.count < before && places.count >= room / 2 - 2);
	CHECK_EQUAL(reported, room / 2 - (before - places.count));
	for (size_t i = 1; i < places.count; i++)
		CHECK(places.bounds[i].time >= places.bounds[i - 1].time);
	for (size_t i = 0; i + 1 < places.count; i++)
		if (!places.bounds[i].end)
			CHECK_EQUAL(places.bounds[i].over, i + 1 < places.count);
	module_timeline_free(&places);
}

/* Loaded programs cannot be dropped. */
TEST(module_timeline, as_many_programs_as_there_is_room_for_are_no_more)
{
	const size_t room = MODULE_TIMELINE_MAX - MODULE_TIMELINE_MODULES_MAX;
	struct guest_module *all = calloc(room, sizeof(*all));
	const struct collector_scan now = scan(1);
	struct module_timeline places = { 0 };
	size_t reported = 0;

	REQUIRE(all);
	for (unsigned int i = 0; i < room; i++) {
		all[i] = program(i);
		all[i].start = PLACE + i * 0x1000ull;
	}
	CHECK_EQUAL(module_timeline_update(&places, all, room, &now, &now), 0);
	CHECK(!places.stopped);
	CHECK(!module_timeline_has_room_for_programs(&places, &reported));
	CHECK_EQUAL(places.count, room);
	free(all);
	module_timeline_free(&places);
}

/* As a search of all of them finds it. */
static bool is_in_place_of_any(const struct guest_module *modules, size_t count,
			       const struct guest_module *module)
{
	for (size_t i = 0; i < count; i++)
		if (modules[i].start < module->start + module->size &&
		    module->start < modules[i].start + modules[i].size)
			return true;
	return false;
}

TEST(module_timeline, modules_in_a_place_are_found_among_many)
{
	struct guest_module modules[200];
	struct module_spans spans;

	srand(71);
	for (int round = 0; round < 200; round++) {
		size_t count = (size_t)rand() % 200;

		REQUIRE_EQUAL(module_spans_open(&spans, count), 0);
		for (size_t i = 0; i < count; i++) {
			modules[i] = module("m", PLACE + (uint64_t)rand() % 2000, 0);
			modules[i].size = (uint64_t)rand() % (round % 3 ? 10 : 300);
			module_spans_add(&spans, &modules[i]);
		}
		module_spans_finish(&spans);
		for (int i = 0; i < 100; i++) {
			struct guest_module any = module("any", PLACE + (uint64_t)rand() % 2000, 0);
			const struct guest_module *one;
			size_t at = 0, found = 0, there = 0;

			any.size = 1 + (uint64_t)rand() % 20;
			while ((one = module_spans_next(&spans, &any, &at))) {
				CHECK(is_in_place_of_any(one, 1, &any));
				found++;
			}
			for (size_t j = 0; j < count; j++)
				there += is_in_place_of_any(&modules[j], 1, &any);
			CHECK_EQUAL(found, there);
		}
		module_spans_close(&spans);
	}
}
