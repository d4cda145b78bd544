/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vCPUs of a QEMU with KVM are plugged in and unplugged while each backend samples it. QEMU keeps
 * the descriptor of an unplugged vCPU, without a thread. The guest ejects a vCPU as an operating
 * system does (tests/guests/program_plugged.c). At the end QEMU quits. tests/rig/test_attach_rig.c
 * tests the same with Linux, and plugging the same vCPU in again.
 */
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/qmp_connection.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

/* Within a minute. */
#define TRIES 3000
#define PAUSE 20000 /* us */

static const char *const ways[] = { "perf", "bpf", "ptrace", "qmp" };
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* An attached program with one of the backends. */
struct follower {
	const char *way;
	char recording[96];
	struct program tool;
	size_t descriptors; /* of vCPU threads, while there was one vCPU */
};

static char directory[40];
static pid_t qemu;
static struct qmp *monitor;
static struct follower followers[WAYS];
static size_t follower_count;

_Noreturn static void become_qemu(void)
{
	char command[1024];

	snprintf(
		command, sizeof(command),
		"exec qemu-system-x86_64 -accel kvm -cpu host,arch-capabilities=off -machine pc -bios qboot.rom -smp 1,maxcpus=4 "
		"-name guest,debug-threads=on -m 64 -nodefaults -no-user-config -display none -serial file:%s/serial "
		"-qmp unix:%s/ours,server=on,wait=off -qmp unix:%s/theirs,server=on,wait=off -no-reboot "
		"-kernel " GUEST_IMAGE_MULTIBOOT " -append program=plugged 2> %s/errors",
		directory, directory, directory, directory);
	alarm(290); /* its time limit, in case the test does not end it */
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

static bool has_ended(void)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)qemu, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

/* Waits for DONE(CONTEXT). Returns false if QEMU ends, or after a minute. */
static bool wait_until(bool (*done)(const void *context), const void *context)
{
	for (int tries = 0; tries < TRIES && !has_ended(); tries++) {
		if (done(context))
			return true;
		usleep(PAUSE);
	}
	return false;
}

static bool guest_works(const void *context)
{
	char path[64], output[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/serial", directory);
	file = fopen(path, "re");
	if (file) {
		output[fread(output, 1, sizeof(output) - 1, file)] = '\0';
		fclose(file);
	}
	return strstr(output, "working");
}

static bool monitor_answers(const void *context)
{
	char path[64];
	pid_t peer;

	snprintf(path, sizeof(path), "%s/ours", directory);
	return !qmp_open(&monitor, path, -1, &peer);
}

static void command(const char *name, json_t *arguments)
{
	json_t *result = NULL;

	if (qmp_execute(monitor, name, arguments, &result))
		FAIL_TEST("%s", error_message());
	json_decref(result);
}

static void plug_in(int core)
{
	command("device_add",
		json_pack("{s:s, s:s, s:i, s:i, s:i}", "driver", "host-x86_64-cpu", "id", "plugged",
			  "socket-id", 0, "core-id", core, "thread-id", 0));
}

/* True for the name of a vCPU's thread. */
static bool is_of_thread(int directory_fd, const char *name)
{
	char link[128];
	ssize_t length = readlinkat(directory_fd, name, link, sizeof(link) - 1);

	link[length < 0 ? 0 : length] = '\0';
	return strstr(link, "perf_event") || strstr(link, "bpf") || strstr(link, "/task/");
}

static size_t count_descriptors(const struct follower *follower)
{
	const struct dirent *entry;
	char path[64];
	size_t count = 0;
	DIR *entries;

	snprintf(path, sizeof(path), "/proc/%d/fd", follower->tool.pid);
	entries = opendir(path);
	while (entries && (entry = readdir(entries)))
		count += is_of_thread(dirfd(entries), entry->d_name);
	if (entries)
		closedir(entries);
	return count;
}

/* The scan may finish later than its reported time. */
static bool has_as_before(const void *context)
{
	const struct follower *follower = context;

	return count_descriptors(follower) <= follower->descriptors;
}

/*
 * The samples of each vCPU in a recording: in the loop of the first one, in that of the others, and
 * elsewhere.
 */
struct seen {
	struct symbols *symbols;
	uint64_t first[3], others[3], beyond;
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;
	struct symbol symbol;

	if (!symbols_find(seen->symbols, sample->ip, &symbol))
		return 0;
	if (sample->cpu >= 3)
		seen->beyond++;
	else if (!strcmp(symbol.name, "share_first"))
		seen->first[sample->cpu]++;
	else if (!strcmp(symbol.name, "plugged_works"))
		seen->others[sample->cpu]++;
	return 0;
}

/* The recording is being written, and may not even have its header yet. */
static void read_recording(const struct follower *follower, struct seen *seen)
{
	const struct perf_data_events events = { .sample = see_sample, .context = seen };
	struct perf_data_reader *reader;

	*seen = (struct seen){ 0 };
	if (elf_symbols_load(&seen->symbols, GUEST_IMAGE_MULTIBOOT, ELF_VIRTUAL_ADDRESSES,
			     (struct span){ 0 }))
		return;
	if (!perf_data_reader_open(&reader, follower->recording)) {
		perf_data_reader_run(reader, &events);
		perf_data_reader_close(reader);
	}
	symbols_free(seen->symbols);
}

static unsigned int awaited; /* vCPU */

static bool has_samples(const void *context)
{
	struct seen seen;

	read_recording(context, &seen);
	return seen.others[awaited];
}

static void check_all_report(const char *text)
{
	for (size_t i = 0; i < follower_count; i++)
		if (!program_wait_for(&followers[i].tool, text))
			FAIL_TEST("by %s: not '%s' but\n%s", followers[i].way, text,
				  followers[i].tool.text);
}

static void follow(const char *way)
{
	struct follower *follower = &followers[follower_count];
	char arguments[320];

	if (attach_backend_find(way)->probe()) {
		printf("not tried by %s: %s\n", way, error_message());
		return;
	}
	follower_count++;
	*follower = (struct follower){ .way = way };
	snprintf(follower->recording, sizeof(follower->recording), "%s/%s.data", directory, way);
	snprintf(arguments, sizeof(arguments),
		 "attach --pid %d --backend %s --qmp %s/theirs -F 199 --stop-limit 50000 --verbose "
		 "--no-buildid-cache -o %s",
		 qemu, way, directory, follower->recording);
	program_start(&follower->tool, arguments);
}

static void note_descriptors(void)
{
	for (size_t i = 0; i < follower_count; i++)
		followers[i].descriptors = count_descriptors(&followers[i]);
}

static void check_descriptors(void)
{
	for (size_t i = 0; i < follower_count; i++)
		if (!wait_until(has_as_before, &followers[i]))
			FAIL_TEST("by %s %zu of %zu descriptors are left", followers[i].way,
				  count_descriptors(&followers[i]), followers[i].descriptors);
}

/* True if QEMU has the descriptor of vCPU ID. */
static bool qemu_keeps(unsigned int id)
{
	char test[160];

	snprintf(test, sizeof(test), "ls -l /proc/%d/fd | grep -q 'anon_inode:kvm-vcpu:%u$'", qemu,
		 id);
	return !system(test); /* NOLINT(cert-env33-c): the test's own command */
}

/* A vCPU is plugged in, sampled, and unplugged. */
static void plug_and_unplug(unsigned int id)
{
	char text[32];

	plug_in((int)id);
	snprintf(text, sizeof(text), "vCPU %u is thread", id);
	check_all_report(text);
	awaited = id;
	for (size_t i = 0; i < follower_count; i++)
		if (!wait_until(has_samples, &followers[i]))
			FAIL_TEST("by %s vCPU %u has no samples", followers[i].way, id);
	command("device_del", json_pack("{s:s}", "id", "plugged"));
	snprintf(text, sizeof(text), "vCPU %u was removed", id);
	check_all_report(text);
	check_descriptors();
	CHECK(qemu_keeps(id));
}

/* Two vCPUs have no thread now. Only a backend that has nothing but thread names reports it. */
static void check_newcomer(const struct follower *other)
{
	bool reported = strcmp(other->way, "bpf") == 0;
	char arguments[320];
	struct program tool;

	snprintf(
		arguments, sizeof(arguments),
		"attach --pid %d --backend %s --qmp %s/theirs -F 99 --time 1 --no-buildid-cache -o %s/newcomer.data",
		qemu, other->way, directory, directory);
	program_run(&tool, arguments);
	CHECK_EQUAL(tool.status, 0);
	if (reported &&
	    (!strstr(tool.text, "), 1 vCPU, by bpf") || strstr(tool.text, "are not sampled")))
		FAIL_TEST("unplugged vCPUs are counted:\n%s", tool.text);
	if (!reported && !strstr(tool.text, "), 1 vCPU, by") &&
	    !strstr(tool.text, "unplugged ones have none"))
		FAIL_TEST("unplugged vCPUs are not explained:\n%s", tool.text);
}

static void check_recording(const struct follower *follower)
{
	struct seen seen;

	read_recording(follower, &seen);
	printf("by %s: %llu, %llu and %llu samples of the vCPUs\n", follower->way,
	       (unsigned long long)seen.first[0], (unsigned long long)seen.others[1],
	       (unsigned long long)seen.others[2]);
	CHECK(seen.first[0] > 0 && seen.others[1] > 0 && seen.others[2] > 0);
	CHECK_EQUAL(seen.others[0] + seen.first[1] + seen.first[2] + seen.beyond, 0);
}

static void check_ends(void)
{
	for (size_t i = 0; i < follower_count; i++) {
		struct program *tool = &followers[i].tool;

		program_wait(tool);
		if (tool->status || !strstr(tool->text, "the VM has ended"))
			FAIL_TEST("by %s, status %d:\n%s", followers[i].way, tool->status,
				  tool->text);
		check_recording(&followers[i]);
	}
}

static void follow_all(void)
{
	for (size_t i = 0; i < WAYS; i++)
		follow(ways[i]);
	check_all_report("vCPU 0 is thread");
	awaited = 0;
	note_descriptors();
	plug_and_unplug(1);
	plug_and_unplug(2);
	for (size_t i = 0; i < follower_count; i++)
		if (strcmp(followers[i].way, "perf") == 0 || strcmp(followers[i].way, "bpf") == 0)
			check_newcomer(&followers[i]);
	command("quit", NULL);
	check_ends();
}

TEST(attach_hotplug, vcpus_that_come_and_go_are_followed_by_each_way)
{
	char remove[64];
	bool works;

	GUEST_REQUIRED();
	snprintf(directory, sizeof(directory), "/tmp/kvmscope-hotplug-XXXXXX");
	REQUIRE(mkdtemp(directory) != NULL);
	fflush(NULL);
	qemu = fork();
	if (!qemu)
		become_qemu();
	works = wait_until(guest_works, NULL) && wait_until(monitor_answers, NULL);
	if (works)
		follow_all();
	qmp_close(monitor);
	kill(qemu, SIGKILL);
	waitpid(qemu, NULL, 0);
	snprintf(remove, sizeof(remove), "rm -rf %s", directory);
	CHECK(!system(remove)); /* NOLINT(cert-env33-c): the test's own command */
	if (!works)
		SKIP("qemu-system-x86_64 does not run this guest with KVM here");
}
