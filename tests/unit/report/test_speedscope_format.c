/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/shim/test.h"
#include "tests/unit/small_recording.h"
#include "vmm/report/speedscope.h"

TEST(speedscope, writes_one_profile_for_each_vcpu)
{
	char *text = NULL;
	size_t size;

	CHECK_EQUAL(small_recording_export(speedscope_write, open_memstream(&text, &size)), 0);
	CHECK_STRING(text,
		     "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
		     "\"exporter\":\"kvmscope " KVMSCOPE_VERSION "\",\"name\":\"guest\",\n"
		     "\"shared\":{\"frames\":[\n"
		     "{\"name\":\"vcpu 0\"},\n"
		     "{\"name\":\"middle\",\"file\":\"[kernel.kallsyms]\"},\n"
		     "{\"name\":\"leaf\",\"file\":\"[kernel.kallsyms]\"},\n"
		     "{\"name\":\"top;with/all\",\"file\":\"[kernel.kallsyms]\"},\n"
		     "{\"name\":\"vcpu;1\"}]},\n"
		     "\"profiles\":[\n"
		     "{\"type\":\"sampled\",\"name\":\"vCPU 0\",\"unit\":\"nanoseconds\","
		     "\"startValue\":0,\n"
		     "\"samples\":[[0,1,1,2],\n[0,3,2]],\n"
		     "\"weights\":[6000000,\n3000000],\n\"endValue\":9000000},\n"
		     "{\"type\":\"sampled\",\"name\":\"vCPU 1\",\"unit\":\"nanoseconds\","
		     "\"startValue\":0,\n"
		     "\"samples\":[[4,3,2]],\n\"weights\":[1000000],\n\"endValue\":1000000}]}\n");
	free(text);
}

TEST(speedscope, reports_write_errors)
{
	CHECK_EQUAL(small_recording_export(speedscope_write, fopen("/dev/full", "w")), -EIO);
}
