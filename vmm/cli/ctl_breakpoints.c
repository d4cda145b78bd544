/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/ctl_breakpoints.h"

#include <stdio.h>
#include <string.h>

#include "vmm/cli/screen.h"

static const char *watched_share(const json_t *watch, char *text, size_t size)
{
	double enabled = answer_number(watch, "enabled_ns"),
	       running = answer_number(watch, "running_ns");

	if (enabled > 0)
		snprintf(text, size, "%.1f %%", 100 * running / enabled);
	else
		snprintf(text, size, "-");
	return text;
}

static void print_watches(const json_t *result)
{
	const json_t *all = json_object_get(result, "all");
	const json_t *watch;
	char share[16];
	size_t i;

	if (!json_array_size(all))
		return;
	printf("NUMBER STATE    VCPU KIND           HITS  WATCHED  EVENT\n");
	json_array_foreach(all, i, watch)
	{
		const json_t *vcpu = json_object_get(watch, "vcpu");

		printf("%6.0f %-8s ", answer_number(watch, "number"), answer_text(watch, "state"));
		if (json_is_integer(vcpu))
			printf("%4.0f", answer_number(watch, "vcpu"));
		else
			printf(" all");
		printf(" %-8s %10.0f %8s  ",
		       json_is_true(json_object_get(watch, "pinned")) ? "pinned" : "flexible",
		       answer_number(watch, "hits"), watched_share(watch, share, sizeof(share)));
		screen_print(answer_text(watch, "name"));
		putchar('\n');
	}
	putchar('\n');
}

void ctl_print_watch(const json_t *watch)
{
	printf("watch %.0f, ", answer_number(watch, "number"));
	screen_print(answer_text(watch, "name"));
	if (!strcmp(answer_text(watch, "state"), "waiting"))
		printf(", waiting until the guest's kernel is found\n");
	else if (!strcmp(answer_text(watch, "state"), "removed"))
		printf(", removed; it had %.0f hits\n", answer_number(watch, "hits"));
	else
		putchar('\n');
}

static const char *watch_name(const json_t *result, const json_t *slot)
{
	size_t number = (size_t)answer_number(slot, "watch");
	const char *name =
		json_string_value(json_array_get(json_object_get(result, "watches"), number));

	return name ? name : "";
}

static void print_counts(const json_t *vcpu, const json_t *slot)
{
	const json_t *counts = json_array_get(json_object_get(vcpu, "watches"),
					      (size_t)answer_number(slot, "watch"));

	printf("%10.3f %10.3f %10.0f  ", answer_number(counts, "enabled_ns") / 1e9,
	       answer_number(counts, "running_ns") / 1e9, answer_number(counts, "hits"));
}

static void print_task(size_t vcpu, const json_t *task)
{
	printf("%4zu  ", vcpu);
	if (!json_is_object(task)) {
		printf("%7s  %16s  unknown\n", "-", "-");
		return;
	}
	printf("%7.0f  %16s  ", answer_number(task, "pid"), answer_text(task, "cr3"));
	screen_print(answer_text(task, "comm"));
	putchar('\n');
}

static void print_slot(const json_t *result, size_t vcpu, size_t number, const json_t *slot)
{
	const char *owner = answer_text(slot, "owner");

	printf("%4zu  DR%zu  %-6s %18s %4s %3.0f  ", vcpu, number, owner,
	       answer_text(slot, "address"), answer_text(slot, "kind"),
	       answer_number(slot, "length"));
	if (!strcmp(owner, "watch")) {
		print_counts(json_array_get(json_object_get(result, "vcpus"), vcpu), slot);
		screen_print(watch_name(result, slot));
	}
	if (json_is_true(json_object_get(slot, "guest_lost")))
		printf(" (instead of the guest's own)");
	putchar('\n');
}

void ctl_print_breakpoints(const json_t *result)
{
	json_t *vcpu, *slot;
	size_t i, k;

	print_watches(result);
	printf("VCPU      PID               CR3  COMM, at the latest sample\n");
	json_array_foreach(json_object_get(result, "vcpus"), i, vcpu)
		print_task(i, json_object_get(vcpu, "task"));
	putchar('\n');
	printf("VCPU  SLOT OWNER             ADDRESS KIND LEN  %10s %10s %10s  WATCH\n",
	       "ENABLED s", "RUNNING s", "HITS");
	json_array_foreach(json_object_get(result, "vcpus"), i, vcpu)
		json_array_foreach(json_object_get(vcpu, "slots"), k, slot)
			print_slot(result, i, k, slot);
	if (answer_number(result, "guest_lost") > 0)
		printf("\n%.0f times a breakpoint of the guest itself did not work\n",
		       answer_number(result, "guest_lost"));
}
