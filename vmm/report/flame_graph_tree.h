/* SPDX-License-Identifier: Apache-2.0 */
/* All stacks of a profile as one tree, from the outermost frames inwards. */
#ifndef KVMSCOPE_REPORT_FLAME_GRAPH_TREE_H
#define KVMSCOPE_REPORT_FLAME_GRAPH_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "shared/pool.h"
#include "vmm/report/folded.h"
#include "vmm/report/profile_stacks.h"

/* The numbers stand in the page, see vmm/report/web/profile.js. */
enum flame_kind {
	FLAME_PROCESS,
	FLAME_KERNEL,
	FLAME_MODULE,
	FLAME_USER,
	FLAME_UNKNOWN,
	FLAME_HOST
};

/* What is drawn as one: functions of one name in one image. */
struct flame_frame {
	const char *name, *image;
	enum flame_kind kind;
	uint32_t index; /* from 0, in the tree */
};

struct flame_node {
	const struct flame_frame *frame;
	const struct flame_node *parent;
	struct flame_node *child, *sibling; /* the first one inside, the next one beside it */
	uint64_t weight, samples;           /* with all inside */
	uint64_t self; /* the weight of samples that were taken in this very frame */
};

struct flame_tree {
	struct pool pool;
	struct hash_table frames, nodes;
	const struct flame_frame **list; /* by index */
	size_t frame_count, frame_capacity;
	struct flame_node *root; /* "all"; inside it one for each comm */
};

/* 0 or -ENOMEM; to be freed in both cases. */
int flame_tree_build(struct flame_tree *tree, const struct profile *profile, enum folded_group by);
/* Frees what it holds; zeroed, it holds nothing. */
void flame_tree_free(struct flame_tree *tree);

/* What one function has in all places of the tree. */
struct flame_function {
	const struct flame_frame *frame;
	uint64_t self;  /* weight taken in it */
	uint64_t total; /* taken in it or in what it called; once where it recurses */
};

/* All of them, frame_count in number, the largest self first; to be freed. NULL without memory. */
struct flame_function *flame_tree_functions(const struct flame_tree *tree);

#endif
