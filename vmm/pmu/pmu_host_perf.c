/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's perf, for pmu_host.c. */
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/kvm/vcpu.h"
#include "vmm/pmu/pmu_host.h"

static int perf_open(void *context, const struct perf_event_attr *attributes)
{
	const int event =
		(int)syscall(SYS_perf_event_open, attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return event < 0 ? -errno : event;
}

static int perf_direct_signal(void *context, int event)
{
	const struct f_owner_ex owner = { .type = F_OWNER_TID, .pid = gettid() };

	if (fcntl(event, F_SETOWN_EX, &owner) || fcntl(event, F_SETSIG, VCPU_KICK_SIGNAL) ||
	    fcntl(event, F_SETFL, O_ASYNC | O_NONBLOCK))
		return -errno;
	return 0;
}

static int perf_control(void *context, int event, unsigned long request, uint64_t *argument)
{
	return ioctl(event, request, argument) ? -errno : 0;
}

static int perf_read(void *context, int event, struct pmu_host_reading *reading)
{
	const ssize_t size = read(event, reading, sizeof(*reading));

	if (size < 0)
		return -errno;
	return size == sizeof(*reading) ? 0 : -EIO;
}

static void perf_close(void *context, int event)
{
	close(event);
}

static uint32_t perf_architectural(void *context)
{
	unsigned int eax = 0, ebx = 0, ecx, edx;

	if (!__get_cpuid(0xa, &eax, &ebx, &ecx, &edx))
		return 0;
	return ~ebx & (uint32_t)((UINT64_C(1) << (eax >> 24 & 0x1f)) - 1);
}

const struct pmu_host_perf pmu_host_perf = {
	.open = perf_open,
	.direct_signal = perf_direct_signal,
	.control = perf_control,
	.read = perf_read,
	.close = perf_close,
	.architectural = perf_architectural,
};
