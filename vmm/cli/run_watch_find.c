// SPDX-License-Identifier: Apache-2.0
#include "vmm/cli/run_watch_find.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"

/* What a watch is compared with. */
struct wanted {
	const char *name;       /* of its event; NULL: */
	struct watch_spec spec; /* that it was added by */
	bool exactly;           /* its options too, not the place alone */
};

static bool same_place(const struct watch_spec *a, const struct watch_spec *b)
{
	return !strcmp(a->symbol, b->symbol) && a->offset == b->offset && a->kind == b->kind &&
	       a->length == b->length;
}

static bool same_options(const struct watch_spec *a, const struct watch_spec *b)
{
	return a->vcpu == b->vcpu && a->pinned == b->pinned && a->cr3 == b->cr3 &&
	       a->pid == b->pid && !strcmp(a->comm, b->comm) && a->period == b->period &&
	       a->limit == b->limit;
}

static bool is_meant(const struct run_watch_description *watch, const struct wanted *wanted)
{
	if (watch->state == RUN_WATCH_REMOVED)
		return false;
	if (wanted->name)
		return !strcmp(watch->name, wanted->name);
	return same_place(&watch->spec, &wanted->spec) &&
	       (!wanted->exactly || same_options(&watch->spec, &wanted->spec));
}

/* How many are meant; *NUMBER is the last one of them. */
static int count_meant(struct run_watch *watch, const struct wanted *wanted, int *number)
{
	struct run_watch_description description;
	int count = 0;

	for (unsigned int i = 0; run_watch_describe(watch, i, &description); i++) {
		if (!is_meant(&description, wanted))
			continue;
		*number = (int)i;
		count++;
	}
	return count;
}

static int count_by_spec(struct run_watch *watch, const char *text, int *number)
{
	struct wanted wanted = { .name = NULL };
	int count, exact;

	if (watch_spec_parse(&wanted.spec, text))
		return -EINVAL;
	count = count_meant(watch, &wanted, number);
	wanted.exactly = true;
	exact = count > 1 ? count_meant(watch, &wanted, number) : 0;
	return exact ? exact : count;
}

int run_watch_find(struct run_watch *watch, const char *text)
{
	unsigned long decimal;
	int number = 0, count;
	char *end;

	decimal = strtoul(text, &end, 10);
	if (isdigit((unsigned char)*text) && !*end)
		return decimal < WATCHES_MAX ? (int)decimal : WATCHES_MAX;
	count = count_meant(watch, &(struct wanted){ .name = text }, &number);
	if (!count)
		count = count_by_spec(watch, text, &number);
	if (count < 0 || count == 1)
		return count < 0 ? count : number;
	if (count)
		return error_set(-EINVAL, "%d watches are %s: give the number that bp list shows",
				 count, text);
	return error_set(-ENOENT, "there is no watch %s; bp list shows those that there are", text);
}
