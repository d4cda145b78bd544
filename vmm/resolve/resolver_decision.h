/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attribution: which process a sample belongs to, and what was mapped at each of its user
 * addresses, from the reports of sources and the mappings that the sample itself carries.
 * Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_DECISION_H
#define KVMSCOPE_RESOLVE_RESOLVER_DECISION_H

#include "vmm/resolve/resolver.h"
#include "vmm/resolve/resolver_processes.h"

struct resolver_evidence {
	const struct resolver_processes *processes;
	const struct image_catalog *images; /* of the mappings that samples carry; NULL: none */
	uint64_t uncertainty;               /* ns, the largest error of the reports' times */
	/* ns: sources that announce rounds have reported all before this; UINT64_MAX: there are
	 * none. */
	uint64_t reported_until;
};

/*
 * Fills in the task of SAMPLE as far as it is known, flags it where its mapping is ambiguous, cuts
 * its call chain before the first ambiguous address, and counts in LOSSES what stays unknown. USER,
 * of SAMPLE_CALLCHAIN_MAX entries, receives the decisions for the call chain; the result refers to
 * it and to SAMPLE.
 */
struct attributed_sample resolver_decide(const struct resolver_evidence *evidence,
					 struct sample *sample, struct resolver_mapping *user,
					 struct losses *losses);

#endif
