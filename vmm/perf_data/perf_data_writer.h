/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes perf.data as a stream (tools/perf/Documentation/perf.data-file-format.txt): if the writer
 * is killed, perf and kvmscope can read the file up to the last flush. How the format is used is
 * described in docs/perf-data.md. One thread until perf_data_writer_release().
 */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_WRITER_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared/loss_counts.h"
#include "shared/sample_record.h"
#include "shared/sideband_record.h"
#include "vmm/perf_data/perf_data_blocks.h"
#include "vmm/perf_data/perf_data_format.h"
#include "vmm/perf_data/perf_data_output.h"
#include "vmm/perf_data/perf_data_watch.h"

struct perf_data_writer;

enum perspective {
	PERSPECTIVE_GUEST, /* as if recorded inside the guest: KERNEL and USER */
	PERSPECTIVE_HOST,  /* as perf kvm does: GUEST_KERNEL, GUEST_USER, machine_pid, vcpu */
};

struct perf_data_options {
	const char *path; /* "-" and paths that are not regular files: pipe mode */
	enum perspective perspective;
	bool wall_clock;        /* the event is named wall-clock, not cpu-clock */
	bool cycles;            /* the event is cycles, and periods count cycles */
	bool host_samples;      /* the file may get samples of the host (SAMPLE_HOST) */
	bool host_stacks;       /* samples of the host may have its call chain, and the reason */
	unsigned int frequency; /* Hz */
	bool callchains;
	unsigned int compression; /* zstd level 1 to 22; 0: none */
	unsigned int vcpus;       /* at least 1; samples of higher vCPU numbers are refused */
	unsigned int cpus;        /* of the guest; 0: VCPUS */
	pid_t vmm_pid;
	const char *command_line; /* for HEADER_CMDLINE */
	/* For the feature sections; NULL, "" and 0 are unknown facts. */
	const char *hostname, *release, *cpu_description;
	const char *cpuid; /* "VENDOR,FAMILY,MODEL,STEPPING", in decimal */
	uint64_t memory_kib;
	/* Where the host's kernel and the VMM are mapped, for the host's call chains. */
	const struct perf_data_mapping *host;
	size_t host_count;
	/* Events from 1 on, which outlive the writer; it adds new ones by itself. NULL: none. */
	const struct perf_data_watches *watches;
	const struct perf_data_room *room; /* outlives the writer; NULL: no reserve of disk space */
};

/* One executable mapping: the kernel, a module, an image. */
struct perf_data_mapping {
	uint64_t time;    /* ns; 0: readers apply it before all samples of the same round */
	int32_t pid, tid; /* -1 for the kernel */
	/* bytes; the kernel's offset is the address of the symbol at the end of its name (_text) */
	uint64_t start, size, offset;
	const char *name; /* "[kernel.kallsyms]_text", "[virtio_blk]", a path */
	const uint8_t *build_id;
	size_t build_id_size; /* at most 20; 0 without one */
	bool kernel;
	/* Not of the guest. In the guest's perspective its process is PERF_DATA_HOST_PID, also for
	 * the kernel. */
	bool host;
	bool is_code; /* one kernel function NAME, generated at run time: KSYMBOL. Left out in the
			 host's perspective */
};

/*
 * Creates the file. An existing file that is not empty becomes PATH.old, as perf record does. From
 * here on the file is valid, without samples. Strings of the options are copied. The errors of
 * open().
 */
int perf_data_writer_open(struct perf_data_writer **writer,
			  const struct perf_data_options *options);

/* The next thread that uses the writer owns it from then on. */
void perf_data_writer_release(struct perf_data_writer *writer);

/* Replaces facts of the options; NULL leaves a fact unchanged. 0, -ENOMEM, or the errors of
 * writing. */
int perf_data_writer_set_guest(struct perf_data_writer *writer, const char *release,
			       const char *hostname);

/* Marks the file as a flight recording. FLIGHT is not copied, and read when the writer closes. */
void perf_data_writer_set_flight(struct perf_data_writer *writer,
				 const struct perf_data_flight *flight);

/* The task of a sample in the file. */
struct perf_data_task {
	uint32_t pid, tid;
	bool of_guest; /* a task of the guest; else a placeholder for the vCPU */
};

/*
 * The task that SAMPLE is written with. Guest's perspective: the guest's task if it is known, else
 * one thread per vCPU of a placeholder process, with numbers that no guest task can have. Host's
 * perspective: the VMM and the thread that ran the vCPU.
 */
struct perf_data_task perf_data_writer_task(const struct perf_data_writer *writer,
					    const struct sample *sample);
/* The process of the samples whose task is unknown. */
int32_t perf_data_writer_unknown_pid(const struct perf_data_writer *writer);

/*
 * Each of these appends one record to the block. 0, or a negative errno of writing, after which the
 * writer can only be closed.
 */

/* Writes SAMPLE with TASK and CGROUP (0: unknown) instead of its own. The event of a watch is the
 * watch's number plus 1. */
int perf_data_writer_sample_of(struct perf_data_writer *writer, const struct sample *sample,
			       const struct perf_data_task *task, uint64_t cgroup);
/* The same with the task and cgroup of SAMPLE; for tests. */
int perf_data_writer_sample(struct perf_data_writer *writer, const struct sample *sample);
/* The event stops or resumes sampling the vCPU: THROTTLE, UNTHROTTLE. */
int perf_data_writer_event(struct perf_data_writer *writer, const struct sample_event *event);
/* The count of watch EVENT - 1 on VCPU up to TIME: READ. */
int perf_data_writer_count(struct perf_data_writer *writer, uint64_t time, uint32_t vcpu,
			   uint16_t event, const struct perf_data_count *count);
int perf_data_writer_mapping(struct perf_data_writer *writer,
			     const struct perf_data_mapping *mapping);
/* The kernel's MAPPING ends at its time: KSYMBOL, unregistered. */
int perf_data_writer_mapping_end(struct perf_data_writer *writer,
				 const struct perf_data_mapping *mapping);
int perf_data_writer_comm(struct perf_data_writer *writer, uint64_t time, int32_t pid, int32_t tid,
			  const char *comm);
/* Cgroup ID of the guest has PATH, which may be any bytes. Left out in the host's perspective. */
int perf_data_writer_cgroup(struct perf_data_writer *writer, uint64_t time, uint64_t id,
			    const char *path);
/* COUNT samples of VCPU were lost before TIME. */
int perf_data_writer_lost(struct perf_data_writer *writer, uint64_t time, uint32_t vcpu,
			  uint64_t count);
/*
 * A sideband event, in order of time with the samples: FORK, EXIT, COMM or MMAP2
 * (perf_data_sideband.h). Other types are left out, and so are all events in the host's
 * perspective, in which samples have no guest processes.
 */
int perf_data_writer_sideband(struct perf_data_writer *writer, const struct sideband *record);

/* Sets the counts of losses since the start, which the end of each round writes. */
void perf_data_writer_set_losses(struct perf_data_writer *writer, const struct losses *losses);
/* The same for the wall times of the vCPUs. */
void perf_data_writer_set_times(struct perf_data_writer *writer,
				const struct perf_data_times *times);

/*
 * The guest has switched to a kernel that is not the one in the file: kernel addresses are written
 * with perf's unknown mode and without call chain from now on, so that readers leave them
 * unsymbolized.
 */
void perf_data_writer_hide_kernel(struct perf_data_writer *writer);

/*
 * Writes the block: from then on it survives a kill. SETTLED: all records before this time (ns)
 * were written; UINT64_MAX: all later records have later times than those written. Ends the round
 * (PERF_RECORD_FINISHED_ROUND) if no later record can be older than the latest one of the last
 * round: readers sort and process up to that time, and would apply a mapping that comes later to
 * samples from before it (perf, tools/perf/util/ordered-events.c).
 */
int perf_data_writer_flush(struct perf_data_writer *writer, uint64_t settled);

/* Writes the block without ending the round: later mappings still apply to the samples in it. */
int perf_data_writer_write_out(struct perf_data_writer *writer);

/* Writes the feature sections and frees the writer, also after an error; returns the first one. */
int perf_data_writer_close(struct perf_data_writer *writer);

/* The size of the file so far. */
uint64_t perf_data_writer_bytes(const struct perf_data_writer *writer);

#endif
