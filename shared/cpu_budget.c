/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/cpu_budget.h"

static uint64_t used_at(const struct cpu_budget *budget, uint64_t now)
{
	uint64_t earned = now > budget->time ? (now - budget->time) / CPU_BUDGET_SHARE : 0;

	return budget->used > earned ? budget->used - earned : 0;
}

uint64_t cpu_budget_wait(const struct cpu_budget *budget, uint64_t now)
{
	uint64_t used = used_at(budget, now), burst = CPU_BUDGET_START + budget->extra;

	return used > burst ? (used - burst) * CPU_BUDGET_SHARE : 0;
}

bool cpu_budget_allows(const struct cpu_budget *budget, uint64_t now)
{
	return !cpu_budget_wait(budget, now);
}

void cpu_budget_refill(struct cpu_budget *budget)
{
	const uint64_t most = CPU_BUDGET_MAX - CPU_BUDGET_START;

	budget->extra = budget->used < most ? budget->used : most;
}

void cpu_budget_charge(struct cpu_budget *budget, uint64_t now, uint64_t work)
{
	budget->used = used_at(budget, now) + work;
	budget->time = now;
}

uint64_t cpu_budget_cost(uint64_t elapsed, uint64_t cpu_time)
{
	return elapsed / CPU_BUDGET_SHARE > cpu_time ? elapsed / CPU_BUDGET_SHARE : cpu_time;
}
