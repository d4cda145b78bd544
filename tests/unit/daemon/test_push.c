/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles are sent to a store that is up, down, comes back, or answers anything: none is lost. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/sample_record.h"
#include "shared/unconst.h"
#include "tests/unit/kernel_guest.h"
#include "tests/unit/pprof_store.h"
#include "tests/unit/pprof_text.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/daemon/push.h"
#include "vmm/daemon/push_profile.h"
#include "vmm/daemon/push_request.h"
#include "vmm/daemon/push_spool.h"
#include "vmm/disk/sandbox_parts.h"
#include "vmm/perf_data/perf_data_writer.h"
#include "vmm/report/profile_stacks.h"

#define WAIT_MS 60000
#define VCPUS   2 /* in the small recording */

static const struct kernel_guest_location place = { 0xffffffff9c200000, 0x200000,
						    KERNEL_GUEST_BANNER };

struct fixture {
	char directory[64], recordings_path[80], spool[80], headers[80], url[64];
	struct recordings_options recordings_options;
	struct push_options options;
	struct recordings *recordings;
	struct push *push;
	struct pprof_store store;
	struct small_recording recording;
};

static void start_recordings(struct fixture *fixture)
{
	if (recordings_open(&fixture->recordings, &fixture->recordings_options)) {
		fprintf(stderr, "%s\n", error_message());
		abort();
	}
	fixture->options.recordings = fixture->recordings;
}

static void start_push(struct fixture *fixture)
{
	if (push_start(&fixture->push, &fixture->options)) {
		fprintf(stderr, "%s\n", error_message());
		abort();
	}
}

static void start_ours(struct fixture *fixture)
{
	start_recordings(fixture);
	start_push(fixture);
}

static void stop_ours(struct fixture *fixture)
{
	push_stop(fixture->push);
	recordings_close(fixture->recordings);
	fixture->push = NULL;
	fixture->recordings = NULL;
}

static void set_up(struct fixture *fixture)
{
	memset(fixture, 0, sizeof(*fixture));
	strcpy(fixture->directory, "/tmp/kvmscope-push-XXXXXX");
	if (!mkdtemp(fixture->directory))
		abort();
	snprintf(fixture->recordings_path, sizeof(fixture->recordings_path), "%s/recordings",
		 fixture->directory);
	snprintf(fixture->spool, sizeof(fixture->spool), "%s/spool", fixture->directory);
	snprintf(fixture->headers, sizeof(fixture->headers), "%s/headers", fixture->directory);
	pprof_store_init(&fixture->store);
	snprintf(fixture->url, sizeof(fixture->url), "http://127.0.0.1:%u", fixture->store.port);
	small_recording_make(&fixture->recording);
	fixture->recordings_options = (struct recordings_options){
		.directory = fixture->recordings_path, .rotate = 15, .hand_on = true
	};
	fixture->options = (struct push_options){
		.url = fixture->url,
		.spool = fixture->spool,
		.spool_size = 1 << 20,
		.host = "h1.example",
		.retry_ms = 10,
	};
}

static void tear_down(struct fixture *fixture)
{
	char command[128];

	stop_ours(fixture);
	pprof_store_free(&fixture->store);
	small_recording_free(&fixture->recording);
	snprintf(command, sizeof(command), "rm -rf %s", fixture->directory);
	CHECK_EQUAL(system(command), 0);
}

static void copy_file(const char *from, const char *to)
{
	char command[PATH_MAX + 128];

	snprintf(command, sizeof(command), "cp %s '%s'", from, to);
	CHECK_EQUAL(system(command), 0);
}

/* Completes COUNT files of DOMAIN, one after the other. */
static void record(struct fixture *fixture, const char *domain, unsigned int count)
{
	const struct collector_files *files;
	struct recording *recording;
	char path[PATH_MAX];

	REQUIRE_EQUAL(recordings_add(fixture->recordings, domain, &recording), 0);
	files = recording_files(recording);
	for (unsigned int i = 0; i < count; i++) {
		CHECK_EQUAL(files->begin(files->context, path, sizeof(path)), 0);
		copy_file(fixture->recording.path, path);
		files->end(files->context, &(struct collector_file){ path, 10, 0 });
	}
	recordings_remove(fixture->recordings, recording);
}

static struct push_statistics statistics(const struct fixture *fixture)
{
	struct push_statistics counts;

	push_statistics(fixture->push, &counts);
	return counts;
}

static void wait_for_spool(const struct fixture *fixture, uint64_t files)
{
	for (int i = 0; i < WAIT_MS && statistics(fixture).spooled != files; i++)
		usleep(1000);
	CHECK_EQUAL(statistics(fixture).spooled, files);
}

static void wait_for_failures(const struct fixture *fixture, uint64_t failures)
{
	for (int i = 0; i < WAIT_MS && statistics(fixture).failures < failures; i++)
		usleep(1000);
	CHECK(statistics(fixture).failures >= failures);
}

static char *decode(const struct fixture *fixture, const struct pprof_received *received)
{
	char path[96];
	FILE *file;

	snprintf(path, sizeof(path), "%s/received", fixture->directory);
	file = fopen(path, "w");
	CHECK(file && fwrite(received->profile, 1, received->size, file) == received->size);
	fclose(file);
	return pprof_text(path);
}

static void write_headers(const struct fixture *fixture, const char *text, mode_t mode)
{
	FILE *file = fopen(fixture->headers, "w");

	CHECK(file && fputs(text, file) >= 0);
	fclose(file);
	CHECK_EQUAL(chmod(fixture->headers, mode), 0);
}

TEST(push, a_recording_becomes_a_profile_of_each_vcpu)
{
	const struct pprof_received *first, *second;
	struct fixture fixture;
	char *text;

	set_up(&fixture);
	write_headers(&fixture, "# of the tenant\n\nX-Scope-OrgID: team-7\n", 0600);
	fixture.options.header_file = fixture.headers;
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	record(&fixture, "a,b}/c", 1);
	pprof_store_wait(&fixture.store, VCPUS);
	wait_for_spool(&fixture, 0);
	CHECK_EQUAL(statistics(&fixture).pushed, VCPUS);
	CHECK_EQUAL(statistics(&fixture).failures, 0);
	stop_ours(&fixture);

	first = pprof_store_find(&fixture.store, "vcpu=0}");
	second = pprof_store_find(&fixture.store, "vcpu=1}");
	REQUIRE(first && second);
	CHECK_STRING(first->name, "kvmscope{host=h1.example,domain=a%2Cb%7D%2Fc,vcpu=0}");
	CHECK_STRING(first->spy, "kvmscope");
	CHECK_STRING(first->rate, "1000");
	CHECK_STRING(first->tenant, "team-7");
	CHECK(atoll(first->from) > 1700000000 && atoll(first->until) > atoll(first->from));
	CHECK(atoll(first->until) - atoll(first->from) < 3600);
	/* Without symbols, six addresses in one function are seven stacks with their callers. */
	text = decode(&fixture, first);
	CHECK_EQUAL(pprof_text_count(text, "sample {"), 7);
	CHECK_EQUAL(pprof_text_count(text, "  value: 1\n  value: 1000000\n"), 6);
	CHECK_EQUAL(pprof_text_count(text, "  value: 3\n  value: 3000000\n"), 1);
	CHECK_EQUAL(pprof_text_count(text, "label {"), 0);
	free(text);
	text = decode(&fixture, second);
	CHECK_EQUAL(pprof_text_count(text, "sample {"), 1);
	free(text);
	tear_down(&fixture);
}

static bool get_registers(void *context, struct guest_registers *registers)
{
	*registers = ((const struct flat_guest *)context)->registers;
	return true;
}

static void push_sample(struct ring *ring)
{
	struct sample *sample = ring_reserve(ring, RECORD_SAMPLE, sample_size(1));

	REQUIRE(sample);
	*sample = (struct sample){ .time = 1000,
				   .period = 1000,
				   .host_tid = 100,
				   .pid = 7,
				   .tid = 7,
				   .comm = "worker",
				   .kernel_depth = 1,
				   .rip = place.gva + 0x1000 };
	sample->callchain[0] = place.gva + 0x1000;
	ring_commit(ring, sample);
	ring_flush(ring);
}

/* Records a guest with a kernel through the collector, in files of RECORDING. */
static void collect(struct recording *recording)
{
	struct collector *collector;
	struct flat_guest guest;
	struct ring *ring;

	flat_guest_create(&guest, KERNEL_GUEST_SIZE);
	kernel_guest_start(&guest, KALLSYMS_6_12, &place);
	REQUIRE_EQUAL(ring_create(&ring, RING_SIZE_MIN), 0);
	REQUIRE_EQUAL(collector_start(
			      &collector,
			      &(struct collector_options){
				      .rings = &ring,
				      .ring_count = 1,
				      .view = &guest.view,
				      .registers = get_registers,
				      .context = &guest,
				      .output = { .frequency = 99, .callchains = true, .vcpus = 1 },
				      .files = recording_files(recording),
				      .buildid_cache = true,
				      .names = recording_symbols(recording),
			      }),
		      0);
	push_sample(ring);
	CHECK_EQUAL(collector_stop(collector, NULL), 0);
	ring_destroy(ring);
	flat_guest_destroy(&guest);
}

TEST(push, a_profile_has_the_symbols_of_its_guest)
{
	const char *home = getenv("HOME");
	struct recording *recording;
	struct fixture fixture;
	char debug[96], *text;

	set_up(&fixture);
	home = strdup(home ? home : "/");
	setenv("HOME", fixture.directory, 1);
	snprintf(debug, sizeof(debug), "%s/.debug", fixture.directory); /* the default cache */
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	REQUIRE_EQUAL(recordings_add(fixture.recordings, "one", &recording), 0);
	collect(recording);
	recordings_remove(fixture.recordings, recording);
	pprof_store_wait(&fixture.store, 1);
	wait_for_spool(&fixture, 0);
	stop_ours(&fixture);
	CHECK(access(debug, F_OK) != 0);
	text = decode(&fixture, &fixture.store.received[0]);
	CHECK(pprof_text_index(text, "asm_exc_page_fault") > 0);
	CHECK(pprof_text_index(text, "worker") > 0);
	free(text);
	setenv("HOME", home, 1);
	free(unconst(home));
	tear_down(&fixture);
}

TEST(push, nothing_is_lost_while_the_store_is_down_and_the_daemon_restarts)
{
	struct fixture fixture;

	set_up(&fixture);
	start_ours(&fixture);
	record(&fixture, "one", 3);
	wait_for_failures(&fixture, 2);
	wait_for_spool(&fixture, 3 * VCPUS);
	stop_ours(&fixture);
	start_ours(&fixture);
	CHECK_EQUAL(statistics(&fixture).spooled, 3 * VCPUS);
	record(&fixture, "two", 2);
	wait_for_spool(&fixture, 5 * VCPUS);
	pprof_store_start(&fixture.store);
	pprof_store_wait(&fixture.store, 5 * VCPUS);
	wait_for_spool(&fixture, 0);
	stop_ours(&fixture);
	CHECK_EQUAL(fixture.store.count, 5 * VCPUS); /* none twice, as no answer was lost */
	tear_down(&fixture);
}

/* The earlier daemon was killed before the profiles were created, or while recording. */
TEST(push, recordings_of_an_earlier_daemon_are_pushed)
{
	struct fixture fixture;
	char path[256];

	set_up(&fixture);
	CHECK_EQUAL(recordings_open(&fixture.recordings, &fixture.recordings_options), 0);
	record(&fixture, "one", 1);
	recordings_close(fixture.recordings);
	snprintf(path, sizeof(path), "%s/one/20200102T030405.006Z.perf.data.partial",
		 fixture.recordings_path);
	copy_file(fixture.recording.path, path);
	snprintf(path, sizeof(path), "%s/one/20200102T030406.006Z.perf.data.partial",
		 fixture.recordings_path);
	copy_file("/dev/null", path); /* this one is unreadable and must not be waited for */
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	pprof_store_wait(&fixture.store, 2 * VCPUS);
	wait_for_spool(&fixture, 0);
	snprintf(path, sizeof(path), "%s/one/20200102T030405.006Z.perf.data",
		 fixture.recordings_path);
	CHECK_EQUAL(access(path, R_OK), 0);
	tear_down(&fixture);
}

TEST(push, a_failing_store_is_retried)
{
	static const unsigned int answers[] = { 500, 503, 429, 401, 404, 302 };
	struct fixture fixture;
	uint64_t failures = 0;

	set_up(&fixture);
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		fixture.store.status = answers[i];
		record(&fixture, "one", 1);
		wait_for_failures(&fixture, failures + 3);
		fixture.store.status = 200;
		pprof_store_wait(&fixture.store, (unsigned int)(i + 1) * VCPUS);
		wait_for_spool(&fixture, 0);
		failures = statistics(&fixture).failures;
	}
	CHECK_EQUAL(statistics(&fixture).refused, 0);
	tear_down(&fixture);
}

/* Answers one connection with TEXT at the store's port. */
static void answer_with_text(struct fixture *fixture, const char *text)
{
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons(fixture->store.port),
					     .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer, one = 1;
	char request[65536];

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	REQUIRE(!bind(listener, (const void *)&address, sizeof(address)) && !listen(listener, 4));
	peer = accept(listener, NULL, NULL);
	CHECK(recv(peer, request, sizeof(request), 0) > 0);
	CHECK_EQUAL(send(peer, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	close(peer);
	close(listener);
}

TEST(push, an_invalid_answer_is_a_failure)
{
	static const char *const texts[] = {
		"",
		"\n\n\n",
		"what?",
		"HTTP/1.1 200",
		"HTTP/1.1 999 -\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"
	};
	struct fixture fixture;

	set_up(&fixture);
	start_ours(&fixture);
	record(&fixture, "one", 1);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		answer_with_text(&fixture, texts[i]);
	CHECK_EQUAL(statistics(&fixture).pushed, 0);
	CHECK_EQUAL(statistics(&fixture).spooled, VCPUS);
	pprof_store_start(&fixture.store);
	pprof_store_wait(&fixture.store, VCPUS);
	wait_for_spool(&fixture, 0);
	tear_down(&fixture);
}

/* The store accepted it, but its answer was lost: it is sent again. */
TEST(push, a_restart_during_a_slow_request_does_not_wait_and_loses_nothing)
{
	struct fixture fixture;

	set_up(&fixture);
	fixture.store.hold = true;
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	record(&fixture, "one", 1);
	for (int i = 0; i < WAIT_MS && !fixture.store.requests; i++)
		usleep(1000);
	CHECK_EQUAL(fixture.store.requests, 1);
	wait_for_spool(&fixture, VCPUS);
	stop_ours(&fixture); /* during a request */
	fixture.store.hold = false;
	start_ours(&fixture);
	pprof_store_wait(&fixture.store, VCPUS);
	wait_for_spool(&fixture, 0);
	CHECK(pprof_store_find(&fixture.store, "vcpu=0}") &&
	      pprof_store_find(&fixture.store, "vcpu=1}"));
	tear_down(&fixture);
}

TEST(push, sends_before_all_recordings_are_converted)
{
	struct fixture fixture;

	set_up(&fixture);
	CHECK_EQUAL(recordings_open(&fixture.recordings, &fixture.recordings_options), 0);
	record(&fixture, "one", 5);
	recordings_close(fixture.recordings);
	fixture.store.hold = true;
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	for (int i = 0; i < WAIT_MS && !fixture.store.requests; i++)
		usleep(1000);
	CHECK_EQUAL(statistics(&fixture).spooled, VCPUS);
	tear_down(&fixture);
}

TEST(push, a_refused_profile_does_not_delay_others)
{
	struct fixture fixture;

	set_up(&fixture);
	fixture.store.refuses = "domain=bad";
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	record(&fixture, "bad", 1);
	record(&fixture, "good", 3);
	pprof_store_wait(&fixture.store, 3 * VCPUS);
	wait_for_spool(&fixture, 0);
	CHECK_EQUAL(statistics(&fixture).refused, VCPUS);
	CHECK_EQUAL(statistics(&fixture).failures, 5 * VCPUS);
	CHECK_EQUAL(statistics(&fixture).pushed, 3 * VCPUS);
	tear_down(&fixture);
}

TEST(push, a_full_spool_keeps_the_latest)
{
	struct push_statistics counts;
	struct fixture fixture;

	set_up(&fixture);
	fixture.options.spool_size = 8192; /* about 20 profiles */
	start_ours(&fixture);
	record(&fixture, "old", 60);
	record(&fixture, "young", 1);
	for (int i = 0; i < WAIT_MS; i++) {
		counts = statistics(&fixture);
		if (counts.spooled + counts.dropped == 61 * VCPUS)
			break;
		usleep(1000);
	}
	CHECK(counts.dropped > 60);
	CHECK_EQUAL(counts.spooled + counts.dropped, 61 * VCPUS);
	CHECK(counts.spooled_bytes <= 8192);
	pprof_store_start(&fixture.store);
	pprof_store_wait(&fixture.store, (unsigned int)counts.spooled);
	wait_for_spool(&fixture, 0);
	CHECK(pprof_store_find(&fixture.store, "domain=young,vcpu=1}"));
	tear_down(&fixture);
}

/* The spool is full or unwritable: recordings wait. */
TEST(push, recordings_wait_while_the_spool_cannot_be_written)
{
	struct recordings_file file;
	struct fixture fixture;
	char blocker[128];

	set_up(&fixture);
	pprof_store_start(&fixture.store);
	start_ours(&fixture);
	/* A directory in place of the partial file fails for root, too. */
	snprintf(blocker, sizeof(blocker), "%s/partial", fixture.spool);
	CHECK_EQUAL(mkdir(blocker, 0700), 0);
	record(&fixture, "one", 2);
	usleep(100000);
	CHECK_EQUAL(fixture.store.count, 0);
	CHECK_EQUAL(rmdir(blocker), 0);
	pprof_store_wait(&fixture.store, 2 * VCPUS);
	wait_for_spool(&fixture, 0);
	push_stop(fixture.push);
	fixture.push = NULL;
	CHECK(!recordings_next(fixture.recordings, &file));
	tear_down(&fixture);
}

#define CACHED ".build-id/11/11111111111111111111111111111111111111"

/* One sample in a program that the guest maps by the name IMAGE. */
static void write_recording(const char *path, const char *image)
{
	static const uint8_t build_id[20] = { [0 ... 19] = 0x11 };
	const struct perf_data_options options = {
		.path = path, .frequency = 99, .callchains = true, .vcpus = 1
	};
	const struct perf_data_mapping mapping = { .pid = 7,
						   .tid = 7,
						   .start = 0x400000,
						   .size = 0x1000,
						   .name = image,
						   .build_id = build_id,
						   .build_id_size = sizeof(build_id) };
	struct sample *sample = calloc(1, sample_size(1));
	struct perf_data_writer *writer;

	REQUIRE(sample);
	sample->time = 1000;
	sample->period = 1;
	sample->pid = sample->tid = 7;
	sample->cpl = 3;
	sample->user_depth = 1;
	sample->rip = sample->callchain[0] = 0x400010;
	REQUIRE_EQUAL(perf_data_writer_open(&writer, &options), 0);
	CHECK_EQUAL(perf_data_writer_mapping(writer, &mapping), 0);
	CHECK_EQUAL(perf_data_writer_sample(writer, sample), 0);
	CHECK_EQUAL(perf_data_writer_flush(writer, UINT64_MAX), 0);
	CHECK_EQUAL(perf_data_writer_close(writer), 0);
	free(sample);
}

static bool was_opened(int inotify)
{
	char events[4096];

	return read(inotify, events, sizeof(events)) > 0;
}

/* A guest may name any path of the host. */
TEST(push, opens_no_file_that_a_guest_named)
{
	struct recordings_file file = { .domain = "web" };
	struct profile_options options = { .input = file.path, .vcpu = -1 };
	char image[128], cached[3 * PATH_MAX];
	struct push_spool *spool;
	struct profile *profile;
	struct fixture fixture;
	int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	set_up(&fixture);
	snprintf(image, sizeof(image), "%s/image", fixture.directory);
	snprintf(file.path, sizeof(file.path), "%s/perf.data", fixture.directory);
	snprintf(file.symbols, sizeof(file.symbols), "%s/names", fixture.directory);
	snprintf(cached, sizeof(cached), "mkdir -p %s/" CACHED " && touch %s/" CACHED "/elf %s",
		 file.symbols, file.symbols, image);
	CHECK_EQUAL(system(cached), 0);
	write_recording(file.path, image);
	CHECK(inotify_add_watch(inotify, image, IN_OPEN) >= 0);
	REQUIRE_EQUAL(push_spool_open(&spool, fixture.spool, 1 << 20), 0);
	CHECK_EQUAL(push_profile_spool(spool, &file, PUSH_PYROSCOPE, NULL), 0);
	CHECK(!was_opened(inotify));
	push_spool_close(spool);

	/* A report reads it. */
	options.sources.buildid_dir = file.symbols;
	REQUIRE_EQUAL(profile_load(&profile, &options), 0);
	CHECK(was_opened(inotify));
	profile_free(profile);
	/* The cache is read. */
	snprintf(cached, sizeof(cached), "%s/" CACHED "/elf", file.symbols);
	CHECK(inotify_add_watch(inotify, cached, IN_OPEN) >= 0);
	REQUIRE_EQUAL(push_spool_open(&spool, fixture.spool, 1 << 20), 0);
	CHECK_EQUAL(push_profile_spool(spool, &file, PUSH_PYROSCOPE, NULL), 0);
	CHECK(was_opened(inotify));
	push_spool_close(spool);
	close(inotify);
	tear_down(&fixture);
}

static void *spool_fifo(void *context)
{
	const struct recordings_file *file = context;

	return (void *)(intptr_t)push_profile_spool(NULL, file, PUSH_PYROSCOPE, NULL);
}

/* A FIFO, for which the process that parses it waits. */
TEST(push, recordings_are_parsed_in_a_process_without_rights)
{
	struct recordings_file file = { .domain = "web" };
	struct fixture fixture;
	pthread_t thread;
	void *result;
	char *text;

	if (SANDBOX_SANITIZED)
		SKIP("recordings are parsed in the test's process in builds with sanitizers");
	set_up(&fixture);
	snprintf(file.path, sizeof(file.path), "%s/fifo", fixture.directory);
	REQUIRE(!mkfifo(file.path, 0600));
	REQUIRE(!pthread_create(&thread, NULL, spool_fifo, &file));
	text = command_output(
		NULL,
		"for i in $(seq 1000); do for child in $(cat /proc/%d/task/*/children); do "
		"grep -q '^Seccomp:.2$' /proc/$child/status && "
		"grep -E '^(CapPrm|NoNewPrivs):' /proc/$child/status && ls "
		"/proc/$child/fd | wc -w && kill -SEGV $child && exit; done; "
		"sleep 0.01; done",
		getpid());
	CHECK_STRING(text, "CapPrm:\t0000000000000000\nNoNewPrivs:\t1\n5\n");
	free(text);
	pthread_join(thread, &result);
	CHECK_EQUAL((intptr_t)result, -ESTALE);
	tear_down(&fixture);
}

/* A lack of descriptors says nothing about a recording: it is retried. */
TEST(push, a_recording_is_kept_while_it_cannot_be_opened)
{
	struct recordings_file file = { .path = "/dev/null", .domain = "web" };
	struct rlimit before, none;
	int next = dup(STDIN_FILENO);

	close(next);
	getrlimit(RLIMIT_NOFILE, &before);
	none = (struct rlimit){ (rlim_t)next, before.rlim_max };
	CHECK_EQUAL(push_profile_spool(NULL, &file, PUSH_PYROSCOPE, NULL), -EINVAL);
	setrlimit(RLIMIT_NOFILE, &none);
	CHECK_EQUAL(push_profile_spool(NULL, &file, PUSH_PYROSCOPE, NULL), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &before);
	snprintf(file.path, sizeof(file.path), "/dev/null/none");
	CHECK_EQUAL(push_profile_spool(NULL, &file, PUSH_PYROSCOPE, NULL), -EINVAL);
}

/* An unreadable recording delays the following ones for a while only. Root may read everything. */
TEST(push, an_unreadable_recording_delays_others_for_a_while_only)
{
	const uid_t user = geteuid(), nobody = 65534;
	struct fixture fixture;
	char command[512];

	set_up(&fixture);
	if (!user) {
		CHECK(!chown(fixture.directory, nobody, (gid_t)-1) &&
		      !chmod(fixture.recording.path, 0644));
		REQUIRE(!seteuid(nobody));
	}
	pprof_store_start(&fixture.store);
	start_recordings(&fixture);
	record(&fixture, "bad", 1);
	snprintf(command, sizeof(command),
		 "find %s/bad -type f -name '*.perf.data*' -exec chmod 0 {} +",
		 fixture.recordings_path);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
	record(&fixture, "good", 1);
	start_push(&fixture);
	pprof_store_wait(&fixture.store, VCPUS);
	wait_for_spool(&fixture, 0);
	CHECK(pprof_store_find(&fixture.store, "domain=good,vcpu=1}"));
	stop_ours(&fixture);
	CHECK(!seteuid(user));
	tear_down(&fixture);
}

static void check_url(struct fixture *fixture, const char *url, int error)
{
	struct push *push = NULL;

	fixture->options.url = url;
	CHECK_EQUAL(push_start(&push, &fixture->options), error);
	if (error)
		CHECK(!strstr(error_message(), "secret"));
	push_stop(push);
}

TEST(push, reports_errors_in_its_options)
{
	struct fixture fixture;

	set_up(&fixture);
	CHECK_EQUAL(recordings_open(&fixture.recordings, &fixture.recordings_options), 0);
	fixture.options.recordings = fixture.recordings;
	check_url(&fixture, "localhost", -EINVAL);
	check_url(&fixture, "file:///etc/passwd", -EINVAL);
	check_url(&fixture, "http://user:secret@localhost", -EINVAL);
	check_url(&fixture, "https://localhost:4040/prefix/", 0);
	fixture.options.header_file = fixture.headers;
	check_url(&fixture, fixture.url, -ENOENT);
	write_headers(&fixture, "Authorization: Bearer secret", 0644);
	check_url(&fixture, fixture.url, -EPERM);
	write_headers(&fixture, "X: 1\nsecret\n", 0600);
	check_url(&fixture, fixture.url, -EINVAL);
	CHECK(strstr(error_message(), "line 2"));
	write_headers(&fixture, "Authorization: Bearer secret\r\n", 0600);
	check_url(&fixture, fixture.url, 0);
	tear_down(&fixture);
}

TEST(push, file_names_in_the_spool_describe_the_profile)
{
	const struct push_item item = { 1763808960123, 1763808975456, 99, 3, 0, "a%2Fb" };
	static const char *const others[] = {
		"001763808960123-001763808975456-99-3-0-a%2Fb.pb",
		"001763808960123-001763808975456-99-3-0-a/b.pb.gz",
		"001763808960123-001763808975456-99-3-0-.pb.gz",
		"1763808960123-001763808975456-99-3-0-a.pb.gz",
		"001763808960123-001763808975456-99-03-0-a.pb.gz",
		"001763808960123-001763808975456-99-4294967296-0-a.pb.gz",
		"9999999999999999-001763808975456-99-3-0-a.pb.gz",
		"partial",
	};
	struct push_item again;
	char name[PUSH_NAME_SIZE];

	push_item_name(&item, name);
	CHECK_STRING(name, "001763808960123-001763808975456-99-3-0-a%2Fb.pb.gz");
	REQUIRE(push_item_parse(name, &again));
	CHECK_EQUAL(again.from, item.from);
	CHECK_EQUAL(again.until, item.until);
	CHECK_EQUAL(again.rate, 99);
	CHECK_EQUAL(again.vcpu, 3);
	CHECK_STRING(again.domain, item.domain);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (push_item_parse(others[i], &again))
			FAIL_TEST("%s is taken for a profile", others[i]);
}
