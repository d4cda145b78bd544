/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope-agent install: the files that it installs in systems of different kinds, and removes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

#define AGENT   "build/agent/kvmscope-agent"
#define PROGRAM "/usr/local/sbin/kvmscope-agent"

static char root[32];

static int shell(const char *format)
{
	char command[512];

	snprintf(command, sizeof(command), "root=%s; %s", root, format);
	return system(command);
}

static void begin(const char *make)
{
	strcpy(root, "/tmp/kvmscope-root-XXXXXX");
	CHECK(mkdtemp(root) != NULL);
	CHECK_EQUAL(shell(make), 0);
}

static void end(void)
{
	CHECK_EQUAL(shell("rm -r $root"), 0);
}

/* Twice: the second time finds its own. */
static void install(void)
{
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(shell(AGENT " install --root $root > /dev/null"), 0);
	CHECK_EQUAL(shell("cmp -s $root" PROGRAM " " AGENT), 0);
	CHECK_EQUAL(shell("$root" PROGRAM " --version > /dev/null"), 0);
}

static void uninstall(void)
{
	CHECK_EQUAL(shell(AGENT " uninstall --root $root > /dev/null"), 0);
	CHECK_EQUAL(
		shell("! grep -rq kvmscope $root && ! find $root | grep -v '^'$root'$' | grep -q kvmscope-agent"),
		0);
}

TEST(agent_install, systemd_starts_it)
{
	begin("mkdir -p $root/etc/systemd/system");
	install();
	CHECK_EQUAL(shell("grep -q '^ExecStart=" PROGRAM
			  "$' $root/etc/systemd/system/kvmscope-agent.service"),
		    0);
	CHECK_EQUAL(
		shell("[ $(readlink $root/etc/systemd/system/multi-user.target.wants/kvmscope-agent.service) = "
		      "/etc/systemd/system/kvmscope-agent.service ]"),
		0);
	uninstall();
	end();
}

TEST(agent_install, openrc_starts_it)
{
	begin("mkdir -p $root/sbin && touch $root/sbin/openrc-run");
	install();
	CHECK_EQUAL(
		shell("[ -x $root/etc/init.d/kvmscope-agent ] && sh -n $root/etc/init.d/kvmscope-agent"),
		0);
	CHECK_EQUAL(shell("[ -L $root/etc/runlevels/default/kvmscope-agent ]"), 0);
	uninstall();
	end();
}

TEST(agent_install, busybox_starts_it)
{
	begin("mkdir $root/etc && printf '::sysinit:/etc/rc\n::shutdown:/bin/umount -a' > $root/etc/inittab");
	install();
	CHECK_EQUAL(shell("[ $(grep -cx '::respawn:" PROGRAM "' $root/etc/inittab) = 1 ]"), 0);
	CHECK_EQUAL(shell("grep -qx '::shutdown:/bin/umount -a' $root/etc/inittab"), 0);
	uninstall();
	CHECK_EQUAL(shell("[ $(wc -l < $root/etc/inittab) = 2 ]"), 0);
	end();
}

/* Commented out, or of a terminal: not ours, to install as to uninstall. */
TEST(agent_install, busybox_starts_it_beside_lines_that_end_like_its_own)
{
	begin("mkdir $root/etc && printf '#::respawn:" PROGRAM "\ntty1::respawn:" PROGRAM
	      "\n' > $root/etc/inittab && cp $root/etc/inittab $root/before");
	install();
	CHECK_EQUAL(shell("[ $(grep -cx '::respawn:" PROGRAM "' $root/etc/inittab) = 1 ]"), 0);
	CHECK_EQUAL(shell(AGENT " uninstall --root $root > /dev/null"), 0);
	CHECK_EQUAL(shell("cmp -s $root/before $root/etc/inittab"), 0);
	CHECK_EQUAL(shell(AGENT " uninstall --root $root > /dev/null"), 0);
	CHECK_EQUAL(shell("cmp -s $root/before $root/etc/inittab"), 0);
	end();
}

TEST(agent_install, another_init_is_not_changed_and_reported)
{
	begin("mkdir $root/etc && echo 'id:2:initdefault:' > $root/etc/inittab");
	CHECK(shell(AGENT " install --root $root > /dev/null 2> $root/why") != 0);
	CHECK_EQUAL(shell("grep -q 'no systemd' $root/why"), 0);
	CHECK_EQUAL(shell("[ $(cat $root/etc/inittab) = id:2:initdefault: ]"), 0);
	CHECK(shell(AGENT " install --rot $root 2> /dev/null") != 0);
	end();
}
