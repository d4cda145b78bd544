/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/flame_graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "vmm/report/folded.h"

static bool same_frame(const void *item, const void *key)
{
	const struct flame_frame *a = item, *b = key;

	return a->name == b->name && a->image == b->image && a->kind == b->kind;
}

static int list_frame(struct flame_tree *tree, struct flame_frame *frame)
{
	if (array_reserve(&tree->list, &tree->frame_capacity, tree->frame_count + 1))
		return -ENOMEM;
	frame->index = (uint32_t)tree->frame_count;
	tree->list[tree->frame_count++] = frame;
	return 0;
}

/* Finds or creates a frame; NULL without memory. */
static const struct flame_frame *get_frame(struct flame_tree *tree, const char *name,
					   const char *image, enum flame_kind kind)
{
	struct flame_frame wanted = {
		.name = pool_string(&tree->pool, name),
		.image = pool_string(&tree->pool, image),
		.kind = kind,
	};
	uint64_t hash = hash_mix((uintptr_t)wanted.name, (uintptr_t)wanted.image + kind);
	struct flame_frame *frame;

	if (!wanted.name || !wanted.image)
		return NULL;
	frame = hash_table_find(&tree->frames, hash, same_frame, &wanted);
	if (frame)
		return frame;
	frame = pool_alloc(&tree->pool, sizeof(*frame));
	if (!frame)
		return NULL;
	*frame = wanted;
	if (hash_table_add(&tree->frames, hash, frame) || list_frame(tree, frame))
		return NULL;
	return frame;
}

static bool same_node(const void *item, const void *key)
{
	const struct flame_node *a = item, *b = key;

	return a->parent == b->parent && a->frame == b->frame;
}

/* Finds or creates the child of PARENT with FRAME; NULL without memory, or if FRAME is NULL. */
static struct flame_node *get_child(struct flame_tree *tree, struct flame_node *parent,
				    const struct flame_frame *frame)
{
	struct flame_node wanted = { .parent = parent, .frame = frame }, *node;
	uint64_t hash = hash_mix((uintptr_t)parent, (uintptr_t)frame);

	if (!frame)
		return NULL;
	node = hash_table_find(&tree->nodes, hash, same_node, &wanted);
	if (node)
		return node;
	node = pool_alloc(&tree->pool, sizeof(*node));
	if (!node || hash_table_add(&tree->nodes, hash, node))
		return NULL;
	*node = wanted;
	if (parent) {
		node->sibling = parent->child;
		parent->child = node;
	}
	return node;
}

static enum flame_kind kind_of(const struct profile_frame *frame)
{
	if (profile_frame_is_module(frame))
		return FLAME_MODULE;
	if (frame->kernel)
		return FLAME_KERNEL;
	if (!strcmp(frame->image, PROFILE_HOST_IMAGE))
		return FLAME_HOST;
	return strcmp(frame->image, "[unknown]") ? FLAME_USER : FLAME_UNKNOWN;
}

/* BEFORE: the stack is the baseline's. */
static void count(struct flame_node *node, const struct profile_stack *stack, bool before)
{
	if (before) {
		node->before += stack->weight;
		return;
	}
	node->weight += stack->weight;
	node->samples += stack->samples;
}

static void count_self(struct flame_node *node, const struct profile_stack *stack, bool before)
{
	if (before)
		node->self_before += stack->weight;
	else
		node->self += stack->weight;
}

static const char *frame_name(const struct profile_frame *frame, char *text, size_t size)
{
	if (strcmp(frame->image, "[unknown]") != 0)
		return folded_frame_name(frame, text, size);
	return frame->kernel ? "[unknown, kernel mode]" : "[unknown, user mode]";
}

static struct flame_node *add_frame(struct flame_tree *tree, struct flame_node *node,
				    const struct profile_frame *frame)
{
	char name[256];

	return get_child(tree, node,
			 get_frame(tree, frame_name(frame, name, sizeof(name)), frame->image,
				   kind_of(frame)));
}

/* Consecutive unsymbolized callers become one frame, because their number has no meaning. */
static bool repeats_caller(const struct profile_frame *frame, const struct profile_frame *caller)
{
	return !frame->symbol && !caller->symbol && frame->image == caller->image &&
	       frame->kernel == caller->kernel;
}

/* The parent node of STACK's process, with STACK counted; NULL without memory. */
static struct flame_node *get_group(struct flame_tree *tree, const struct profile_stack *stack,
				    enum folded_group by, bool before)
{
	const char *group = folded_group(stack, by);
	struct flame_node *node = tree->root;

	count(node, stack, before);
	if (!group)
		return node;
	node = get_child(tree, node, get_frame(tree, group, "", FLAME_PROCESS));
	if (node)
		count(node, stack, before);
	return node;
}

/* Returns the node of the innermost frame; NULL without memory. */
static const struct flame_node *add_stack(struct flame_tree *tree,
					  const struct profile_stack *stack, enum folded_group by,
					  bool before)
{
	char name[256];
	struct flame_node *node = get_group(tree, stack, by, before);

	if (!node)
		return NULL;
	node = get_child(
		tree, node,
		get_frame(tree, folded_comm(stack, name, sizeof(name)), "", FLAME_PROCESS));
	for (size_t i = stack->depth; node && i; i--) {
		if (i < stack->depth && repeats_caller(stack->frames[i - 1], stack->frames[i]))
			continue;
		count(node, stack, before);
		node = add_frame(tree, node, stack->frames[i - 1]);
	}
	if (!node)
		return NULL;
	count(node, stack, before);
	count_self(node, stack, before);
	return node;
}

static int add_baseline(struct flame_tree *tree, const struct profile *baseline,
			enum folded_group by)
{
	for (size_t i = 0; i < profile_stack_count(baseline); i++)
		if (!add_stack(tree, profile_stack(baseline, i), by, true))
			return -ENOMEM;
	return 0;
}

int flame_tree_build(struct flame_tree *tree, const struct profile *baseline,
		     const struct profile *profile, size_t event, enum folded_group by)
{
	size_t stacks = profile_stack_count(profile);

	*tree = (struct flame_tree){ 0 };
	tree->root = get_child(tree, NULL, get_frame(tree, "all", "", FLAME_PROCESS));
	tree->leaves = calloc(stacks ? stacks : 1, sizeof(*tree->leaves));
	if (!tree->root || !tree->leaves)
		return -ENOMEM;
	for (size_t i = 0; i < stacks; i++) {
		if (profile_stack(profile, i)->event != event)
			continue;
		tree->leaves[i] = add_stack(tree, profile_stack(profile, i), by, false);
		if (!tree->leaves[i])
			return -ENOMEM;
	}
	return baseline ? add_baseline(tree, baseline, by) : 0;
}

void flame_tree_free(struct flame_tree *tree)
{
	hash_table_free(&tree->frames);
	hash_table_free(&tree->nodes);
	pool_free(&tree->pool);
	free(tree->list);
	free(tree->leaves);
}

/* DEPTHS counts for each frame its nodes on the path from the root to NODE. */
static void count_functions(const struct flame_node *node, struct flame_function *functions,
			    uint32_t *depths)
{
	struct flame_function *function = &functions[node->frame->index];

	function->frame = node->frame;
	function->self += node->self;
	function->self_before += node->self_before;
	if (!depths[node->frame->index]++)
		function->total += node->weight;
	for (const struct flame_node *child = node->child; child; child = child->sibling)
		count_functions(child, functions, depths);
	depths[node->frame->index]--;
}

static int largest_first(const void *left, const void *right)
{
	const struct flame_function *a = left, *b = right;

	if (a->self != b->self)
		return a->self > b->self ? -1 : 1;
	return a->frame->index < b->frame->index ? -1 : a->frame->index > b->frame->index;
}

struct flame_function *flame_tree_functions(const struct flame_tree *tree)
{
	struct flame_function *functions = calloc(tree->frame_count, sizeof(*functions));
	uint32_t *depths = calloc(tree->frame_count, sizeof(*depths));

	if (functions && depths) {
		count_functions(tree->root, functions, depths);
		qsort(functions, tree->frame_count, sizeof(*functions), largest_first);
	} else {
		free(functions);
		functions = NULL;
	}
	free(depths);
	return functions;
}
