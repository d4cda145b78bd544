/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes perf.data as a stream (tools/perf/Documentation/perf.data-file-format.txt):
 * whatever happens to the writer, perf and we can read the file up to the last flush.
 * How we use the format is in docs/perf-data.md. One thread at a time.
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
#include "vmm/perf_data/perf_data_flight.h"
#include "vmm/perf_data/perf_data_output.h"
#include "vmm/perf_data/perf_data_watch.h"

struct perf_data_writer;

enum perspective {
	PERSPECTIVE_GUEST, /* as if recorded inside the guest: KERNEL and USER */
	PERSPECTIVE_HOST,  /* as perf kvm sees it: GUEST_KERNEL and GUEST_USER, machine_pid and vcpu
			    */
};

struct perf_data_options {
	const char *path; /* "-" is standard output in pipe mode, as is what is no regular file */
	enum perspective perspective;
	bool wall_clock;        /* the event is named wall-clock, not cpu-clock */
	bool cycles;            /* it is the processor's cycles, which periods then count */
	bool host_samples;      /* there may be samples of the host (SAMPLE_HOST) */
	unsigned int frequency; /* Hz */
	bool callchains;
	unsigned int compression; /* zstd level 1 to 22; 0 writes records as they are */
	unsigned int vcpus;       /* at least 1; samples of higher numbers are refused */
	unsigned int cpus;        /* that the guest has; 0: as many as there may be samples of */
	pid_t vmm_pid;
	const char *command_line; /* for HEADER_CMDLINE */
	/* Guest facts for the feature sections; "" or 0 where not known: the section is then left
	 * out. */
	const char *hostname, *release, *arch, *cpu_description;
	uint64_t memory_kib;
	/* Events 1 and up; NULL: there will be none. Outlives the writer, which takes up those that
	 * come. */
	const struct perf_data_watches *watches;
	const struct perf_data_room
		*room; /* outlives the writer; NULL: what there is, to the last byte */
};

/* One executable mapping: the kernel, a module, an image. */
struct perf_data_mapping {
	uint64_t time;    /* ns, 0: since ever; readers then apply it at once, before samples of the
			     same round */
	int32_t pid, tid; /* -1 for the kernel */
	/* bytes; the kernel's offset is the address of the symbol that its name ends with (_text)
	 */
	uint64_t start, size, offset;
	const char *name; /* "[kernel.kallsyms]_text", "[virtio_blk]", a path */
	const uint8_t *build_id;
	size_t build_id_size; /* at most 20; 0 without one */
	bool kernel;
	bool is_code; /* of the kernel: one function called NAME, made at run time; KSYMBOL. Not in
			 the host's perspective */
};

/*
 * Replaces PATH if it is there (kept as PATH.old, as perf record does, if it is
 * not empty). The errors of open(). From here on the file is a valid one without
 * samples. The strings of the options are copied.
 */
int perf_data_writer_open(struct perf_data_writer **writer,
			  const struct perf_data_options *options);

/*
 * Facts that came after opening; replaces what the options said, NULL leaves
 * a fact alone. Before perf_data_writer_close(). 0, -ENOMEM, or as below.
 */
int perf_data_writer_set_guest(struct perf_data_writer *writer, const char *release,
			       const char *hostname);

/*
 * The file is a flight recording, as FLIGHT (not copied) says when the writer
 * closes: only then, and not in pipe mode, as perf refuses a record about a
 * feature that it does not know.
 */
void perf_data_writer_set_flight(struct perf_data_writer *writer,
				 const struct perf_data_flight *flight);

/* Whose a sample is in the file. */
struct perf_data_task {
	uint32_t pid, tid;
	bool of_guest; /* the guest's task; else what stands for the vCPU */
};

/*
 * In the guest's perspective the guest's where it is known, else one thread for each
 * vCPU, of a process, both with numbers that no task of the guest can have. In
 * the host's, the VMM and the thread that ran the vCPU are what the host knows.
 */
struct perf_data_task perf_data_writer_task(const struct perf_data_writer *writer,
					    const struct sample *sample);
/* The process of the samples whose task is not known. */
int32_t perf_data_writer_unknown_pid(const struct perf_data_writer *writer);

/* Each appends one record to the block; 0 or a negative errno of writing, after which the writer
 * only closes.
 */
/* SAMPLE, of TASK and in cgroup CGROUP (0: in none that is known) whatever it says itself. The
 * event of a watch is its number plus 1. */
int perf_data_writer_sample_of(struct perf_data_writer *writer, const struct sample *sample,
			       const struct perf_data_task *task, uint64_t cgroup);
/* For tests: the same, of the task and in the cgroup that SAMPLE says. */
int perf_data_writer_sample(struct perf_data_writer *writer, const struct sample *sample);
/* The event gives no samples of the vCPU from then on, or does so again: THROTTLE, UNTHROTTLE. */
int perf_data_writer_event(struct perf_data_writer *writer, const struct sample_event *event);
/* What watch EVENT - 1 counted on VCPU up to TIME: READ. */
int perf_data_writer_count(struct perf_data_writer *writer, uint64_t time, uint32_t vcpu,
			   uint16_t event, const struct perf_data_count *count);
int perf_data_writer_mapping(struct perf_data_writer *writer,
			     const struct perf_data_mapping *mapping);
/* The kernel's MAPPING holds no more from its time on: KSYMBOL, unregistered. */
int perf_data_writer_mapping_end(struct perf_data_writer *writer,
				 const struct perf_data_mapping *mapping);
int perf_data_writer_comm(struct perf_data_writer *writer, uint64_t time, int32_t pid, int32_t tid,
			  const char *comm);
/* The guest's cgroup ID has PATH, whose bytes may be any; left out in the host's perspective. */
int perf_data_writer_cgroup(struct perf_data_writer *writer, uint64_t time, uint64_t id,
			    const char *path);
/* COUNT samples of VCPU were lost before TIME. */
int perf_data_writer_lost(struct perf_data_writer *writer, uint64_t time, uint32_t vcpu,
			  uint64_t count);

/*
 * Something that happened in the guest, given in order of time with the
 * samples: FORK, EXIT, COMM and MMAP2 as perf has them (perf_data_sideband.h).
 * Records of other types, and all in the host's perspective, where samples do
 * not know the guest's processes, are left out.
 */
int perf_data_writer_sideband(struct perf_data_writer *writer, const struct sideband *record);

/* What the file says of losses from the next round on, and in the end: counts since the beginning.
 */
void perf_data_writer_set_losses(struct perf_data_writer *writer, const struct losses *losses);

/*
 * The guest runs another kernel from here on than the one that the file has: addresses in it are
 * written with perf's unknown mode and without callers, so that no reader gives them names.
 */
void perf_data_writer_hide_kernel(struct perf_data_writer *writer);

/*
 * All records of times before SETTLED (ns) are in; UINT64_MAX: the next ones are of later times
 * than all that are. Ends a round (PERF_RECORD_FINISHED_ROUND) if none of those that come can be of
 * before the latest record of the last round: at a round's end readers show what is not later than
 * that, and would take a mapping for older than a sample that comes behind it (perf,
 * tools/perf/util/ordered-events.c). Writes the block out in either case; from here on it survives
 * a kill.
 */
int perf_data_writer_flush(struct perf_data_writer *writer, uint64_t settled);

/*
 * The same without the end of a round: what is written survives a kill, but
 * mappings that come later still apply to the samples that readers hold back.
 */
int perf_data_writer_write_out(struct perf_data_writer *writer);

/* Writes the feature sections and frees the writer, also after an error; returns the first one. */
int perf_data_writer_close(struct perf_data_writer *writer);

/* Of the file so far. */
uint64_t perf_data_writer_bytes(const struct perf_data_writer *writer);

#endif
