/* SPDX-License-Identifier: Apache-2.0 */
/* The defaults are the same in the program, in its --help and in the documentation: each number is
 * what the program sets for an empty command line or configuration. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/agent_protocol.h"
#include "shared/error.h"
#include "shared/sample_record.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/agent/agent_state.h"
#include "vmm/agent/agent_timeline.h"
#include "vmm/cli/attach_options.h"
#include "vmm/cli/run_options.h"
#include "vmm/control/run_directory.h"
#include "vmm/daemon/conf.h"
#include "vmm/daemon/hook_message.h"
#include "vmm/debug/watches.h"
#include "vmm/guest/guest_account.h"

#define TEXT_MAX (128u << 10)
/* Indentation of the option texts of --help. */
#define HELP_INDENT 10
/* Marks the start of a paragraph of a manual page: not white space. */
#define PARAGRAPH      '\1'
#define PARAGRAPH_TEXT "\1"

static void read_text(char text[TEXT_MAX], const char *path)
{
	FILE *file = fopen(path, "r");
	size_t size = file ? fread(text, 1, TEXT_MAX - 1, file) : 0;

	text[size] = '\0';
	if (!size || size == TEXT_MAX - 1)
		FAIL_TEST("%s cannot be read as a whole", path);
	if (file)
		fclose(file);
}

/* Replaces white space by single spaces, and roff's hyphens and Markdown's code by plain text. */
static void make_plain(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		bool space = isspace((unsigned char)*from);

		if (*from != '\\' && *from != '`' && !(space && to > text && to[-1] == ' '))
			*to++ = space ? ' ' : *from;
	}
	*to = '\0';
}

/* True if VALUE follows BEFORE, and not as the beginning of a longer word. */
static bool says(const char *text, const char *before, const char *value)
{
	char wanted[128];
	size_t size = (size_t)snprintf(wanted, sizeof(wanted), "%s%s", before, value);

	for (const char *at = text; (at = strstr(at, wanted)); at++)
		if (!isalnum((unsigned char)at[size]))
			return true;
	return false;
}

/* The part of TEXT from BEGIN to END, where it is cut. */
static char *part(char *text, const char *begin, const char *end)
{
	char *from = strstr(text, begin), *to = from ? strstr(from, end) : NULL;

	if (!from)
		FAIL_TEST("there is no '%s'", begin);
	if (to)
		*to = '\0';
	return from ? from : text + strlen(text);
}

/* Checks the default of option NAME of COMMAND in the manual page. */
static void check_manual(const char *command, const char *name, const char *value)
{
	static char text[TEXT_MAX];
	char path[64], option[64], *said;

	snprintf(path, sizeof(path), "docs/man/kvmscope-%s.1", command);
	read_text(text, path);
	for (char *at = text; (at = strstr(at, "\n.TP")); at++)
		*at = PARAGRAPH;
	make_plain(text);
	snprintf(option, sizeof(option), "--%s=", name);
	said = part(text, option, PARAGRAPH_TEXT);
	if (!says(said, "Default ", value) && !says(said, "(", value))
		FAIL_TEST("%s: the default is not %s: %s", path, value, said);
}

static void check_help(const char *command, const char *name, const char *value)
{
	static struct program program;
	char words[64], *said;

	snprintf(words, sizeof(words), "%s --help", command);
	program_run(&program, words);
	snprintf(words, sizeof(words), "--%s=", name);
	said = part(program.text, words, "\n\n");
	for (char *line = said; (line = strchr(line, '\n')); line++)
		if (strspn(line + 1, " ") < HELP_INDENT) {
			*line = '\0';
			break;
		}
	make_plain(said);
	if (!says(said, "(", value))
		FAIL_TEST("kvmscope %s --help: the default is not %s: %s", command, value, said);
}

static void check_option(const char *command, const char *name, uint64_t value, const char *unit)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu%s", (unsigned long long)value, unit);
	check_manual(command, name, text);
	check_help(command, name, text);
}

/* Checks that the document PATH has VALUE between BEFORE and BEHIND. */
static void check_document(const char *path, const char *before, uint64_t value, const char *behind)
{
	static char text[TEXT_MAX];
	char wanted[128];

	read_text(text, path);
	make_plain(text);
	snprintf(wanted, sizeof(wanted), "%s%llu%s", before, (unsigned long long)value, behind);
	if (!strstr(text, wanted))
		FAIL_TEST("%s does not say '%s'", path, wanted);
}

TEST(defaults, of_run_are_documented)
{
	char *arguments[] = { (char[]){ "run" }, (char[]){ "--kernel=build/guests/guest.elf" },
			      NULL };
	struct run_options options;

	REQUIRE_EQUAL(run_options_parse(&options, 2, arguments), 0);
	check_option("run", "cpus", options.cpus, "");
	check_option("run", "mem", options.memory_size >> 20, "M");
	check_option("run", "agent-memory", options.agent_memory >> 20, "M");
	check_option("run", "freq", options.record.frequency, "");
	check_option("run", "ring-size", options.ring_size >> 20, "M");
	check_option("run", "stack-time", options.stack_time / 1000, "us");
	check_option("run", "flight-max", options.flight_max, "");
	check_option("run", "after", options.flight_after, "s");
	check_document("docs/sampling.md", "at --stack-time (", options.stack_time / 1000, " us");
	check_document("docs/introspection.md", "--stack-time, which is ",
		       options.stack_time / 1000, " us");
	check_document("docs/sampling.md", "A chain ends at ", SAMPLE_CALLCHAIN_MAX, " frames");
	check_document("docs/agent-protocol.md",
		       "(vmm/guest/guest_account.h): ", options.agent_memory >> 20, " MiB in all");
	check_document("docs/resolver.md", "account of the guest, which has ",
		       options.agent_memory >> 20, " MiB");
	run_options_free(&options);
}

TEST(defaults, of_attach_are_documented)
{
	char *arguments[] = { (char[]){ "attach" }, NULL };
	struct attach_command_options options;

	REQUIRE_EQUAL(attach_options_parse(&options, 1, arguments), 0);
	CHECK_EQUAL(options.attach.stop_limit, 0);
	check_option("attach", "freq", options.attach.frequency, "");
	check_option("attach", "stop-limit", ATTACH_STOP_LIMIT, "");
	check_document("docs/how-to-attach.md", "", ATTACH_STOP_LIMIT, " us (--stop-limit)");
	check_document("docs/man/kvmscope-attach.1", "keep at most ", GUEST_ACCOUNT_DEFAULT >> 20,
		       " MiB");
	attach_options_free(&options);
}

TEST(defaults, limits_are_documented)
{
	const uint64_t storm = WATCH_STORM_LIMIT * (1000000000 / WATCH_STORM_PERIOD);

	check_document("docs/man/kvmscope-run.1", "Up to ", RUN_WATCHES_MAX, " times");
	check_document("docs/man/kvmscope-run.1", "of the clock and vCPU, up to ",
		       RECORD_FREQUENCY_MAX, ".");
	check_document("docs/man/kvmscope-run.1", "hits per second on a vCPU are a storm (", storm,
		       ")");
	check_document("docs/man/kvmscope-run.1", "up to ", CONTROL_NAME_MAX, " letters");
	check_document("docs/man/kvmscope.conf.5", "CPU time, 1 to ", SETTINGS_FREQUENCY_MAX, ".");
	check_document("docs/how-to-libvirt.md", "is dropped when there are ", HOOK_SPOOL_MAX, ".");
	check_document("docs/how-to-libvirt.md", "Each message has at most ", HOOK_QUEUED_MAX >> 10,
		       " KiB");
	check_document("docs/agent-protocol.md", "a multiple of 8, from 8 to ", AGENT_MESSAGE_MAX,
		       " |");
	check_document("docs/agent-protocol.md", "segments: 0 to ", AGENT_SEGMENTS_MAX, " |");
	check_document("docs/agent-protocol.md", "section with code, 0 to ", AGENT_SECTIONS_MAX,
		       ":");
	check_document("docs/agent-protocol.md", "modules: 0 to ", AGENT_KERNEL_MODULES_MAX, " |");
	check_document("docs/agent-protocol.md", "-EFBIG more than ", AGENT_TABLE_MAX >> 20,
		       " MiB");
	check_document("docs/agent-protocol.md",
		       "records that wait for the guest's time to be known | ",
		       AGENT_QUEUE_MAX >> 20, " MiB");
	check_document("docs/agent-protocol.md", "if the guest answers no ping for ",
		       AGENT_TIMEOUT / 1000000000, " s");
}

/* The settings of a domain without a profile under the configuration TEXT. */
static void read_conf(const char *text, struct conf *conf, struct domain_settings *settings)
{
	static const char xml[] = "<domain type='kvm'><name>web</name></domain>";
	struct domain_xml domain;

	CHECK_EQUAL(conf_init(conf), 0);
	if (conf_parse(conf, text, strlen(text), "docs/kvmscope.conf"))
		FAIL_TEST("%s", error_message());
	CHECK_EQUAL(domain_xml_read(&domain, xml, strlen(xml)), 0);
	CHECK_EQUAL(conf_settings(conf, &domain, settings), 0);
}

static bool same_text(const char *one, const char *other)
{
	return one && other ? !strcmp(one, other) : one == other;
}

static bool same_conf(const struct conf *one, const struct conf *other)
{
	return one->ask_domains == other->ask_domains &&
	       one->frequency_max == other->frequency_max &&
	       one->flight_memory_max == other->flight_memory_max &&
	       same_text(one->recordings, other->recordings) &&
	       one->recordings_size == other->recordings_size &&
	       one->recordings_age == other->recordings_age &&
	       one->recordings_rotate == other->recordings_rotate &&
	       one->recordings_reserve == other->recordings_reserve &&
	       same_text(one->metrics, other->metrics) && same_text(one->push, other->push) &&
	       same_text(one->push_headers, other->push_headers) &&
	       same_text(one->push_ca, other->push_ca) &&
	       same_text(one->push_spool, other->push_spool) &&
	       one->push_spool_size == other->push_spool_size &&
	       one->push_interval == other->push_interval;
}

/* Checks that VALUE is the default of KEY in SECTION. */
static void check_setting(const char *section, const char *key, const char *value)
{
	struct domain_settings settings, other_settings;
	struct conf conf, other;
	char text[256];

	snprintf(text, sizeof(text), "%s\n%s = %s\n", section, key, value);
	read_conf("", &conf, &settings);
	read_conf(text, &other, &other_settings);
	if (!same_conf(&conf, &other) || !settings_are_same(&settings, &other_settings))
		FAIL_TEST("docs/kvmscope.conf: %s is not what holds without it: %s", key, value);
	conf_free(&conf);
	conf_free(&other);
}

static void check_setting_in_manual(const char *key, const char *value)
{
	static char text[TEXT_MAX];
	char name[80], *said;

	read_text(text, "docs/man/kvmscope.conf.5");
	for (char *at = text; (at = strstr(at, "\n.TP")); at++)
		*at = PARAGRAPH;
	make_plain(text);
	snprintf(name, sizeof(name), PARAGRAPH_TEXT ".TP .B %s ", key);
	said = part(text, name, " .SH");
	if (*said)
		said = part(said + 1, ".TP", PARAGRAPH_TEXT);
	if (!says(said, "Default ", value) && !says(said, "Default .BR ", value) &&
	    (!says(said, ".BR ", value) || !strstr(said, "the default")))
		FAIL_TEST("kvmscope.conf(5): %s has not the default %s: %s", key, value, said);
}

/* Commented settings in the example are the defaults; other lines are comments, or settings of one
 * domain. */
TEST(defaults, of_the_configuration_are_documented)
{
	char line[256], section[64] = "", key[64], value[128];
	FILE *file = fopen("docs/kvmscope.conf", "r");
	unsigned int count = 0;

	REQUIRE(file != NULL);
	while (fgets(line, sizeof(line), file)) {
		bool others = !strncmp(line, "#[", 2) || strstr(line, "there is none");

		if (*line == '[' || others)
			snprintf(section, sizeof(section), "%.*s", others ? 0 : 60, line);
		if (*section && sscanf(line, "#%63[a-z-] = %127s", key, value) == 2) {
			check_setting(section, key, value);
			check_setting_in_manual(key, value);
			count++;
		}
	}
	fclose(file);
	CHECK(count >= 18);
}
