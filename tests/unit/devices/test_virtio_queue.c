/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over descriptor chains: what it accepts, and every kind of chain that it must refuse. */
#include <errno.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/devices/virtio_queue.h"

#define QUEUE_SIZE  8
#define DESCRIPTORS 0x1000
#define AVAILABLE   0x2000
#define USED        0x3000
#define TABLE       0x4000
#define BUFFERS     0x8000
#define RAM_SIZE    (1u << 20)

struct fixture {
	struct memory memory;
	struct virtio_queue queue;
	struct virtio_chain chain;
	struct vring_desc *descriptors, *table;
	struct vring_avail *available;
	struct vring_used *used;
};

static bool setup(struct fixture *fixture)
{
	struct virtio_queue *queue = &fixture->queue;

	if (memory_create(&fixture->memory, RAM_SIZE))
		return false;
	fixture->descriptors = memory_pointer(&fixture->memory, DESCRIPTORS, 1);
	fixture->table = memory_pointer(&fixture->memory, TABLE, 1);
	fixture->available = memory_pointer(&fixture->memory, AVAILABLE, 1);
	fixture->used = memory_pointer(&fixture->memory, USED, 1);
	*queue = (struct virtio_queue){ .memory = &fixture->memory,
					.size_max = VIRTIO_QUEUE_SIZE_MAX,
					.size = QUEUE_SIZE,
					.descriptors_gpa = DESCRIPTORS,
					.driver_gpa = AVAILABLE,
					.device_gpa = USED,
					.indirect = true };
	return !virtio_queue_enable(queue);
}

static void offer(struct fixture *fixture, uint16_t head)
{
	fixture->available->ring[fixture->available->idx++ % QUEUE_SIZE] = head;
}

static int pop(struct fixture *fixture)
{
	return virtio_queue_pop(&fixture->queue, &fixture->chain);
}

#define NEXT     VRING_DESC_F_NEXT
#define WRITE    VRING_DESC_F_WRITE
#define INDIRECT VRING_DESC_F_INDIRECT

TEST(virtio_queue, takes_a_chain_in_order)
{
	static struct fixture fixture;
	char text[8] = "";

	REQUIRE(setup(&fixture));
	fixture.descriptors[3] = (struct vring_desc){ BUFFERS, 3, NEXT, 5 };
	fixture.descriptors[5] = (struct vring_desc){ BUFFERS + 100, 2, NEXT, 0 };
	fixture.descriptors[0] = (struct vring_desc){ BUFFERS + 200, 64, WRITE | NEXT, 7 };
	fixture.descriptors[7] = (struct vring_desc){ BUFFERS + 300, 1, WRITE, 0 };
	memory_write(&fixture.memory, BUFFERS, "abc", 3);
	memory_write(&fixture.memory, BUFFERS + 100, "de", 2);
	CHECK_EQUAL(pop(&fixture), 0);
	offer(&fixture, 3);
	REQUIRE_EQUAL(pop(&fixture), 1);
	CHECK_EQUAL(fixture.chain.readable.count, 2);
	CHECK_EQUAL(fixture.chain.readable.size, 5);
	CHECK_EQUAL(fixture.chain.writable.count, 2);
	CHECK_EQUAL(fixture.chain.writable.size, 65);
	CHECK_EQUAL(virtio_buffers_read(&fixture.chain.readable, text, sizeof(text)), 5);
	CHECK_STRING(text, "abcde");
	virtio_queue_push(&fixture.queue, &fixture.chain, 65);
	CHECK_EQUAL(fixture.used->idx, 1);
	CHECK_EQUAL(fixture.used->ring[0].id, 3);
	CHECK_EQUAL(fixture.used->ring[0].len, 65);
	CHECK_EQUAL(pop(&fixture), 0);
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, gives_a_chain_back)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	fixture.descriptors[2] = (struct vring_desc){ BUFFERS, 4, 0, 0 };
	offer(&fixture, 2);
	REQUIRE_EQUAL(pop(&fixture), 1);
	virtio_queue_undo_pop(&fixture.queue);
	REQUIRE_EQUAL(pop(&fixture), 1);
	CHECK_EQUAL(fixture.chain.head, 2);
	CHECK_EQUAL(pop(&fixture), 0);
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, takes_a_full_queue_and_an_indirect_table)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	for (uint16_t i = 0; i < QUEUE_SIZE; i++) {
		fixture.table[i] =
			(struct vring_desc){ BUFFERS + i, 1, i + 1 < QUEUE_SIZE ? NEXT : 0, i + 1 };
		fixture.descriptors[i] = fixture.table[i];
	}
	offer(&fixture, 0);
	REQUIRE_EQUAL(pop(&fixture), 1);
	CHECK_EQUAL(fixture.chain.readable.size, QUEUE_SIZE);
	fixture.descriptors[1] = (struct vring_desc){ TABLE, QUEUE_SIZE * 16, INDIRECT, 0 };
	offer(&fixture, 1);
	REQUIRE_EQUAL(pop(&fixture), 1);
	CHECK_EQUAL(fixture.chain.readable.size, QUEUE_SIZE);
	CHECK_EQUAL(fixture.chain.head, 1);
	memory_destroy(&fixture.memory);
}

/* Empty buffers are legal. */
TEST(virtio_queue, leaves_out_empty_buffers)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	fixture.descriptors[0] = (struct vring_desc){ BUFFERS, 0, NEXT, 1 };
	fixture.descriptors[1] = (struct vring_desc){ BUFFERS, 4, WRITE, 0 };
	offer(&fixture, 0);
	REQUIRE_EQUAL(pop(&fixture), 1);
	CHECK_EQUAL(fixture.chain.readable.count, 0);
	CHECK_EQUAL(fixture.chain.writable.size, 4);
	memory_destroy(&fixture.memory);
}

/* Each is a chain at descriptor 0, with the rest of the two tables, that must end with -EPROTO. */
static const struct {
	const char *what;
	struct vring_desc descriptors[3], table[3];
} hostile[] = {
	{ "a loop of one", { { BUFFERS, 1, NEXT, 0 } }, { { 0 } } },
	{ "a loop of two", { { BUFFERS, 1, NEXT, 1 }, { BUFFERS, 1, NEXT, 0 } }, { { 0 } } },
	{ "a loop of writable ones", { { BUFFERS, 1, NEXT | WRITE, 0 } }, { { 0 } } },
	{ "a loop of empty ones", { { BUFFERS, 0, NEXT, 0 } }, { { 0 } } },
	{ "next out of the table", { { BUFFERS, 1, NEXT, QUEUE_SIZE } }, { { 0 } } },
	{ "next far out of the table", { { BUFFERS, 1, NEXT, 0xffff } }, { { 0 } } },
	{ "a buffer behind RAM", { { RAM_SIZE, 1, 0, 0 } }, { { 0 } } },
	{ "a buffer over the end of RAM", { { RAM_SIZE - 4, 5, 0, 0 } }, { { 0 } } },
	{ "a buffer that wraps", { { UINT64_MAX - 3, 16, WRITE, 0 } }, { { 0 } } },
	{ "a huge buffer", { { BUFFERS, UINT32_MAX, WRITE, 0 } }, { { 0 } } },
	{ "an unknown flag", { { BUFFERS, 1, 8, 0 } }, { { 0 } } },
	{ "all flags", { { BUFFERS, 1, 0xffff, 0 } }, { { 0 } } },
	{ "readable behind writable",
	  { { BUFFERS, 1, NEXT | WRITE, 1 }, { BUFFERS, 1, 0, 0 } },
	  { { 0 } } },
	{ "indirect and next",
	  { { TABLE, 16, INDIRECT | NEXT, 1 }, { BUFFERS, 1, 0, 0 } },
	  { { BUFFERS, 1, 0, 0 } } },
	{ "an empty indirect table", { { TABLE, 0, INDIRECT, 0 } }, { { BUFFERS, 1, 0, 0 } } },
	{ "an indirect table that is cut",
	  { { TABLE, 24, INDIRECT, 0 } },
	  { { BUFFERS, 1, 0, 0 } } },
	{ "an indirect table that is not aligned",
	  { { TABLE + 1, 16, INDIRECT, 0 } },
	  { { BUFFERS, 1, 0, 0 } } },
	{ "an indirect table outside of RAM",
	  { { RAM_SIZE - 8, 16, INDIRECT, 0 } },
	  { { BUFFERS, 1, 0, 0 } } },
	{ "indirect within indirect",
	  { { TABLE, 32, INDIRECT, 0 } },
	  { { TABLE, 16, INDIRECT, 0 } } },
	{ "the queue's own table as indirect one",
	  { { DESCRIPTORS, 16, INDIRECT, 0 } },
	  { { 0 } } },
	{ "next out of the indirect table",
	  { { TABLE, 32, INDIRECT, 0 } },
	  { { BUFFERS, 1, NEXT, 2 } } },
	{ "a loop in the indirect table",
	  { { TABLE, 32, INDIRECT, 0 } },
	  { { BUFFERS, 1, NEXT, 0 } } },
	{ "an indirect table longer than the queue, looped",
	  { { TABLE, 4096, INDIRECT, 0 } },
	  { { BUFFERS, 1, NEXT, 1 }, { BUFFERS, 1, NEXT, 2 }, { BUFFERS, 1, NEXT, 1 } } },
};

TEST(virtio_queue, refuses_hostile_chains)
{
	static struct fixture fixture;

	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		REQUIRE(setup(&fixture));
		memcpy(fixture.descriptors, hostile[i].descriptors, sizeof(hostile[i].descriptors));
		memcpy(fixture.table, hostile[i].table, sizeof(hostile[i].table));
		offer(&fixture, 0);
		error_set(0, "nothing");
		if (pop(&fixture) != -EPROTO)
			FAIL_TEST("taken: %s", hostile[i].what);
		CHECK(strcmp(error_message(), "nothing"));
		memory_destroy(&fixture.memory);
	}
}

/* Buffers of 3 GiB would be outside of RAM here; only the sum counts, so it consists of one
 * page. */
TEST(virtio_queue, refuses_more_than_4_gib_in_a_chain)
{
	static struct fixture fixture;
	static struct memory large;

	REQUIRE(setup(&fixture));
	REQUIRE_EQUAL(memory_create(&large, 2ull << 30), 0);
	fixture.queue.memory = &large;
	for (uint16_t i = 0; i < 3; i++)
		fixture.descriptors[i] = (struct vring_desc){ 0, 0x7fffffff, NEXT | WRITE, i + 1 };
	fixture.descriptors[2].flags = WRITE;
	offer(&fixture, 0);
	CHECK_EQUAL(pop(&fixture), -EPROTO);
	memory_destroy(&large);
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, refuses_indirect_that_was_not_negotiated)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	fixture.queue.indirect = false;
	fixture.descriptors[0] = (struct vring_desc){ TABLE, 16, INDIRECT, 0 };
	fixture.table[0] = (struct vring_desc){ BUFFERS, 1, 0, 0 };
	offer(&fixture, 0);
	CHECK_EQUAL(pop(&fixture), -EPROTO);
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, refuses_an_available_index_that_jumps)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	fixture.descriptors[0] = (struct vring_desc){ BUFFERS, 1, 0, 0 };
	fixture.available->idx = QUEUE_SIZE + 1;
	CHECK_EQUAL(pop(&fixture), -EPROTO);
	fixture.available->idx = QUEUE_SIZE;
	CHECK_EQUAL(pop(&fixture), 1);
	fixture.available->idx = 0; /* one backwards is a jump of 65535 */
	CHECK_EQUAL(pop(&fixture), -EPROTO);
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, refuses_a_head_out_of_the_table)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	offer(&fixture, QUEUE_SIZE);
	CHECK_EQUAL(pop(&fixture), -EPROTO);
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, wraps_its_indexes)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	fixture.descriptors[1] = (struct vring_desc){ BUFFERS, 1, 0, 0 };
	for (unsigned int i = 0; i < 70000; i++) {
		offer(&fixture, 1);
		REQUIRE_EQUAL(pop(&fixture), 1);
		virtio_queue_push(&fixture.queue, &fixture.chain, i);
		REQUIRE_EQUAL(fixture.used->ring[i % QUEUE_SIZE].len, i);
	}
	CHECK_EQUAL(fixture.used->idx, 70000 % 65536);
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, refuses_bad_rings)
{
	static struct fixture fixture;
	static const uint32_t sizes[] = { 0, 3, 257, 512, UINT32_MAX };
	static const uint64_t addresses[] = { DESCRIPTORS + 1, RAM_SIZE, RAM_SIZE - 2,
					      UINT64_MAX - 15 };

	REQUIRE(setup(&fixture));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct virtio_queue queue = fixture.queue;

		queue.ready = false;
		queue.size = sizes[i];
		CHECK_EQUAL(virtio_queue_enable(&queue), -EINVAL);
		CHECK(!queue.ready);
	}
	for (size_t i = 0; i < 3 * sizeof(addresses) / sizeof(addresses[0]); i++) {
		struct virtio_queue queue = fixture.queue;
		uint64_t *parts[] = { &queue.descriptors_gpa, &queue.driver_gpa,
				      &queue.device_gpa };

		queue.ready = false;
		*parts[i % 3] = addresses[i / 3];
		CHECK_EQUAL(virtio_queue_enable(&queue), -EFAULT);
		CHECK(!queue.ready);
	}
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, interrupts_as_the_driver_requests)
{
	static struct fixture fixture;

	REQUIRE(setup(&fixture));
	fixture.descriptors[0] = (struct vring_desc){ BUFFERS, 1, 0, 0 };
	CHECK(!virtio_queue_wants_interrupt(&fixture.queue));
	offer(&fixture, 0);
	REQUIRE_EQUAL(pop(&fixture), 1);
	virtio_queue_push(&fixture.queue, &fixture.chain, 0);
	CHECK(virtio_queue_wants_interrupt(&fixture.queue));
	CHECK(!virtio_queue_wants_interrupt(&fixture.queue));
	fixture.available->flags = VRING_AVAIL_F_NO_INTERRUPT;
	virtio_queue_push(&fixture.queue, &fixture.chain, 0);
	CHECK(!virtio_queue_wants_interrupt(&fixture.queue));
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, keeps_event_indexes)
{
	static struct fixture fixture;
	uint16_t *used_event, *available_event;

	REQUIRE(setup(&fixture));
	fixture.queue.event_index = true;
	used_event = &fixture.available->ring[QUEUE_SIZE];
	available_event = (uint16_t *)&fixture.used->ring[QUEUE_SIZE];
	fixture.descriptors[0] = (struct vring_desc){ BUFFERS, 1, 0, 0 };
	*used_event = 1;
	for (uint16_t i = 0; i < 3; i++) {
		offer(&fixture, 0);
		REQUIRE_EQUAL(pop(&fixture), 1);
		CHECK_EQUAL(*available_event, i);
		virtio_queue_push(&fixture.queue, &fixture.chain, 0);
		CHECK_EQUAL(virtio_queue_wants_interrupt(&fixture.queue), i == 1);
		CHECK_EQUAL(pop(&fixture), 0);
		CHECK_EQUAL(*available_event, i + 1);
	}
	memory_destroy(&fixture.memory);
}

TEST(virtio_queue, cuts_the_last_byte)
{
	char bytes[] = "abc";
	struct iovec vectors[] = { { bytes, 2 }, { bytes + 2, 1 } };
	struct virtio_buffers buffers = { .vectors = vectors, .count = 2, .size = 3 };

	CHECK_EQUAL(*virtio_buffers_cut_last(&buffers), 'c');
	CHECK_EQUAL(buffers.count, 1);
	CHECK_EQUAL(*virtio_buffers_cut_last(&buffers), 'b');
	CHECK_EQUAL(*virtio_buffers_cut_last(&buffers), 'a');
	CHECK_EQUAL(buffers.size, 0);
	CHECK(!virtio_buffers_cut_last(&buffers));
}
