/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shares of CPL 3's time in the three functions of the test guest's program "shares": 60, 30
 * and 10 %. Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_FUNCTION_SHARES_H
#define KVMSCOPE_TESTS_KVM_FUNCTION_SHARES_H

#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

struct function_shares {
	struct symbols *symbols; /* valid during function_shares_read() */
	double weight, squares;  /* ns of the guest's samples, and the sum of their squares */
	double of[3];            /* ns in share_sixty, share_thirty, share_ten */
	uint64_t in_loops;       /* samples in these three functions */
	uint64_t called;         /* of these, samples whose caller is user_works */
};

extern const double function_shares_truth[3]; /* percent */

/*
 * Reads the recording PATH of the guest IMAGE into EVENTS, whose sample callback uses SHARES. A
 * failure or an incomplete recording fails the test.
 */
void function_shares_read(struct function_shares *shares, const char *path, const char *image,
			  const struct perf_data_events *events);

/* Adds a sample of the guest at CPL 3. */
void function_shares_add(struct function_shares *shares, const struct perf_data_sample *sample);

/* The share of function I, in percent. */
double function_shares_of(const struct function_shares *shares, int i);

/*
 * The effective sample size: the number of samples of equal weight that would be as precise (Kish).
 * Weights are uneven if other programs use the CPUs.
 */
double effective_samples(double weight, double squares);

/* In percentage points: five standard deviations of SHARE (0 to 1), but at least LEAST. */
double share_bound(double effective, double share, double least);

#endif
