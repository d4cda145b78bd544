/* SPDX-License-Identifier: Apache-2.0 */
/* The flame graph page, opened in a real browser without a network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/browser.h"
#include "tests/e2e/recorded_guest.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"

/* A recording of a guest and its page. */
static void begin(struct named_guest *recorded, const char *options)
{
	recorded_guest_begin(recorded, "vcpu 0", PERSPECTIVE_GUEST);
	recorded_guest_export(recorded, "flame.html", options);
}

static size_t count_of(const char *text, const char *part)
{
	size_t count = 0;

	for (; (text = strstr(text, part)); text += strlen(part))
		count++;
	return count;
}

TEST(flame_graph, draws_the_recording)
{
	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	FIXTURE(struct browser_page, opened, browser_show, browser_page_free, recorded.home,
		"flame.html");
	CHECK(count_of(opened.page, "class=\"frame\"") > 30);
	browser_check_shows(opened.page, "<h1 id=\"title\">Linux 6.1.0-test<");
	browser_check_shows(opened.page, "Flame graph of guest, x86_64");
	browser_check_shows(opened.page, "<dt>Samples</dt><dd>3,000</dd>");
	browser_check_shows(opened.page, "<dt>Lost</dt><dd>17</dd>");
	browser_check_shows(opened.page, "name=\"vcpu 1\"");
	browser_check_shows(opened.page, "Kernel module");
}

TEST(flame_graph, reports_that_it_shows_a_part)
{
	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "--time 10%/2");
	FIXTURE(struct browser_page, opened, browser_show, browser_page_free, recorded.home,
		"flame.html");
	browser_check_shows(opened.page, "<dt>Samples</dt><dd>300</dd>");
	browser_check_shows(opened.page, "Only a part of the recording: --time 10%/2.");
}

TEST(flame_graph, searches_and_zooms)
{
	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	FIXTURE(struct browser_page, opened, browser_show, browser_page_free, recorded.home,
		"flame.html#search=%3Dguest_function_0&zoom=vcpu+1&view=icicle");
	browser_check_shows(opened.page, "data-zoom=\"vcpu 1\"");
	browser_check_shows(opened.page, "data-view=\"icicle\"");
	browser_check_shows(opened.page, " frames</output>");
	/* Search results have a colour that no other frame has. */
	CHECK(count_of(opened.page, "fill=\"hsl(328") > 1);
	/* When zoomed into one vCPU, the other vCPU's frames are not drawn. */
	CHECK(!strstr(opened.page, "name=\"vcpu 0\""));
}

/* Names come from the guest: they must never become markup or run as code. */
TEST(flame_graph, shows_hostile_names_as_text)
{
	static const char hostile[] =
		"</script><script>document.title=\"owned\"</script><img/src=x/onerror=alert(1)>";

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, recorded_guest_begin, named_guest_end,
		"<b>'\"&</title>", PERSPECTIVE_GUEST);
	free(command_output(NULL, "printf '%%x T %%s\\n' 0x%llx '%s' > %s/kallsyms", FAKE_TEXT,
			    hostile, recorded.home));
	recorded_guest_export(&recorded, "flame.html", "--kallsyms $HOME/kallsyms");
	FIXTURE(struct browser_page, opened, browser_show, browser_page_free, recorded.home,
		"flame.html");
	CHECK(!strstr(opened.page, "<title>owned"));
	CHECK(!strstr(opened.page, "<img"));
	browser_check_shows(opened.page, "&lt;img/src=x/onerror=alert(1)&gt;");
	browser_check_shows(opened.page, ">&lt;b&gt;'\"&amp;&lt;/title&gt;<");
}

/*
 * Opens the page in a frame of STYLE with the view HASH. SCRIPT runs there: page is the document,
 * find(CSS) an element, click(CSS) clicks one, say(TEXT) adds to the text that is returned.
 */
static char *act_in(const struct named_guest *recorded, const char *style, const char *hash,
		    const char *script)
{
	struct browser_page opened;
	char *said;

	free(command_output(NULL,
			    "cat > %s/act.html <<'END'\n"
			    "<iframe id=frame style=%s src=flame.html%s></iframe>"
			    "<script>onload=()=>setTimeout(()=>{const page=frame.contentDocument;"
			    "const find=(css)=>page.querySelector(css);"
			    "const click=(css)=>find(css).dispatchEvent("
			    "new MouseEvent(\"click\",{bubbles:true}));"
			    "const hover=(css)=>find(css).dispatchEvent("
			    "new MouseEvent(\"mouseover\",{bubbles:true}));"
			    "const said=document.body.appendChild(document.createElement(\"pre\"));"
			    "const say=(text)=>said.append(`[${text}]`);%s},1000)</script>\nEND\n",
			    recorded->home, style, hash, script));
	browser_show(&opened, recorded->home, "act.html");
	said = strstr(opened.page, "<pre>");
	said = strdup(said ? said : "");
	browser_page_free(&opened);
	return said;
}

static char *act(const struct named_guest *recorded, const char *hash, const char *script)
{
	return act_in(recorded, "width:800px;height:600px", hash, script);
}

/*
 * Fails unless "[TOTAL][--time A,B]" begins *SAID and TOTAL is the one of an export with that
 * --time and OPTIONS. Advances *SAID to what follows.
 */
static void check_time(const struct named_guest *recorded, const char **said, const char *options)
{
	char total[64], times[64], arguments[160];
	int length = 0;

	REQUIRE(sscanf(*said, "[%63[^]]][%63[^]]]%n", total, times, &length) == 2 && length);
	snprintf(arguments, sizeof(arguments), "%s %s", times, options);
	recorded_guest_export(recorded, "flame.html", arguments);
	FIXTURE(struct browser_page, opened, browser_show, browser_page_free, recorded->home,
		"flame.html");
	snprintf(arguments, sizeof(arguments), "<dt>Total</dt><dd>%s</dd>", total);
	browser_check_shows(opened.page, arguments);
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
	const char *rest;
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	said = act(&recorded, "", script);
	REQUIRE(strstr(said, "<pre>") == said);
	rest = said + strlen("<pre>");
	check_time(&recorded, &rest, "");
	check_time(&recorded, &rest, "");
	check_time(&recorded, &rest, "--vcpu 1");
	browser_check_shows(rest, "[false][100% \302\267 3.00 s][true]");
	free(said);
}

/* The other events are a click or a key away; the selected time and function stay. */
TEST(flame_graph, switches_between_events)
{
	static const char script[] =
		"const fact=(number)=>find(`#facts div:nth-child(${number}) dd`).textContent;"
		"const state=()=>say(`${fact(1)}, ${fact(2)}, ${find(\"#sandwich\").hidden}: `+[...page.querySelectorAll("
		"\"#events button\")].map((button)=>button.ariaPressed).join());"
		"const frames=(name)=>page.querySelectorAll(`#graph g[name='${name}']`).length>0;"
		"const choose=(number)=>click(`#events button:nth-child(${number})`);"
		"say([...page.querySelectorAll(\"#events button\")].map((button)=>"
		"button.firstChild.textContent).join());state();say(frames(\"[exit npf]\"));"
		"choose(2);state();say(frames(\"[exit npf]\"));find(\"#graph\").focus();"
		"find(\"#graph\").dispatchEvent(new frame.contentWindow.KeyboardEvent("
		"\"keydown\",{key:\"e\",bubbles:true}));state();say(frames(\"[off-cpu halted]\"));"
		"say(find(\"#sandwich-title\").textContent);say(frame.contentWindow.location.hash);";
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, recorded_guest_begin_outside, named_guest_end);
	recorded_guest_export(&recorded, "flame.html", "");
	said = act(&recorded, "#function=guest_function_1", script);
	browser_check_shows(said, "[CPU time,Exits,Off CPU]"
				  "[cpu-clock, 2,400, false: true,false,false][false]"
				  "[kvm:exit, 300, false: false,true,false][true]"
				  "[kvm:off-cpu, 300, false: false,false,true][true]"
				  "[Callers and callees of guest_function_1]");
	browser_check_shows(said, "event=kvm%3Aoff-cpu");
	free(said);
	said = act(&recorded, "#event=kvm:exit&time=20,39",
		   "say(find(\"#graph g[name='[exit npf]']\")!==null);"
		   "say(frame.contentWindow.location.hash);");
	browser_check_shows(said, "[true]");
	browser_check_shows(said, "time=20%2C39");
	free(said);
	recorded_guest_export(&recorded, "flame.html", "--event kvm:exit");
	said = act(&recorded, "", "say(find(\"#events\").hidden);");
	browser_check_shows(said, "[true]");
	free(said);
}

TEST(flame_graph, a_click_pins_the_details)
{
	static const char script[] =
		"const name=()=>find(\"#details .name\").firstChild.textContent.trim();"
		"hover('g[name=\"vcpu 1\"]');say(name());click('g[name=\"vcpu 0\"]');"
		"hover('g[name=\"all\"]');say(name());"
		"click(\"#details .actions button:last-child\");"
		"hover('g[name=\"vcpu 0\"]');say(name());";
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	said = act(&recorded, "", script);
	browser_check_shows(said, "[vcpu 1][vcpu 0][vcpu 0]");
	free(said);
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
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	said = act(&recorded, "#hide=module", script);
	browser_check_shows(said, "[true 100% \302\267 ");
	browser_check_shows(said, " false][true true][true][false]");
	browser_check_shows(said, "hide=module&amp;recursion=merged");
	free(said);
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
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	said = act(&recorded, "#function=guest_function_1", script);
	browser_check_shows(said, "[Callers and callees of guest_function_1][true][true][true]"
				  "[Callers and callees of guest_function_0][true]");
	free(said);
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
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, recorded_guest_begin, named_guest_end, "vcpu 0",
		PERSPECTIVE_GUEST);
	free(command_output(NULL,
			    "for i in $(seq 100 199); do "
			    "printf 'ffffffff%%x T f%%d\\n' $((0x%llx + (i - 100) * 16)) $i; "
			    "done > %s/kallsyms",
			    FAKE_TEXT & UINT32_MAX, recorded.home));
	recorded_guest_export(&recorded, "flame.html", "--kallsyms $HOME/kallsyms");
	said = act(&recorded, "", script);
	browser_check_shows(said, "[40 descending][true true][true ascending][true descending]");
	free(said);
}

/* A window of 360 CSS pixels, as on phones. */
TEST(flame_graph, fits_a_phone)
{
	static const char measure[] =
		"const size=page.documentElement;"
		"const text=getComputedStyle(find(\".d3-flame-graph-label\")).fontSize;"
		"say(`${size.scrollWidth} of ${size.clientWidth} text ${text} "
		"button ${find(\"#reset\").offsetHeight} top ${find(\"#graph\").offsetTop} "
		"frames ${page.querySelectorAll(\"g.frame\").length}`);";
	int width = 0, window = 0, text = 0, button = 0, top = 0, frames = 0;
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	said = act_in(&recorded, "border:0;width:360px;height:740px", "", measure);
	if (sscanf(said, "<pre>[%d of %d text %dpx button %d top %d frames %d", &width, &window,
		   &text, &button, &top, &frames) != 6)
		FAIL_TEST("the page was not measured: %.300s", said);
	free(said);
	CHECK(window > 340 && window <= 360);
	CHECK_EQUAL(width, window);
	CHECK(text >= 12);
	CHECK(button >= 40);
	CHECK(top < 740 / 3);
	CHECK(frames > 10);
}

/* Taps and keys, each followed by the resulting state of the page. */
TEST(flame_graph, follows_taps_and_keys)
{
	static const char script[] =
		"const graph=find(\"#graph\");"
		"const key=(name)=>graph.dispatchEvent("
		"new frame.contentWindow.KeyboardEvent(\"keydown\",{key:name,bubbles:true}));"
		"const state=(what)=>say(`${what} ${graph.dataset.zoom}/"
		"${find(\"#details .name\").firstChild.textContent.trim()}`);"
		"click('g[name=\"vcpu 1\"]');state(\"tap\");graph.focus();"
		"key(\"Escape\");state(\"escape\");key(\"ArrowUp\");state(\"up\");"
		"key(\"ArrowDown\");state(\"down\");"
		"click(\"#invert\");key(\"ArrowDown\");key(\"Enter\");state(\"enter\");"
		"click(\"#reset\");state(\"reset\");";
	char *said;

	NEED_BROWSER;
	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	said = act(&recorded, "#view=flame", script);
	browser_check_shows(said, "[tap vcpu 1/vcpu 1]");
	browser_check_shows(said, "[escape all/all]");
	/*
	 * "Down" selects the widest frame: both vCPUs have half of the samples, but vCPU 0 has
	 * slightly more weight.
	 */
	browser_check_shows(said, "[up all/vcpu ");
	browser_check_shows(said, "[down all/all]");
	browser_check_shows(said, "[enter vcpu ");
	browser_check_shows(said, "[reset all/all]");
	free(said);
}

TEST(flame_graph, needs_no_network)
{
	char *page;

	FIXTURE(struct named_guest, recorded, begin, named_guest_end, "");
	page = command_output(NULL, "cat %s/flame.html", recorded.home);
	browser_check_shows(page, "default-src 'none'; script-src 'sha256-");
	CHECK(!strstr(page, "src=\"http"));
	CHECK(!strstr(page, "href=\"http"));
	CHECK(!strstr(page, "@import"));
	free(page);
}
