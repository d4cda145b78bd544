// SPDX-License-Identifier: Apache-2.0
#include "tests/kvm/libvirt_host.h"

#include <signal.h>
#include <stdio.h>

void libvirt_host_prepare(struct libvirt_host *host, const char *conf)
{
	*host = (struct libvirt_host){ 0 };
	libvirt_daemon_prepare(&host->libvirt);
	daemon_run_prepare(&host->daemon, conf);
	snprintf(host->daemon.run, sizeof(host->daemon.run), "%s/kvmscope", host->libvirt.directory);
	snprintf(host->daemon.libvirt, sizeof(host->daemon.libvirt), "%s/run/qemu", host->libvirt.directory);
	snprintf(host->daemon.uri, sizeof(host->daemon.uri), "%s", host->libvirt.uri);
}

void libvirt_host_end(struct libvirt_host *host)
{
	daemon_run_end(&host->daemon);
	libvirt_daemon_stop(&host->libvirt);
}

bool libvirt_host_runs(const struct libvirt_host *host, const char *name, pid_t pid)
{
	return pid > 0 && !kill(pid, 0) && libvirt_domain_pid(&host->libvirt, name) == pid;
}
