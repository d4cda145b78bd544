/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_flight.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "shared/ring.h"

static int size_of_memory(const struct run_options *options, size_t *size)
{
	uint64_t each = options->flight_size / options->cpus;

	if (each < RING_SIZE_MIN)
		return error_set(-EINVAL, "--flight: %u vCPUs need at least %luK", options->cpus,
				 options->cpus * (RING_SIZE_MIN >> 10));
	for (*size = RING_SIZE_MIN; *size * 2 <= each && *size < RING_SIZE_MAX;)
		*size *= 2;
	return 0;
}

int run_flight_ring_size(const struct run_options *options, size_t *size)
{
	return options->flight_size
		       ? size_of_memory(options, size)
		       : flight_ring_size(options->flight_time + options->flight_after,
					  options->frequency, options->callchains, size);
}

int run_flight_create(struct flight_requests **flight, const struct run_options *options)
{
	return flight_requests_create(flight, &(struct flight_requests_options){
						      .before = options->flight_time,
						      .after = options->flight_after,
						      .by_guest_max = options->flight_max,
					      });
}

/* With the line of TEXT, and not with those behind it. */
static void fire_line(struct flight_requests *flight, enum trigger_kind kind, const char *text)
{
	char line[TRIGGER_DETAIL_SIZE];

	text += strspn(text, " \n");
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	trigger_fire(flight_requests_trigger(flight), kind, line);
}

void run_flight_guest_ended(struct flight_requests *flight, const struct machine_result *result,
			    bool timed_out)
{
	switch (result->end) {
	case VCPU_END_RESET:
		trigger_fire(flight_requests_trigger(flight), TRIGGER_RESET, "");
		break;
	case VCPU_END_SHUTDOWN:
		/* What the kind does not say is in the second line: where it was. */
		fire_line(flight, TRIGGER_TRIPLE_FAULT,
			  result->message + strcspn(result->message, "\n"));
		break;
	case VCPU_END_INTERNAL_ERROR:
	case VCPU_END_HOST_ERROR:
		fire_line(flight, TRIGGER_KVM_ERROR, result->message);
		break;
	case VCPU_END_STOPPED:
		if (timed_out)
			trigger_fire(flight_requests_trigger(flight), TRIGGER_TIMEOUT, "");
		break;
	case VCPU_END_POWER_OFF:
	case VCPU_END_DEBUG_EXIT:
		break;
	}
}
