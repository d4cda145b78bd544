/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile of a run: rings, sampler and collector, joined with the machine
 * by its hooks.
 *
 * run_profile_create() -> run_profile_join() -> machine_create() ->
 * run_profile_start() -> the guest runs and ends -> run_profile_stop() ->
 * run_profile_destroy(), all on the main thread.
 */
#ifndef KVMSCOPE_CLI_RUN_PROFILE_H
#define KVMSCOPE_CLI_RUN_PROFILE_H

#include "vmm/cli/run_flight.h"
#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"
#include "vmm/record/collector.h"

struct run_profile;

/* OPTIONS must outlive it. -ENOMEM. */
int run_profile_create(struct run_profile **profile, const struct run_options *options);

/* Sets the hooks of the machine that is to be profiled; they are valid until run_profile_destroy().
 */
void run_profile_join(struct run_profile *profile, struct machine_options *machine);

/* Makes everything ready for MACHINE's vCPUs, and opens the output. Before machine_start(). */
int run_profile_start(struct run_profile *profile, struct machine *machine);

/*
 * Another sampling frequency, 1 to RUN_FREQUENCY_MAX Hz, else -EINVAL; a pause
 * stays one. It holds within one period. Any thread between run_profile_start()
 * and the machine's end, as are the next two.
 */
int run_profile_set_frequency(struct run_profile *profile, unsigned int frequency);

/* Takes no samples until it is called again with false, which goes on with the frequency last set.
 */
int run_profile_pause(struct run_profile *profile, bool paused);

/* The frequency last set, in Hz, and whether there is a pause. */
unsigned int run_profile_frequency(struct run_profile *profile, bool *paused);

/* The flight recorder; NULL without --flight. The profile's. */
struct flight_requests *run_profile_flight(const struct run_profile *profile);

/* How it stands, or stood when it was stopped. Any thread after run_profile_start(). */
void run_profile_statistics(struct run_profile *profile, struct collector_statistics *statistics);

struct run_watch;

/* Its watches. */
struct run_watch *run_profile_watch(struct run_profile *profile);

/* A line on standard error for each watch. After the vCPUs have ended. */
void run_profile_summarize_watches(struct run_profile *profile);

/* Not by kicks. */
bool run_profile_by_bpf(const struct run_profile *profile);

/*
 * The guest has stopped for a reset; its memory is as it was. What was recorded until now is
 * completed, and what is known of the guest forgotten. Before machine_reset().
 */
void run_profile_reset(struct run_profile *profile);

/* After the guest has ended: writes what is left and closes the output. The first error of writing.
 */
int run_profile_stop(struct run_profile *profile, struct collector_statistics *statistics);

/* Works on NULL, and at every point but while vCPUs run. */
void run_profile_destroy(struct run_profile *profile);

#endif
