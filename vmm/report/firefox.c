/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/firefox.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"
#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/hash.h"
#include "vmm/report/json_text.h"
#include "vmm/report/numbered_frames.h"
#include "vmm/report/report_rows.h"

#define NONE    UINT32_MAX
#define LIBRARY "1" /* RESOURCE_TYPES of src/profile-logic/data-structures.ts */
#define INSTANT "0" /* a marker without a duration */

enum category { UNKNOWN, GUEST_USER, GUEST_KERNEL, HOST };

/* Of these colours, grey must be the first one's. */
static const char categories[] =
	"[{\"name\":\"Unknown\",\"color\":\"grey\",\"subcategories\":[\"Other\"]},"
	"{\"name\":\"Guest user\",\"color\":\"yellow\",\"subcategories\":[\"Other\"]},"
	"{\"name\":\"Guest kernel\",\"color\":\"orange\",\"subcategories\":[\"Other\"]},"
	"{\"name\":\"Host\",\"color\":\"blue\",\"subcategories\":[\"Other\"]}]";

/* Unique strings by pointer; their place in a list is their number. */
struct text_list {
	struct hash_table table;
	const char **texts;
	size_t count, capacity;
};

/* Frames with their callers: the nodes of a call tree. */
struct node {
	uint32_t prefix, frame, number; /* NONE: the outermost */
};

struct writer {
	const struct profile *profile;
	FILE *to;
	uint64_t start; /* of the profile */
	struct numbered_frames frames;
	struct text_list strings, images;
	uint32_t *names, *resources; /* by frame: its string; its image, NONE for roots */
	uint32_t *local;             /* by frame: its number in the thread; NONE: not in it */
	uint32_t *leaves;            /* by stack: its node in the thread */
};

/* A vCPU. */
struct thread {
	const struct writer *writer;
	uint32_t vcpu;
	struct profile_sample *samples; /* those of the event; after them those of the markers */
	const struct profile_sample *markers;
	size_t count, marker_count;
	struct pool pool;
	struct hash_table table; /* of nodes */
	const struct node **nodes;
	size_t node_count, node_capacity;
	uint32_t *frames; /* the numbers of its frames */
	size_t frame_count, frame_capacity;
};

static bool same_pointer(const void *item, const void *key)
{
	return *(const char *const *)item == key;
}

/* *NUMBER is that of TEXT, which is a pool's. 0 or -ENOMEM. */
static int number_text(struct text_list *list, struct pool *pool, const char *text,
		       uint32_t *number)
{
	struct numbered_text {
		const char *text;
		uint32_t number;
	} * found;
	uint64_t hash = hash_mix((uintptr_t)text, 0);

	found = hash_table_find(&list->table, hash, same_pointer, text);
	if (!found) {
		found = pool_alloc(pool, sizeof(*found));
		if (!found || hash_table_add(&list->table, hash, found) ||
		    array_reserve(&list->texts, &list->capacity, list->count + 1))
			return -ENOMEM;
		found->text = text;
		found->number = (uint32_t)list->count;
		list->texts[list->count++] = text;
	}
	*number = found->number;
	return 0;
}

/* Images are strings, too: they have the first numbers. */
static int number_texts(struct writer *writer)
{
	struct pool *pool = &writer->frames.pool;
	size_t count = writer->frames.count;
	uint32_t *numbers = calloc(2 * count + 1, sizeof(*numbers)), string;

	writer->names = numbers;
	if (!numbers)
		return -ENOMEM;
	writer->resources = numbers + count;
	for (size_t i = 0; i < count; i++) {
		const struct profile_frame *frame = writer->frames.list[i]->frame;
		const char *image = frame ? pool_string(pool, frame->image) : NULL;

		writer->resources[i] = NONE;
		if (frame &&
		    (!image || number_text(&writer->images, pool, image, &writer->resources[i]) ||
		     number_text(&writer->strings, pool, image, &string)))
			return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		if (number_text(&writer->strings, pool, writer->frames.list[i]->name,
				&writer->names[i]))
			return -ENOMEM;
	return 0;
}

static enum category category_of(const struct profile_frame *frame)
{
	if (!frame)
		return UNKNOWN;
	if (!strcmp(frame->image, PROFILE_HOST_IMAGE))
		return HOST;
	if (frame->kernel)
		return GUEST_KERNEL;
	return strcmp(frame->image, "[unknown]") ? GUEST_USER : UNKNOWN;
}

static bool same_node(const void *item, const void *key)
{
	const struct node *a = item, *b = key;

	return a->prefix == b->prefix && a->frame == b->frame;
}

/* Returns the node of FRAME below PREFIX; NONE without memory. */
static uint32_t add_node(struct thread *thread, uint32_t prefix, uint32_t frame)
{
	struct node wanted = { .prefix = prefix, .frame = frame }, *node;
	uint64_t hash = hash_mix(prefix, frame);

	node = hash_table_find(&thread->table, hash, same_node, &wanted);
	if (node)
		return node->number;
	node = pool_alloc(&thread->pool, sizeof(*node));
	if (!node || hash_table_add(&thread->table, hash, node) ||
	    array_reserve(&thread->nodes, &thread->node_capacity, thread->node_count + 1))
		return NONE;
	wanted.number = (uint32_t)thread->node_count;
	*node = wanted;
	thread->nodes[thread->node_count++] = node;
	return node->number;
}

static int add_stack(struct thread *thread, uint32_t index)
{
	const struct writer *writer = thread->writer;
	const struct numbered_stack *stack = writer->frames.stacks[index];
	uint32_t node = NONE;

	for (uint32_t i = 0; i < stack->depth; i++) {
		uint32_t frame = stack->frames[i];

		if (writer->local[frame] == NONE) {
			if (array_reserve(&thread->frames, &thread->frame_capacity,
					  thread->frame_count + 1))
				return -ENOMEM;
			writer->local[frame] = (uint32_t)thread->frame_count;
			thread->frames[thread->frame_count++] = frame;
		}
		node = add_node(thread, node, writer->local[frame]);
		if (node == NONE)
			return -ENOMEM;
	}
	writer->leaves[index] = node;
	return 0;
}

/* The value of a column in a row; INT64_MIN: null. */
typedef int64_t column(const struct thread *thread, size_t row);

static int64_t or_null(uint32_t number)
{
	return number == NONE ? INT64_MIN : number;
}

static int64_t sample_stack(const struct thread *thread, size_t row)
{
	return thread->writer->leaves[thread->samples[row].stack];
}

static int64_t sample_weight(const struct thread *thread, size_t row)
{
	return (int64_t)thread->samples[row].weight;
}

static int64_t node_frame(const struct thread *thread, size_t row)
{
	return thread->nodes[row]->frame;
}

static int64_t node_prefix(const struct thread *thread, size_t row)
{
	return or_null(thread->nodes[row]->prefix);
}

static int64_t frame_category(const struct thread *thread, size_t row)
{
	return category_of(thread->writer->frames.list[thread->frames[row]]->frame);
}

static int64_t frame_name(const struct thread *thread, size_t row)
{
	return thread->writer->names[thread->frames[row]];
}

static int64_t frame_resource(const struct thread *thread, size_t row)
{
	uint32_t resource = thread->writer->resources[thread->frames[row]];

	return resource == NONE ? -1 : (int64_t)resource;
}

static int64_t own_number(const struct thread *thread, size_t row)
{
	(void)thread;
	return (int64_t)row;
}

static void put_column(const struct thread *thread, const char *name, size_t rows, column *value)
{
	FILE *to = thread->writer->to;

	fprintf(to, ",\n\"%s\":[", name);
	for (size_t i = 0; i < rows; i++) {
		int64_t number = value(thread, i);

		if (i)
			fputc(',', to);
		if (number == INT64_MIN)
			fputs("null", to);
		else
			fprintf(to, "%" PRId64, number);
	}
	fputc(']', to);
}

static void put_constants(const struct thread *thread, const char *name, size_t rows,
			  const char *value)
{
	FILE *to = thread->writer->to;

	fprintf(to, ",\n\"%s\":[", name);
	for (size_t i = 0; i < rows; i++)
		fprintf(to, "%s%s", i ? "," : "", value);
	fputc(']', to);
}

static double milliseconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_MS;
}

static const struct profile_event *event_of(const struct writer *writer)
{
	return profile_event(writer->profile, profile_event_chosen(writer->profile));
}

/* A clock's weights are times; its samples also show how busy the vCPU was. */
static void put_samples(const struct thread *thread)
{
	const struct writer *writer = thread->writer;
	FILE *to = writer->to;
	bool clock = event_of(writer)->unit == PROFILE_NANOSECONDS;

	fprintf(to, ",\n\"samples\":{\"length\":%zu,\"weightType\":\"%s\"", thread->count,
		clock ? "tracing-ms" : "samples");
	put_column(thread, "stack", thread->count, sample_stack);
	fputs(",\n\"time\":[", to);
	for (size_t i = 0; i < thread->count; i++)
		fprintf(to, "%s%.6f", i ? "," : "",
			milliseconds(thread->samples[i].time - writer->start));
	fputc(']', to);
	if (clock) {
		put_column(thread, "threadCPUDelta", thread->count, sample_weight);
		fputs(",\n\"weight\":[", to);
		for (size_t i = 0; i < thread->count; i++)
			fprintf(to, "%s%.6f", i ? "," : "",
				milliseconds(thread->samples[i].weight));
		fputc(']', to);
	} else {
		put_column(thread, "weight", thread->count, sample_weight);
	}
	fputc('}', to);
}

static void begin_table(const struct thread *thread, const char *name, size_t rows)
{
	fprintf(thread->writer->to, ",\n\"%s\":{\"length\":%zu", name, rows);
}

static void end_table(const struct thread *thread)
{
	fputc('}', thread->writer->to);
}

static void put_frame_table(const struct thread *thread)
{
	size_t rows = thread->frame_count;

	begin_table(thread, "frameTable", rows);
	put_constants(thread, "address", rows, "-1");
	put_constants(thread, "inlineDepth", rows, "0");
	put_column(thread, "category", rows, frame_category);
	put_constants(thread, "subcategory", rows, "0");
	put_column(thread, "func", rows, own_number);
	put_constants(thread, "nativeSymbol", rows, "null");
	put_constants(thread, "innerWindowID", rows, "null");
	put_constants(thread, "line", rows, "null");
	put_constants(thread, "column", rows, "null");
	end_table(thread);
}

static void put_function_table(const struct thread *thread)
{
	size_t rows = thread->frame_count;

	begin_table(thread, "funcTable", rows);
	put_column(thread, "name", rows, frame_name);
	put_constants(thread, "isJS", rows, "false");
	put_constants(thread, "relevantForJS", rows, "false");
	put_column(thread, "resource", rows, frame_resource);
	put_constants(thread, "fileName", rows, "null");
	put_constants(thread, "lineNumber", rows, "null");
	put_constants(thread, "columnNumber", rows, "null");
	end_table(thread);
}

/* Each has the time outside of the guest since the one before, which is not one interval. */
static void put_marker_times(const struct thread *thread)
{
	const struct writer *writer = thread->writer;
	FILE *to = writer->to;

	fputs(",\n\"startTime\":[", to);
	for (size_t i = 0; i < thread->marker_count; i++)
		fprintf(to, "%s%.6f", i ? "," : "",
			milliseconds(thread->markers[i].time - writer->start));
	fputs("],\n\"data\":[", to);
	for (size_t i = 0; i < thread->marker_count; i++)
		fprintf(to, "%s{\"type\":\"outside\",\"time\":%.6f}", i ? "," : "",
			milliseconds(thread->markers[i].weight));
	fputc(']', to);
}

static int64_t marker_name(const struct thread *thread, size_t row)
{
	const struct writer *writer = thread->writer;
	const struct numbered_stack *stack = writer->frames.stacks[thread->markers[row].stack];

	return writer->names[stack->frames[stack->depth - 1]];
}

static int64_t host_category(const struct thread *thread, size_t row)
{
	(void)thread;
	(void)row;
	return HOST;
}

static void put_markers(const struct thread *thread)
{
	size_t rows = thread->marker_count;

	begin_table(thread, "markers", rows);
	put_column(thread, "name", rows, marker_name);
	put_marker_times(thread);
	put_constants(thread, "endTime", rows, "null");
	put_constants(thread, "phase", rows, INSTANT);
	put_column(thread, "category", rows, host_category);
	end_table(thread);
}

static void put_tables(const struct thread *thread)
{
	size_t images = thread->writer->images.count;

	put_samples(thread);
	begin_table(thread, "stackTable", thread->node_count);
	put_column(thread, "frame", thread->node_count, node_frame);
	put_column(thread, "prefix", thread->node_count, node_prefix);
	end_table(thread);
	put_frame_table(thread);
	put_function_table(thread);
	begin_table(thread, "resourceTable", images);
	put_constants(thread, "lib", images, "null");
	put_column(thread, "name", images, own_number); /* see number_texts() */
	put_constants(thread, "host", images, "null");
	put_constants(thread, "type", images, LIBRARY);
	end_table(thread);
	fputs(",\n\"nativeSymbols\":{\"length\":0,\"libIndex\":[],\"address\":[],\"name\":[],"
	      "\"functionSize\":[]}",
	      thread->writer->to);
	put_markers(thread);
}

static const char *guest_name(const struct writer *writer)
{
	const char *hostname = profile_summary(writer->profile)->hostname;

	return *hostname ? hostname : "guest";
}

/* All vCPUs are threads of one process, the guest. */
static void put_thread(const struct thread *thread, bool first)
{
	FILE *to = thread->writer->to;
	char name[32];

	vcpu_name(thread->vcpu, name, sizeof(name));
	fprintf(to,
		"%s{\"name\":\"%s\",\"tid\":\"%s\",\"pid\":\"1\",\"processType\":\"default\","
		"\"isMainThread\":%s,\"processStartupTime\":0,\"processShutdownTime\":null,"
		"\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\"processName\":",
		first ? "\n" : ",\n", name, name, first ? "true" : "false");
	json_text_put(to, guest_name(thread->writer));
	put_tables(thread);
	fputc('}', to);
}

static bool is_of(const struct writer *writer, const struct profile_sample *sample, size_t event)
{
	return profile_stack(writer->profile, sample->stack)->event == event;
}

/* Markers are the events of time outside of the guest, unless one of them is exported. */
static bool is_marker(const struct writer *writer, const struct profile_sample *sample)
{
	size_t event = profile_stack(writer->profile, sample->stack)->event;
	const char *name = profile_event(writer->profile, event)->name;

	return event != profile_event_chosen(writer->profile) && !strncmp(name, "kvm:", 4);
}

/* Divides the COUNT samples of a vCPU. 0 or -ENOMEM. */
static int divide_samples(struct thread *thread, const struct profile_sample *samples, size_t count)
{
	const struct writer *writer = thread->writer;
	struct profile_sample *next = malloc(count * sizeof(*next));

	thread->samples = next;
	thread->vcpu = samples->vcpu;
	if (!next)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (is_of(writer, &samples[i], profile_event_chosen(writer->profile)))
			*next++ = samples[i];
	thread->count = (size_t)(next - thread->samples);
	thread->markers = next;
	for (size_t i = 0; i < count; i++)
		if (is_marker(writer, &samples[i]))
			*next++ = samples[i];
	thread->marker_count = (size_t)(next - thread->markers);
	return 0;
}

static int put_vcpu(const struct writer *writer, size_t first, size_t count)
{
	struct thread thread = { .writer = writer };
	int error =
		divide_samples(&thread, profile_samples_by_vcpu(writer->profile) + first, count);

	for (size_t i = 0; i < thread.count && !error; i++)
		if (writer->leaves[thread.samples[i].stack] == NONE)
			error = add_stack(&thread, thread.samples[i].stack);
	if (!error)
		put_thread(&thread, !first);
	for (size_t i = 0; i < thread.frame_count; i++)
		writer->local[thread.frames[i]] = NONE;
	hash_table_free(&thread.table);
	pool_free(&thread.pool);
	free(thread.samples);
	free(thread.nodes);
	free(thread.frames);
	return error;
}

static int put_threads(struct writer *writer)
{
	size_t frames = writer->frames.count, stacks = profile_stack_count(writer->profile), count;
	int error = 0;

	writer->local = malloc((frames + stacks + 1) * sizeof(uint32_t));
	if (!writer->local)
		return -ENOMEM;
	memset(writer->local, 0xff, (frames + stacks) * sizeof(uint32_t)); /* NONE */
	writer->leaves = writer->local + frames;
	fputs(",\n\"threads\":[", writer->to);
	for (size_t i = 0; !error && (count = samples_of_vcpu(writer->profile, i)); i += count)
		error = put_vcpu(writer, i, count);
	fputs("]}\n", writer->to);
	return error;
}

static void put_strings(const struct writer *writer)
{
	fputs("\"libs\":[],\n\"shared\":{\"stringArray\":[", writer->to);
	for (size_t i = 0; i < writer->strings.count; i++) {
		if (i)
			fputs(",\n", writer->to);
		json_text_put(writer->to, writer->strings.texts[i]);
	}
	fputs("]}", writer->to);
}

static void put_vcpus_shown(const struct writer *writer)
{
	size_t number = 0, count;

	fputs("\"initialVisibleThreads\":[", writer->to);
	for (size_t i = 0; (count = samples_of_vcpu(writer->profile, i)); i += count)
		fprintf(writer->to, "%s%zu", number ? "," : "", number), number++;
	fprintf(writer->to, "],\"initialSelectedThreads\":[%s]", number ? "0" : "");
}

static void put_meta(const struct writer *writer)
{
	const struct perf_data_summary *summary = profile_summary(writer->profile);
	const struct profile_event *event = event_of(writer);
	FILE *to = writer->to;

	fprintf(to,
		"{\"meta\":{\"version\":31,\"preprocessedProfileVersion\":56,\"processType\":0,"
		"\"stackwalk\":1,\"symbolicated\":true,\"interval\":%.6f,\"markerSchema\":["
		"{\"name\":\"outside\",\"display\":[\"marker-chart\",\"marker-table\"],"
		"\"fields\":[{\"key\":\"time\",\"label\":\"Time outside of the guest\","
		"\"format\":\"duration\"}]}],"
		"\"startTime\":%" PRIu64 ",\"importedFrom\":\"kvmscope " KVMSCOPE_VERSION "\","
		"\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"},"
		"\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,"
		"\"keepProfileThreadOrder\":true,\"categories\":%s,\n",
		event->frequency ? 1000.0 / (double)event->frequency : 1.0,
		report_wall_time(summary, writer->start) / NS_PER_MS, categories);
	put_vcpus_shown(writer);
	fputs(",\"product\":", to);
	json_text_put(to, guest_name(writer));
	fputs(",\"oscpu\":", to);
	json_text_put(to, summary->release);
	fputs(",\"abi\":", to);
	json_text_put(to, summary->arch);
	fputs(",\"arguments\":", to);
	json_text_put(to, summary->command_line);
	fputs("},\n", to);
}

static uint64_t first_time(const struct profile *profile)
{
	const struct profile_sample *samples = profile_samples_by_vcpu(profile);
	uint64_t first = UINT64_MAX;
	size_t count;

	for (size_t i = 0; (count = samples_of_vcpu(profile, i)); i += count)
		if (samples[i].time < first)
			first = samples[i].time;
	return first == UINT64_MAX ? 0 : first;
}

int firefox_write(const struct profile *profile, FILE *to)
{
	struct writer writer = { .profile = profile, .to = to, .start = first_time(profile) };
	int error = numbered_frames_make(&writer.frames, profile);

	if (!error && number_texts(&writer))
		error = error_set(-ENOMEM, "no memory for the profile");
	if (!error) {
		put_meta(&writer);
		put_strings(&writer);
		error = put_threads(&writer);
		if (error)
			error_set(error, "no memory for the profile");
	}
	hash_table_free(&writer.strings.table);
	hash_table_free(&writer.images.table);
	free(writer.strings.texts);
	free(writer.images.texts);
	free(writer.names);
	free(writer.local);
	numbered_frames_free(&writer.frames);
	if (!error && (fflush(to) || ferror(to)))
		error = error_set(-EIO, "cannot write the profile: %s", strerror(errno));
	return error;
}
