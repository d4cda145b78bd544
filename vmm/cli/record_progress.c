/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/record_progress.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"

int record_signals(const int *signals)
{
	sigset_t mask;
	int fd;

	sigemptyset(&mask);
	for (; *signals; signals++)
		sigaddset(&mask, *signals);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? error_set(-errno, "cannot create a signalfd: %s", strerror(errno)) : fd;
}

int record_next_signal(int fd)
{
	struct signalfd_siginfo signal;

	return read(fd, &signal, sizeof(signal)) == sizeof(signal) ? (int)signal.ssi_signo : 0;
}

int record_time_left(uint64_t started, unsigned int seconds)
{
	uint64_t passed = clock_ms(CLOCK_MONOTONIC) - started, limit = seconds * 1000ull;

	if (!seconds || limit > passed + 1000)
		return 1000;
	return limit > passed ? (int)(limit - passed) : 0;
}

void record_progress(uint64_t started, const struct collector_statistics *statistics)
{
	unsigned long long seconds = (clock_ms(CLOCK_MONOTONIC) - started) / 1000;
	char outside[64] = "";

	if (statistics->host)
		snprintf(outside, sizeof(outside), ", %llu of them outside of the guest",
			 (unsigned long long)statistics->host);
	log_progress("%llu:%02llu: %llu samples%s, %llu/s, %llu lost%s%s", seconds / 60,
		     seconds % 60, (unsigned long long)statistics->samples, outside,
		     statistics->samples / (seconds ? seconds : 1),
		     (unsigned long long)statistics->lost, *statistics->release ? ", Linux " : "",
		     statistics->release);
}

void record_summarize_cost(const struct collector_statistics *statistics, const char *besides)
{
	if (statistics->samples && statistics->cost && statistics->weight)
		log_info(
			"a sample cost %.1f us on average, %.2f %% of the sampled time, besides %s",
			(double)statistics->cost / (double)statistics->samples / 1e3,
			100.0 * (double)statistics->cost / (double)statistics->weight, besides);
}

void record_summarize_kernel(const struct collector_statistics *statistics)
{
	if (statistics->kernel && !statistics->kernel_found)
		log_info(
			"the guest's kernel was not found in its memory: its functions have no symbols; "
			"give --kallsyms or --vmlinux");
}
