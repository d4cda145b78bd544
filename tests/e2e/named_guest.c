/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/named_guest.h"

#include <stdio.h>
#include <string.h>

#include "tests/e2e/perf_home.h"
#include "tests/unit/shim/test.h"

void named_guest_begin(struct named_guest *named, uint8_t tag, uint64_t slide)
{
	memset(named, 0, sizeof(*named));
	perf_home_enter(named->home);
	snprintf(named->path, sizeof(named->path), "%s/perf.data", named->home);
	fake_guest_make(&named->guest, tag, slide, FAKE_MODULE);
}

void named_guest_cache(struct named_guest *named, bool code)
{
	const struct fake_guest *guest = &named->guest;
	char cache[4096];

	CHECK_EQUAL(build_id_cache_directory(cache, sizeof(cache)), 0);
	CHECK_EQUAL(build_id_cache_add_kernel(cache, &guest->image), 0);
	CHECK_EQUAL(build_id_cache_add_boot(cache, &guest->image, &named->boot), 0);
	if (code)
		CHECK_EQUAL(build_id_cache_add_code(cache, &guest->image, &guest->view,
						    &guest->paging, &named->boot),
			    0);
}

void named_guest_end(struct named_guest *named)
{
	fake_guest_free(&named->guest);
	perf_home_leave(named->home);
}
