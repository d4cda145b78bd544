/* SPDX-License-Identifier: Apache-2.0 */
/* The flame graph page, opened in a real browser without a network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/browser.h"
#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

static struct browser_page open_page(const struct named_guest *recorded, const char *file,
				     const char *view)
{
	char url[512];

	snprintf(url, sizeof(url), "file://%s/%s%s", recorded->home, file, view);
	return browser_open(recorded->home, url);
}

static void export_page(const struct named_guest *recorded, const char *options)
{
	int status;

	free(command_output(&status, "build/kvmscope export -i %s -o %s/flame.html %s",
			    recorded->path, recorded->home, options));
	CHECK_EQUAL(status, 0);
}

static size_t count_of(const char *text, const char *part)
{
	size_t count = 0;

	for (; (text = strstr(text, part)); text += strlen(part))
		count++;
	return count;
}

static void check_contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		FAIL_TEST("the page lacks \"%s\"", part);
}

TEST(flame_graph, draws_the_recording)
{
	struct named_guest recorded;
	struct browser_page opened;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	opened = open_page(&recorded, "flame.html", "");
	CHECK_STRING(opened.console, "");
	CHECK(count_of(opened.page, "class=\"frame\"") > 30);
	check_contains(opened.page, "<h1 id=\"title\">Linux 6.1.0-test<");
	check_contains(opened.page, "Flame graph of guest, x86_64");
	check_contains(opened.page, "<dt>Samples</dt><dd>3,000</dd>");
	check_contains(opened.page, "<dt>Lost</dt><dd>17</dd>");
	check_contains(opened.page, "name=\"vcpu 1\"");
	check_contains(opened.page, "Kernel module");
	browser_page_free(&opened);
	named_guest_end(&recorded);
}

TEST(flame_graph, reports_that_it_shows_a_part)
{
	struct named_guest recorded;
	struct browser_page opened;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "--time 10%/2");
	opened = open_page(&recorded, "flame.html", "");
	check_contains(opened.page, "<dt>Samples</dt><dd>300</dd>");
	check_contains(opened.page, "Only a part of the recording: --time 10%/2.");
	browser_page_free(&opened);
	named_guest_end(&recorded);
}

TEST(flame_graph, searches_and_zooms)
{
	struct named_guest recorded;
	struct browser_page opened;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	opened = open_page(&recorded, "flame.html",
			   "#search=%3Dguest_function_0&zoom=vcpu+1&view=icicle");
	CHECK_STRING(opened.console, "");
	check_contains(opened.page, "data-zoom=\"vcpu 1\"");
	check_contains(opened.page, "data-view=\"icicle\"");
	check_contains(opened.page, " frames</output>");
	/* Search results have a colour that no other frame has. */
	CHECK(count_of(opened.page, "fill=\"hsl(328") > 1);
	/* When zoomed into one vCPU, the other vCPU's frames are not drawn. */
	CHECK(!strstr(opened.page, "name=\"vcpu 0\""));
	browser_page_free(&opened);
	named_guest_end(&recorded);
}

/* Names come from the guest: they must never become markup or run as code. */
TEST(flame_graph, shows_hostile_names_as_text)
{
	static const char hostile[] =
		"</script><script>document.title=\"owned\"</script><img/src=x/onerror=alert(1)>";
	struct named_guest recorded;
	struct browser_page opened;
	char options[160];

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "<b>'\"&</title>", PERSPECTIVE_GUEST);
	snprintf(options, sizeof(options), "--kallsyms %s/kallsyms", recorded.home);
	free(command_output(NULL, "printf '%%x T %%s\\n' 0x%llx '%s' > %s/kallsyms", FAKE_TEXT,
			    hostile, recorded.home));
	export_page(&recorded, options);
	opened = open_page(&recorded, "flame.html", "");
	CHECK_STRING(opened.console, "");
	CHECK(!strstr(opened.page, "<title>owned"));
	CHECK(!strstr(opened.page, "<img"));
	check_contains(opened.page, "&lt;img/src=x/onerror=alert(1)&gt;");
	check_contains(opened.page, ">&lt;b&gt;'\"&amp;&lt;/title&gt;<");
	browser_page_free(&opened);
	named_guest_end(&recorded);
}

/* Opens the page in a frame with the view HASH. SCRIPT runs there: page is the document, find(CSS)
 * an element, click(CSS) clicks one, say(TEXT) adds to the text that is returned. */
static char *act(const struct named_guest *recorded, const char *hash, const char *script)
{
	struct browser_page opened;
	char *said;

	free(command_output(
		NULL,
		"cat > %s/act.html <<'END'\n"
		"<iframe id=frame style=width:800px;height:600px src=flame.html%s></iframe>"
		"<script>onload=()=>setTimeout(()=>{const page=frame.contentDocument;"
		"const find=(css)=>page.querySelector(css);"
		"const click=(css)=>find(css).dispatchEvent("
		"new MouseEvent(\"click\",{bubbles:true}));"
		"const hover=(css)=>find(css).dispatchEvent("
		"new MouseEvent(\"mouseover\",{bubbles:true}));"
		"const said=document.body.appendChild(document.createElement(\"pre\"));"
		"const say=(text)=>said.append(`[${text}]`);%s},1000)</script>\nEND\n",
		recorded->home, hash, script));
	opened = open_page(recorded, "act.html", "");
	CHECK_STRING(opened.console, "");
	said = strstr(opened.page, "<pre>");
	said = strdup(said ? said : "");
	browser_page_free(&opened);
	return said;
}

/* Fails unless "[TOTAL][--time A,B]" begins *SAID and TOTAL is the one of an export with that
 * --time and OPTIONS. Advances *SAID to what follows. */
static void check_time(const struct named_guest *recorded, const char **said, const char *options)
{
	char total[64], times[64], arguments[160];
	struct browser_page opened;
	int length = 0;

	REQUIRE(sscanf(*said, "[%63[^]]][%63[^]]]%n", total, times, &length) == 2 && length);
	snprintf(arguments, sizeof(arguments), "%s %s", times, options);
	export_page(recorded, arguments);
	opened = open_page(recorded, "flame.html", "");
	snprintf(arguments, sizeof(arguments), "<dt>Total</dt><dd>%s</dd>", total);
	check_contains(opened.page, arguments);
	browser_page_free(&opened);
	*said += length;
}

/* Keys and a pointer select the same samples as --time and --vcpu do. */
TEST(flame_graph, shows_a_part_of_the_time)
{
	static const char script[] =
		"const time=()=>{say(find(\"#details dd\").textContent);"
		"say(/--time [0-9.,]+/.exec(find(\"#moment\").textContent)[0])};"
		"const key=(name,shiftKey)=>find(\"#heat-map\").dispatchEvent("
		"new frame.contentWindow.KeyboardEvent(\"keydown\",{key:name,shiftKey,bubbles:true}));"
		"const strips=find(\"#strips\"),box=strips.getBoundingClientRect();"
		"strips.setPointerCapture=()=>{};"
		"const point=(kind,part)=>strips.dispatchEvent("
		"new frame.contentWindow.PointerEvent(kind,{bubbles:true,"
		"clientX:box.left+box.width*part,clientY:box.top+5}));"
		"key(\"ArrowRight\");key(\"ArrowRight\",true);key(\"ArrowUp\",true);key(\"Enter\");time();"
		"point(\"pointerdown\",0.5);point(\"pointermove\",0.6);point(\"pointerup\",0.7);time();"
		"click(\"#vcpus button\");time();say(find(\"#vcpus button\").ariaPressed);"
		"click(\"#vcpus button\");click(\"#all-time\");say(find(\"#details dd\").textContent);"
		"say(find(\"#all-time\").hidden);";
	struct named_guest recorded;
	const char *rest;
	char *said;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	said = act(&recorded, "", script);
	REQUIRE(strstr(said, "<pre>") == said);
	rest = said + strlen("<pre>");
	check_time(&recorded, &rest, "");
	check_time(&recorded, &rest, "");
	check_time(&recorded, &rest, "--vcpu 1");
	check_contains(rest, "[false][100% \302\267 3.00 s][true]");
	free(said);
	named_guest_end(&recorded);
}

TEST(flame_graph, a_click_pins_the_details)
{
	static const char script[] =
		"const name=()=>find(\"#details .name\").firstChild.textContent.trim();"
		"hover('g[name=\"vcpu 1\"]');say(name());click('g[name=\"vcpu 0\"]');"
		"hover('g[name=\"all\"]');say(name());"
		"click(\"#details .actions button:last-child\");"
		"hover('g[name=\"vcpu 0\"]');say(name());";
	struct named_guest recorded;
	char *said;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	said = act(&recorded, "", script);
	check_contains(said, "[vcpu 1][vcpu 0][vcpu 0]");
	free(said);
	named_guest_end(&recorded);
}

TEST(flame_graph, hides_kinds_of_frames_and_merges_recursion)
{
	static const char script[] =
		"const frames=()=>page.querySelectorAll(\"#graph g.frame\").length;"
		"const kind=[...page.querySelectorAll(\"#legend button\")].find("
		"(button)=>button.textContent===\"Kernel\");"
		"const total=()=>find(\"#details dd\").textContent;const before=frames();"
		"kind.click();say(`${frames()<before/2} ${total()} ${kind.ariaPressed}`);"
		"kind.click();say(`${frames()===before} ${kind.ariaPressed}`);"
		"click(\"#recursion\");say(frames()<before);"
		"say([...page.querySelectorAll(\"#graph g.frame\")].some((frame)=>"
		"frame.__data__.parent&&frame.__data__.parent.data.frame===frame.__data__.data.frame));"
		"say(frame.contentWindow.location.hash);";
	struct named_guest recorded;
	char *said;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	said = act(&recorded, "#hide=module", script);
	check_contains(said, "[true 100% \302\267 ");
	check_contains(said, " false][true true][true][false]");
	check_contains(said, "hide=module&amp;recursion=merged");
	free(said);
	named_guest_end(&recorded);
}

/* The callers' and the callees' graph have as much time as the table says. */
TEST(flame_graph, shows_callers_and_callees_of_a_function)
{
	static const char script[] =
		"const width=(css)=>find(css).__data__.value;"
		"const root=(graph)=>width(`#${graph} g[name=guest_function_1]`);"
		"say(find(\"#sandwich-title\").textContent);"
		"say(root(\"callers\")===root(\"callees\")&&root(\"callers\")>0);"
		"say(find(\"#callers g[name='vcpu 1']\")!==null);"
		"say(find(\"#callees g[name='vcpu 1']\")===null);"
		"click(\"#functions tr td button\");say(find(\"#sandwich-title\").textContent);"
		"click(\"#close\");say(find(\"#sandwich\").hidden);";
	struct named_guest recorded;
	char *said;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	said = act(&recorded, "#function=guest_function_1", script);
	check_contains(said, "[Callers and callees of guest_function_1][true][true][true]"
			     "[Callers and callees of guest_function_0][true]");
	free(said);
	named_guest_end(&recorded);
}

TEST(flame_graph, the_table_sorts_and_shows_all_functions)
{
	static const char script[] =
		"const rows=()=>page.querySelectorAll(\"#functions tr\");"
		"const first=()=>rows()[0].querySelector(\"button\").textContent;"
		"const head=(key)=>find(`th[data-key=${key}]`);"
		"say(`${rows().length} ${head(\"self\").ariaSort}`);click(\"#more\");"
		"say(`${rows().length>40} ${find(\"#more\").hidden}`);"
		"head(\"name\").querySelector(\"button\").click();const names=[...rows()].map("
		"(row)=>row.querySelector(\"button\").textContent);"
		"say(`${names.join()===[...names].sort().join()} ${head(\"name\").ariaSort}`);"
		"head(\"name\").querySelector(\"button\").click();"
		"say(`${first()===names[names.length-1]} ${head(\"name\").ariaSort}`);";
	struct named_guest recorded;
	char *said, options[160];

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	free(command_output(NULL,
			    "for i in $(seq 100 199); do "
			    "printf 'ffffffff%%x T f%%d\\n' $((0x%llx + (i - 100) * 16)) $i; "
			    "done > %s/kallsyms",
			    FAKE_TEXT & UINT32_MAX, recorded.home));
	snprintf(options, sizeof(options), "--kallsyms %s/kallsyms", recorded.home);
	export_page(&recorded, options);
	said = act(&recorded, "", script);
	check_contains(said, "[40 descending][true true][true ascending][true descending]");
	free(said);
	named_guest_end(&recorded);
}

/* A window of 360 CSS pixels, as on phones: a frame in a page that measures it. */
TEST(flame_graph, fits_a_phone)
{
	static const char measure[] =
		"<iframe id=phone style=border:0;width:360px;height:740px src=flame.html></iframe>"
		"<script>onload=()=>setTimeout(()=>{const page=phone.contentDocument;"
		"const text=getComputedStyle(page.querySelector(\".d3-flame-graph-label\")).fontSize;"
		"const button=page.getElementById(\"reset\").offsetHeight;"
		"document.body.append(`measured ${page.documentElement.scrollWidth} of ${page.documentElement.clientWidth} text ${text} button ${button} "
		"top ${page.getElementById(\"graph\").offsetTop} frames ${page.querySelectorAll(\"g.frame\").length}`)},1000)</script>";
	struct named_guest recorded;
	struct browser_page opened;
	const char *found;
	int width = 0, window = 0, text = 0, button = 0, top = 0, frames = 0;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	free(command_output(NULL, "cat > %s/phone.html <<'END'\n%s\nEND\n", recorded.home,
			    measure));
	opened = open_page(&recorded, "phone.html", "");
	CHECK_STRING(opened.console, "");
	found = strstr(opened.page, "\nmeasured ");
	if (!found || sscanf(found, " measured %d of %d text %dpx button %d top %d frames %d",
			     &width, &window, &text, &button, &top, &frames) != 6)
		FAIL_TEST("the page was not measured: %.300s", opened.page);
	CHECK(window > 340 && window <= 360);
	CHECK_EQUAL(width, window);
	CHECK(text >= 12);
	CHECK(button >= 40);
	CHECK(top < 740 / 3);
	CHECK(frames > 10);
	browser_page_free(&opened);
	named_guest_end(&recorded);
}

/* Taps and keys, each followed by the resulting state of the page. */
TEST(flame_graph, follows_taps_and_keys)
{
	static const char act[] =
		"<iframe id=phone style=border:0;width:800px;height:600px src=flame.html#view=flame></iframe>"
		"<script>onload=()=>setTimeout(()=>{const page=phone.contentDocument,graph=page.getElementById(\"graph\");"
		"const key=(name)=>graph.dispatchEvent(new phone.contentWindow.KeyboardEvent(\"keydown\",{key:name,bubbles:true}));"
		"const say=(what)=>document.body.append(`${what} ${graph.dataset.zoom}/"
		"${page.querySelector(\"#details .name\").firstChild.textContent.trim()} `);"
		"page.querySelector(\"g[name=\\\"vcpu 1\\\"]\").dispatchEvent(new MouseEvent(\"click\",{bubbles:true}));say(\"tap\");"
		"graph.focus();key(\"Escape\");say(\"escape\");key(\"ArrowUp\");say(\"up\");key(\"ArrowDown\");say(\"down\");"
		"page.getElementById(\"invert\").click();key(\"ArrowDown\");key(\"Enter\");say(\"enter\");"
		"page.getElementById(\"reset\").click();say(\"reset\");"
		"},1000)</script>";
	struct named_guest recorded;
	struct browser_page opened;

	if (!browser_is_installed())
		SKIP("Chromium is not installed");
	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	free(command_output(NULL, "cat > %s/act.html <<'END'\n%s\nEND\n", recorded.home, act));
	opened = open_page(&recorded, "act.html", "");
	CHECK_STRING(opened.console, "");
	check_contains(opened.page, "tap vcpu 1/vcpu 1 ");
	check_contains(opened.page, "escape all/all ");
	/*
	 * "Down" selects the widest frame: both vCPUs have half of the samples, but vCPU 0 has
	 * slightly more weight.
	 */
	check_contains(opened.page, "up all/vcpu ");
	check_contains(opened.page, "down all/all ");
	check_contains(opened.page, "enter vcpu ");
	check_contains(opened.page, "reset all/all ");
	browser_page_free(&opened);
	named_guest_end(&recorded);
}

TEST(flame_graph, needs_no_network)
{
	struct named_guest recorded;
	char *page;

	recorded_guest_begin(&recorded, "vcpu 0", PERSPECTIVE_GUEST);
	export_page(&recorded, "");
	page = command_output(NULL, "cat %s/flame.html", recorded.home);
	check_contains(page, "default-src 'none'; script-src 'sha256-");
	CHECK(!strstr(page, "src=\"http"));
	CHECK(!strstr(page, "href=\"http"));
	CHECK(!strstr(page, "@import"));
	free(page);
	named_guest_end(&recorded);
}
