/* SPDX-License-Identifier: Apache-2.0 */
/* The libvirtd that other tests start: the properties that they rely on. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/kvm/libvirt_daemon.h"

static bool is_dead(pid_t pid)
{
	return kill(pid, 0) != 0;
}

TEST(libvirt_daemon, domains_survive_it_and_end_with_the_keeper)
{
	struct libvirt_daemon libvirt = { 0 };
	char text[1024], directory[64];
	pid_t domain = 0;

	LIBVIRT_REQUIRED();
	if (libvirt_daemon_start(&libvirt) && libvirt_domain_start(&libvirt, "one", "")) {
		domain = libvirt_domain_pid(&libvirt, "one");
		CHECK(domain > 0 && !is_dead(domain));
		libvirt_daemon_kill(&libvirt);
		CHECK(!is_dead(domain));
		CHECK(libvirt_virsh(&libvirt, NULL, 0, "list") != 0);
		CHECK(libvirt_daemon_restart(&libvirt));
		CHECK_EQUAL(libvirt_virsh(&libvirt, text, sizeof(text), "domstate one"), 0);
		CHECK(strstr(text, "running"));
	}
	snprintf(directory, sizeof(directory), "%s", libvirt.directory);
	libvirt_daemon_stop(&libvirt);
	CHECK(is_dead(domain));
	CHECK(access(directory, F_OK) != 0);
}
