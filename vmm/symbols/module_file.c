/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/symbols/module_file.h"

#include <string.h>

#include "vmm/symbols/build_id_cache.h"
#include "vmm/symbols/symbol_file.h"

static void add_functions(const struct guest_module *module, const struct symbols *from,
			  struct symbol_file *file)
{
	size_t count = from ? symbols_count(from) : 0;
	struct symbol symbol;

	for (size_t i = 0; i < count; i++) {
		symbols_at(from, i, &symbol);
		if (!symbol.module || strcmp(symbol.module, module->name) != 0 ||
		    !strchr("tTwW", symbol.type) || symbol.start - module->start >= module->size ||
		    !build_id_cache_name_is_plain(symbol.name))
			continue;
		symbol_file_add(file, symbol.name, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				symbol.start - module->start, symbol.end - symbol.start);
	}
}

void module_file_make(struct bytes *to, const struct guest_module *module,
		      const struct symbols *first, const struct symbols *second)
{
	const struct symbol_file_head head = { .type = ET_REL,
					       .build_id = module->build_id,
					       .build_id_size = module->build_id_size,
					       .text_size = module->size };
	struct symbol_file file;
	size_t none;

	symbol_file_begin(&file);
	none = file.table.size;
	add_functions(module, first, &file);
	if (file.table.size == none)
		add_functions(module, second, &file);
	symbol_file_end(&file, &head, to);
}
