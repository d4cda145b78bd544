/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile of a run: rings and sampler as the source of a session, connected to the machine by
 * its hooks. Main thread, unless a function says otherwise:
 *
 *	run_profile_create() -> run_profile_attach() -> machine_create() -> run_profile_start() ->
 *	the guest runs and ends -> run_profile_stop() -> run_profile_destroy()
 */
#ifndef KVMSCOPE_CLI_RUN_PROFILE_H
#define KVMSCOPE_CLI_RUN_PROFILE_H

#include "vmm/attach/vcpu_times.h"
#include "vmm/cli/run_flight.h"
#include "vmm/cli/run_options.h"
#include "vmm/machine/machine.h"
#include "vmm/record/collector.h"

struct run_profile;
struct run_watch;

/* OPTIONS must outlive it. -ENOMEM, the errors of its watches and agent. */
int run_profile_create(struct run_profile **profile, const struct run_options *options);

/* Sets the hooks of the machine; they are valid until run_profile_destroy(). */
void run_profile_attach(struct run_profile *profile, struct machine_options *machine);

/* Prepares for MACHINE's vCPUs and opens the output. Before machine_start(). */
int run_profile_start(struct run_profile *profile, struct machine *machine);

/*
 * Changes the sampling frequency to 1 to RECORD_FREQUENCY_MAX Hz; a paused profile stays paused.
 * Takes effect within one period. Any thread between run_profile_start() and the machine's end, as
 * the next two.
 */
int run_profile_set_frequency(struct run_profile *profile, unsigned int frequency);

/* Pauses sampling, or resumes it at the frequency set last if PAUSED is false. */
int run_profile_pause(struct run_profile *profile, bool paused);

/* The frequency set last, in Hz, and whether sampling is paused. */
unsigned int run_profile_frequency(struct run_profile *profile, bool *paused);

/* NULL without --flight. Valid as long as PROFILE. */
struct flight_requests *run_profile_flight(const struct run_profile *profile);

/* Valid as long as PROFILE. */
struct run_watch *run_profile_watch(struct run_profile *profile);

/* The counts now, or the final ones. Any thread after run_profile_start(). */
void run_profile_statistics(struct run_profile *profile, struct collector_statistics *statistics);

/* TIMES, measured by BPF, replace those of the scheduler. After the vCPUs have ended. */
void run_profile_set_times(struct run_profile *profile, const struct vcpu_times_rows *times,
			   enum vcpu_times_detail detail);

/* The wall time of all vCPUs: running, waiting for a CPU, and asleep; 0 once it is replaced. */
void run_profile_times(struct run_profile *profile, struct vcpu_times *sum);

/* True if the guest is sampled by BPF, not by kicks. */
bool run_profile_by_bpf(const struct run_profile *profile);

/*
 * The guest has stopped for a reset, and its memory is unchanged: completes what was recorded, and
 * forgets what is known of the guest. Before machine_reset().
 */
void run_profile_reset(struct run_profile *profile);

/* After the guest has ended: completes the recording and logs what the guest agent reported.
 * Returns the first error of sampling or writing. */
int run_profile_stop(struct run_profile *profile, struct collector_statistics *statistics);

/* Any time while no vCPU runs. NULL is a no-op. */
void run_profile_destroy(struct run_profile *profile);

#endif
