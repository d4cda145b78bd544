/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/flame_graph.h"

/* The path is relative to the project's root, where make runs; module.mk creates the file. */
__asm__(".pushsection .rodata\n"
	"flame_graph_page_start:\n"
	".incbin \"build/web/flame_graph.html\"\n"
	"flame_graph_page_end:\n"
	".popsection\n");

extern const char flame_graph_page_start[], flame_graph_page_end[];

const char *flame_graph_page(size_t *size)
{
	*size = (size_t)(flame_graph_page_end - flame_graph_page_start);
	return flame_graph_page_start;
}
