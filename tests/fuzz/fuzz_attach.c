/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: text that a VMM's process controls: names and states of its threads, links of its
 * descriptors, its mappings, its code, its seccomp filters.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/attach/memory_layout.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/process.h"
#include "vmm/attach/qemu_command_line.h"
#include "vmm/attach/remote_call.h"
#include "vmm/attach/seccomp_filter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_states(const char *text)
{
	struct thread_status status;
	struct thread_cpu_times times;

	if (thread_status_parse(text, &status) && !status.state)
		abort();
	thread_cpu_times_parse(text, &times);
	proc_parse_guest_ticks(text);
}

static void check_code(const uint8_t *bytes, size_t size)
{
	struct remote_code code = { 0 };

	remote_code_search(&code, bytes, size, 1);
	if (code.call > size || code.sigreturn > size)
		abort();
}

/* Runs the input as filter instructions on one fixed call. */
static void check_filter(const uint8_t *bytes, size_t size)
{
	static const struct seccomp_data call = { .nr = 16, .args = { 1, 2, 3 } };
	struct sock_filter filter[64];
	size_t count = size / sizeof(filter[0]);

	if (count > sizeof(filter) / sizeof(filter[0]))
		count = sizeof(filter) / sizeof(filter[0]);
	memcpy(filter, bytes, count * sizeof(filter[0]));
	seccomp_filter_run(filter, count, &call);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	char name[QEMU_NAME_SIZE];
	uint64_t hva, bytes;
	unsigned int id;
	int fd;

	memcpy(text, data, size);
	text[size] = '\0';
	if ((proc_parse_vcpu_link(text, &id) || proc_parse_thread_name(text, &id)) &&
	    id >= VMM_VCPUS_MAX)
		abort();
	if (proc_parse_run_call(text, &fd) && fd < 0)
		abort();
	if (memory_layout_parse(text, &hva, &bytes) && hva + bytes < hva)
		abort();
	if (qemu_vcpu_ids_parse(text, size + 1) > VMM_VCPUS_MAX)
		abort();
	if (qemu_encryption_parse(text, size + 1) > GUEST_TDX)
		abort();
	if (qemu_name_parse(text, size + 1, name) && !memchr(name, '\0', sizeof(name)))
		abort();
	check_states(text);
	check_code(data, size);
	check_filter(data, size);
	free(text);
	return 0;
}
