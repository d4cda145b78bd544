/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rig/debian_recording.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/exception_chains.h"
#include "tests/rig/kernel_code.h"
#include "tests/rig/rig.h"

static struct recording {
	const char *version;
	bool tried, made;
	const char *output;
	char initrd[64];
	char directories[2][64]; /* pti=on, pti=off */
} recordings[] = {
	{ .version = "5.10" }, { .version = "6.1" }, { .version = "6.12" }, { .version = "7.2" }
};

static struct recording *find(const char *version)
{
	struct recording *recording = recordings;

	while (strcmp(recording->version, version) != 0)
		recording++;
	return recording;
}

static bool make_initrd(struct recording *recording)
{
	struct rig_result result;
	bool made;

	snprintf(recording->initrd, sizeof(recording->initrd), "build/initrd/%s-tasks.cpio",
		 recording->version);
	rig_run_here(
		&result, 200,
		"tests/rig/initrd --kernel %s --output %s --modules "
		"'virtio_mmio virtio_console virtio_blk virtio-rng ext4 button algif_hash rmd160 overlay' " TASKS_PROGRAM
		" " FRAMES_PROGRAM " build/rig/bpf " EXCEPTIONS_PROGRAM
		" build/rig/kernel-text build/rig/workload build/rig/remap/{remap,alpha,beta,gamma,delta,one,two,three,brief}",
		recording->version, recording->initrd);
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/initrd: %s", result.errors);
	rig_result_free(&result);
	return made;
}

#define PROGRAMS                                                                                   \
	"build/agent/kvmscope-agent "                                                              \
	"build/rig/userland/{plain,bare,shapes,linked,liblibrary.so,stripped,plugins,left.so,right.so,storm,brief,hashed,gospin}"

bool debian_recording_make_disk(void)
{
	struct rig_result result;
	bool made;

	rig_run_here(&result, 300,
		     "tests/rig/perf-disk " USERLAND_DISK " tests/rig/guest-userland " PROGRAMS);
	made = !result.status;
	if (!made)
		FAIL_TEST("tests/rig/perf-disk: %s", result.errors);
	rig_result_free(&result);
	return made;
}

#define GUEST(pti, disk_size, options, commands)                                                                            \
	"d=$PWD/%s; rm -rf $d; mkdir -p $d; truncate -s " disk_size " $d/disk; "                                            \
	"HOME=$d tests/rig/begin-when-known build/kvmscope run --sampler kick --pmu off --timeout 480 --mem 256M --cpus 2 " \
	"--stack-time 100ms " options " -o $d/perf.data --kernel %s --initrd %s "                                           \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT " pti=" pti " " commands "'"

#define GUEST_OF_KERNEL                                                                                          \
	GUEST("on", "64M", "-F 199 %s --disk $d/disk",                                                           \
	      "kvmscope.wait kvmscope.run=cat+/proc/kallsyms+>/dev/vda;kernel-text+/dev/vda+" KERNEL_TEXT_OFFSET \
	      "&&tasks+4&&workload+shares+5&&frames+2")
#define GUEST_OF_USER_LAND                                                                                          \
	GUEST("off", "128M",                                                                                        \
	      "-F 999 --from-line 'userland: begin' --agent=guest --symfs " USERLAND_FILES                          \
	      " --no-disk-names --disk " USERLAND_DISK ",ro --disk $d/disk",                                        \
	      "kvmscope.run=mount+-t+ext4+-o+ro+/dev/vda+/mnt&&sh+/mnt/script+%s+record&&tasks+4&&remap+4&&bpf+5&&" \
	      "exceptions+2&&"                                                                                      \
	      "sh+/mnt/script+%s+agent")

/* The lines that tasks prints about the copies of itself. */
static bool are_mapped(const char *output)
{
	return strstr(output, "tasks: jailed maps " JAILED_IMAGE) &&
	       strstr(output, "tasks: layered maps " LAYERED_IMAGE) &&
	       strstr(output, "tasks: deleted maps " DELETED_IMAGE) &&
	       strstr(output, "tasks: memory maps " MEMORY_IMAGE);
}

static bool came_to_their_ends(const char *output)
{
	const char *first = strstr(output, "guest-init: status 0");

	return first && strstr(first + 1, "guest-init: status 0");
}

/* Shows what kept a guest busy that did not finish. */
static void show_work_of(const char *directory)
{
	struct rig_result result;

	rig_run_here(
		&result, 300,
		"HOME=%s build/kvmscope report -i %s/perf.data --sort comm,sym 2>&1 | head -n 40",
		directory, directory);
	printf("%s: %s%s\n", directory, result.output, result.errors);
	rig_result_free(&result);
}

/*
 * One CPU of the emulated machine may stall while the other continues, which the rig does not
 * notice: then the guest runs to its timeout without having done anything for most of the time.
 */
static bool stood_still(const struct rig_result *result)
{
	return strstr(result->errors, "the guest did not end within the --timeout") != NULL;
}

static bool make(struct recording *recording, const char *kernel)
{
	const char *watch =
		rig_debug_registers_unavailable_reason() ? "" : "--watch " DEBIAN_WATCHED;
	const char *calls = !strcmp(recording->version, DEBIAN_LONGER) ? "20000+600" : "6000+300";
	struct rig_result result;
	bool made;

	for (int i = 0; i < 2; i++)
		snprintf(recording->directories[i], sizeof(recording->directories[i]),
			 "build/rig/debian-%s-%s", recording->version, i ? "off" : "on");
	for (int tries = 0; tries < 2; tries++) {
		if (tries)
			rig_result_free(&result);
		/*
		 * Some hundreds of samples of each program, twice as many for DEBIAN_LONGER.
		 */
		rig_run_on(&result, RIG_TRUSTED_TSC, 980, GUEST_OF_KERNEL " && " GUEST_OF_USER_LAND,
			   recording->directories[0], watch, kernel, recording->initrd,
			   recording->directories[1], kernel, recording->initrd, calls, calls);
		if (!stood_still(&result))
			break;
		printf("Linux %s: the guest stalled:\n%s\n", recording->version, result.errors);
	}
	made = !result.status && came_to_their_ends(result.output) && are_mapped(result.output);
	if (!made) {
		FAIL_TEST("Linux %s: %s\n%s", recording->version, result.output, result.errors);
		show_work_of(recording->directories[strstr(result.output, "guest-init: status 0") !=
						    NULL]);
	}
	/* Prints the messages of kvmscope for both recordings, without the progress line. */
	printf("Linux %s: %s\n", recording->version, result.errors);
	free(result.errors);
	recording->output = result.output;
	return made;
}

const char *debian_recording_initrd(const char *version)
{
	struct recording *recording = find(version);

	return make_initrd(recording) ? recording->initrd : NULL;
}

const char *debian_recording(const char *version, const char *pti)
{
	struct recording *recording = find(version);
	const char *kernel = rig_kernel(version);

	if (!kernel)
		return NULL;
	if (recording->tried && !recording->made)
		FAIL_TEST("Linux %s was not recorded, see the first test that needs it", version);
	if (!recording->tried) {
		recording->tried = true;
		recording->made = debian_recording_make_disk() && make_initrd(recording) &&
				  make(recording, kernel);
	}
	return recording->made ? recording->directories[!strcmp(pti, "off")] : NULL;
}

const char *debian_recording_output(const char *version)
{
	return find(version)->output;
}
