/* SPDX-License-Identifier: Apache-2.0 */
/* Every subcommand of perf that reads a file opens ours, in perf 6.1 and 6.12. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/perf_home.h"
#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/perf_data/perf_data_reader.h"

/* Run in the directory of the recording "perf.data"; SHOWS is in the output of a correct run. */
struct reader {
	const char *command, *shows;
};

static const struct reader guest_readers[] = {
	{ "perf report --stdio", "guest_function_0" },
	{ "perf report --header-only", "cpuid : (unknown),0,0,0" },
	{ "perf script", "guest_function_0" },
	{ "perf annotate --stdio guest_function_0", "ret" },
	{ "perf diff perf.data perf.data", "guest_function_0" },
	{ "perf evlist -v", "cpu-clock" },
	{ "perf buildid-list --with-hits", "1717171717171717" },
	{ "perf inject -i perf.data -o copy && perf script -i copy", "guest_function_0" },
	{ "perf inject -b -i perf.data -o copy && perf script -i copy", "guest_function_0" },
	{ "perf archive perf.data && tar -tf perf.data.tar.bz2", "/kallsyms" },
	{ "perf data convert --force --to-ctf ctf", "(3000 samples)" },
	{ "perf data convert --force --to-json json", "(3000 samples)" },
};

static const struct reader host_readers[] = {
	{ "perf kvm --guestmount=mount report --stdio -i perf.data", "guest_function_0" },
};

static void check_reader(const struct named_guest *named, const char *perf,
			 const struct reader *reader)
{
	int status;
	char *text = command_output(&status, "cd %s && PATH=%s/usr/bin:$PATH && { %s; } 2>&1",
				    named->home, perf, reader->command);

	if (status || !strstr(text, reader->shows))
		FAIL_TEST("%s (in %s/) ends with status %d and prints:\n%.2000s", reader->command,
			  perf, status, text);
	free(text);
}

/* The samples by the name of the innermost function. */
static size_t named_samples(const json_t *samples, const char *prefix)
{
	size_t count = 0, i;
	json_t *sample;

	json_array_foreach(samples, i, sample)
	{
		const json_t *innermost = json_array_get(json_object_get(sample, "callchain"), 0);
		const char *symbol = json_string_value(json_object_get(innermost, "symbol"));

		count += symbol && !strncmp(symbol, prefix, strlen(prefix));
	}
	return count;
}

static void check_json(const struct named_guest *named)
{
	char path[128];
	json_t *root, *headers, *samples;
	const char *arch;

	snprintf(path, sizeof(path), "%s/json", named->home);
	root = json_load_file(path, 0, NULL);
	headers = json_object_get(root, "headers");
	samples = json_object_get(root, "samples");
	arch = json_string_value(json_object_get(headers, "arch"));
	CHECK_STRING(arch ? arch : "none", "x86_64");
	CHECK_EQUAL(json_array_size(samples), RECORDED_SAMPLES);
	CHECK(named_samples(samples, "guest_function_") > RECORDED_SAMPLES / 2);
	json_decref(root);
}

static void check_readers(const char *perf, enum perspective perspective,
			  const struct reader *readers, size_t count)
{
	struct named_guest named;
	char mount[80];

	recorded_guest_begin(&named, "vcpu 0", perspective);
	named_guest_cache(&named, true);
	snprintf(mount, sizeof(mount), "%s/mount", named.home);
	CHECK_EQUAL(build_id_cache_link_guest(mount, 4242, &named.boot), 0);
	for (size_t i = 0; i < count; i++)
		check_reader(&named, perf, &readers[i]);
	if (perspective == PERSPECTIVE_GUEST)
		check_json(&named);
	named_guest_end(&named);
}

/* Nothing is known of the machine. */
TEST(perf_data, unknown_facts_do_not_crash_perf)
{
	const struct perf_data_summary *summary;
	struct small_recording recording;
	struct perf_data_reader *reader;
	int status;

	NEED_PERF;
	small_recording_make(&recording);
	free(command_output(&status, "perf data convert --force --to-json %s.json -i %s 2>&1",
			    recording.path, recording.path));
	CHECK_EQUAL(status, 0);
	free(command_output(&status, "grep -q 'hostname.*(unknown)' %s.json && rm %s.json",
			    recording.path, recording.path));
	CHECK_EQUAL(status, 0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, recording.path), 0);
	summary = perf_data_reader_summary(reader);
	CHECK_STRING(summary->hostname, "");
	CHECK_STRING(summary->cpu_description, "");
	perf_data_reader_close(reader);
	small_recording_free(&recording);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void check_perf(const char *perf)
{
	check_readers(perf, PERSPECTIVE_GUEST, guest_readers, COUNT(guest_readers));
	check_readers(perf, PERSPECTIVE_HOST, host_readers, COUNT(host_readers));
}

TEST(perf_data, every_reader_of_perf_opens_it)
{
	NEED_PERF;
	check_perf("");
}

TEST(perf_data, every_reader_of_perf_6_12_opens_it)
{
	int status;
	char *perf = command_output(
		&status,
		"realpath \"$(tests/rig/fetch-packages perf@bookworm-backports linux-perf)\" && "
		"build/cache/perf@bookworm-backports/files/usr/bin/perf --version >&2");

	perf[strcspn(perf, "\n")] = '\0';
	if (status)
		SKIP("perf 6.12 cannot be fetched from this machine's Debian mirror, or does not run");
	check_perf(perf);
	free(perf);
}
