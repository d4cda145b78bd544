/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of sampling on a standard KVM in the rig: CPU time of kvmscope for the same work of a
 * guest at CPL3, at 99, 1000 and 4000 Hz, compared with --no-profile. Exits are expensive in an
 * emulator: this is an upper bound.
 */
#include <string.h>

#include "tests/bench/bench.h"

#define ROUNDS      3
#define FREQUENCIES 3

static const int frequencies[FREQUENCIES] = { 99, 1000, 4000 };

/* Prints a line "FREQUENCY PLAIN-USER PLAIN-SYSTEM SAMPLED-USER SAMPLED-SYSTEM", in seconds, for
 * each pair of runs. */
static const char script[] =
	"tests/rig/rig --timeout 200 -- "
	"env ${KVMSCOPE_BENCH_SHORT+KVMSCOPE_BENCH_SHORT=1} bash -c '"
	"TIMEFORMAT=\"%U %S\"; "
	"work() { { time build/kvmscope run --sampler kick --quiet --console none --mem 64M --kernel build/guests/guest.elf "
	"--append \"program=shares rounds=30 chunk=1000000\" --timeout 60 \"$@\" > /dev/null 2>&1; } 2>&1; }; "
	"work --no-profile > /dev/null; "
	"for round in ${KVMSCOPE_BENCH_SHORT-2 3} 1; do for frequency in 99 1000 4000; do "
	"echo $frequency $(work --no-profile) $(work --no-buildid-cache -F $frequency -o build/bench/rig.data); "
	"done; done' 2> build/bench/rig.log";

static int index_of(int frequency)
{
	for (int i = 0; i < FREQUENCIES; i++)
		if (frequencies[i] == frequency)
			return i;
	return -1;
}

int main(void)
{
	double slowdowns[FREQUENCIES][ROUNDS], user[2], system_[2];
	int count[FREQUENCIES] = { 0 }, frequency;
	FILE *rig;

	if (system("tests/rig/rig --check > /dev/null 2>&1")) {
		bench_skip("sampling: CPU time for the same guest work, rig", "no rig here");
		return 0;
	}
	rig = popen(script, "r");
	while (rig && fscanf(rig, "%d %lf %lf %lf %lf", &frequency, &user[0], &system_[0], &user[1],
			     &system_[1]) == 5) {
		int i = index_of(frequency);

		if (i >= 0 && count[i] < ROUNDS)
			slowdowns[i][count[i]++] =
				((user[1] + system_[1]) / (user[0] + system_[0]) - 1) * 100;
	}
	if (!rig || pclose(rig))
		return 1;
	for (int i = 0; i < FREQUENCIES; i++) {
		char what[80];

		if (!count[i])
			return 1;
		snprintf(what, sizeof(what),
			 "sampling: additional CPU time at %d Hz over --no-profile, rig",
			 frequencies[i]);
		bench_print(what, bench_median(slowdowns[i], count[i]), "%");
	}
	return 0;
}
