// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/collector_jit.h"

#include <errno.h>

#include "shared/error.h"
#include "shared/log.h"

int collector_jit_init(struct collector_jit *jit, const struct build_id_cache_place *place)
{
	/* Why there is none is said by others. */
	if (image_names_open(&jit->names, place, COLLECTOR_JIT_NAMES_MAX))
		return 0;
	jit->code = jit_code_new();
	return jit->code ? 0 : error_set(-ENOMEM, "no memory for the functions of the guest's JITs");
}

bool collector_jit_take(struct collector_jit *jit, const struct sideband *record)
{
	if (jit->code)
		jit_code_take(jit->code, record);
	return record->type == SIDEBAND_JIT_MAP || record->type == SIDEBAND_JIT_CODE;
}

void collector_jit_lost(struct collector_jit *jit)
{
	if (jit->code)
		jit_code_lost(jit->code);
}

void collector_jit_write(struct collector_jit *jit)
{
	if (jit->code)
		jit_code_write(jit->code, &jit->names);
}

static void tell_refused(const struct jit_code *code)
{
	struct jit_code_statistics statistics;

	jit_code_statistics(code, &statistics);
	if (statistics.refused)
		log_warning(
			"functions that some processes of the guest made at run time have no names: there are "
			"too many");
}

void collector_jit_begin_boot(struct collector_jit *jit)
{
	if (!jit->code)
		return;
	collector_jit_write(jit);
	tell_refused(jit->code);
	jit_code_free(jit->code);
	jit->code = jit_code_new();
}

void collector_jit_free(struct collector_jit *jit)
{
	if (jit->code)
		tell_refused(jit->code);
	jit_code_free(jit->code);
	image_names_close(&jit->names);
}
