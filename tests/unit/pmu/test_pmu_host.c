/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's counters backed by the host's: the requests to perf, and the handling of its results. A
 * fake that multiplexes its counters on command, and the kernel's software events, stand in for
 * hardware counters.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/software_perf.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/pmu/pmu_host.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define WIDTH UINT64_C(0xffffffffffff)

#define MSR_PMC0       0xc1
#define MSR_SELECT0    0x186
#define MSR_FIXED0     0x309
#define MSR_FIXED_CTRL 0x38d
#define MSR_STATUS     0x38e
#define MSR_GLOBAL     0x38f
#define MSR_A_PMC0     0x4c1

#define AMD_SELECT0  0xc0010200
#define AMD_COUNTER0 0xc0010201

#define INSTRUCTIONS UINT64_C(0x4300c0) /* EN, OS, USR */
#define INTERRUPT    UINT64_C(0x100000)
#define ALL_GLOBAL   UINT64_C(0x70000000f)

static const struct pmu_clock clock_rates = { 3000000000, 2000000000, 25000000 };

#define FAKES 32

/* Counts one per ns in which it has a counter. */
struct fake_event {
	bool open, enabled, directed;
	struct perf_event_attr attributes;
	struct pmu_host_reading reading;
	uint64_t period;
};

static struct {
	struct fake_event events[FAKES];
	unsigned int opened; /* in total: the last one is events[opened - 1] */
	unsigned int periods;
	uint64_t unknown; /* config whose open fails */
	int error;        /* for all calls of open, if not 0 */
} fake;

static int fake_open(void *context, const struct perf_event_attr *attributes)
{
	if (fake.error)
		return fake.error;
	if (attributes->config == fake.unknown)
		return -EINVAL;
	if (fake.opened == FAKES)
		return -EMFILE;
	fake.events[fake.opened] = (struct fake_event){ .open = true, .attributes = *attributes };
	return (int)fake.opened++;
}

static int fake_direct_signal(void *context, int event)
{
	fake.events[event].directed = true;
	return 0;
}

static int fake_control(void *context, int event, unsigned long request, uint64_t *argument)
{
	CHECK(fake.events[event].open);
	if (request == PERF_EVENT_IOC_PERIOD) {
		CHECK(fake.events[event].attributes.sample_period != 0);
		fake.events[event].period = *argument;
		fake.periods++;
	} else {
		CHECK(request == PERF_EVENT_IOC_ENABLE || request == PERF_EVENT_IOC_DISABLE);
		fake.events[event].enabled = request == PERF_EVENT_IOC_ENABLE;
	}
	return 0;
}

static int fake_read(void *context, int event, struct pmu_host_reading *reading)
{
	CHECK(fake.events[event].open);
	*reading = fake.events[event].reading;
	return 0;
}

static void fake_close(void *context, int event)
{
	CHECK(fake.events[event].open);
	fake.events[event].open = false;
}

static uint32_t fake_architectural(void *context)
{
	return 0x7f;
}

static uint32_t fake_architectural_few(void *context)
{
	return 0x03; /* core cycles and instructions */
}

static const struct pmu_host_perf fake_perf = {
	.open = fake_open,
	.direct_signal = fake_direct_signal,
	.control = fake_control,
	.read = fake_read,
	.close = fake_close,
	.architectural = fake_architectural,
};

/* Runs the guest for NS; each event has a counter for RUNNING of them. */
static void fake_run(uint64_t ns, uint64_t running)
{
	for (unsigned int i = 0; i < fake.opened; i++) {
		struct fake_event *event = &fake.events[i];

		if (!event->enabled)
			continue;
		event->reading.enabled += ns;
		event->reading.running += running;
		event->reading.count += running;
	}
}

static unsigned int fake_open_count(void)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < FAKES; i++)
		count += fake.events[i].open;
	return count;
}

static struct {
	struct pmu pmu;
	struct pmu_host *host;
	char reported[128]; /* unavailable events */
	unsigned int messages;
	char message[160];
} guest;

static void remember(void *context, const char *event)
{
	(void)snprintf(guest.reported, sizeof(guest.reported), "%s", event);
}

static void remember_message(void *context, const char *message)
{
	guest.messages++;
	(void)snprintf(guest.message, sizeof(guest.message), "%s", message);
}

static bool start_on(enum pmu_model model, const struct pmu_host_perf *perf)
{
	memset(&guest, 0, sizeof(guest));
	if (pmu_init(&guest.pmu, model, &clock_rates, remember, NULL) ||
	    pmu_host_create(&guest.host, model, perf, remember_message, NULL)) {
		FAIL_TEST("%s", error_message());
		return false;
	}
	pmu_set_counters(&guest.pmu, pmu_host_counters(guest.host));
	if (model == PMU_INTEL)
		CHECK(pmu_write_msr(&guest.pmu, MSR_GLOBAL, ALL_GLOBAL));
	return true;
}

static bool start(enum pmu_model model)
{
	memset(&fake, 0, sizeof(fake));
	fake.unknown = UINT64_MAX;
	if (!start_on(model, &fake_perf))
		return false;
	fake.opened = 0; /* the event tried by pmu_host_create() */
	return true;
}

static struct pmu_host_statistics end(void)
{
	struct pmu_host_statistics statistics;

	pmu_host_statistics(guest.host, &statistics);
	pmu_host_destroy(guest.host);
	return statistics;
}

static void set(uint32_t msr, uint64_t value)
{
	CHECK(pmu_write_msr(&guest.pmu, msr, value));
}

static uint64_t get(uint32_t msr)
{
	uint64_t value = 0;

	CHECK(pmu_read_msr(&guest.pmu, msr, &value));
	return value;
}

/* Leaves the vCPU. True if a PMI is due. */
static bool leave(uint64_t ns)
{
	return pmu_advance(&guest.pmu, guest.pmu.state.time + ns);
}

TEST(pmu_host, perf_gets_the_events_that_the_guest_has_selected)
{
	static const struct {
		enum pmu_model model;
		uint32_t msr;
		uint64_t select, config;
		bool no_user, no_kernel, interrupt;
	} cases[] = {
		{ PMU_INTEL, MSR_SELECT0, INSTRUCTIONS, 0xc0, false, false, false },
		{ PMU_INTEL, MSR_SELECT0 + 3, 0x41412e, 0x412e, false, true, false },
		{ PMU_INTEL, MSR_SELECT0, 0x42003c, 0x3c, true, false, false },
		{ PMU_INTEL, MSR_SELECT0, INSTRUCTIONS | INTERRUPT, 0xc0, false, false, true },
		/* EDGE, INV and CMASK are passed on; pin control (bit 19) is not. */
		{ PMU_INTEL, MSR_SELECT0, 0x01cf00c0, 0x018400c0, false, false, false },
		/* Fixed counters: instructions; core cycles of user mode; reference cycles with
		   PMI. */
		{ PMU_INTEL, MSR_FIXED_CTRL, 0x003, 0xc0, false, false, false },
		{ PMU_INTEL, MSR_FIXED_CTRL, 0x020, 0x3c, false, true, false },
		{ PMU_INTEL, MSR_FIXED_CTRL, 0xb00, 0x0300, false, false, true },
		{ PMU_AMD_CORE, AMD_SELECT0, 0x430076, 0x76, false, false, false },
		{ PMU_AMD_CORE, AMD_SELECT0 + 10, UINT64_C(0x100430120), UINT64_C(0x100000120),
		  false, false, false },
		{ PMU_AMD_LEGACY, 0xc0010003, 0x5100c2, 0xc2, false, true, true },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct perf_event_attr *asked = &fake.events[0].attributes;

		REQUIRE(start(cases[i].model));
		set(cases[i].msr, cases[i].select);
		CHECK_EQUAL(fake.opened, 1);
		CHECK_EQUAL(asked->type, PERF_TYPE_RAW);
		CHECK_EQUAL(asked->config, cases[i].config);
		CHECK_EQUAL(asked->config1 | asked->config2 | asked->bp_type, 0);
		CHECK_EQUAL(asked->exclude_user, cases[i].no_user);
		CHECK_EQUAL(asked->exclude_kernel, cases[i].no_kernel);
		CHECK(asked->exclude_host && asked->disabled && !asked->pinned &&
		      !asked->precise_ip);
		CHECK_EQUAL(asked->sample_period != 0, cases[i].interrupt);
		CHECK_EQUAL(fake.events[0].directed, cases[i].interrupt);
		CHECK(fake.events[0].enabled);
		CHECK_STRING(guest.reported, "");
		(void)end();
		CHECK_EQUAL(fake_open_count(), 0);
	}
}

TEST(pmu_host, what_is_not_listed_never_reaches_perf)
{
	static const struct {
		enum pmu_model model;
		uint64_t select;
	} cases[] = {
		{ PMU_INTEL, 0x430300 },    /* perf's own number for reference cycles */
		{ PMU_INTEL, 0x431b00 },    /* for its virtual LBR event */
		{ PMU_INTEL, 0x430400 },    /* for topdown slots */
		{ PMU_INTEL, 0x4301b7 },    /* OFFCORE_RESPONSE */
		{ PMU_INTEL, 0x4301cd },    /* MEM_TRANS_RETIRED.LOAD_LATENCY */
		{ PMU_INTEL, 0x4301c0 },    /* INST_RETIRED.PREC_DIST */
		{ PMU_AMD_CORE, 0x4300e0 }, /* a northbridge event of family 10h */
		{ PMU_AMD_CORE, UINT64_C(0xf004300ff) }, /* merge */
		{ PMU_AMD_CORE, UINT64_C(0xf00430076) },
		{ PMU_AMD_CORE, 0x430176 },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		REQUIRE(start(cases[i].model));
		set(cases[i].model == PMU_INTEL ? MSR_SELECT0 : AMD_SELECT0, cases[i].select);
		CHECK_EQUAL(fake.opened, 0);
		CHECK(strstr(guest.reported, "unknown"));
		(void)end();
	}
}

TEST(pmu_host, disabled_counters_are_not_requested)
{
	static const struct {
		uint32_t msr;
		uint64_t value;
	} off[] = { { MSR_GLOBAL, 0x70000000e },
		    { MSR_SELECT0, 0x0300c0 },
		    { MSR_SELECT0, 0x4000c0 } };

	for (size_t i = 0; i < COUNT(off); i++) {
		REQUIRE(start(PMU_INTEL));
		set(MSR_SELECT0, INSTRUCTIONS);
		fake_run(100, 100);
		CHECK(!leave(100));
		set(off[i].msr, off[i].value);
		fake_run(100, 100);
		CHECK(!leave(100));
		CHECK_EQUAL(get(MSR_PMC0), 100);
		(void)end();
	}
}

TEST(pmu_host, stopping_and_starting_counters_opens_no_event)
{
	REQUIRE(start(PMU_INTEL));
	set(MSR_SELECT0, INSTRUCTIONS | INTERRUPT);
	for (uint64_t i = 0; i < 10; i++) {
		set(MSR_GLOBAL, 0);
		CHECK(!fake.events[0].enabled);
		fake_run(1000, 1000);
		CHECK(!leave(1000));
		set(MSR_GLOBAL, ALL_GLOBAL);
		fake_run(10, 10);
		CHECK(!leave(10));
		CHECK_EQUAL(get(MSR_PMC0), 10 * (i + 1));
	}
	CHECK_EQUAL(fake.opened, 1);
	(void)end();
}

TEST(pmu_host, another_event_begins_with_what_the_last_one_left)
{
	REQUIRE(start(PMU_INTEL));
	set(MSR_SELECT0, INSTRUCTIONS);
	fake_run(100, 100);
	/* Not consumed yet at the guest's next write. */
	set(MSR_SELECT0, 0x4300c4);
	CHECK_EQUAL(fake_open_count(), 1);
	fake_run(20, 20);
	CHECK(!leave(120));
	CHECK_EQUAL(get(MSR_PMC0), 120);
	(void)end();
}

TEST(pmu_host, what_was_counted_before_a_reset_is_not_in_the_counter)
{
	struct pmu_state saved;

	for (unsigned int restore = 0; restore < 2; restore++) {
		REQUIRE(start(PMU_INTEL));
		set(MSR_SELECT0, INSTRUCTIONS);
		saved = guest.pmu.state;
		fake_run(100, 100);
		if (restore)
			CHECK_EQUAL(pmu_restore(&guest.pmu, &saved, sizeof(saved)), 0);
		else
			pmu_reset(&guest.pmu);
		CHECK_EQUAL(fake.events[0].enabled, restore);
		fake_run(7, 7);
		CHECK(!leave(7));
		CHECK_EQUAL(get(MSR_PMC0), restore ? 7 : 0);
		(void)end();
	}
}

TEST(pmu_host, after_a_reset_events_are_opened_by_the_new_thread)
{
	REQUIRE(start(PMU_INTEL));
	set(MSR_SELECT0, INSTRUCTIONS);
	fake_run(100, 100);
	pmu_reset(&guest.pmu);
	pmu_host_close_events(guest.host);
	CHECK_EQUAL(fake_open_count(), 0);
	set(MSR_GLOBAL, ALL_GLOBAL);
	set(MSR_SELECT0, INSTRUCTIONS);
	CHECK_EQUAL(fake_open_count(), 1);
	CHECK_EQUAL(fake.opened, 2);
	fake_run(7, 7);
	CHECK(!leave(7));
	CHECK_EQUAL(get(MSR_PMC0), 7);
	(void)end();
}

TEST(pmu_host, multiplexed_counters_are_scaled_and_reported)
{
	struct pmu_host_statistics statistics;

	REQUIRE(start(PMU_INTEL));
	set(MSR_SELECT0, INSTRUCTIONS);
	fake_run(1000, 1000);
	CHECK(!leave(1000));
	CHECK_EQUAL(get(MSR_PMC0), 1000);
	pmu_host_statistics(guest.host, &statistics);
	CHECK_EQUAL(statistics.scaled, 0);
	CHECK_EQUAL(guest.messages, 0);
	for (unsigned int i = 0; i < 2; i++) {
		fake_run(1000, 250);
		CHECK(!leave(1000));
		CHECK_EQUAL(get(MSR_PMC0), 2000 + 1000 * i);
	}
	CHECK_EQUAL(guest.messages, 1);
	CHECK(strstr(guest.message, "scaled"));
	statistics = end();
	CHECK_EQUAL(statistics.scaled, 2);
	CHECK_EQUAL(statistics.unseen_ns, 0);
}

TEST(pmu_host, where_it_had_no_counter_there_is_no_number)
{
	/* Later counts are scaled by the whole time; time without any count is reported as
	 * unseen. */
	for (unsigned int later = 0; later < 2; later++) {
		REQUIRE(start(PMU_INTEL));
		set(MSR_SELECT0, INSTRUCTIONS);
		fake_run(1000, 0);
		CHECK(!leave(1000));
		CHECK_EQUAL(get(MSR_PMC0), 0);
		if (later)
			fake_run(1000, 500);
		CHECK(!leave(1000));
		CHECK_EQUAL(get(MSR_PMC0), later ? 2000 : 0);
		set(MSR_SELECT0, 0x4300c4);
		CHECK_EQUAL(end().unseen_ns, later ? 0 : 1000);
	}
}

TEST(pmu_host, an_overflow_is_kicked_for_and_makes_the_PMI)
{
	REQUIRE(start(PMU_INTEL));
	set(MSR_A_PMC0, WIDTH + 1 - 5000);
	set(MSR_SELECT0, INSTRUCTIONS | INTERRUPT);
	CHECK_EQUAL(fake.events[0].period, 5000);
	/* The period continues, regardless of the number of exits. */
	fake_run(4000, 4000);
	CHECK(!leave(4000));
	CHECK_EQUAL(fake.periods, 1);
	CHECK_EQUAL(get(MSR_STATUS), 0);
	fake_run(1100, 1100);
	CHECK(leave(1100));
	CHECK_EQUAL(get(MSR_PMC0), 100);
	CHECK_EQUAL(get(MSR_STATUS), 1);
	CHECK_EQUAL(fake.periods, 2);
	CHECK_EQUAL(fake.events[0].period, WIDTH + 1 - 100);
	/* The guest's next sample */
	set(MSR_A_PMC0, WIDTH + 1 - 7000);
	CHECK_EQUAL(fake.events[0].period, 7000);
	CHECK_EQUAL(pmu_next_overflow(&guest.pmu), PMU_NEVER);
	CHECK_EQUAL(fake.opened, 1);
	(void)end();
}

TEST(pmu_host, a_guest_cannot_request_a_storm)
{
	REQUIRE(start(PMU_AMD_CORE));
	set(AMD_COUNTER0, WIDTH);
	set(AMD_SELECT0, 0x5300c0);
	CHECK_EQUAL(fake.events[0].period, PMU_HOST_PERIOD_MIN);
	fake_run(1, 1);
	CHECK(leave(1));
	CHECK_EQUAL(get(AMD_COUNTER0), 0);
	(void)end();
}

TEST(pmu_host, a_PMI_freezes_what_the_host_counts)
{
	REQUIRE(start(PMU_INTEL));
	pmu_set_freeze_on_pmi(&guest.pmu, true);
	set(MSR_A_PMC0, WIDTH);
	set(MSR_SELECT0, INSTRUCTIONS | INTERRUPT);
	set(MSR_FIXED_CTRL, 0x3);
	fake_run(10, 10);
	CHECK(leave(10));
	CHECK_EQUAL(get(MSR_GLOBAL), 0);
	CHECK(!fake.events[0].enabled && !fake.events[1].enabled);
	fake_run(10, 10);
	CHECK(!leave(10));
	CHECK_EQUAL(get(MSR_FIXED0), 10);
	(void)end();
}

TEST(pmu_host, without_an_event_cycles_are_derived_and_the_rest_does_not_advance)
{
	REQUIRE(start(PMU_INTEL));
	fake.error = -EMFILE;
	set(MSR_SELECT0, INSTRUCTIONS);
	set(MSR_SELECT0 + 1, 0x43003c);
	CHECK_STRING(guest.reported, "event 0xc0 umask 0x00 (instructions)");
	fake.error = 0;
	CHECK(!leave(1000));
	CHECK_EQUAL(get(MSR_PMC0), 0);
	CHECK_EQUAL(get(MSR_PMC0 + 1), 3000);
	CHECK_EQUAL(fake.opened, 0); /* not retried at each exit */
	set(MSR_SELECT0, 0x4200c0);
	CHECK_EQUAL(fake.opened, 1);
	CHECK_EQUAL(end().refused, 2);
	CHECK_EQUAL(guest.messages, 1);
	CHECK_STRING(guest.message,
		     "perf does not count event 0xc0 for the guest: Too many open files");
}

TEST(pmu_host, cpuid_shows_the_events_that_the_host_has)
{
	struct pmu_host_perf few = fake_perf;
	uint32_t leaf[4];

	REQUIRE(start(PMU_INTEL));
	pmu_cpuid(&guest.pmu, 0xa, 0, leaf);
	CHECK_EQUAL(leaf[1], 0);
	fake.unknown = 0x412e;
	pmu_cpuid(&guest.pmu, 0xa, 0, leaf);
	CHECK_EQUAL(leaf[1], 1u << 4);
	(void)end();

	/* perf would open 0x4f2e on a processor that lacks it. Bus cycles (bit 2) are derived. */
	few.architectural = fake_architectural_few;
	memset(&fake, 0, sizeof(fake));
	REQUIRE(start_on(PMU_INTEL, &few));
	pmu_cpuid(&guest.pmu, 0xa, 0, leaf);
	CHECK_EQUAL(leaf[1], 0x78);
	set(MSR_SELECT0, 0x4300c4);
	CHECK_STRING(guest.reported, "event 0xc4 umask 0x00 (branches)");
	(void)end();
}

TEST(pmu_host, a_host_without_counters_is_reported)
{
	struct pmu_host *host;

	memset(&fake, 0, sizeof(fake));
	fake.error = -ENOENT;
	CHECK_EQUAL(pmu_host_create(&host, PMU_INTEL, &fake_perf, remember_message, NULL),
		    -ENOTSUP);
	CHECK(strstr(error_message(), "no performance counters"));
}

/* Page faults in user mode, one per page. */
static void fault(unsigned int count)
{
	const size_t size = (size_t)getpagesize();
	void *pages = mmap(NULL, count * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	REQUIRE(pages != MAP_FAILED);
	(void)madvise(pages, count * size, MADV_NOHUGEPAGE);
	for (unsigned int i = 0; i < count; i++)
		((volatile uint8_t *)pages)[i * size] = 1;
	munmap(pages, count * size);
}

static volatile sig_atomic_t kicks;

static void count_kick(int signal)
{
	kicks++;
}

TEST(pmu_host, the_kernel_s_software_events_are_counted_as_hardware_s_would_be)
{
	struct pmu_host_statistics statistics;
	uint64_t clock;

	if (software_perf_denied())
		SKIP("perf_event_open of a software event: %s", software_perf_denied());
	REQUIRE(start_on(PMU_INTEL, &software_perf));
	set(MSR_SELECT0, 0x4100c0); /* user mode only */
	set(MSR_SELECT0 + 1, 0x43003c);
	fault(300);
	(void)leave(1);
	set(MSR_GLOBAL, 0);
	fault(1000);
	(void)leave(1);
	clock = get(MSR_PMC0 + 1);
	/* The test itself, and sanitizers, cause some faults too. */
	CHECK(get(MSR_PMC0) >= 300 && get(MSR_PMC0) < 600);
	CHECK(clock > 0);
	set(MSR_GLOBAL, ALL_GLOBAL);
	fault(300);
	(void)leave(1);
	CHECK(get(MSR_PMC0) >= 600 && get(MSR_PMC0) < 1000);
	CHECK(get(MSR_PMC0 + 1) > clock);
	statistics = end();
	CHECK_EQUAL(statistics.refused, 0);
	CHECK_EQUAL(statistics.scaled, 0); /* the kernel does not multiplex software events */
}

TEST(pmu_host, the_kernel_s_overflow_kicks_the_thread)
{
	const struct sigaction action = { .sa_handler = count_kick };
	struct sigaction old;

	if (software_perf_denied())
		SKIP("perf_event_open of a software event: %s", software_perf_denied());
	REQUIRE_EQUAL(sigaction(VCPU_KICK_SIGNAL, &action, &old), 0);
	kicks = 0;
	REQUIRE(start_on(PMU_INTEL, &software_perf));
	set(MSR_A_PMC0, WIDTH + 1 - 1500);
	set(MSR_SELECT0, 0x5100c0);
	fault(1000);
	CHECK_EQUAL(kicks, 0);
	CHECK(!leave(1));
	fault(1000);
	CHECK_EQUAL(kicks, 1);
	CHECK(leave(1));
	CHECK_EQUAL(get(MSR_STATUS), 1);
	/* The next overflow is a whole counter width away, */
	fault(2000);
	CHECK_EQUAL(kicks, 1);
	/* unless the guest writes the counter. */
	(void)leave(1);
	set(MSR_A_PMC0, WIDTH + 1 - 1500);
	fault(1600);
	CHECK_EQUAL(kicks, 2);
	CHECK(leave(1));
	(void)end();
	(void)sigaction(VCPU_KICK_SIGNAL, &old, NULL);
}
