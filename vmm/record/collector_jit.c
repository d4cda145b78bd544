/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/record/collector_jit.h"

#include <errno.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/record/collector_kernel_parts.h"

int collector_jit_init(struct collector_jit *jit, const struct build_id_cache_location *place,
		       struct guest_account *account, struct image_parser *parser)
{
	/* The reason for a missing cache is logged elsewhere. */
	if (image_symbols_open(&jit->names, place, COLLECTOR_JIT_NAMES_MAX))
		return 0;
	jit->account = account;
	jit->code = jit_code_new(account);
	jit->maps = jit_maps_new(parser);
	return jit->code && jit->maps
		       ? 0
		       : error_set(-ENOMEM, "no memory for the functions of the guest's JITs");
}

static void stop_scans(struct collector_jit *jit)
{
	if (jit->code && jit->maps)
		jit_maps_end(jit->maps, jit->code);
	jit_maps_free(jit->maps);
	jit->maps = NULL;
}

bool collector_jit_apply(struct collector_jit *jit, const struct sideband *record)
{
	/* SPACE is about page tables, which others report. */
	if (record->type != SIDEBAND_ADDRESS_SPACE)
		stop_scans(jit);
	if (jit->code)
		jit_code_apply(jit->code, record);
	return record->type == SIDEBAND_JIT_MAP || record->type == SIDEBAND_JIT_CODE;
}

void collector_jit_sample(struct collector_jit *jit, const struct guest_kernel *kernel,
			  const struct sample *sample)
{
	if (jit->code && jit->maps && kernel)
		jit_maps_sample(jit->maps, kernel, sample);
}

static bool runs(void *context)
{
	struct collector_kernel *kernel = context;

	collector_kernel_check_runs(kernel);
	return collector_kernel_is_certain(kernel);
}

void collector_jit_scan(struct collector_jit *jit, struct collector_kernel *kernel)
{
	const struct guest_kernel *running = collector_kernel_newest(kernel);

	if (jit->code && jit->maps && running && collector_kernel_is_certain(kernel))
		jit_maps_scan(jit->maps, running, kernel->options->view, runs, kernel, jit->code);
}

void collector_jit_write(struct collector_jit *jit)
{
	if (jit->code)
		jit_code_write(jit->code, &jit->names);
}

static void warn_refused(const struct jit_code *code)
{
	struct jit_code_statistics statistics;

	jit_code_statistics(code, &statistics);
	if (statistics.refused)
		log_warning(
			"functions that some guest processes generated at run time stay unsymbolized: there are "
			"too many");
}

void collector_jit_begin_boot(struct collector_jit *jit)
{
	if (!jit->code)
		return;
	collector_jit_write(jit);
	warn_refused(jit->code);
	if (jit->maps)
		jit_maps_end(jit->maps, jit->code);
	jit_code_free(jit->code);
	jit->code = jit_code_new(jit->account);
}

void collector_jit_free(struct collector_jit *jit)
{
	if (jit->code)
		warn_refused(jit->code);
	jit_code_free(jit->code);
	jit_maps_free(jit->maps);
	image_symbols_close(&jit->names);
}
