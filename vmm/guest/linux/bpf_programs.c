/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/bpf_programs.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/page_walk.h"

#define CODE_MAX (64ull << 20) /* bytes of one program */
#define TRIES    3

void bpf_program_layout_read(struct bpf_program_layout *layout, const struct symbols *symbols,
			     const struct btf *btf)
{
	uint32_t id = btf_find_struct(btf, "bpf_ksym"), end;
	struct btf_member name;
	struct symbol head;

	*layout = (struct bpf_program_layout){ 0 };
	if (!id || !symbols_find_name(symbols, "bpf_kallsyms", &head) ||
	    !btf_find_offset(btf, "bpf_ksym", "start", 16, &layout->range) ||
	    !btf_find_offset(btf, "bpf_ksym", "end", 8, &end) || end != layout->range + 8 ||
	    !btf_find_offset(btf, "bpf_ksym", "lnode", 16, &layout->list) ||
	    !btf_find_member(btf, id, "name", &name))
		return;
	layout->name = name.offset;
	layout->name_size = btf_array_length(btf, name.type);
	layout->head = layout->name_size ? head.start : 0;
}

static bool is_name(const char *name)
{
	for (const char *at = name; *at; at++)
		if (!isalnum((unsigned char)*at) && *at != '_' && *at != '.')
			return false;
	return *name;
}

/* False: not a valid program, or it was unloaded during the read. A name that is too long fails. */
static bool read_program(struct guest_module *program, const struct guest_view *view,
			 const struct guest_paging *paging, const struct bpf_program_layout *layout,
			 uint64_t symbol)
{
	size_t size = layout->name_size < sizeof(program->name) ? layout->name_size
								: sizeof(program->name);
	uint64_t range[2];

	*program = (struct guest_module){ .program = symbol + layout->range,
					  .program_name = symbol + layout->name,
					  .program_list = symbol + layout->list };
	if (guest_read_virtual(view, paging, program->program, range, sizeof(range)) ||
	    guest_read_string(view, paging, program->program_name, program->name, size) ||
	    !is_name(program->name) || range[0] < KERNEL_IMAGE_START || range[1] <= range[0] ||
	    range[1] - range[0] > CODE_MAX)
		return false;
	program->start = range[0];
	program->size = range[1] - range[0];
	return bpf_program_is_loaded(program, view, paging);
}

static int append(struct guest_module **programs, size_t *count, const struct guest_module *program)
{
	struct guest_module *larger = realloc(*programs, (*count + 1) * sizeof(*larger));

	if (!larger)
		return -ENOMEM;
	*programs = larger;
	larger[(*count)++] = *program;
	return 0;
}

/* -EFAULT: the list breaks off. */
static int read_list(struct guest_module **programs, size_t *count, const struct guest_view *view,
		     const struct guest_paging *paging, const struct bpf_program_layout *layout)
{
	struct guest_module program;
	uint64_t node;
	int error = guest_read_virtual(view, paging, layout->head, &node, sizeof(node));

	for (uint32_t i = 0; !error && node != layout->head; i++) {
		if (i == BPF_PROGRAMS_MAX)
			return 0;
		if (read_program(&program, view, paging, layout, node - layout->list))
			error = append(programs, count, &program);
		if (!error)
			error = guest_read_virtual(view, paging, node, &node, sizeof(node));
	}
	return error == -ENOMEM ? error : error ? -EFAULT : 0;
}

static int compare_starts(const void *left, const void *right)
{
	const struct guest_module *a = left, *b = right;

	return a->start < b->start ? -1 : a->start > b->start;
}

/*
 * Removes all programs that overlap another one: it is not known which of them the code is.
 * PROGRAMS becomes sorted by address. Returns the number that is left.
 */
static size_t drop_overlapping(struct guest_module *programs, size_t count)
{
	uint64_t end = 0; /* highest end of all before */
	size_t kept = 0;

	qsort(programs, count, sizeof(*programs), compare_starts);
	for (size_t i = 0; i < count; i++) {
		const struct guest_module *program = &programs[i];
		bool alone =
			program->start >= end &&
			(i + 1 == count || program->start + program->size <= programs[i + 1].start);

		if (program->start + program->size > end)
			end = program->start + program->size;
		if (alone)
			programs[kept++] = *program;
	}
	return kept;
}

int bpf_programs_read(struct guest_module **programs, size_t *count, const struct guest_view *view,
		      const struct guest_paging *paging, const struct bpf_program_layout *layout)
{
	const size_t before = *count;
	int error = layout->head ? -EFAULT : 0;

	for (int i = 0; i < TRIES && error == -EFAULT; i++) {
		*count = before;
		error = read_list(programs, count, view, paging, layout);
	}
	if (error)
		*count = before;
	else if (*count > before)
		*count = before + drop_overlapping(*programs + before, *count - before);
	return error == -ENOMEM ? error : 0;
}

/* A program that replaces PROGRAM may reuse all of its addresses. */
static bool has_name(const struct guest_module *program, const struct guest_view *view,
		     const struct guest_paging *paging)
{
	char name[sizeof(program->name)];
	size_t size = strlen(program->name) + 1;

	return !guest_read_virtual(view, paging, program->program_name, name, size) &&
	       !memcmp(name, program->name, size);
}

/* include/linux/list.h: list_del_rcu() keeps an entry's next pointer and poisons its previous one.
 */
bool bpf_program_is_loaded(const struct guest_module *program, const struct guest_view *view,
			   const struct guest_paging *paging)
{
	uint64_t range[2], previous, next;

	return !guest_read_virtual(view, paging, program->program, range, sizeof(range)) &&
	       range[0] == program->start && range[1] == program->start + program->size &&
	       !guest_read_virtual(view, paging, program->program_list + 8, &previous,
				   sizeof(previous)) &&
	       !guest_read_virtual(view, paging, previous, &next, sizeof(next)) &&
	       next == program->program_list && has_name(program, view, paging);
}
