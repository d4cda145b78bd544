/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from QEMU's monitor and a process's command line. The first byte selects the reader: a
 * stream of messages with vCPUs, a register dump, a command line, a thread's status or a memory
 * dump.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/attach/agent_channel.h"
#include "vmm/attach/libvirt_domain.h"
#include "vmm/attach/monitor.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/qmp_connection.h"
#include "vmm/attach/qmp_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_answer(const char *bytes, size_t size)
{
	json_t *message = json_loadb(bytes, size, 0, NULL), *result;
	struct qmp_vcpu vcpus[4];

	if (message && !qmp_parse_answer(message, "fuzz", &result)) {
		if (qmp_parse_vcpus(result, vcpus, 4) > 4)
			abort();
		json_decref(result);
	}
	json_decref(message);
}

static void read_stream(const char *bytes, size_t size)
{
	struct qmp_frame frame = { 0 };
	bool complete;

	while (size) {
		ssize_t taken = qmp_frame_feed(&frame, bytes, size, &complete);

		if (taken < 0)
			return;
		if (!taken || (size_t)taken > size || frame.length != (size_t)taken)
			abort();
		if (complete)
			read_answer(bytes, (size_t)taken);
		frame = (struct qmp_frame){ 0 };
		bytes += taken;
		size -= (size_t)taken;
	}
}

static void read_registers(const char *text)
{
	struct qmp_registers registers;
	const char *before = text;

	while (qmp_parse_registers(&text, &registers)) {
		if (text <= before || registers.id >= VMM_VCPUS_MAX || registers.registers.cpl > 3)
			abort();
		before = text;
	}
}

static void read_memory(const char *text)
{
	struct vmm_slot slots[8];
	size_t count = qmp_parse_memory(text, slots, 8);
	uint64_t hva;

	for (size_t i = 1; i < count; i++)
		if (slots[i].gpa < slots[i - 1].gpa + slots[i - 1].size)
			abort();
	if (qmp_parse_hva(text, &hva) && !hva)
		abort();
}

static void read_channel(char *text, size_t size)
{
	struct agent_channel_socket socket;
	struct agent_channel_address place;

	if (agent_channel_parse(text, size, &place) && !*place.path && place.fd < 0)
		abort();
	if (agent_channel_parse_socket(text, &socket) && !*socket.path)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text, path[32];

	if (!size)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] & 3) {
	case 0:
		read_stream(text, size - 1);
		break;
	case 1:
		read_registers(text);
		break;
	case 2:
		monitor_parse_command_line(text, size, path, sizeof(path));
		domain_parse_command_line(text, size, "one", "4dea22b3");
		read_channel(text, size);
		break;
	default:
		proc_parse_inner_tid(text);
		read_memory(text);
	}
	free(text);
	return 0;
}
