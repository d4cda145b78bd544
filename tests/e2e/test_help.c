/* SPDX-License-Identifier: Apache-2.0 */
/* The programs' --help as it is shown, compared with the man pages. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

static const struct {
	const char *program, *page;
} programs[] = {
	{ "kvmscope run", "kvmscope-run.1" },
	{ "kvmscope attach", "kvmscope-attach.1" },
	{ "kvmscope top", "kvmscope-top.1" },
	{ "kvmscope stat", "kvmscope-stat.1" },
	{ "kvmscope ctl", "kvmscope-ctl.1" },
	{ "kvmscope libvirt", "kvmscope-libvirt.1" },
	{ "kvmscope dump", "kvmscope-dump.1" },
	{ "kvmscope report", "kvmscope-report.1" },
	{ "kvmscope export", "kvmscope-export.1" },
	{ "kvmscope diff", "kvmscope-diff.1" },
	{ "kvmscope archive", "kvmscope-archive.1" },
	{ "kvmscope doctor", "kvmscope-doctor.1" },
	{ "kvmscope demo", "kvmscope-demo.1" },
	{ "kvmscoped", "kvmscoped.8" },
	{ "agent/kvmscope-agent", "kvmscope-agent.1" },
};

/* Options in an option list, each as --name, without those that argp adds to every program. */
#define OPTIONS                                                                                    \
	"grep -oE -- '^(  (-., )?|      )--[a-z-]+' | grep -oE -- '--[a-z-]+' | grep -vE -- '--(help|usage)$'"
/* Undoes roff's hyphens and mdoc's option macros. */
#define PLAIN "sed -E 's/\\\\-/-/g; s/Fl -/--/g'"
/* The option names at the beginning of a paragraph of the page. */
#define TAGS "awk '/^\\.It/ || tag; { tag = /^\\.TP/ }' | grep -oE -- '--[a-z][a-z-]+'"

static void check_none(const char *what, char *words)
{
	if (*words)
		FAIL_TEST("%s: %s", what, words);
	free(words);
}

TEST(help, man_pages_list_exactly_the_options)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		const char *program = programs[i].program, *page = programs[i].page;

		check_none(page,
			   command_output(NULL,
					  "build/%s --help | " OPTIONS
					  " | while read -r option; do " PLAIN
					  " docs/man/%s | grep -qE -- \"$option([^a-z-]|$)\" || "
					  "echo it lacks $option; done",
					  program, page));
		check_none(page,
			   command_output(NULL,
					  PLAIN
					  " docs/man/%s | " TAGS " | while read -r option; do "
					  "build/%s --help | grep -qE -- \"$option([^a-z-]|$)\" || "
					  "echo there is no $option; done",
					  page, program));
	}
}

/*
 * argp breaks lines longer than 78 columns. That is acceptable for a paragraph written as one line,
 * but not for a line of an example.
 */
TEST(help, argp_does_not_rewrap_help_lines)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		check_none(programs[i].program,
			   command_output(NULL,
					  "ARGP_HELP_FMT=rmargin=2000 build/%s --help | "
					  "awk 'text && length > 78 && (before != \"\" || /^ /); "
					  "/--usage/ { text = 1 } { before = $0 }'",
					  programs[i].program));
}

TEST(help, help_option_works_before_and_after_the_command)
{
	check_none(
		"help run",
		command_output(
			NULL,
			"bash -c 'diff <(build/kvmscope run --help) <(build/kvmscope help run) 2>&1'"));
}

/* Only options that the command has, not those mentioned in help texts. */
TEST(help, completion_offers_commands_options_and_values)
{
	char *offered =
		command_output(NULL, "bash -c 'kvmscope() { build/kvmscope \"$@\"; }; "
				     ". docs/completion/kvmscope.bash; complete() { "
				     "COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _kvmscope; "
				     "echo \"${COMPREPLY[*]}\"; }; complete kvmscope dump --; "
				     "complete kvmscope export -f h; complete kvmscope help rep'");

	CHECK_STRING(
		offered,
		"--after --json --output --name --pid --socket --help --usage\nhtml\nreport\n");
	free(offered);
}

/* Of the libvirt that --connect names; Bash splits words at ':' and '='. */
TEST(help, completion_offers_running_domains)
{
	char *offered = command_output(
		NULL, "bash -c 'virsh() { echo web; echo \"web two\"; }; "
		      ". docs/completion/kvmscope.bash; complete() { "
		      "COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _kvmscope; "
		      "echo \"${COMPREPLY[*]}\"; }; complete kvmscope attach --domain w; "
		      "_kvmscope_print kvmscope stat --domain=w; "
		      "virsh() { [ \"$*\" = \"-q -c qemu:///system list --name\" ] && echo db; }; "
		      "complete kvmscope attach --connect qemu : ///system --domain d; "
		      "complete kvmscope stat --connect = qemu : ///system --domain = d'");

	CHECK_STRING(offered, "web web\\ two\n--domain=web\n--domain=web two\ndb\ndb\n");
	free(offered);
}

/*
 * Zsh and Fish run the program that is installed for Bash, which prints candidates for the last
 * word.
 */
TEST(help, completion_prints_candidates_for_other_shells)
{
	char *offered = command_output(
		NULL, "bash -c 'kvmscope() { build/kvmscope \"$@\"; }; export -f kvmscope; "
		      "complete() { bash docs/completion/kvmscope.bash kvmscope \"$@\"; echo .; }; "
		      "complete rep; complete attach --backend=p; complete report --sort comm,p; "
		      "complete report -i Make; "
		      "grep -L bash-completion/completions/kvmscope Makefile docs/completion/*.zsh "
		      "docs/completion/*.fish'");

	CHECK_STRING(offered, "report\n.\n--backend=perf\n--backend=ptrace\n.\ncomm,pid\n.\n.\n");
	free(offered);
	CHECK(command_succeeds("bash -n docs/completion/kvmscope.bash"));
}

#define SHELLS "build/cache/shells/files"

/* Installs what make test has built below DIRECTORY. */
#define INSTALL(directory)                                                                         \
	"rm -rf " directory "; env -u MAKEFLAGS -u MAKELEVEL "                                     \
	"make -s -o all -o man install MAN_PAGES= PREFIX=/usr DESTDIR=" directory

/* The agent's symbols name its functions in a profile of the guest. */
TEST(install, strips_all_programs_but_the_agent)
{
	char *symbols;

	REQUIRE(command_succeeds(INSTALL("build/stripped")));
	symbols =
		command_output(NULL, "cd build/stripped/usr; for i in bin/kvmscope sbin/kvmscoped "
				     "bin/kvmscope-agent; do nm $i 2>&1 | grep -c -w main; done");
	CHECK_STRING(symbols, "0\n0\n1\n");
	free(symbols);
	CHECK(command_succeeds("rm -r build/stripped"));
}

static void check_shell(const char *command)
{
	int status;
	char *offered = command_output(&status, "PATH=$PWD/build/completed/usr/bin:$PATH; %s 2>&1",
				       command);

	CHECK_EQUAL(status, 0);
	CHECK_STRING(offered,
		     "report\nweb\nweb two\n--domain=web\n--domain=web two\nperf\nptrace\n");
	free(offered);
}

/* Zsh's completion is called as Zsh calls it. */
TEST(help, zsh_and_fish_complete_commands_and_domains)
{
	if (!command_succeeds("tests/rig/fetch-packages shells zsh fish libpcre2-32-0 > /dev/null"))
		SKIP("zsh and fish cannot be fetched from this machine's Debian mirror");
	REQUIRE(command_succeeds(INSTALL("build/completed")));
	CHECK(command_succeeds("cd build/completed/usr/bin && "
			       "printf '#!/bin/sh\\necho web; echo web two\\n' > virsh && "
			       "chmod 755 virsh"));
	check_shell("LD_LIBRARY_PATH=" SHELLS
		    "/usr/lib/x86_64-linux-gnu HOME=$PWD/build/completed " SHELLS
		    "/usr/bin/fish --no-config -c 'source docs/completion/kvmscope.fish; "
		    "complete -C \"kvmscope rep\"; complete -C \"kvmscope attach --domain w\"; "
		    "complete -C \"kvmscope attach --domain=w\"; "
		    "complete -C \"kvmscope attach --backend p\"'");
	check_shell(SHELLS "/bin/zsh -f -c 'module_path=(" SHELLS
			   "/usr/lib/x86_64-linux-gnu/zsh/*); "
			   "compadd() { shift; print -rl -- $@ }; "
			   "offer() { words=(\"$@\") CURRENT=$#; . docs/completion/kvmscope.zsh }; "
			   "offer kvmscope rep; offer kvmscope attach --domain w; "
			   "offer kvmscope attach --domain=w; offer kvmscope attach --backend p'");
	CHECK(command_succeeds("rm -r build/completed"));
}
