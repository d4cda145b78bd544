/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flame graph: one self-contained HTML file, the page of vmm/report/web with the profile in it
 * (in the form of vmm/report/web/profile.js). It loads nothing from the network.
 */
#ifndef KVMSCOPE_REPORT_FLAME_GRAPH_H
#define KVMSCOPE_REPORT_FLAME_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "shared/pool.h"
#include "vmm/report/folded.h"
#include "vmm/report/profile_stacks.h"

/* Writes the events of PROFILE that have samples, with processes grouped by BY; the page shows one
 * at a time. 0, -ENOMEM or a negative errno of writing. */
int flame_graph_write(const struct profile *profile, enum folded_group by, FILE *to);
/* The same for the only event of two profiles, coloured by the difference of their shares. */
int flame_graph_diff_write(const struct profile *baseline, const struct profile *profile, FILE *to);

/* The page uses the numbers: see vmm/report/web/profile.js. */
enum flame_kind {
	FLAME_PROCESS,
	FLAME_KERNEL,
	FLAME_MODULE,
	FLAME_USER,
	FLAME_UNKNOWN,
	FLAME_HOST
};

/* Functions of one name in one image, which are drawn alike. */
struct flame_frame {
	const char *name, *image;
	enum flame_kind kind;
	uint32_t index; /* from 0, in the tree */
};

struct flame_node {
	const struct flame_frame *frame;
	const struct flame_node *parent;
	struct flame_node *child, *sibling; /* the first callee, the next callee of the parent */
	uint64_t weight, samples;           /* callees included */
	uint64_t self;                      /* weight of samples in this frame itself */
	uint64_t before, self_before;       /* the weights in the baseline */
	uint32_t number; /* in the page's tree, depth first; of the caller if omitted */
	bool omitted;    /* the page does not have it */
};

/* All stacks of a profile as one tree, from the outermost frames inwards. */
struct flame_tree {
	struct pool pool;
	struct hash_table frames, nodes;
	const struct flame_frame **list; /* by index */
	size_t frame_count, frame_capacity;
	struct flame_node *root; /* "all"; its children are groups or comms */
	const struct flame_node *
		*leaves; /* the innermost frames of the profile's stacks; NULL: of another event */
};

/* The stacks of EVENT in PROFILE. BASELINE is NULL or the profile that PROFILE is compared with. 0
 * or -ENOMEM; TREE must be freed in both cases. */
int flame_tree_build(struct flame_tree *tree, const struct profile *baseline,
		     const struct profile *profile, size_t event, enum folded_group by);
/* Frees what it holds; zeroed, it holds nothing. */
void flame_tree_free(struct flame_tree *tree);

/* The sum over all nodes of one function. */
struct flame_function {
	const struct flame_frame *frame;
	uint64_t self;
	uint64_t total; /* callees included; recursion counts once */
	uint64_t self_before;
};

/* The frame_count functions, the largest self first, which the caller frees. NULL without memory.
 */
struct flame_function *flame_tree_functions(const struct flame_tree *tree);

/*
 * Writes when the samples in TREE were taken as the page's "times", or nothing if PROFILE does not
 * keep its samples. The times and vCPUs are those of all events. The nodes of TREE have their
 * numbers. 0 or -ENOMEM.
 */
int flame_graph_put_times(const struct profile *profile, const struct flame_tree *tree, FILE *to);

#endif
