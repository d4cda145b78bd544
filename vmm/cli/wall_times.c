/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/wall_times.h"

#include <stdio.h>

static const char *const titles[VCPU_STATES] = {
	[VCPU_GUEST] = "guest",     [VCPU_KVM] = "KVM",         [VCPU_VMM] = "VMM",
	[VCPU_RUNNING] = "on CPU",  [VCPU_WAITING] = "waiting", [VCPU_HALTED] = "halted",
	[VCPU_BLOCKED] = "blocked", [VCPU_ASLEEP] = "asleep",
};

/* A remainder that has a less exact state is shown, too: all columns add up. */
static bool is_shown(const struct vcpu_times *times, enum vcpu_times_detail detail,
		     unsigned int state)
{
	return vcpu_times_have(detail, state) || times->ns[state];
}

void wall_times_print(const struct vcpu_times *times, enum vcpu_times_detail detail, double wall,
		      FILE *to)
{
	double user = vcpu_times_guest_user(times);
	uint64_t samples = times->user_samples + times->kernel_samples;

	fprintf(to, "%-13s", "wall time");
	for (unsigned int i = 0; i < VCPU_STATES; i++)
		if (is_shown(times, detail, i))
			fprintf(to, " %9s", titles[i]);
	fprintf(to, "\n%-13s", "%");
	for (unsigned int i = 0; i < VCPU_STATES; i++)
		if (is_shown(times, detail, i))
			fprintf(to, " %9.2f", (double)times->ns[i] / wall * 100);
	fprintf(to, "\n");
	if (user >= 0)
		fprintf(to,
			"of the guest about %.2f user, %.2f kernel (estimated: %llu interrupts)\n",
			user / wall * 100, ((double)times->ns[VCPU_GUEST] - user) / wall * 100,
			(unsigned long long)samples);
}

json_t *wall_times_json(const struct vcpu_times *times, enum vcpu_times_detail detail)
{
	double user = vcpu_times_guest_user(times);
	json_t *json = json_object();
	char name[32];

	for (unsigned int i = 0; i < VCPU_STATES; i++) {
		snprintf(name, sizeof(name), "%s_ns", vcpu_state_name(i));
		if (is_shown(times, detail, i))
			json_object_set_new(json, name, json_integer((json_int_t)times->ns[i]));
	}
	if (user >= 0) {
		json_object_set_new(json, "guest_user_estimated_ns",
				    json_integer((json_int_t)user));
		json_object_set_new(json, "guest_user_samples",
				    json_integer((json_int_t)times->user_samples));
		json_object_set_new(json, "guest_kernel_samples",
				    json_integer((json_int_t)times->kernel_samples));
	}
	return json;
}
