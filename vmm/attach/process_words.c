// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/process_words.h"

#include <ctype.h>
#include <limits.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "vmm/attach/process.h"

#define VM_LINK   "anon_inode:kvm-vm"
#define VCPU_LINK "anon_inode:kvm-vcpu"

/* A decimal number that is a vCPU's id; END is behind it. */
static bool parse_id(const char *text, const char **end, unsigned int *id)
{
	unsigned int value = 0;
	const char *at = text;

	for (; isdigit((unsigned char)*at); at++) {
		value = value * 10 + (unsigned int)(*at - '0');
		if (value >= VMM_VCPUS_MAX)
			return false;
	}
	*end = at;
	*id = value;
	return at > text;
}

bool process_words_are_vm(const char *link)
{
	return !strcmp(link, VM_LINK);
}

bool process_words_vcpu(const char *link, unsigned int *id)
{
	const char *end;

	if (strncmp(link, VCPU_LINK, strlen(VCPU_LINK)) != 0)
		return false;
	link += strlen(VCPU_LINK);
	return *link == ':' && parse_id(link + 1, &end, id) && !*end;
}

bool process_words_thread(const char *name, unsigned int *id)
{
	const char *cpu = strcasestr(name, "cpu"), *end;

	if (!cpu)
		return false;
	cpu += strlen("cpu");
	if (*cpu == ' ' || *cpu == '-' || *cpu == '_' || *cpu == '#')
		cpu++;
	return parse_id(cpu, &end, id) && (!*end || !strcmp(end, "/KVM"));
}

/*
 * "16 0xc 0xae80 0x0 0x0 0x0 0x0 0x7ffc... 0x7f12...": the number of the call, its six arguments,
 * RSP and RIP; "running" while it is in none. KVM's own workers in the process show the call that
 * made them, without RIP.
 */
bool process_words_run_call(const char *text, int *fd)
{
	unsigned long number, descriptor, request, stack, code;

	if (sscanf(text, "%lu %lx %lx %*x %*x %*x %*x %lx %lx", &number, &descriptor, &request,
		   &stack, &code) != 5 ||
	    number != SYS_ioctl || request != KVM_RUN || descriptor > INT32_MAX || !stack || !code)
		return false;
	*fd = (int)descriptor;
	return true;
}

/* "NSpid:\t4711\t22\t3": from our namespace inwards. */
pid_t process_words_own_tid(const char *text)
{
	const char *line = strstr(text, "\nNSpid:");
	long number = 0;
	char *end;

	if (!line)
		return 0;
	line += strlen("\nNSpid:");
	while (*line == '\t' || *line == ' ') {
		number = strtol(line, &end, 10);
		if (end == line)
			break;
		line = end;
	}
	return *line == '\n' && number > 0 && number <= INT_MAX ? (pid_t)number : 0;
}
