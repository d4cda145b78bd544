/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a separate libvirtd for a test, with its own configuration, state and sockets. It does not
 * touch the machine's libvirt, if there is one.
 *
 *	TEST(attach_domain, functions_are_named)
 *	{
 *		struct libvirt_daemon libvirt;
 *
 *		LIBVIRT_REQUIRED();
 *		libvirt_daemon_start(&libvirt);
 *		libvirt_domain_start(&libvirt, "one", "<metadata>...</metadata>");
 *		... libvirt.uri is the argument of --connect and virsh -c ...
 *		libvirt_daemon_stop(&libvirt);
 *	}
 *
 * It runs in a mount namespace in which /etc/libvirt, /run/libvirt and /var/{lib,log,cache}/libvirt
 * are the directories etc, run, lib, log and cache below libvirt.directory, and /run/kvmscope is
 * its directory kvmscope. A hook is installed as libvirt.directory/etc/hooks/qemu.d/NAME (before
 * the start, at which libvirt searches for hooks). A domain's pid file is
 * libvirt.directory/run/qemu/NAME.pid. PIDs are those of the machine. Only libvirt's QEMU driver is
 * loaded.
 *
 * The keeper, a child of the test and the parent of libvirtd and all QEMUs, ends them on request
 * and when the test dies. Then only the directory is left (and libvirt's directories above, empty,
 * if the machine had none). Requires root. Main thread.
 */
#ifndef KVMSCOPE_TESTS_KVM_LIBVIRT_DAEMON_H
#define KVMSCOPE_TESTS_KVM_LIBVIRT_DAEMON_H

#include <sys/types.h>

#include "tests/unit/shim/test.h"

struct libvirt_daemon {
	char directory[64]; /* absolute; removed by libvirt_daemon_stop() */
	char uri[128];
	pid_t keeper;
};

/* Returns the reason why libvirt is not available here, or NULL. */
const char *libvirt_unavailable_reason(void);

#define LIBVIRT_REQUIRED()                                                                         \
	do {                                                                                       \
		if (libvirt_unavailable_reason())                                                  \
			SKIP("%s", libvirt_unavailable_reason());                                  \
	} while (0)

/*
 * Creates the directory only, for files that must exist before libvirtd starts. Otherwise
 * libvirt_daemon_start() creates it.
 */
void libvirt_daemon_prepare(struct libvirt_daemon *daemon);

/*
 * Starts libvirtd and waits until it answers. If it does not, the check fails with its log, and
 * false is returned. DAEMON is zeroed or was passed to libvirt_daemon_prepare().
 */
bool libvirt_daemon_start(struct libvirt_daemon *daemon);

/* Kills libvirtd by SIGKILL while domains keep running, and starts it again. */
void libvirt_daemon_kill(struct libvirt_daemon *daemon);
bool libvirt_daemon_restart(struct libvirt_daemon *daemon);

/* Ends domains and libvirtd, and removes the directory. Also works on one that did not start. */
void libvirt_daemon_stop(struct libvirt_daemon *daemon);

/*
 * Starts a transient domain NAME of type qemu with one vCPU, 256 MiB and Debian's cloud kernel 6.1,
 * which boots, finds no root file system and then spins in panic() forever. EXTRA is XML to put
 * below <domain> and may be "". Its console is libvirt.directory/log/NAME.console. If libvirt
 * refuses, the check fails, and false is returned.
 */
bool libvirt_domain_start(struct libvirt_daemon *daemon, const char *name, const char *extra);

/* Optional properties; each may be NULL or 0. */
struct libvirt_domain {
	const char *kvm_kernel;   /* run by this machine's KVM with this kernel instead of
				   * Debian's: relative path */
	const char *kernel;       /* instead of Debian's: relative path */
	unsigned int vcpus_max;   /* one vCPU, and as many as this with those that can be plugged
				   * in */
	const char *initrd;       /* relative path */
	const char *command_line; /* appended to the kernel's */
	const char *devices;      /* XML to put below <devices> */
	const char *extra;        /* XML to put below <domain> */
};

/* libvirt_domain_start() with these properties. */
bool libvirt_domain_start_with(struct libvirt_daemon *daemon, const char *name,
			       const struct libvirt_domain *domain);

/*
 * Runs virsh with the words of ARGUMENTS. Returns its exit status; TEXT (may be NULL) gets its
 * output, truncated to SIZE.
 */
int libvirt_virsh(struct libvirt_daemon *daemon, char *text, size_t size, const char *arguments);

/* The process of a domain from libvirt's own pid file, or 0. */
pid_t libvirt_domain_pid(const struct libvirt_daemon *daemon, const char *name);

#endif
