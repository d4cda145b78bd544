/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/unit/shim/test.h"

#define MILLISECOND 1000000ull
#define WINDOW      (10 * MILLISECOND)
#define CODE        0x400000ull
#define KERNEL_CODE 0xffffffffc0000000ull

/* What came out, as text: one word for each. */
struct setting {
	struct resolver *resolver;
	char out[1024];
};

static void note(struct setting *setting, const char *word)
{
	size_t used = strlen(setting->out);

	snprintf(setting->out + used, sizeof(setting->out) - used, "%s%s", used ? " " : "", word);
}

static void note_sample(void *context, const struct attributed_sample *sample)
{
	char word[128];

	snprintf(word, sizeof(word), "%d:%s:%s", (int)sample->sample->pid, sample->sample->comm,
		 sample->mapping.image ? sample->mapping.image->name : "-");
	note(context, word);
}

static void note_sideband(void *context, const struct sideband *record)
{
	static const char *const words[] = { "?",      "fork", "comm",   "exit", "mmap",
					     "munmap", "load", "unload", "lost" };

	note(context, words[record->type]);
}

static struct guest_account account;

static void start(struct setting *setting, bool sideband_out)
{
	struct resolver_options options = {
		.rings = 2,
		.account = &account,
		.window = WINDOW,
		.sample = note_sample,
		.sideband = sideband_out ? note_sideband : NULL,
		.context = setting,
	};

	guest_account_init(&account, GUEST_ACCOUNT_DEFAULT);
	*setting = (struct setting){ 0 };
	CHECK_EQUAL(resolver_create(&setting->resolver, &options), 0);
}

/* One pass: what is older than the window at NOW comes out. */
static void pass(struct setting *setting, uint64_t now)
{
	resolver_begin_pass(setting->resolver, now);
	resolver_pass_end(setting->resolver, 0);
	resolver_pass_end(setting->resolver, 1);
	resolver_flush(setting->resolver);
}

static uint64_t loss(const struct setting *setting, enum loss kind)
{
	struct losses losses;

	resolver_losses(setting->resolver, &losses);
	return losses.counts[kind];
}

static size_t lives(const struct setting *setting)
{
	struct resolver_statistics statistics;

	resolver_statistics(setting->resolver, &statistics);
	return statistics.lifetimes;
}

static void give(struct setting *setting, const void *record)
{
	const struct sideband *head = record;

	resolver_sideband(setting->resolver, 1, sideband_check(span_of(record, head->size)));
}

static void give_fork(struct setting *setting, uint64_t time, uint32_t pid, uint32_t parent)
{
	give(setting, &(struct sideband_fork){
			      sideband_head(SIDEBAND_FORK, sizeof(struct sideband_fork), time, pid),
			      parent, parent });
}

static void give_comm(struct setting *setting, uint64_t time, uint32_t pid, const char *name,
		      uint16_t flags, uint64_t cr3)
{
	struct sideband_comm comm = { sideband_head(SIDEBAND_COMM, sizeof(comm), time, pid), "" };

	comm.head.flags = flags;
	comm.head.cr3 = cr3;
	snprintf(comm.comm, sizeof(comm.comm), "%s", name);
	give(setting, &comm);
}

static void give_exit(struct setting *setting, uint64_t time, uint32_t pid)
{
	struct sideband record = sideband_head(SIDEBAND_EXIT, sizeof(record), time, pid);

	give(setting, &record);
}

static void give_mmap(struct setting *setting, uint64_t time, uint32_t pid, const char *name)
{
	struct {
		struct sideband_mmap mmap;
		char name[64];
	} record = { .mmap = { .start = CODE, .length = 0x1000, .prot = PROT_READ | PROT_EXEC } };

	record.mmap.head = sideband_head(SIDEBAND_MMAP, sizeof(record), time, pid);
	snprintf(record.name, sizeof(record.name), "%s", name);
	give(setting, &record);
}

static void give_range(struct setting *setting, enum sideband_type type, uint64_t time,
		       uint32_t pid, uint64_t address)
{
	struct sideband_munmap record = { sideband_head(type, sizeof(record), time, pid), address,
					  0x1000 };

	give(setting, &record);
}

static void give_module(struct setting *setting, uint64_t time, const char *name)
{
	struct {
		struct sideband_module module;
		char name[32];
	} record = { .module = { .start = KERNEL_CODE, .length = 0x1000 } };

	record.module.head = sideband_head(SIDEBAND_MODULE_LOAD, sizeof(record), time, 0);
	snprintf(record.name, sizeof(record.name), "%s", name);
	give(setting, &record);
}

static struct sample user_sample(uint64_t time, uint32_t pid)
{
	return (struct sample){ .time = time, .rip = CODE + 8, .cpl = 3, .pid = pid, .tid = pid };
}

static void give_sample(struct setting *setting, uint64_t time, uint32_t pid)
{
	struct sample sample = user_sample(time, pid);

	resolver_sample(setting->resolver, 0, &sample);
}

TEST(resolver_stage, waits_for_events_that_come_after_their_samples)
{
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, 20 * MILLISECOND);
	give_sample(&setting, 13 * MILLISECOND, 7);
	give_sample(&setting, 11 * MILLISECOND, 7);
	pass(&setting, 20 * MILLISECOND);
	CHECK_STRING(setting.out, "");
	give_comm(&setting, 10 * MILLISECOND, 7, "sh", SIDEBAND_COMM_EXEC, 0);
	give_mmap(&setting, 11 * MILLISECOND, 7, "/bin/sh");
	give_mmap(&setting, 12 * MILLISECOND, 7, "/bin/other");
	pass(&setting, 30 * MILLISECOND);
	CHECK_STRING(setting.out, "7:sh:/bin/sh 7:sh:/bin/other");
	CHECK_EQUAL(loss(&setting, LOSS_SIDEBAND_LATE) + loss(&setting, LOSS_SAMPLE_LATE), 0);
	resolver_free(setting.resolver);
}

TEST(resolver_stage, gives_all_out_in_order_of_time)
{
	struct setting setting;

	start(&setting, true);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_sample(&setting, 5, 7);
	give_exit(&setting, 6, 7);
	give_comm(&setting, 5, 7, "a", 0, 0);
	give_mmap(&setting, 4, 7, "/a");
	resolver_finish(setting.resolver);
	CHECK_STRING(setting.out, "mmap comm 7:a:/a exit");
	resolver_free(setting.resolver);
}

/* A process of 5 ms, whose samples are in a ring that is read much later. */
TEST(resolver_stage, a_process_of_5_ms_is_known_for_two_passes_after_its_end)
{
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, 100 * MILLISECOND);
	give_comm(&setting, 99 * MILLISECOND, 1, "init", 0, 0);
	give_fork(&setting, 100 * MILLISECOND, 500, 1);
	give_comm(&setting, 101 * MILLISECOND, 500, "true", SIDEBAND_COMM_EXEC, 0);
	give_mmap(&setting, 101 * MILLISECOND, 500, "/bin/true");
	give_exit(&setting, 105 * MILLISECOND, 500);
	pass(&setting, 150 * MILLISECOND); /* plays its death */
	CHECK_EQUAL(lives(&setting), 3);   /* init, and 500 before and after its execve */
	pass(&setting, 200 * MILLISECOND); /* ends the pass in which it died */
	pass(&setting, 250 * MILLISECOND); /* one full pass */
	give_sample(&setting, 104 * MILLISECOND, 500);
	CHECK_STRING(setting.out, "500:true:/bin/true");
	CHECK_EQUAL(loss(&setting, LOSS_SAMPLE_LATE), 1);
	CHECK_EQUAL(loss(&setting, LOSS_NO_ADDRESS_SPACE), 0);
	CHECK_EQUAL(lives(&setting), 3);
	pass(&setting, 300 * MILLISECOND); /* two */
	CHECK_EQUAL(lives(&setting), 1);
	give_sample(&setting, 104 * MILLISECOND, 500);
	CHECK_EQUAL(loss(&setting, LOSS_NO_ADDRESS_SPACE), 1);
	resolver_free(setting.resolver);
}

TEST(resolver_stage, a_ring_that_is_not_drained_holds_the_mortuary)
{
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_mmap(&setting, 1, 500, "/bin/true");
	give_exit(&setting, 5 * MILLISECOND, 500);
	for (uint64_t now = 50; now < 1000; now += 50) {
		resolver_begin_pass(setting.resolver, now * MILLISECOND);
		resolver_pass_end(setting.resolver, 0);
		resolver_flush(setting.resolver);
	}
	CHECK_EQUAL(lives(&setting), 1);
	for (int i = 0; i < 4; i++)
		pass(&setting, 1000 * MILLISECOND);
	CHECK_EQUAL(lives(&setting), 0);
	resolver_free(setting.resolver);
}

TEST(resolver_stage, late_events_are_counted_and_count_from_their_own_time)
{
	struct setting setting;

	start(&setting, false);
	pass(&setting, 100 * MILLISECOND);
	give_mmap(&setting, 80 * MILLISECOND, 7, "/late");
	give_range(&setting, SIDEBAND_MUNMAP, 85 * MILLISECOND, 7, CODE);
	give_mmap(&setting, 82 * MILLISECOND, 7, "/later");
	CHECK_EQUAL(loss(&setting, LOSS_SIDEBAND_LATE), 3);
	give_sample(&setting, 95 * MILLISECOND, 7);
	pass(&setting, 120 * MILLISECOND);
	CHECK_STRING(setting.out, "7::-");
	CHECK_EQUAL(loss(&setting, LOSS_NO_MAPPING), 1);
	resolver_free(setting.resolver);
}

TEST(resolver_stage, cr3_identifies_the_process_in_user_space_only)
{
	struct sample sample = user_sample(5, SAMPLE_TASK_UNKNOWN);
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_comm(&setting, 1, 7, "sh", SIDEBAND_COMM_EXEC | SIDEBAND_CR3_PAIR, 0x12346000);
	give_mmap(&setting, 2, 7, "/bin/sh");
	sample.cr3 = 0x8000000012347005;
	resolver_sample(setting.resolver, 0, &sample);
	sample.cr3 = 0x12348000;
	resolver_sample(setting.resolver, 0, &sample);
	sample.cr3 = 0x12346000;
	sample.cpl = 0;
	resolver_sample(setting.resolver, 0, &sample);
	resolver_finish(setting.resolver);
	CHECK_STRING(setting.out, "7:sh:/bin/sh -1::- -1::-");
	CHECK_EQUAL(loss(&setting, LOSS_NO_ADDRESS_SPACE), 1);
	resolver_free(setting.resolver);
}

static void give_space(struct setting *setting, uint64_t time, uint32_t pid, uint64_t cr3)
{
	struct sideband record = sideband_head(SIDEBAND_ADDRESS_SPACE, sizeof(record), time, pid);

	record.cr3 = cr3;
	give(setting, &record);
}

/* They are as old as the address space, end with it, and make no process known. */
TEST(resolver_stage, page_tables_that_are_reported_later_existed_before)
{
	struct sample sample = user_sample(5, SAMPLE_TASK_UNKNOWN);
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_space(&setting, 1, 8, 0x5000);
	give_comm(&setting, 2, 7, "sh", SIDEBAND_COMM_EXEC, 0);
	give_space(&setting, 3, 7, 0x4000);
	give_comm(&setting, 4, 7, "ls", SIDEBAND_COMM_EXEC, 0);
	give_space(&setting, 9, 7, 0x6000);
	give_exit(&setting, 20, 7);
	sample.cr3 = 0x5000;
	resolver_sample(setting.resolver, 0, &sample);
	sample.cr3 = 0x4000;
	resolver_sample(setting.resolver, 0, &sample);
	sample.time = 10;
	sample.cr3 = 0x6000;
	resolver_sample(setting.resolver, 0, &sample);
	sample.time = 30;
	resolver_sample(setting.resolver, 0, &sample);
	resolver_finish(setting.resolver);
	CHECK_STRING(setting.out, "-1::- -1::- 7:ls:- -1::-");
	resolver_free(setting.resolver);
}

TEST(resolver_stage, modules_come_and_go)
{
	struct sample sample = { .rip = KERNEL_CODE + 16, .pid = SAMPLE_TASK_UNKNOWN };
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_module(&setting, 10, "first");
	give_range(&setting, SIDEBAND_MODULE_UNLOAD, 20, 0, KERNEL_CODE);
	give_module(&setting, 30, "second");
	for (sample.time = 5; sample.time < 40; sample.time += 10)
		resolver_sample(setting.resolver, 0, &sample);
	resolver_finish(setting.resolver);
	CHECK_STRING(setting.out, "-1::- -1::first -1::- -1::second");
	resolver_free(setting.resolver);
}

TEST(resolver_stage, callers_are_looked_up_at_the_samples_time)
{
	struct {
		struct sample sample;
		uint64_t chain[4];
	} record = { .sample = user_sample(10, 7),
		     .chain = { KERNEL_CODE, CODE + 8, CODE + 16, CODE + 0x2000 } };
	struct setting setting;

	start(&setting, false);
	record.sample.cpl = 0;
	record.sample.rip = KERNEL_CODE;
	record.sample.kernel_depth = 1;
	record.sample.user_depth = 3;
	record.sample.flags = SAMPLE_USER_TRUNCATED | SAMPLE_LOOKUP_INCOMPLETE;
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_mmap(&setting, 2, 7, "/bin/sh");
	resolver_sample(setting.resolver, 0, &record.sample);
	resolver_finish(setting.resolver);
	CHECK_EQUAL(loss(&setting, LOSS_CALLCHAIN_NO_MAPPING), 1);
	CHECK_EQUAL(loss(&setting, LOSS_CALLCHAIN_TRUNCATED), 1);
	CHECK_EQUAL(loss(&setting, LOSS_LOOKUP_INCOMPLETE), 1);
	CHECK_EQUAL(loss(&setting, LOSS_NO_MAPPING), 0);
	resolver_free(setting.resolver);
}

TEST(resolver_stage, the_largest_sample_may_be_late)
{
	union {
		struct sample sample;
		uint8_t bytes[SAMPLE_LENGTH_MAX];
	} record = { .sample = user_sample(MILLISECOND, 7) };
	struct setting setting;

	start(&setting, false);
	record.sample.event = 1;
	record.sample.user_depth = SAMPLE_CALLCHAIN_MAX;
	record.sample.mappings = SAMPLE_MAPPINGS_MAX;
	record.sample.host_kernel = SAMPLE_HOST_CHAIN_MAX;
	record.sample.deferred = 1;
	REQUIRE_EQUAL(sample_length(&record.sample), sizeof(record));
	pass(&setting, 100 * MILLISECOND);
	resolver_sample(setting.resolver, 0, &record.sample);
	CHECK_STRING(setting.out, "7::-");
	CHECK_EQUAL(loss(&setting, LOSS_SAMPLE_LATE), 1);
	resolver_free(setting.resolver);
}

TEST(resolver_stage, user_space_is_not_lost_without_a_source_of_mappings)
{
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_sample(&setting, 5, 7);
	give_comm(&setting, 6, 7, "sh", 0, 0);
	give_sample(&setting, 7, 7);
	resolver_finish(setting.resolver);
	CHECK_EQUAL(loss(&setting, LOSS_NO_ADDRESS_SPACE) + loss(&setting, LOSS_NO_MAPPING), 0);
	give_mmap(&setting, 8, 8, "/bin/sh");
	CHECK_EQUAL(loss(&setting, LOSS_NO_ADDRESS_SPACE), 1);
	CHECK_EQUAL(loss(&setting, LOSS_NO_MAPPING), 1);
	resolver_free(setting.resolver);
}

TEST(resolver_stage, impossible_records_are_refused_and_counted)
{
	struct sideband_lost lost = { sideband_head(SIDEBAND_LOST, sizeof(lost), 5, 0), 42, 5 };
	struct setting setting;

	start(&setting, true);
	resolver_begin_pass(setting.resolver, 100 * MILLISECOND);
	resolver_sideband(setting.resolver, 1, NULL);
	give_mmap(&setting, 3600000 * MILLISECOND, 7, "/in/an/hour");
	give(&setting, &lost);
	resolver_finish(setting.resolver);
	CHECK_EQUAL(loss(&setting, LOSS_SIDEBAND_INVALID), 2);
	CHECK_EQUAL(loss(&setting, LOSS_SIDEBAND_DROPPED), 42);
	CHECK_STRING(setting.out, "lost"); /* losses are passed on, too */
	resolver_free(setting.resolver);
}

/* The process that was reported meanwhile may have executed another program since. */
TEST(resolver_stage, reports_during_a_loss_are_stale)
{
	struct sideband_lost lost = { sideband_head(SIDEBAND_LOST, sizeof(lost), 5, 0), 1, 8 };
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_mmap(&setting, 8, 7, "/between");
	give_mmap(&setting, 9, 8, "/after");
	give(&setting, &lost);
	give_sample(&setting, 10, 8);
	resolver_finish(setting.resolver);
	CHECK_EQUAL(loss(&setting, LOSS_NO_MAPPING), 0);
	give_sample(&setting, 10, 7);
	CHECK_EQUAL(loss(&setting, LOSS_NO_MAPPING), 1);
	resolver_free(setting.resolver);
}

static void give_unknown(struct setting *setting, uint64_t time, uint64_t cr3)
{
	struct sample sample = user_sample(time, SAMPLE_TASK_UNKNOWN);

	sample.cr3 = cr3;
	resolver_sample(setting->resolver, 0, &sample);
}

/* Nor are inherited names: the parent may have changed its name meanwhile. */
TEST(resolver_stage, names_reported_before_a_loss_are_not_used)
{
	struct sideband_lost lost = { sideband_head(SIDEBAND_LOST, sizeof(lost), 5, 0), 1, 8 };
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_comm(&setting, 8, 7, "old", 0, 0);
	give_fork(&setting, 9, 8, 7);
	give_comm(&setting, 11, 7, "new", 0, 0);
	give_fork(&setting, 12, 9, 7);
	give(&setting, &lost);
	give_sample(&setting, 10, 7);
	give_sample(&setting, 10, 8);
	give_sample(&setting, 13, 7);
	give_sample(&setting, 13, 8);
	give_sample(&setting, 13, 9);
	resolver_finish(setting.resolver);
	CHECK_STRING(setting.out, "7::- 8::- 7:new:- 8::- 9:new:-");
	resolver_free(setting.resolver);
}

/* They may belong to another process until they are reported again. */
TEST(resolver_stage, page_tables_reported_before_a_loss_are_stale)
{
	struct sideband_lost lost = { sideband_head(SIDEBAND_LOST, sizeof(lost), 5, 0), 1, 8 };
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, MILLISECOND);
	give_comm(&setting, 2, 7, "sh", 0, 0x5000);
	give_comm(&setting, 2, 8, "ls", 0, 0x6000);
	give(&setting, &lost);
	give_unknown(&setting, 9, 0x5000);
	resolver_finish(setting.resolver);
	CHECK_STRING(setting.out, "-1::-");
	give_space(&setting, 9, 7, 0x5000);
	give_space(&setting, 9, 8, 0x7000);
	*setting.out = '\0';
	give_unknown(&setting, 8, 0x5000);
	give_unknown(&setting, 10, 0x5000);
	give_unknown(&setting, 10, 0x6000);
	give_unknown(&setting, 10, 0x7000);
	CHECK_STRING(setting.out, "-1::- 7::- -1::- 8::-");
	resolver_free(setting.resolver);
}

/* An end in the far future is limited. */
TEST(resolver_stage, loss_does_not_last_for_ever)
{
	struct sideband_lost lost = { sideband_head(SIDEBAND_LOST, sizeof(lost), 5, 0), 1,
				      UINT64_MAX };
	struct setting setting;

	start(&setting, false);
	resolver_begin_pass(setting.resolver, 100 * MILLISECOND);
	give(&setting, &lost);
	resolver_begin_pass(setting.resolver, 20000 * MILLISECOND);
	give_mmap(&setting, 9000 * MILLISECOND, 7, "/meanwhile");
	give_mmap(&setting, 15000 * MILLISECOND, 8, "/after");
	give_sample(&setting, 16000 * MILLISECOND, 8);
	resolver_finish(setting.resolver);
	CHECK_EQUAL(loss(&setting, LOSS_NO_MAPPING), 0);
	give_sample(&setting, 16000 * MILLISECOND, 7);
	CHECK_EQUAL(loss(&setting, LOSS_NO_MAPPING), 1);
	resolver_free(setting.resolver);
}

/* A guest that makes processes without end fills what it may, and no more. */
TEST(resolver_stage, memory_has_a_limit)
{
	struct resolver_statistics statistics;
	struct setting setting;

	start(&setting, false);
	for (uint32_t pid = 1; pid < 1000000 && !loss(&setting, LOSS_SIDEBAND_INVALID); pid++) {
		resolver_begin_pass(setting.resolver, pid * MILLISECOND);
		give_mmap(&setting, pid * MILLISECOND, pid, "/bin/true");
		resolver_flush(setting.resolver);
	}
	resolver_statistics(setting.resolver, &statistics);
	CHECK(loss(&setting, LOSS_SIDEBAND_INVALID) > 0);
	CHECK(account.used <= account.limit && statistics.memory <= account.limit);
	CHECK(statistics.lifetimes > 10000);
	resolver_free(setting.resolver);
}
