/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libvirtd of a test's own, on its own configuration, state and sockets; the
 * machine's libvirt, if it has one, does not see it and is not touched.
 *
 *	TEST(attach_domain, functions_are_named)
 *	{
 *		struct libvirt_daemon libvirt;
 *
 *		LIBVIRT_REQUIRED();
 *		libvirt_daemon_start(&libvirt);
 *		libvirt_domain_start(&libvirt, "one", "<metadata>...</metadata>");
 *		... libvirt.uri is what --connect and virsh -c want ...
 *		libvirt_daemon_stop(&libvirt);
 *	}
 *
 * It runs in a mount namespace in which /etc/libvirt, /run/libvirt and /var/{lib,log,cache}/libvirt
 *are directories below libvirt.directory: etc, run, lib, log, cache; and /run/kvmscope is kvmscope.
 *So a hook is put at libvirt.directory/etc/hooks/qemu.d/NAME (before the start: libvirt looks
 *then), and a domain's pid file is at libvirt.directory/run/qemu/NAME.pid. PIDs are the machine's.
 *Only libvirt's QEMU driver is loaded.
 *
 * The keeper, a child of the test that libvirtd and all QEMUs belong to, ends them when it is told
 *to, and when the test dies; then nothing is left but the directory (and those of libvirt above,
 *empty, if the machine had none). It needs root. Main thread.
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

/* Why it can not be had here; NULL: it can. */
const char *libvirt_unavailable_reason(void);

#define LIBVIRT_REQUIRED()                                                                         \
	do {                                                                                       \
		if (libvirt_unavailable_reason())                                                  \
			SKIP("%s", libvirt_unavailable_reason());                                  \
	} while (0)

/* Makes the directory only, for what has to be there before libvirtd starts; else
 * libvirt_daemon_start() does.
 */
void libvirt_daemon_prepare(struct libvirt_daemon *daemon);

/* Starts it and waits until it answers; false, and a failed check with its log, if it does not.
 * After libvirt_daemon_prepare() or by itself: then DAEMON is zero. */
bool libvirt_daemon_start(struct libvirt_daemon *daemon);

/* Kills libvirtd alone by SIGKILL, domains run on; and starts it again. */
void libvirt_daemon_kill(struct libvirt_daemon *daemon);
bool libvirt_daemon_restart(struct libvirt_daemon *daemon);

/* Ends domains and libvirtd, and removes the directory. Works on one that did not start. */
void libvirt_daemon_stop(struct libvirt_daemon *daemon);

/*
 * Starts a transient domain NAME of type qemu with one vCPU, 256 MiB and Debian's cloud kernel 6.1,
 * which boots, finds no root file system and then spins in panic() for good. EXTRA is XML for below
 * <domain>, may be "". Its console is libvirt.directory/log/NAME.console. False, and a failed
 * check, if libvirt refuses.
 */
bool libvirt_domain_start(struct libvirt_daemon *daemon, const char *name, const char *extra);

/* What else it may have; all may be NULL, or 0. */
struct libvirt_domain {
	const char *kvm_kernel;   /* runs by this machine's KVM, with this kernel in place of
				     Debian's: path   from here */
	const char *kernel;       /* in place of Debian's: path from here */
	unsigned int vcpus_max;   /* one, and as many more as can be plugged in */
	const char *initrd;       /* path from here */
	const char *command_line; /* of the kernel, more */
	const char *devices;      /* XML for below <devices> */
	const char *extra;        /* XML for below <domain> */
};

/* The same with all of that. */
bool libvirt_domain_start_with(struct libvirt_daemon *daemon, const char *name,
			       const struct libvirt_domain *domain);

/* virsh with the words of ARGUMENTS; its exit status, and in TEXT (may be NULL) what it wrote, as
 * far as fits.
 */
int libvirt_virsh(struct libvirt_daemon *daemon, char *text, size_t size, const char *arguments);

/* The process of a domain, by libvirt's own pid file; 0: it has none. */
pid_t libvirt_domain_pid(const struct libvirt_daemon *daemon, const char *name);

#endif
