/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of kvmscoped: its configuration, a domain's XML, messages of libvirt's hook. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "shared/error.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/backend.h"
#include "vmm/daemon/conf.h"
#include "vmm/daemon/hook_message.h"

#define DOMAIN(metadata)                                                                           \
	"<domain type='kvm'><name>web-1</name><metadata>" metadata "</metadata></domain>"
#define PROFILE(attributes) DOMAIN("<k:profile xmlns:k='" DOMAIN_XML_NAMESPACE "' " attributes "/>")

static int parse(struct conf *conf, const char *text)
{
	CHECK_EQUAL(conf_init(conf), 0);
	return conf_parse(conf, text, strlen(text), "test.conf");
}

static void check_refused(const char *text, const char *message)
{
	struct conf conf;

	CHECK_EQUAL(parse(&conf, text), -EINVAL);
	if (!strstr(error_message(), message))
		FAIL_TEST("'%s' does not say '%s'", error_message(), message);
	conf_free(&conf);
}

static int settings_of(const char *text, const char *xml, struct domain_settings *settings)
{
	struct domain_xml domain;
	struct conf conf;
	int error;

	CHECK_EQUAL(parse(&conf, text), 0);
	CHECK_EQUAL(domain_xml_read(&domain, xml, strlen(xml)), 0);
	error = conf_settings(&conf, &domain, settings);
	conf_free(&conf);
	return error;
}

TEST(daemon_conf, unknown_keys_are_errors_with_their_line)
{
	check_refused("frequency = 99\n",
		      "test.conf, line 1: 'frequency' is before the first [section]");
	check_refused("[domains]\n\nfrequenzy = 99\n", "line 3: there is no setting 'frequenzy'");
	check_refused("[domains]\nfrequency = 0\n", "line 2: frequency is '0'");
	check_refused("[domains]\nevent = instructions\n",
		      "line 2: event is 'instructions': it must be cpu-clock or cycles");
	check_refused("[domains]\nevent = cpu-clock,kvm:entry\n", "it must be cpu-clock or cycles");
	check_refused(
		"[domains]\nevent = cpu-clock,cpu-clock,cpu-clock,cpu-clock,cpu-clock,cpu-clock,"
		"cycles\n",
		"it must be cpu-clock or cycles");
	check_refused("[domains]\nfrequency = 99Hz\n", "line 2: frequency is '99Hz'");
	check_refused("[domains]\nbackend = magic\n", "line 2: backend is 'magic'");
	check_refused("[domains]\nprofile = perhaps\n", "must be on or off");
	check_refused("# one\n[cows]\n", "line 2: there is no section [cows]");
	check_refused("[domains\n", "a section is [NAME]");
	check_refused("[domains]\nprofile\n", "a line is 'key = value'");
	check_refused("[recordings]\ndirectory = here\n", "must be an absolute path");
	check_refused("[recordings]\nsize = big\n", "must be a size");
	check_refused("[recordings]\nrotate = 0s\n", "at least 1s");
	check_refused("[push]\ninterval = 0s\n", "at least 1s");
	check_refused("[push]\nformat = OTLP\n", "pyroscope or otlp");
	check_refused("[metrics]\nport = 1\n", "[metrics] has no 'port'");
	check_refused("[domain web-*]\nfrequency-max = 5\n", "there is no setting 'frequency-max'");
}

TEST(daemon_conf, values_are_read)
{
	struct conf conf;

	CHECK_EQUAL(
		parse(&conf,
		      " [ recordings ] \r\ndirectory=/srv/p\n; no\nsize = 2G\nage = 24h\nrotate = 10min\n"
		      "reserve = 0\n[metrics]\nlisten = off\n[push]\nurl = http://localhost:4040\nformat = otlp\ninterval = 1min\n"
		      "ca-file = /etc/ca.pem\n"
		      "[domains]\nask-domains = no\nfrequency-max = 5000\nflight-memory-max = 8M"),
		0);
	CHECK_STRING(conf.recordings, "/srv/p");
	CHECK_EQUAL(conf.recordings_size, 2ll << 30);
	CHECK_EQUAL(conf.recordings_age, 24 * 3600);
	CHECK_EQUAL(conf.recordings_rotate, 600);
	CHECK_EQUAL(conf.recordings_reserve, 0);
	CHECK(!conf.metrics);
	CHECK_STRING(conf.push, "http://localhost:4040");
	CHECK_EQUAL(conf.push_format, PUSH_OTLP);
	CHECK_EQUAL(conf.push_interval, 60);
	CHECK_STRING(conf.push_ca, "/etc/ca.pem");
	CHECK(!conf.ask_domains);
	CHECK_EQUAL(conf.flight_memory_max, 8 << 20);
	CHECK_EQUAL(conf.frequency_max, 5000);
	conf_free(&conf);
}

TEST(daemon_conf, nothing_is_profiled_by_default)
{
	struct domain_settings settings;

	CHECK_EQUAL(settings_of("", DOMAIN(""), &settings), 0);
	CHECK(!settings.profile);
	CHECK_EQUAL(settings_of("", PROFILE(""), &settings), 0);
	CHECK(settings.profile);
	CHECK_EQUAL(settings.frequency, 99);
	CHECK_STRING(settings.backend, "auto");
	CHECK(!settings.cycles);
	CHECK_EQUAL(settings_of("", PROFILE("event=\"cycles\""), &settings), 0);
	CHECK(settings.cycles);
	CHECK_EQUAL(settings_of("[domains]\nask-domains = off\n", PROFILE(""), &settings), 0);
	CHECK(!settings.profile);
	/* In another namespace, or in none. */
	CHECK_EQUAL(settings_of("", DOMAIN("<profile/>"), &settings), 0);
	CHECK(!settings.profile);
	CHECK_EQUAL(settings_of("", DOMAIN("<k:profile xmlns:k='urn:other'/>"), &settings), 0);
	CHECK(!settings.profile);
}

TEST(daemon_conf, events_of_time_outside_are_those_of_attach)
{
	static const char conf[] = "[domains]\nevent = cpu-clock,kvm:exit\n[domain web-*]\n"
				   "event = cpu-clock,kvm:exit,kvm:off-cpu\n";
	struct domain_settings settings, other;

	CHECK_EQUAL(settings_of(conf, PROFILE(""), &settings), 0);
	CHECK_EQUAL(settings.outside, ATTACH_EXITS | ATTACH_OFF_CPU);
	CHECK(!settings.cycles);
	CHECK_EQUAL(settings_of(conf, PROFILE("event='cycles,kvm:off-cpu'"), &settings), 0);
	CHECK_EQUAL(settings.outside, ATTACH_OFF_CPU);
	CHECK(settings.cycles);
	CHECK_EQUAL(settings_of(conf, PROFILE("event='cycles'"), &other), 0);
	CHECK_EQUAL(other.outside, 0);
	CHECK(!settings_are_same(&settings, &other));
	CHECK_EQUAL(settings_of(conf, PROFILE("event='kvm:exit,'"), &settings), -EINVAL);
}

TEST(daemon_conf, later_settings_win_and_the_domain_s_own_last)
{
	static const char conf[] =
		"[domains]\nfrequency = 10\n[domain web-*]\nprofile = on\nfrequency = 20\n"
		"[domain db-*]\nfrequency = 30\n[domain *-1]\nflight = 30s\n";
	struct domain_settings settings;

	CHECK_EQUAL(settings_of(conf, DOMAIN(""), &settings), 0);
	CHECK(settings.profile);
	CHECK_EQUAL(settings.frequency, 20);
	CHECK_EQUAL(settings.flight, 30000000000ll);
	CHECK_EQUAL(settings.flight_memory, 64 << 20);
	CHECK_EQUAL(settings_of(conf, PROFILE("frequency='500' flight='off' backend='perf'"),
				&settings),
		    0);
	CHECK_EQUAL(settings.frequency, 500);
	CHECK_EQUAL(settings.flight, 0);
	CHECK_STRING(settings.backend, "perf");
	CHECK_EQUAL(settings_of(conf, PROFILE("profile='off'"), &settings), 0);
	CHECK(!settings.profile);
}

TEST(daemon_conf, a_domain_gets_what_the_host_allows_and_its_errors_change_nothing)
{
	struct domain_settings settings;

	CHECK_EQUAL(settings_of("", PROFILE("frequency='1001'"), &settings), -EPERM);
	CHECK(!settings.profile);
	CHECK_EQUAL(settings_of("[domains]\nfrequency-max = 2000", PROFILE("frequency='1001'"),
				&settings),
		    0);
	CHECK_EQUAL(settings.frequency, 1001);
	/* The host itself may set more. */
	CHECK_EQUAL(settings_of("[domains]\nfrequency = 4000", PROFILE(""), &settings), 0);
	CHECK_EQUAL(settings.frequency, 4000);
	CHECK_EQUAL(settings_of("", PROFILE("frequency='fast&#10;[0m'"), &settings), -EINVAL);
	CHECK(strstr(error_message(), "fast?"));
	CHECK(!strchr(error_message(), '\n'));
	CHECK_EQUAL(settings_of("", PROFILE("colour='red'"), &settings), -ENOENT);
}

TEST(daemon_conf, an_invalid_profile_leaves_the_host_s_settings)
{
	static const char *const wrong[] = {
		PROFILE("a='' b='' c='' d='' e='' f='' g='' h='' i=''"),
		PROFILE("frequency='0000000000000000000000000000000000000000000000000000000000000001'"),
	};
	static const char conf[] = "[domain web-*]\nprofile = on\nfrequency = 20\n";
	struct domain_settings settings;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK_EQUAL(settings_of(conf, wrong[i], &settings), -EINVAL);
		CHECK(strstr(error_message(), "attribute"));
		CHECK(settings.profile);
		CHECK_EQUAL(settings.frequency, 20);
		CHECK_EQUAL(settings_of("[domains]\nask-domains = off\n", wrong[i], &settings), 0);
		CHECK(!settings.profile);
	}
}

static enum domain_migration migration_of(const char *job)
{
	struct domain_xml domain;
	char status[256];

	snprintf(
		status, sizeof(status),
		"<domstatus state='running' pid='4711'>%s<domain><name>a</name></domain></domstatus>",
		job);
	CHECK_EQUAL(domain_xml_read(&domain, status, strlen(status)), 0);
	return domain.migration;
}

TEST(daemon_conf, a_status_of_libvirt_has_the_migration)
{
	CHECK_EQUAL(migration_of(""), DOMAIN_STAYS);
	CHECK_EQUAL(migration_of("<job type='none' async='migration out' phase='perform3'/>"),
		    DOMAIN_LEAVES);
	CHECK_EQUAL(migration_of("<job type='none' async='migration in' phase='prepare'/>"),
		    DOMAIN_ARRIVES);
	CHECK_EQUAL(migration_of("<job type='none' async='save'/>"), DOMAIN_STAYS);
	CHECK_EQUAL(migration_of("<job type='modify'/>"), DOMAIN_STAYS);
}

TEST(daemon_conf, a_status_of_libvirt_has_the_process_and_the_agent_s_channel)
{
	static const char status[] =
		"<domstatus state='running' reason='booted' pid='4711'><monitor/><domain type='kvm' id='1'><name>a b</name>"
		"<devices><channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
		"<channel type='unix'><target type='virtio' name='org.kvmscope.agent.0'/></channel></devices>"
		"</domain></domstatus>";
	struct domain_xml domain;

	CHECK_EQUAL(domain_xml_read(&domain, status, strlen(status)), 0);
	CHECK_STRING(domain.name, "a b");
	CHECK_EQUAL(domain.pid, 4711);
	CHECK(!domain.ended);
	CHECK(domain.agent);
	CHECK(!domain.profile);
}

TEST(daemon_conf, broken_xml_is_refused)
{
	static const char *const broken[] = {
		"",
		"no xml",
		"<domain><name>a</name>",
		"<network><name>a</name></network>",
		"<domain/>",
		"<domain><name></name></domain>",
		"<domstatus state='running' pid='x'><domain><name>a</name></domain></domstatus>",
		"<domstatus state='running' pid='99999999999'><domain><name>a</name></domain></domstatus>",
		"<domstatus state='running' pid='1'/>",
		"<!DOCTYPE d [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><domain><name>&e;</name></domain>",
		"<!DOCTYPE d SYSTEM 'http://localhost/d'><domain><name>a</name></domain>",
	};
	char *large = calloc(1, DOMAIN_XML_MAX + 1);
	struct domain_xml domain;

	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		if (domain_xml_read(&domain, broken[i], strlen(broken[i])) != -EINVAL)
			FAIL_TEST("taken: %s", broken[i]);
	CHECK_EQUAL(domain_xml_read(&domain, large, DOMAIN_XML_MAX + 1), -E2BIG);
	free(large);
}

TEST(daemon_conf, a_message_of_the_hook_is_parsed)
{
	static const char whole[] = HOOK_MAGIC "\0web\0started\0<domain/>";
	struct hook_message message;

	CHECK_EQUAL(hook_message_parse(&message, whole, sizeof(whole) - 1), 0);
	CHECK_STRING(message.domain, "web");
	CHECK_STRING(message.operation, "started");
	CHECK_EQUAL(message.xml_size, strlen("<domain/>"));
	/* Invalid if it is cut before the XML. */
	for (size_t size = 0; size < sizeof(HOOK_MAGIC "\0web\0started") - 1; size++)
		CHECK_EQUAL(hook_message_parse(&message, whole, size), -EINVAL);
	CHECK_EQUAL(hook_message_parse(&message, "kvmscope hook 9\0a\0b", 20), -EINVAL);
	CHECK_EQUAL(hook_message_parse(&message, HOOK_MAGIC "\0\0started", sizeof(HOOK_MAGIC) + 9),
		    -EINVAL);
}
