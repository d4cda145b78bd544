/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles as OpenTelemetry's protocol transfers them (OTLP, opentelemetry-proto 1.10.0,
 * v1development): converted from pprof, of which the format is an extension. Any thread.
 */
#ifndef KVMSCOPE_REPORT_OTLP_H
#define KVMSCOPE_REPORT_OTLP_H

#include <stddef.h>
#include <stdint.h>

#define OTLP_ID_SIZE 16

/* What the profile does not say itself. */
struct otlp_source {
	const char *domain; /* service.name */
	const char *host;   /* host.name, of the hypervisor */
	uint32_t vcpu;      /* UINT32_MAX: unknown */
	/* Equal for equal profiles, so that a store can recognize one that is sent again. */
	uint8_t id[OTLP_ID_SIZE];
};

/*
 * Converts PPROF, SIZE bytes as pprof_write() writes them, into an ExportProfilesServiceRequest in
 * *REQUEST, which the caller frees. There is one profile for each type of value, whose samples are
 * those with a value. Labels become attributes of samples, with the names of OpenTelemetry's
 * semantic conventions where there are such; build ids become attributes of mappings. The comment
 * is left out. -EINVAL: PPROF is not from pprof_write(), or damaged; -ENOMEM.
 */
int otlp_from_pprof(const void *pprof, size_t size, const struct otlp_source *source,
		    uint8_t **request, size_t *request_size);

/*
 * The number of profiles that a store rejected by its ANSWER of SIZE bytes to a request, 0 if it
 * accepted all or the answer is not an ExportProfilesServiceResponse. WHY (of WHY_SIZE bytes) gets
 * its reason, printable.
 */
uint64_t otlp_rejected(const void *answer, size_t size, char *why, size_t why_size);

#endif
