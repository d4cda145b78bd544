/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that uses its PMU arbitrarily, whose state may come from a file. Input: a byte for the
 * model and whether the host has counters, a saved state, then the guest's actions and perf's
 * results.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/pmu/guest_pmu.h"
#include "vmm/pmu/pmu_host.h"

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct action {
	uint8_t kind;
	uint8_t index;
	uint64_t value;
} __attribute__((packed));

/* Perf events by number; each counts in the time that perf_run() gives it. */
static struct {
	bool open[PMU_COUNTERS], enabled[PMU_COUNTERS];
	struct pmu_host_reading readings[PMU_COUNTERS];
	bool fails;
	enum pmu_model model;
} perf;

static int perf_open(void *context, const struct perf_event_attr *attributes)
{
	const uint64_t allowed = perf.model == PMU_INTEL ? 0xff84ffff : 0xfff84ffff;

	CHECK(attributes->type == PERF_TYPE_RAW && attributes->exclude_host &&
	      !attributes->precise_ip);
	CHECK(!(attributes->config & ~allowed) && !attributes->config1 && !attributes->config2);
	if (perf.fails)
		return -EMFILE;
	for (int i = 0; i < PMU_COUNTERS; i++)
		if (!perf.open[i]) {
			perf.open[i] = true;
			perf.enabled[i] = false;
			perf.readings[i] = (struct pmu_host_reading){ 0 };
			return i;
		}
	abort(); /* more than one event for a counter */
}

static int perf_direct_signal(void *context, int event)
{
	return perf.fails ? -EINVAL : 0;
}

static int perf_control(void *context, int event, unsigned long request, uint64_t *argument)
{
	CHECK(perf.open[event]);
	if (request == PERF_EVENT_IOC_PERIOD)
		CHECK(*argument >= PMU_HOST_PERIOD_MIN && *argument <= UINT64_C(1) << PMU_WIDTH);
	else
		perf.enabled[event] = request == PERF_EVENT_IOC_ENABLE;
	return 0;
}

static int perf_read(void *context, int event, struct pmu_host_reading *reading)
{
	CHECK(perf.open[event]);
	*reading = perf.readings[event];
	return 0;
}

static void perf_close(void *context, int event)
{
	CHECK(perf.open[event]);
	perf.open[event] = false;
}

static uint32_t perf_architectural(void *context)
{
	return 0x5f;
}

static const struct pmu_host_perf fake_perf = {
	.open = perf_open,
	.direct_signal = perf_direct_signal,
	.control = perf_control,
	.read = perf_read,
	.close = perf_close,
	.architectural = perf_architectural,
};

/* Times are limited to some years, as a process cannot run longer. */
static void perf_run(uint8_t share, uint64_t value)
{
	const uint64_t time = value >> 24;

	for (unsigned int i = 0; i < PMU_COUNTERS; i++)
		if (perf.open[i] && perf.enabled[i]) {
			perf.readings[i].count += share ? value >> (share & 63) : 0;
			perf.readings[i].enabled += time;
			perf.readings[i].running += time / 255 * share;
		}
}

/* Maps INDEX to all registers that exist and some next to them. */
static uint32_t msr_of(uint8_t index)
{
	static const uint32_t first[] = { 0xc0,  0x185, 0x308,      0x345,
					  0x38c, 0x4c0, 0xc0010000, 0xc0010200 };

	return first[index >> 4 & 7] + (index & 0xf);
}

static void check_state(const struct pmu *pmu)
{
	struct pmu copy = *pmu;

	copy.counters = NULL; /* the copy must not change the original's counters */
	for (unsigned int i = 0; i < PMU_GENERAL_MAX; i++)
		CHECK(pmu->state.general[i] >> PMU_WIDTH == 0);
	for (unsigned int i = 0; i < PMU_FIXED_MAX; i++)
		CHECK(pmu->state.fixed[i] >> PMU_WIDTH == 0);
	CHECK(pmu_restore(&copy, &pmu->state, sizeof(pmu->state)) == 0);
	CHECK(memcmp(&copy.state, &pmu->state, sizeof(copy.state)) == 0);
}

/* The PMI occurs at the predicted time and not earlier. */
static void check_next_overflow(const struct pmu *pmu)
{
	const uint64_t next = pmu_next_overflow(pmu);
	struct pmu before = *pmu, then = *pmu;

	CHECK(next > pmu->state.time || next == PMU_NEVER);
	if (pmu->counters)
		return;
	CHECK(!pmu_advance(&before, next - 1));
	if (next != PMU_NEVER)
		CHECK(pmu_advance(&then, next));
}

static void write_register(struct pmu *pmu, uint32_t msr, uint64_t value)
{
	const struct pmu_state before = pmu->state;
	uint64_t read;

	if (pmu_write_msr(pmu, msr, value))
		CHECK(pmu_read_msr(pmu, msr, &read));
	else
		CHECK(memcmp(&before, &pmu->state, sizeof(before)) == 0);
}

static void act(struct pmu *pmu, const struct action *action)
{
	const uint64_t room = UINT64_MAX - 1 - pmu->state.time;
	const uint64_t step = action->value >> (action->index & 63);
	uint64_t value;

	switch (action->kind % 8) {
	case 0:
	case 1:
		write_register(pmu, msr_of(action->index), action->value);
		break;
	case 2:
		(void)pmu_advance(pmu, pmu->state.time + (step < room ? step : room));
		break;
	case 3:
		(void)pmu_read_counter(pmu, (uint32_t)action->value, &value);
		break;
	case 4:
		pmu_set_freeze_on_pmi(pmu, action->value & 1);
		break;
	case 5:
		if (action->index == 0)
			pmu_reset(pmu);
		break;
	case 6:
		perf_run(action->index, action->value);
		break;
	case 7:
		perf.fails = action->index & 1;
		break;
	}
}

static void unavailable(void *context, const char *event)
{
	CHECK(!event || strlen(event) < 160);
}

static struct pmu_host *start_host(struct pmu *pmu, enum pmu_model model)
{
	struct pmu_host *host;

	memset(&perf, 0, sizeof(perf));
	perf.model = model;
	CHECK(pmu_host_create(&host, model, &fake_perf, unavailable, NULL) == 0);
	pmu_set_counters(pmu, pmu_host_counters(host));
	return host;
}

static void end_host(struct pmu_host *host)
{
	pmu_host_destroy(host);
	for (unsigned int i = 0; i < PMU_COUNTERS; i++)
		CHECK(!perf.open[i]);
}

static void run(struct pmu *pmu, const uint8_t *data, size_t size)
{
	struct action action;

	for (; size >= sizeof(action); data += sizeof(action), size -= sizeof(action)) {
		memcpy(&action, data, sizeof(action));
		act(pmu, &action);
		check_state(pmu);
		check_next_overflow(pmu);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct pmu_clock clock_rates = { 2999999999, 2000000000, 25000000 };
	const enum pmu_model model = size ? (enum pmu_model)(PMU_INTEL + data[0] % 3) : PMU_INTEL;
	struct pmu_host *host = NULL;
	struct pmu pmu;

	CHECK(pmu_init(&pmu, model, &clock_rates, unavailable, NULL) == 0);
	if (size < 1 + sizeof(struct pmu_state))
		return 0;
	if (data[0] / 3 & 1)
		host = start_host(&pmu, model);
	(void)pmu_restore(&pmu, data + 1, sizeof(struct pmu_state));
	run(&pmu, data + 1 + sizeof(struct pmu_state), size - 1 - sizeof(struct pmu_state));
	if (host)
		end_host(host);
	return 0;
}
