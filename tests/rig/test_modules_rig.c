/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules of Debian's kernel that are loaded immediately after another one was unloaded, at its
 * address (tests/rig/guest/modules.c). A sample's process identifies the loaded module. Also a
 * module that is loaded again at another address, with a watch on its variable.
 */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/e2e/perf_recording.h"
#include "tests/rig/rig.h"
#include "vmm/perf_data/perf_data_reader.h"

#define DATA "build/rig/modules.data"
#define HOME "build/rig/modules-home"

/* Enough to show that samples are attributed; a stalling machine has fewer. */
#define ENOUGH 50

static const char *const names[] = { "md4", "michael_mic" };
/* The prefix of the functions of each module that its process runs. */
static const char *const prefixes[] = { "md4_", "michael_" };
static const char *const images[] = { "([md4])", "([michael_mic])" };

struct tally {
	unsigned long of_image[2], of_function[2], unknown[2], wrong;
};

static void count(struct tally *tally, unsigned int module, const char *function, const char *image)
{
	bool is_named = strcmp(function, "[unknown]") != 0 && strncmp(function, "0x", 2) != 0;
	bool is_right = !is_named || !strncmp(function, prefixes[module], strlen(prefixes[module]));

	if (!is_right || !strcmp(image, images[!module])) {
		if (!tally->wrong++)
			FAIL_TEST("%s was running, but is reported as %s %s", names[module],
				  function, image);
		return;
	}
	tally->of_function[module] += is_named;
	tally->of_image[module] += !strcmp(image, images[module]);
	tally->unknown[module] += !is_named && strcmp(image, images[module]) != 0;
}

/*
 * "COMM ADDRESS FUNCTION (IMAGE)", the innermost frame of each sample; PAGE is the page of the
 * shared address.
 */
static struct tally read_lines(const char *command, unsigned long long page)
{
	char line[4096], comm[64], function[512], image[1024];
	struct tally tally = { 0 };
	unsigned long long address;
	FILE *lines = popen(command, "r");

	while (lines && fgets(line, sizeof(line), lines)) {
		if (sscanf(line, " %63s %llx %511s %1023s", comm, &address, function, image) != 4 ||
		    (address & ~4095ull) != page)
			continue;
		for (unsigned int module = 0; module < 2; module++)
			if (!strcmp(comm, names[module]))
				count(&tally, module, function, image);
	}
	CHECK(lines && !pclose(lines));
	return tally;
}

static struct tally check(const char *who, const char *command, unsigned long long page)
{
	struct tally tally = read_lines(command, page);

	for (unsigned int module = 0; module < 2; module++)
		printf("%s: %s has %lu samples in its image, %lu in its functions, %lu unsymbolized\n",
		       who, names[module], tally.of_image[module], tally.of_function[module],
		       tally.unknown[module]);
	CHECK_EQUAL(tally.wrong, 0);
	return tally;
}

static const char *make_initrd(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(
		&result, 300,
		"tests/rig/initrd --kernel 6.1 --output build/initrd/modules.cpio --modules "
		"'virtio_mmio virtio_console button algif_hash' build/rig/modules "
		"build/cache/kernels/6.1/modules/lib/modules/*/kernel/crypto/{md4,michael_mic}.ko "
		"build/cache/kernels/6.1/modules/lib/modules/*/kernel/net/ipv4/tcp_{bic,illinois}.ko");
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/initrd: %s", result.errors);
	rig_result_free(&result);
	return made ? "build/initrd/modules.cpio" : NULL;
}

/* The watched variable, and the number of writes at each address of its module. */
#define WATCHED "max_increment"
#define WRITES  200

/* A line for the guest, which waits until its watch was armed or disarmed with its module. */
#define TELL_GUEST                                                                                 \
	"sed -un -e 'w /dev/stderr' -e '/is watched again\\|is not watched until/s/.*/seen/p'"

/* One guest for all tests; NULL: it did not run, which is recorded. */
static const struct rig_result *profile(void)
{
	static struct rig_result result;
	const char *kernel = rig_kernel("6.1"), *initrd;
	bool watched = !rig_debug_registers_unavailable_reason();
	char again[128] = "";

	initrd = kernel ? make_initrd() : NULL;
	if (!initrd)
		return NULL;
	if (watched)
		snprintf(again, sizeof(again),
			 ";stty+-echo;modules+again+tcp_bic+" WATCHED "+tcp_illinois+%d", WRITES);
	if (!result.output)
		rig_run(&result, 280,
			"set -o pipefail; rm -rf " HOME "; mkdir -p " HOME
			"; in=$(mktemp -u); mkfifo $in; "
			"{ HOME=$PWD/" HOME
			" build/kvmscope run --pmu off --kernel %s --initrd %s --mem 256M -F 999 -o " DATA
			" %s --append 'console=ttyS0 quiet " QUICK_BOOT " kvmscope.run="
			"modules+1+md4+michael_mic+md4+michael_mic%s' <> $in 2>&1 >&3 | " TELL_GUEST
			" > $in; } 3>&1",
			kernel, initrd, watched ? "--watch " WATCHED ":4:w" : "", again);
	if (!result.status &&
	    strstr(result.output, watched ? "modules: " WATCHED " written " : "modules: end"))
		return &result;
	FAIL_TEST("there is no profile: %.2000s%.2000s", result.output, result.errors);
	return NULL;
}

/* The page of all modules; 0, and the test is skipped, if they had different addresses. */
static unsigned long long shared_page(const char *output)
{
	const char *end = strstr(output, "modules: end");
	unsigned long long page = 0, place;

	for (const char *at = output; (at = strstr(at, " at 0x")) && at < end; at++) {
		place = strtoull(at + 4, NULL, 16);
		if (page && place != page) {
			test_skip(__FILE__, __LINE__,
				  "the modules lay at %#llx and %#llx: nothing to be told apart",
				  page, place);
			return 0;
		}
		page = place;
	}
	return page;
}

TEST(module_truth, no_sample_is_attributed_to_an_earlier_or_later_module_at_its_address)
{
	const struct rig_result *result;
	unsigned long long page;
	struct tally perfs, ours;

	RIG_REQUIRED();
	result = profile();
	page = result ? shared_page(result->output) : 0;
	if (!page)
		return;
	perfs = check("perf",
		      "HOME=$PWD/" HOME " perf script -G -F comm,ip,sym,dso -i " DATA
		      " 2>/dev/null",
		      page);
	ours = check("kvmscope",
		     "HOME=$PWD/" HOME " build/kvmscope export --format script -i " DATA
		     " | awk '/^[^\\t ]/ { comm = $1; next } comm { print comm, $0; comm = \"\" }'",
		     page);
	for (unsigned int module = 0; module < 2; module++) {
		CHECK_EQUAL(perfs.of_image[module], ours.of_image[module]);
		CHECK_EQUAL(perfs.of_function[module], ours.of_function[module]);
	}
	for (unsigned int module = 0; module < 2; module++)
		if (ours.of_image[module] < ENOUGH)
			SKIP("this machine stalls too often: only %lu samples of %s have their image, %d are needed",
			     ours.of_image[module], names[module], ENOUGH);
}

/* A hit of the watch, or a THROTTLE or UNTHROTTLE. */
struct moment {
	uint64_t time, address;
	bool hit, stopped;
};

#define MOMENTS_MAX (4ul * WRITES)

struct moments {
	struct moment list[MOMENTS_MAX];
	size_t count;
};

static int add(struct moments *moments, const struct moment *moment)
{
	if (moments->count < MOMENTS_MAX)
		moments->list[moments->count++] = *moment;
	return 0;
}

static int add_sample(void *context, const struct perf_data_sample *sample)
{
	const struct moment moment = { .time = sample->time,
				       .address = sample->address,
				       .hit = true };

	return sample->event == 1 ? add(context, &moment) : 0;
}

static int add_throttled(void *context, uint16_t event, bool stopped, uint64_t time)
{
	const struct moment moment = { .time = time, .stopped = stopped };

	return event == 1 ? add(context, &moment) : 0;
}

static int compare(const void *left, const void *right)
{
	const struct moment *a = left, *b = right;

	return (a->time > b->time) - (a->time < b->time);
}

struct seen {
	unsigned long hits, stops, starts;
	bool stopped, hit_while_stopped;
	uint64_t addresses[2]; /* of the first hit, and of the last hit */
};

static void see(struct seen *seen, const struct moment *moment)
{
	if (!moment->hit) {
		seen->stopped = moment->stopped;
		moment->stopped ? seen->stops++ : seen->starts++;
		return;
	}
	if (!seen->hits++)
		seen->addresses[0] = moment->address;
	seen->addresses[1] = moment->address;
	seen->hit_while_stopped |= seen->stopped;
}

/*
 * Records are not in order of time in the file, because samples are held back until events have
 * arrived.
 */
static struct seen read_hits(void)
{
	static struct moments moments;
	struct perf_data_events events = { .sample = add_sample,
					   .throttled = add_throttled,
					   .context = &moments };
	struct seen seen = { 0 };

	if (!recording_replay(DATA, &events))
		return seen;
	qsort(moments.list, moments.count, sizeof(moments.list[0]), compare);
	for (size_t i = 0; i < moments.count; i++)
		see(&seen, &moments.list[i]);
	return seen;
}

/* The addresses that the guest prints; COUNT of them. */
static unsigned int read_addresses(const char *output, unsigned long long places[2])
{
	static const char line[] = "modules: " WATCHED " at ";
	unsigned int count = 0;

	for (const char *at = output; (at = strstr(at, line)); at += sizeof(line) - 1)
		if (count++ < 2)
			places[count - 1] = strtoull(at + sizeof(line) - 1, NULL, 16);
	return count;
}

/*
 * Until the kernel is located, and while its module is not loaded, the watch is throttled, and the
 * stream says so.
 */
TEST(module_truth, watch_is_disarmed_with_its_module_and_rearmed_at_its_new_address)
{
	const struct rig_result *result;
	unsigned long long places[2];
	struct seen seen;
	char text[128];

	RIG_DEBUG_REGISTERS_REQUIRED();
	result = profile();
	if (!result)
		return;
	REQUIRE_EQUAL(read_addresses(result->output, places), 2);
	seen = read_hits();
	printf("at %#llx, then at %#llx: %lu hits of %d writes, stopped %lu times, started %lu times\n",
	       places[0], places[1], seen.hits, 2 * WRITES, seen.stops, seen.starts);
	CHECK(places[0] != places[1]);
	CHECK_EQUAL(seen.hits, 2 * WRITES);
	CHECK_EQUAL(seen.addresses[0], places[0]);
	CHECK_EQUAL(seen.addresses[1], places[1]);
	CHECK(!seen.hit_while_stopped);
	CHECK_EQUAL(seen.starts, 2);
	CHECK_EQUAL(seen.stops, 3);
	CHECK(seen.stopped);
	CHECK(strstr(result->errors,
		     "mem:" WATCHED ":w is not watched until its module is loaded again"));
	for (int i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), "mem:" WATCHED ":w is watched again, at %#llx\n",
			 places[i]);
		if (!strstr(result->errors, text))
			FAIL_TEST("missing in the output: %s", text);
	}
}
