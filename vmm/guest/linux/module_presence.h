/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that modules are still loaded where they were found. The list of modules is read only now
 * and then, but each module has its build id in its own memory: if it is there, the module was
 * there at that moment, and a vCPU that is stopped in the module's code keeps it there. BPF
 * programs have no build id; the kernel's list of them is checked instead (bpf_programs.h).
 *
 *	check			vCPU threads, concurrently
 *	for_each_seen		any thread
 *	create, reclaim		one thread; vCPU threads may check
 *	free			no other user
 */
#ifndef KVMSCOPE_GUEST_LINUX_MODULE_PRESENCE_H
#define KVMSCOPE_GUEST_LINUX_MODULE_PRESENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_callchain.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"
#include "vmm/guest/linux/module_list.h"

struct module_presence;

/* Code that the unwinder has tables for. */
struct module_presence_tables {
	uint64_t image_start, image_end; /* GVAs of the kernel's own image */
	const struct guest_module *modules;
	size_t module_count;
};

#define MODULE_PRESENCE_OLDER_MAX 64 /* bounds the memory that a guest can use */

/*
 * Creates a check for the COUNT MODULES. Copies MODULES and TABLES. OLDER is the previous check,
 * NULL at first; on success the new one owns it. -ENOMEM, or -E2BIG if there are
 * MODULE_PRESENCE_OLDER_MAX older ones.
 */
int module_presence_create(struct module_presence **presence,
			   const struct module_presence_tables *tables,
			   const struct guest_module *modules, size_t count,
			   struct module_presence *older);
/* NULL is a no-op. */
void module_presence_free(struct module_presence *presence);
/* True if PRESENCE checks these modules. */
bool module_presence_matches(struct module_presence *presence, const struct guest_module *modules,
			     size_t count);

/*
 * Checks the kernel part of CHAIN and records TIME for each module that is found present.
 *
 * An address outside of the kernel image and all of the modules is marked as uncertain
 * (SAMPLE_ADDRESS_CERTAIN is cleared, and SAMPLE_UNCERTAIN set for the first address): it may be in
 * a module that is not known yet, in generated code, or in a module that replaced an unloaded one.
 * The chain ends with that address if the unwinder had no table for it, or the table of an unloaded
 * module. After the chain's deadline only the first address is checked, and the chain ends before
 * the next address in another module. A module without a build id is assumed to be present, but its
 * time is not recorded.
 *
 * PAGING maps the kernel. No lock, allocation or system call.
 */
void module_presence_check(struct module_presence *presence, const struct guest_view *view,
			   const struct guest_paging *paging, uint64_t time,
			   struct guest_callchain *chain);

/*
 * Frees the checks older than PRESENCE (may be NULL), which must have no users, after calling EACH
 * for them as module_presence_for_each_seen() does.
 */
void module_presence_reclaim(struct module_presence *presence,
			     void (*each)(void *context, const struct guest_module *module,
					  uint64_t time),
			     void *context);

/* Calls EACH with the latest recorded time of each module, for PRESENCE and all older ones. */
void module_presence_for_each_seen(struct module_presence *presence,
				   void (*each)(void *context, const struct guest_module *module,
						uint64_t time),
				   void *context);

#endif
