/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvirt domains with hostile names, metadata and disks: one of each kind that libvirt 9.0
 * accepts. They are profiled like others, or are not, and nothing that displays them is deceived.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/kvm/libvirt_host.h"
#include "tests/kvm/text_file.h"
#include "tests/unit/pprof_store.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/domain_name.h"

/* The files that would appear below the daemon's directory if a name were run as a command. */
#define TRAP "trapped"

/* The longest name for which libvirt can create the file NAME.xml.new. */
#define NAME_MAX_OF_LIBVIRT 247
#define X16                 "xxxxxxxxxxxxxxxx"
#define X240                X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16

static const char *const names[] = {
	".",
	"..",
	"%2E",
	"-rf $(touch " TRAP ")`touch " TRAP "`",
	" a\\b*[c]?{d}\tq'u\"o ",
	"100%s%n",
	"<b>&amp;<name>",
	"two\n<3>kvmscope: lines\nkvmscope: more",
	"x\"} 1\nkvmscope_stops_total{domain=\"y",
	"host,domain=other,vcpu=7}",
	"b\xc3\xbcro \xe2\x80\xae\xe2\x80\xa8\xc2\x9b\x7f",
	X240 "xxxxxx1",
	X240 "xxxxxx2",
};

#define NAMES (sizeof(names) / sizeof(names[0]))

/* Those that are not profiled because of their metadata; their names say why. */
#define OWN "xmlns:k='urn:kvmscope:profile'"
static const struct {
	const char *name, *metadata, *output;
} refused[] = {
	{ "elsewhere",
	  "<k:profile xmlns:k='urn:kvmscope:profile2'/><o:x xmlns:o='urn:o'><k:profile " OWN
	  "/></o:x>",
	  NULL },
	{ "lines", "<k:profile " OWN " backend='a&#10;&lt;3>kvmscope: b&#13;'/>",
	  "backend is 'a?<3>kvmscope: b?'" },
	{ "unknown", "<k:profile " OWN " f='&lt;%n>'/>", "there is no setting 'f'" },
	{ "many", "<k:profile " OWN " a='' b='' c='' d='' e='' f='' g='' h='' i='' j=''/>",
	  "more attributes than" },
	/* libvirt cannot read it back either, by its own fault. */
	{ "entity", "<k:profile " OWN ">&secret;</k:profile>",
	  "domain entity requests a profile that cannot be read: cannot parse the XML of a domain" },
	{ "huge", NULL,
	  "domain huge requests a profile that cannot be read: the XML of a domain has more than" },
};

#define REFUSED (sizeof(refused) / sizeof(refused[0]))

/* The XML form of a name, whatever its bytes. */
static void put_text(FILE *to, const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || strchr("<>&'\"", *text))
			fprintf(to, "&#%d;", *text);
		else
			putc(*text, to);
}

static void put_metadata(FILE *to, const char *metadata)
{
	if (metadata) {
		fputs(metadata, to);
		return;
	}
	fputs("<k:profile " OWN "/><o:x xmlns:o='urn:o'>", to);
	for (int i = 0; i < 1 << 16; i++)
		fputs(X16, to);
	fputs("</o:x>", to);
}

/* Finds nothing to boot and retries every 3 seconds, so it uses a little CPU time, forever. */
static void write_domain(const char *path, const char *name, const char *metadata, const char *disk)
{
	FILE *file = fopen(path, "we");

	REQUIRE(file != NULL);
	fputs("<!DOCTYPE domain [<!ENTITY secret SYSTEM 'file:///etc/passwd'>]><domain type='qemu'><name>",
	      file);
	put_text(file, name);
	fputs("</name><title>&lt;/title>%s</title><description>a&#10;&lt;3>kvmscope: b</description><metadata>",
	      file);
	put_metadata(file, metadata);
	fputs("</metadata><memory unit='MiB'>16</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type>"
	      "<bios rebootTimeout='3000'/></os><devices><emulator>/usr/bin/qemu-system-x86_64</emulator>"
	      "<controller type='usb' model='none'/><memballoon model='none'/>",
	      file);
	if (disk) {
		fputs("<disk type='file'><driver name='qemu' type='raw'/><source file='", file);
		put_text(file, disk);
		fputs("'/><target dev='vda' bus='virtio'/></disk>", file);
	}
	fputs("</devices></domain>", file);
	fclose(file);
}

static bool start_domain(struct libvirt_host *host, const char *name, const char *metadata,
			 const char *disk)
{
	char path[128], arguments[160], text[1024];

	snprintf(path, sizeof(path), "%s/hostile.xml", host->libvirt.directory);
	write_domain(path, name, metadata, disk);
	snprintf(arguments, sizeof(arguments), "create %s", path);
	if (!libvirt_virsh(&host->libvirt, text, sizeof(text), arguments))
		return true;
	FAIL_TEST("libvirt does not start '%s': %s", name, text);
	return false;
}

/* A file name as hostile as a domain's. A slash is possible only before it. */
#define DISK                                                                                       \
	"disk\n<3>kvmscope: \xc2\x9b"                                                              \
	"31m$(touch " TRAP ").img"

static void make_disk(const struct libvirt_host *host, char path[256])
{
	FILE *file;

	snprintf(path, 256, "%s/" DISK, host->libvirt.directory);
	file = fopen(path, "we");
	REQUIRE(file != NULL && !fseek(file, (2 << 20) - 1, SEEK_SET) && putc(0, file) == 0);
	fclose(file);
}

static bool start_domains(struct libvirt_host *host)
{
	char disk[256];
	bool started = true;

	make_disk(host, disk);
	for (size_t i = 0; started && i < NAMES; i++)
		started = start_domain(host, names[i], FAKE_PROFILE("frequency='&#50;&#x30;'"),
				       i ? NULL : disk);
	for (size_t i = 0; started && i < REFUSED; i++)
		started = start_domain(host, refused[i].name, refused[i].metadata, NULL);
	return started;
}

/* The displayed form. */

static void check_is_one_of_them(const char *shown)
{
	char expected[DOMAIN_FILE_SIZE];

	for (size_t i = 0; i < NAMES; i++) {
		domain_name_escape(names[i], expected);
		if (!strcmp(shown, expected))
			return;
	}
	FAIL_TEST("no domain '%s'", shown);
}

/* By its real name, which may equal another domain's displayed form, and by its displayed form. */
static void check_status(const struct libvirt_host *host, const char *asked, const char *expected)
{
	json_t *status =
		daemon_run_ask(&host->daemon, "domain-status", json_pack("{s:s}", "domain", asked));

	CHECK_STRING(json_string_value(json_object_get(status, "domain")), expected);
	json_decref(status);
}

/*
 * The output of LINE, run where TRAP would be created; HERE is the tests' directory. The caller
 * frees it.
 */
static char *run(const struct libvirt_host *host, const char *line)
{
	char here[512] = "", command[2048], *text = calloc(1, 1 << 16);
	int status;

	CHECK(getcwd(here, sizeof(here)));
	snprintf(command, sizeof(command), "HERE=%s\n%s", here, line);
	status = libvirt_host_type(host, command, text, 1 << 16);
	if (status)
		FAIL_TEST("%s: status %d, %s", line, status, text);
	return text;
}

/* All values of one key in a JSON list or object. */
static void check_count(const char *what, size_t count)
{
	if (count != NAMES)
		FAIL_TEST("%zu of %zu domains are in %s", count, NAMES, what);
}

static void check_list(const struct libvirt_host *host)
{
	char *text = run(host, "kvmscope ctl --json list");
	json_t *list = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *domain;
	size_t i;

	if (!json_is_array(list))
		FAIL_TEST("no JSON: %s", text);
	check_count("kvmscope ctl list", json_array_size(list));
	json_array_foreach(list, i, domain)
		check_is_one_of_them(json_string_value(json_object_get(domain, "domain")));
	json_decref(list);
	free(text);
}

static void check_metrics(const struct libvirt_host *host, unsigned int port)
{
	char line[128], *text;
	const char *domain;
	json_t *domains, *series;

	snprintf(line, sizeof(line),
		 "$HERE/tests/kvm/metrics-of-domains http://127.0.0.1:%u/metrics", port);
	text = run(host, line);
	domains = json_loads(text, 0, NULL);
	if (!domains)
		FAIL_TEST("no metrics: %s", text);
	check_count("the metrics", json_object_size(domains));
	json_object_foreach(domains, domain, series)
	{
		check_is_one_of_them(domain);
		CHECK(json_object_get(series, "kvmscope_domain_requested") &&
		      json_object_get(series, "kvmscope_domain_sampled") &&
		      json_object_get(series, "kvmscope_samples_total"));
	}
	json_decref(domains);
	free(text);
}

static void check_directories(const struct libvirt_host *host)
{
	char file[DOMAIN_FILE_SIZE], path[512], name[512];
	size_t size;
	FILE *output;

	for (size_t i = 0; i < NAMES; i++) {
		domain_name_escape(names[i], file);
		snprintf(path, sizeof(path), "%s/recordings/%s/domain", host->daemon.directory,
			 file);
		output = fopen(path, "re");
		size = output ? fread(name, 1, sizeof(name) - 1, output) : 0;
		name[size] = '\0';
		CHECK_STRING(name, names[i]);
		if (output)
			fclose(output);
	}
}

/* What TAB completes to. */
static void check_completion(const struct libvirt_host *host)
{
	char *text = run(
		host,
		". $HERE/docs/completion/kvmscope.bash\n"
		"COMP_WORDS=(kvmscope attach --domain ''); COMP_CWORD=3; _kvmscope\n"
		"for reply in \"${COMPREPLY[@]}\"; do eval \"printf 'typed: %s\\n' $reply\"; done\n"
		"COMP_WORDS=(kvmscope ctl dump ''); _kvmscope\n"
		"printf 'shown: %s\\n' \"${COMPREPLY[@]}\"");

	CHECK(strstr(text, "typed: -rf $(touch " TRAP ")`touch " TRAP "`\n"));
	CHECK(strstr(text, "\nshown: -rf%20%24%28touch%20" TRAP "%29%60touch%20" TRAP "%60\n"));
	free(text);
}

/*
 * Checks that TEXT, the log of kvmscoped or the output of a command, has none of the hostile
 * strings.
 */
static void check_lines(const char *text)
{
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
		if (strncmp(line, "kvmscope: ", 10) != 0 && strncmp(line, "  ", 2) != 0 &&
		    *line != '/')
			FAIL_TEST("a line is '%.100s'", line);
		if (!strncmp(line, "kvmscope: lines", 15) || !strncmp(line, "kvmscope: more", 14))
			FAIL_TEST("a name is a line");
	}
	for (const char *at = text; *at; at++)
		if (((unsigned char)*at < ' ' && *at != '\n' && *at != '\t') || *at == 0x7f)
			FAIL_TEST("there is a control character: %.100s", at);
}

/* Image files are searched for on the disk. */
static void check_dump(const struct libvirt_host *host)
{
	char *text = run(host, "for ((;;)); do kvmscope ctl dump . && break; sleep 1; done");

	check_lines(text);
	CHECK(strstr(text, "/recordings/%2E/"));
	free(text);
}

static size_t count_of(const char *text, const char *what)
{
	size_t count = 0;

	for (const char *at = text; (at = strstr(at, what)); at++)
		count++;
	return count;
}

static void check_log(const struct libvirt_host *host)
{
	char *log = daemon_run_log(&host->daemon);

	check_lines(log);
	CHECK(strstr(
		log,
		"libvirt: domain two%0A%3C3%3Ekvmscope%3A%20lines%0Akvmscope%3A%20more: started\n"));
	for (size_t i = 0; i < REFUSED; i++)
		if (refused[i].output && count_of(log, refused[i].output) != 1)
			FAIL_TEST("'%s' occurs %zu times:\n%s", refused[i].output,
				  count_of(log, refused[i].output), log);
	free(log);
}

/* The labels of each domain, as read by the store. */
static void check_pushed(const struct libvirt_host *host, struct pprof_store *store)
{
	char shown[DOMAIN_FILE_SIZE], host_name[256] = "", label[2 * DOMAIN_FILE_SIZE + 256];

	gethostname(host_name, sizeof(host_name) - 1);
	for (size_t i = 0; i < NAMES; i++) {
		domain_name_escape(names[i], shown);
		snprintf(label, sizeof(label), "kvmscope{host=%s,domain=%s,vcpu=0}", host_name,
			 shown);
		CHECK(daemon_run_wait_for_samples(&host->daemon, names[i], 1));
		for (int tries = 0; tries < 600 && !pprof_store_find(store, label); tries++)
			usleep(100000);
		if (!pprof_store_find(store, label))
			FAIL_TEST("nothing was pushed for %s", shown);
	}
}

static void check_all(const struct libvirt_host *host, struct pprof_store *store, unsigned int port)
{
	char shown[DOMAIN_FILE_SIZE], trap[128];

	for (size_t i = 0; i < NAMES; i++) {
		domain_name_escape(names[i], shown);
		check_status(host, shown, shown);
		check_status(host, names[i], strcmp(names[i], "%2E") != 0 ? shown : "%2E");
	}
	check_list(host);
	check_pushed(host, store);
	check_metrics(host, port);
	check_directories(host);
	check_completion(host);
	check_dump(host);
	check_log(host);
	snprintf(trap, sizeof(trap), "%s/" TRAP, host->daemon.directory);
	CHECK(access(trap, F_OK) != 0);
}

/* They run, and end. Selected by number, since virsh interprets names. */
static void end_domains(struct libvirt_host *host)
{
	char *ids = run(host, "virsh -q list --id --state-running");

	CHECK_EQUAL(count_of(ids, "\n"), NAMES + REFUSED);
	free(ids);
	free(run(host, "for i in $(virsh -q list --id); do virsh -q destroy $i || exit 1; done"));
	CHECK(daemon_run_wait_for_domains(&host->daemon, 0));
	CHECK_EQUAL(daemon_run_stop(&host->daemon, SIGTERM), 0);
	libvirt_host_check_nothing_is_left(host, "*.xml");
}

/* A port that nothing uses now. */
static void find_port(unsigned int *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	REQUIRE(fd >= 0 && !bind(fd, (const struct sockaddr *)&address, size) &&
		!getsockname(fd, (struct sockaddr *)&address, &size));
	close(fd);
	*port = ntohs(address.sin_port);
}

static void prepare(struct libvirt_host *host, const struct pprof_store *store, unsigned int port)
{
	char conf[512];

	libvirt_host_prepare(host, "");
	snprintf(
		conf, sizeof(conf),
		"listen = 127.0.0.1:%u\n[recordings]\nrotate = 5s\n[push]\nurl = http://127.0.0.1:%u\nspool = %s/push\ninterval = 5s\n",
		port, store->port, host->daemon.directory);
	daemon_run_write_conf(&host->daemon, conf);
	libvirt_host_install_hook(host);
}

TEST(libvirt, names_metadata_and_disks_are_hostile)
{
	static struct pprof_store store;
	unsigned int port = 0;
	struct libvirt_host host;

	LIBVIRT_REQUIRED();
	pprof_store_init(&store);
	pprof_store_start(&store);
	find_port(&port);
	prepare(&host, &store, port);
	if (libvirt_daemon_start(&host.libvirt) && daemon_run_start(&host.daemon) &&
	    start_domains(&host) && daemon_run_wait_for_domains(&host.daemon, NAMES)) {
		check_all(&host, &store, port);
		end_domains(&host);
	}
	libvirt_host_end(&host);
	pprof_store_free(&store);
}
