/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/ring.h"
#include "shared/ring_layout.h"
#include "tests/unit/shim/test.h"

enum { RECORD_TEST = 8 };

static bool write_number(struct ring *ring, uint64_t number, size_t payload)
{
	uint64_t *record = ring_reserve(ring, RECORD_TEST, payload);

	if (record) {
		memset(record, (int)number, payload);
		*record = number;
	}
	ring_commit(ring, record);
	return record;
}

/* The number in the next record; -1 if there is none, -2 if it is none of ours. */
static int64_t read_number(struct ring *ring)
{
	const struct ring_record *record = ring_read(ring);
	uint64_t number;

	if (!record)
		return -1;
	if (record->type != RECORD_TEST)
		return -2;
	memcpy(&number, record->payload, sizeof(number));
	for (size_t i = 8; i < record->size - sizeof(*record); i++)
		if (record->payload[i] != (uint8_t)number)
			return -2;
	return number;
}

static uint64_t read_lost(struct ring *ring)
{
	const struct ring_record *record = ring_read(ring);
	uint64_t count = 0;

	if (record && record->type == RING_RECORD_LOST)
		memcpy(&count, record->payload, sizeof(count));
	return count;
}

static uint64_t fill(struct ring *ring, size_t payload)
{
	uint64_t count = 0;

	while (write_number(ring, count, payload))
		count++;
	return count;
}

TEST(ring, gives_back_what_was_written)
{
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	CHECK_EQUAL(read_number(ring), -1);
	for (uint64_t i = 0; i < 5; i++)
		CHECK(write_number(ring, i, 8 + 16 * i));
	CHECK_EQUAL(read_number(ring), -1);
	ring_publish(ring);
	for (int64_t i = 0; i < 5; i++)
		CHECK_EQUAL(read_number(ring), i);
	CHECK_EQUAL(read_number(ring), -1);
	ring_destroy(ring);
}

TEST(ring, payload_is_aligned_and_size_covers_it)
{
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	for (size_t payload = 0; payload < 40; payload++) {
		void *record = ring_reserve(ring, RECORD_TEST, payload);
		const struct ring_record *found;

		CHECK_EQUAL((uintptr_t)record % 8, 0);
		ring_commit(ring, record);
		ring_publish(ring);
		found = ring_read(ring);
		REQUIRE(found);
		CHECK_EQUAL(found->size, (sizeof(*found) + payload + 7) / 8 * 8);
	}
	ring_destroy(ring);
}

TEST(ring, refuses_sizes_that_are_no_power_of_two_in_range)
{
	struct ring *ring;

	CHECK_EQUAL(ring_create(&ring, 0), -22);
	CHECK_EQUAL(ring_create(&ring, RING_SIZE_MIN / 2), -22);
	CHECK_EQUAL(ring_create(&ring, RING_SIZE_MIN * 3), -22);
	CHECK_EQUAL(ring_create(&ring, RING_SIZE_MAX * 2), -22);
	CHECK(strstr(error_message(), "power of two"));
}

TEST(ring, full_drops_new_records_and_reports_the_exact_number)
{
	struct ring_statistics statistics;
	struct ring *ring;
	uint64_t fitted;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	fitted = fill(ring, 56);
	CHECK_EQUAL(fitted, RING_SIZE_MIN / 64);
	for (int i = 0; i < 9; i++)
		CHECK(!write_number(ring, 0, 56));
	ring_publish(ring);
	for (uint64_t i = 0; i < fitted; i++)
		CHECK_EQUAL(read_number(ring), i);
	ring_read_done(ring);
	CHECK(write_number(ring, 77, 56));
	ring_publish(ring);
	CHECK_EQUAL(read_lost(ring), 10);
	CHECK_EQUAL(read_number(ring), 77);
	CHECK_EQUAL(read_number(ring), -1);
	ring_read_done(ring);
	ring_statistics(ring, &statistics);
	CHECK_EQUAL(statistics.written, fitted + 1);
	CHECK_EQUAL(statistics.lost, 10);
	CHECK_EQUAL(statistics.unread, 0);
	ring_destroy(ring);
}

TEST(ring, has_room_predicts_a_loss)
{
	struct ring_statistics statistics;
	struct ring *ring;
	int64_t written = 0;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	CHECK(ring_has_room(ring, ring_payload_max(ring)) &&
	      !ring_has_room(ring, ring_payload_max(ring) + 1));
	while (ring_has_room(ring, 120))
		CHECK(write_number(ring, (uint64_t)written++, 120));
	ring_statistics(ring, &statistics);
	CHECK_EQUAL(statistics.lost, 0);
	CHECK(!write_number(ring, 0, 120));
	ring_publish(ring);
	CHECK_EQUAL(read_number(ring), 0);
	ring_read_done(ring);
	/* That of the record that was lost comes first. */
	CHECK(!ring_has_room(ring, 120) && ring_has_room(ring, 64));
	CHECK(write_number(ring, 1, 64));
	ring_destroy(ring);
}

TEST(ring, flush_reports_losses_without_a_later_record)
{
	struct ring *ring;
	uint64_t fitted;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	fitted = fill(ring, 24);
	ring_flush(ring);
	for (uint64_t i = 0; i < fitted; i++)
		CHECK_EQUAL(read_number(ring), i);
	ring_read_done(ring);
	CHECK_EQUAL(read_lost(ring), 0);
	ring_flush(ring);
	CHECK_EQUAL(read_lost(ring), 1);
	CHECK_EQUAL(read_number(ring), -1);
	ring_destroy(ring);
}

TEST(ring, space_comes_back_only_when_reading_is_done)
{
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	fill(ring, 1016);
	ring_publish(ring);
	CHECK_EQUAL(read_number(ring), 0);
	CHECK_EQUAL(read_number(ring), 1);
	CHECK(!write_number(ring, 1, 1016));
	ring_read_done(ring);
	CHECK(write_number(ring, 1, 1016));
	ring_destroy(ring);
}

TEST(ring, refuses_a_record_that_is_too_large)
{
	struct ring_statistics statistics;
	struct ring *ring;
	void *record;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	CHECK(!ring_reserve(ring, RECORD_TEST, ring_payload_max(ring) + 1));
	CHECK(!ring_reserve(ring, RECORD_TEST, SIZE_MAX));
	record = ring_reserve(ring, RECORD_TEST, ring_payload_max(ring));
	REQUIRE(record);
	memset(record, 1, ring_payload_max(ring));
	ring_commit(ring, record);
	ring_publish(ring);
	CHECK_EQUAL(read_lost(ring), 2);
	CHECK(ring_read(ring));
	ring_statistics(ring, &statistics);
	CHECK_EQUAL(statistics.lost, 2);
	CHECK_EQUAL(statistics.written, 1);
	ring_destroy(ring);
}

TEST(ring, head_does_not_pass_an_open_record)
{
	struct ring *ring;
	uint64_t *outer, *inner;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	CHECK(write_number(ring, 1, 8));
	outer = ring_reserve(ring, RECORD_TEST, 8);
	inner = ring_reserve(ring, RECORD_TEST, 8);
	*inner = 3;
	ring_commit(ring, inner);
	ring_flush(ring);
	CHECK_EQUAL(read_number(ring), 1);
	CHECK_EQUAL(read_number(ring), -1);
	*outer = 2;
	ring_commit(ring, outer);
	ring_flush(ring);
	CHECK_EQUAL(read_number(ring), 2);
	CHECK_EQUAL(read_number(ring), 3);
	ring_destroy(ring);
}

TEST(ring, nested_records_finish_in_any_order)
{
	static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					  { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	for (int order = 0; order < 6; order++) {
		/* Bit i of DISCARDED: record i is discarded, not committed. */
		for (int discarded = 0; discarded < 8; discarded++) {
			uint64_t *records[3];

			for (int i = 0; i < 3; i++) {
				records[i] = ring_reserve(ring, RECORD_TEST, 8 + 8 * i);
				memset(records[i], i, 8 + 8 * i);
				*records[i] = i;
			}
			for (int i = 0; i < 3; i++) {
				int which = orders[order][i];

				if (discarded >> which & 1)
					ring_discard(ring, records[which]);
				else
					ring_commit(ring, records[which]);
			}
			ring_publish(ring);
			for (int i = 0; i < 3; i++)
				if (!(discarded >> i & 1))
					CHECK_EQUAL(read_number(ring), i);
			CHECK_EQUAL(read_number(ring), -1);
			ring_read_done(ring);
		}
	}
	ring_destroy(ring);
}

TEST(ring, discard_of_the_newest_frees_its_space)
{
	struct ring_statistics statistics;
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	for (int i = 0; i < 100000; i++)
		ring_discard(ring, ring_reserve(ring, RECORD_TEST, 1000));
	CHECK_EQUAL(fill(ring, 56), RING_SIZE_MIN / 64);
	ring_statistics(ring, &statistics);
	CHECK_EQUAL(statistics.discarded, 100000);
	CHECK_EQUAL(statistics.lost, 1);
	ring_destroy(ring);
}

TEST(ring, commit_and_discard_of_nothing_change_nothing)
{
	struct ring_statistics statistics;
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	ring_commit(ring, NULL);
	ring_discard(ring, NULL);
	ring_statistics(ring, &statistics);
	CHECK_EQUAL(statistics.written + statistics.discarded + statistics.lost, 0);
	ring_destroy(ring);
}

TEST(ring, one_reservation_too_many_is_dropped)
{
	void *records[RING_OPEN_MAX];
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	for (int i = 0; i < RING_OPEN_MAX; i++)
		REQUIRE((records[i] = ring_reserve(ring, RECORD_TEST, 8)));
	CHECK(!ring_reserve(ring, RECORD_TEST, 8));
	for (int i = 0; i < RING_OPEN_MAX; i++)
		ring_commit(ring, records[i]);
	CHECK(write_number(ring, 5, 8));
	ring_destroy(ring);
}

TEST(ring, records_run_over_the_end_whole)
{
	struct ring *ring;
	uint64_t written = 0, number = 0;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	srandom(1);
	while (number < 20000) {
		for (int i = random() % 20; i >= 0; i--)
			written += write_number(ring, written, 8 + random() % 3000);
		ring_publish(ring);
		for (int i = random() % 25; i >= 0; i--) {
			const struct ring_record *record = ring_read(ring);
			uint64_t found;

			if (!record)
				break;
			if (record->type == RING_RECORD_LOST)
				continue;
			memcpy(&found, record->payload, 8);
			REQUIRE_EQUAL(found, number);
			for (size_t k = 8; k < record->size - sizeof(*record) - 8; k++)
				REQUIRE_EQUAL(record->payload[k], (uint8_t)number);
			number++;
		}
		ring_read_done(ring);
	}
	ring_destroy(ring);
}

TEST(ring, commit_publishes_by_itself_once_a_batch)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .batch = 256, .watermark = 512 };
	struct ring *ring;

	REQUIRE_EQUAL(ring_create_with(&ring, &options), 0);
	for (int i = 0; i < 3; i++)
		write_number(ring, i, 56);
	CHECK_EQUAL(read_number(ring), -1);
	write_number(ring, 3, 56);
	CHECK_EQUAL(read_number(ring), 0);
	CHECK(!ring_wake_due(ring, 1));
	for (int i = 0; i < 4; i++)
		write_number(ring, i, 56);
	CHECK(ring_wake_due(ring, 1));
	ring_destroy(ring);
}

TEST(ring, a_wake_up_is_due_after_a_number_of_records)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .watermark_records = 3 };
	struct ring *ring;

	REQUIRE_EQUAL(ring_create_with(&ring, &options), 0);
	for (int round = 0; round < 3; round++) {
		write_number(ring, 1, 8);
		write_number(ring, 2, 8);
		CHECK(!ring_wake_due(ring, 1));
		write_number(ring, 3, 8);
		CHECK(ring_wake_due(ring, 1));
		ring_flush(ring);
		CHECK(!ring_wake_due(ring, 1));
	}
	ring_destroy(ring);
}

TEST(ring, a_wake_up_is_due_a_set_time_after_the_first_record)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .latency = 1000 };
	struct ring *ring;

	REQUIRE_EQUAL(ring_create_with(&ring, &options), 0);
	for (uint64_t time = 100000; time < 130000; time += 10000) {
		CHECK(!ring_wake_due(ring, time));
		write_number(ring, 1, 8);
		CHECK(!ring_wake_due(ring, time + 500));
		write_number(ring, 2, 8);
		CHECK(!ring_wake_due(ring, time + 1499));
		CHECK_EQUAL(read_number(ring), -1);
		CHECK(ring_wake_due(ring, time + 1500));
		ring_flush(ring);
		CHECK_EQUAL(read_number(ring), 1);
		CHECK_EQUAL(read_number(ring), 2);
	}
	ring_destroy(ring);
}

TEST(ring, flush_wakes_once_for_what_is_new)
{
	struct ring *ring;
	uint64_t count = 0;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	ring_flush(ring);
	CHECK_EQUAL(read(ring_event_fd(ring), &count, 8), -1);
	write_number(ring, 1, 8);
	ring_flush(ring);
	ring_flush(ring);
	CHECK_EQUAL(read(ring_event_fd(ring), &count, 8), 8);
	CHECK_EQUAL(count, 1);
	CHECK(!ring_wake_due(ring, 1));
	ring_destroy(ring);
}

TEST(ring, another_process_reads_it)
{
	struct ring_options options = { .size = RING_SIZE_MIN, .reader.overrun = true };
	struct ring *ring, *attached;
	int status;
	pid_t child;

	REQUIRE_EQUAL(ring_create_with(&ring, &options), 0);
	for (int i = 0; i < 3; i++)
		write_number(ring, i, 104);
	ring_flush(ring);
	child = fork();
	if (!child) {
		bool good = !ring_attach(&attached, ring_memory_fd(ring));

		for (int i = 0; good && i < 3; i++)
			good = read_number(attached) == i;
		if (good)
			ring_read_done(attached);
		_exit(!good);
	}
	REQUIRE_EQUAL(waitpid(child, &status, 0), child);
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(fill(ring, 56), RING_SIZE_MIN / 64);
	ring_destroy(ring);
}

TEST(ring, attach_refuses_what_is_no_ring)
{
	struct ring_header header;
	struct ring *ring, *attached;
	int fd = memfd_create("no-ring", MFD_ALLOW_SEALING);

	CHECK_EQUAL(ring_attach(&attached, fd), -22);
	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(pread(ring_memory_fd(ring), &header, sizeof(header), 0), sizeof(header));
	header.data_size *= 2;
	REQUIRE_EQUAL(pwrite(ring_memory_fd(ring), &header, sizeof(header), 0), sizeof(header));
	CHECK_EQUAL(ring_attach(&attached, ring_memory_fd(ring)), -22);
	header.data_size /= 2;
	header.version++;
	REQUIRE_EQUAL(pwrite(ring_memory_fd(ring), &header, sizeof(header), 0), sizeof(header));
	CHECK_EQUAL(ring_attach(&attached, ring_memory_fd(ring)), -22);
	CHECK(strstr(error_message(), "version"));
	CHECK_EQUAL(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	CHECK_EQUAL(ring_attach(&attached, fd), -22);
	CHECK(strstr(error_message(), "sealed"));
	close(fd);
	ring_destroy(ring);
}

TEST(ring, its_size_is_sealed)
{
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	CHECK_EQUAL(ftruncate(ring_memory_fd(ring), 0), -1);
	CHECK_EQUAL(ftruncate(ring_memory_fd(ring), 1 << 20), -1);
	ring_destroy(ring);
}

static void spoil(struct ring *ring, uint64_t position, uint32_t size, uint16_t type)
{
	struct ring_record record = { .size = size, .type = type };

	CHECK_EQUAL(
		pwrite(ring_memory_fd(ring), &record, sizeof(record), RING_DATA_OFFSET + position),
		sizeof(record));
}

TEST(ring, reader_skips_what_can_be_no_record_and_goes_on)
{
	static const struct {
		uint32_t size;
		uint16_t type;
	} bad[] = { { 0, 8 },
		    { 7, 8 },
		    { 12, 8 },
		    { 1 << 20, 8 },
		    { UINT32_MAX & ~7u, 8 },
		    { 24, RING_RECORD_LOST },
		    { 0, 0 } };
	struct ring_statistics statistics;
	struct ring *ring;
	uint64_t position = 0;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_number(ring, 1, 24);
		write_number(ring, 2, 24);
		ring_publish(ring);
		spoil(ring, position, bad[i].size, bad[i].type);
		CHECK_EQUAL(read_number(ring), -1);
		ring_statistics(ring, &statistics);
		CHECK_EQUAL(statistics.broken, i + 1);
		write_number(ring, 3, 24);
		ring_publish(ring);
		CHECK_EQUAL(read_number(ring), 3);
		ring_read_done(ring);
		position += 3 * 32;
	}
	ring_destroy(ring);
}

static void spoil_tail(struct ring *ring, uint64_t tail)
{
	struct ring_consumer line = { .places = { { .position = tail }, { .position = tail } } };

	CHECK_EQUAL(pwrite(ring_memory_fd(ring), &line, sizeof(line),
			   offsetof(struct ring_header, consumers)),
		    sizeof(line));
}

TEST(ring, writer_survives_a_tail_that_no_reader_can_have)
{
	static const uint64_t tails[] = { UINT64_MAX, 1ull << 63, 1 << 20, 12345, 0 };
	struct ring *ring;

	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	fill(ring, 1000);
	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
		spoil_tail(ring, tails[i]);
		for (int k = 0; k < 1000; k++)
			write_number(ring, 1, 1000);
	}
	ring_flush(ring);
	ring_destroy(ring);
}
