/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are modules still where they were seen? Their list is read now and then
 * only, but a module has its build id in its own memory: whoever finds it
 * there knows that the module was there at that moment, and a vCPU that is
 * stopped in a module's code keeps it there. Of the code of BPF programs, which has no build id,
 *the kernel's list of them says so (bpf_programs.h).
 *
 *	check	vCPU threads, any number at once
 *	each_seen	any thread
 *	create, reclaim	one thread; vCPU threads may check
 *	free	nobody else uses it
 */
#ifndef KVMSCOPE_GUEST_LINUX_MODULE_PRESENCE_H
#define KVMSCOPE_GUEST_LINUX_MODULE_PRESENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_callchain.h"
#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

struct guest_kernel;
struct guest_module;
struct module_presence;

/*
 * Of the COUNT MODULES, which are copied. KERNEL has the unwind tables that are used: of its
 * own modules. OLDER is what was there before, NULL at first; it is owned from here on, unless this
 * fails. -ENOMEM; -E2BIG: there are MODULE_PRESENCE_OLDER_MAX older ones, a guest is not to fill
 * our memory.
 */
#define MODULE_PRESENCE_OLDER_MAX 64
int module_presence_create(struct module_presence **presence, const struct guest_kernel *kernel,
			   const struct guest_module *modules, size_t count,
			   struct module_presence *older);
/* NULL is a no-op. */
void module_presence_free(struct module_presence *presence);

/* Is it of these modules? */
bool module_presence_matches(struct module_presence *presence, const struct guest_module *modules,
			     size_t count);

/*
 * Notes that the modules in CHAIN's kernel part are there at TIME. An address behind the kernel's
 * image that is in none of them is marked as one of which nobody can be sure
 * (SAMPLE_ADDRESS_CERTAIN; for the first also SAMPLE_UNCERTAIN): a module that is not known yet,
 * generated code, or another's in the place of one that went. Where the unwinder had no table of
 * the module, or that of one that went, the chain ends with that address. Behind the chain's
 * deadline it is the first address alone that is looked at: the chain ends before the next one in
 * another module. A module without a build id is taken to be there, which is not noted: nothing
 * proves it. PAGING maps the kernel. No lock, allocation or system call.
 */
void module_presence_check(struct module_presence *presence, const struct guest_view *view,
			   const struct guest_paging *paging, uint64_t time,
			   struct guest_callchain *chain);

/*
 * Nobody uses those before PRESENCE any more, which may be NULL: they are freed, after EACH as
 * module_presence_for_each_seen() has it.
 */
void module_presence_reclaim(struct module_presence *presence,
			     void (*each)(void *context, const struct guest_module *module,
					  uint64_t time),
			     void *context);

/* Those that were found, by this one and the older ones, with the latest time of each. */
void module_presence_for_each_seen(struct module_presence *presence,
				   void (*each)(void *context, const struct guest_module *module,
						uint64_t time),
				   void *context);

#endif
