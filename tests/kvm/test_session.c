/* SPDX-License-Identifier: Apache-2.0 */
/* Attach sessions: several in one process, on one thread. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/session/attach_source.h"

#define SESSIONS 3

struct profiled {
	struct program vm;
	struct attach *attach;
	struct session *session;
	char path[64];
	int state;
};

static bool works(const char *backend)
{
	return !attach_backend_find(backend)->probe();
}

static void begin_as(struct profiled *profiled, int number, const char *backend, const char *guest)
{
	struct attach_options attach = { .backend = backend,
					 .frequency = 999,
					 .ring_size = 64 << 10 };
	struct session_options options = { .output = profiled->path, .command_line = "test" };
	char arguments[256];

	snprintf(profiled->path, sizeof(profiled->path), "build/test-session-%d-%d.data", getpid(),
		 number);
	snprintf(arguments, sizeof(arguments),
		 "run --no-profile --no-control --kernel " GUEST_IMAGE
		 " --timeout 250 --append program=%s",
		 guest);
	program_start(&profiled->vm, arguments);
	CHECK(program_wait_for(&profiled->vm, guest));
	attach.pid = profiled->vm.pid;
	if (attach_open(&profiled->attach, &attach))
		FAIL_TEST("not attached: %s", error_message());
	options.source = attach_source(profiled->attach);
	if (session_open(&profiled->session, &options) || session_start(profiled->session))
		FAIL_TEST("no session: %s", error_message());
	profiled->state = SESSION_SEARCHING;
}

static void begin(struct profiled *profiled, int number)
{
	begin_as(profiled, number, "perf", "spin");
}

/* Waits for all sessions, and runs a turn of those that are ready. */
static void turn_all(struct profiled *all)
{
	struct pollfd events[SESSIONS];

	for (int i = 0; i < SESSIONS; i++)
		events[i] = (struct pollfd){
			.fd = all[i].state == SESSION_ENDED ? -1 : session_fd(all[i].session),
			.events = POLLIN,
		};
	poll(events, SESSIONS, 100);
	for (int i = 0; i < SESSIONS; i++)
		if (events[i].revents) {
			all[i].state = session_turn(all[i].session);
			REQUIRE(all[i].state >= 0);
		}
}

static uint64_t samples_of(const struct profiled *profiled)
{
	struct collector_statistics statistics;

	session_statistics(profiled->session, &statistics);
	return statistics.samples - statistics.host;
}

static bool all_have_samples(const struct profiled *all)
{
	for (int i = 0; i < SESSIONS; i++)
		if (samples_of(&all[i]) < 20)
			return false;
	return true;
}

static int count(void *context, const struct perf_data_sample *sample)
{
	++*(uint64_t *)context;
	return 0;
}

static void check_recording(struct profiled *profiled, uint64_t expected)
{
	uint64_t samples = 0;
	const struct perf_data_events events = { .sample = count, .context = &samples };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(perf_data_reader_open(&reader, profiled->path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	CHECK(!perf_data_reader_summary(reader)->cut_off);
	CHECK_EQUAL(samples, expected);
	perf_data_reader_close(reader);
	unlink(profiled->path);
}

TEST(session, several_run_on_one_thread_and_each_ends_with_its_vm)
{
	struct profiled all[SESSIONS] = { 0 };
	struct collector_statistics statistics;

	GUEST_REQUIRED();
	for (int i = 0; i < SESSIONS; i++)
		begin(&all[i], i);
	for (int i = 0; i < 600 && !all_have_samples(all); i++)
		turn_all(all);
	CHECK(all_have_samples(all));

	kill(all[1].vm.pid, SIGKILL);
	for (int i = 0; i < 600 && all[1].state != SESSION_ENDED; i++)
		turn_all(all);
	CHECK_EQUAL(all[0].state, SESSION_SAMPLING);
	CHECK_EQUAL(all[1].state, SESSION_ENDED);
	CHECK_EQUAL(all[2].state, SESSION_SAMPLING);
	for (int i = 0; i < SESSIONS; i++) {
		if (session_stop(all[i].session, &statistics))
			FAIL_TEST("session %d: %s", i, error_message());
		session_close(all[i].session);
		attach_close(all[i].attach);
		check_recording(&all[i], statistics.samples);
		kill(all[i].vm.pid, SIGTERM);
		program_wait(&all[i].vm);
	}
	CHECK_EQUAL(all[0].vm.status, 0);
}

static void end(struct profiled *profiled)
{
	session_close(profiled->session);
	attach_close(profiled->attach);
	profiled->session = NULL;
	profiled->state = SESSION_ENDED;
	kill(profiled->vm.pid, SIGTERM);
	program_wait(&profiled->vm);
	unlink(profiled->path);
}

/*
 * With BPF they share one program, and each has its ring: an idle VM gets no samples of a busy one.
 * The program stays when the first session ends.
 */
TEST(session, sessions_that_share_bpf_programs_get_samples_of_their_own_vm)
{
	static const char *const guests[SESSIONS] = { "spin", "idle", "spin" };
	struct profiled all[SESSIONS] = { 0 };

	GUEST_REQUIRED();
	if (!works("bpf"))
		SKIP("BPF cannot be used here: %s", error_message());
	for (int i = 0; i < SESSIONS; i++)
		begin_as(&all[i], i, "bpf", guests[i]);
	for (int i = 0; i < 600 && (samples_of(&all[0]) < 100 || samples_of(&all[2]) < 100); i++)
		turn_all(all);
	CHECK(samples_of(&all[0]) >= 100);
	CHECK(samples_of(&all[2]) >= 100);
	CHECK(samples_of(&all[1]) < 50);

	end(&all[0]);
	for (int i = 0; i < 600 && samples_of(&all[2]) < 300; i++)
		turn_all(all);
	CHECK(samples_of(&all[2]) >= 300);
	CHECK(samples_of(&all[1]) < 50);
	end(&all[1]);
	end(&all[2]);
}

TEST(session, a_process_without_a_vm_is_refused)
{
	const struct attach_options options = {
		.pid = 1, .backend = "auto", .frequency = 99, .ring_size = 64 << 10
	};
	struct attach *attach = NULL;

	CHECK(attach_open(&attach, &options) < 0);
	CHECK(!attach);
	attach_close(attach);
}
