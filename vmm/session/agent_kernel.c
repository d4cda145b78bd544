// SPDX-License-Identifier: Apache-2.0
#include "vmm/session/agent_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "shared/log.h"

struct reported_kernel *agent_kernel_take(struct agent *agent, uint64_t modules_hash)
{
	struct agent_image_table *table = agent_take_kernel(agent);
	struct reported_kernel *told = NULL;

	if (!table) {
		agent_want_kernel(agent, modules_hash);
		return NULL;
	}
	if (reported_kernel_create(&told, span_of(table->bytes, table->size), table->account))
		log_debug("%s", error_message());
	agent_image_table_free(table);
	return told;
}

int agent_kernel_take_tasks(struct agent *agent, bool ask, struct reported_tasks *told)
{
	int error = agent_take_tasks(agent, told);

	if (error != -EAGAIN)
		return error;
	return ask && agent_want_tasks(agent) ? -EOPNOTSUPP : -EAGAIN;
}

void agent_kernel_warn(const struct agent_statistics *statistics)
{
	/* Once it was told, the latest question may fail for what passes: a module that is loaded
	 * meanwhile.
	 */
	int error = statistics->tables.kernels ? 0 : statistics->tables.kernel_error;

	if (error == -EPERM)
		log_warning("the guest's agent may not see the kernel's symbols: "
			    "sysctl kernel.kptr_restrict=1 in the guest lets it");
	else if (error)
		log_warning("the guest's agent can not tell the kernel's symbols: %s",
			    strerror(-error));
	if (statistics->tasks_error)
		log_warning(
			"the guest's agent can not begin tasks by which others would be found: %s",
			strerror(-statistics->tasks_error));
}
