/* SPDX-License-Identifier: Apache-2.0 */
/* Input: BTF, or ELF notes if the first byte is 0. */
#include <stdlib.h>

#include "vmm/guest/image_identity.h"
#include "vmm/guest/linux/btf_types.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/linux/module_list.h"
#include "vmm/guest/linux/task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The symbols of kernels 6.2 to 6.14, whose task layout needs the most from BTF. */
static struct symbols *make_symbols(void)
{
	static const char *const names[] = { "pcpu_hot",          "gdt_page",
					     "runqueues",         "__per_cpu_offset",
					     "__start_init_task", "__end_init_task" };
	struct symbols *symbols = symbols_new();

	for (size_t i = 0; symbols && i < sizeof(names) / sizeof(names[0]); i++)
		symbols_add(symbols, 0xffffffff82000000 + i * 0x4000, 8, 'd', names[i], NULL);
	if (symbols)
		symbols_finish(symbols);
	return symbols;
}

static void read_tasks(const struct btf *btf)
{
	static struct symbols *symbols;
	struct guest_task_layout layout;

	if (!symbols)
		symbols = make_symbols();
	if (!symbols || guest_task_layout_read(&layout, symbols, symbols, btf))
		return;
	/* Members are inside their structures, so no offset exceeds the structure's size. */
	if (!layout.known || layout.comm > UINT32_MAX - SAMPLE_COMM_SIZE)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct module_layout layout;
	uint8_t id[GUEST_BUILD_ID_MAX];
	struct btf btf;

	if (size && !*data)
		build_id_in_notes(span_of(data + 1, size - 1), id, sizeof(id));
	if (btf_open(&btf, span_of(data, size)))
		return 0;
	module_layout_read(&layout, &btf);
	read_tasks(&btf);
	for (uint32_t id_of_type = 0; id_of_type < btf.count + 1; id_of_type++) {
		struct btf_member member;

		btf_find_member(&btf, id_of_type, "base", &member);
		btf_size(&btf, btf_element(&btf, id_of_type));
	}
	btf_close(&btf);
	return 0;
}
