/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/top_display.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define NCURSES_WIDECHAR 1
#include <curses.h>

#include "shared/error.h"
#include "shared/printable.h"

/* Characters of a line that are converted; more do not fit a terminal. */
#define LINE_MAX_WIDTH 1024
/* Lines below which there are no empty lines. */
#define TALL_LINES 16
#define KEY_ESCAPE 27

enum mode { SHOW_FUNCTIONS, SHOW_CALLERS, SHOW_HELP };

/* A function, also in later reports. */
struct chosen_function {
	pid_t pid;
	int fd;
	char function[256], image[128], process[64];
};

struct top_display {
	struct top_view *view;
	SCREEN *terminal;
	enum mode mode;
	bool paused;
	const char *prompt;            /* NULL: keys are commands */
	char input[64];                /* the answer to PROMPT */
	const char *message;           /* instead of the hint, until the next key */
	size_t selected;               /* row of the functions */
	size_t first;                  /* line at the top of the functions, callers or help */
	size_t room;                   /* lines that fit there */
	struct chosen_function chosen; /* whose callers are shown */
	bool choosing;                 /* it is the selected one from the next drawing on */
};

static const char *const help[] = {
	"q              quit",
	"h ?            this help",
	"p Space        pause, or continue",
	"Up Down        select a function (also k j, PgUp PgDn, Home End)",
	"Enter          callers of the selected function",
	"s              sort the functions by the next of: cpu, vm, process, function",
	"f /            show only functions, images, processes and VMs with a text",
	"d              length of an interval in seconds",
	"1 v            a line for each vCPU, or only for each VM",
	"Ctrl-L         draw the screen again",
	"",
	"%CPU      time of an interval, in percent of one CPU",
	"[k] [.]   a function of the guest's kernel, or of a program",
	"guest     the vCPUs run the guest",
	"KVM VMM   the vCPUs' threads run KVM, or the program of the VM",
	"onCPU     one of these three, where this host's KVM reports no exits",
	"wait      ready, but another thread has the CPU",
	"halt      the guest is idle",
	"block     asleep for another reason, such as a paused VM",
	"exits/s   how often the vCPUs leave the guest, and the most frequent reason",
	"",
	"Esc, Enter or q: back",
};

#define HELP_LINES (sizeof(help) / sizeof(help[0]))

/* The terminal */

int top_display_open(struct top_display **result, struct top_view *view)
{
	struct top_display *display;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return error_set(-ENOTSUP, "kvmscope top needs a terminal: --batch prints tables");
	display = calloc(1, sizeof(*display));
	if (!display)
		return error_set(-ENOMEM, "no memory for the screen");
	setlocale(LC_CTYPE, ""); /* not the format of numbers */
	display->view = view;
	display->terminal = newterm(NULL, stdout, stdin);
	if (!display->terminal) {
		free(display);
		return error_set(-ENOTSUP, "the terminal '%s' is unknown: --batch prints tables",
				 getenv("TERM") ? getenv("TERM") : "");
	}
	cbreak();
	noecho();
	nonl();
	curs_set(0);
	set_escdelay(50);
	keypad(stdscr, true);
	nodelay(stdscr, true);
	*result = display;
	return 0;
}

void top_display_close(struct top_display *display)
{
	if (!display)
		return;
	/* Without another screen to return to, what is shown stays; the shell's line is free. */
	move(LINES - 1, 0);
	clrtoeol();
	refresh();
	endwin();
	delscreen(display->terminal);
	free(display);
}

/* SIGWINCH is blocked, so ncurses does not see it. */
void top_display_resize(void)
{
	struct winsize size;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col)
		resizeterm(size.ws_row, size.ws_col);
	clearok(stdscr, true);
}

bool top_display_is_paused(const struct top_display *display)
{
	return display->paused;
}

/* Lines */

/* The next character of TEXT, which advances; '?' for what cannot be shown here. */
static wchar_t next_character(const char **text)
{
	mbstate_t state = { 0 };
	wchar_t character;
	size_t size = mbrtowc(&character, *text, MB_CUR_MAX, &state);

	if (size == (size_t)-1 || size == (size_t)-2 || !size) {
		(*text)++;
		while ((**text & 0xc0) == 0x80)
			(*text)++;
		return L'?';
	}
	*text += size;
	return wcwidth(character) < 0 ? L'?' : character;
}

/* As much of TEXT as fits into the line at ROW. The rest of the line gets the attributes, too. */
static void put_line(int row, const char *text, attr_t attributes)
{
	wchar_t line[LINE_MAX_WIDTH + 1];
	int columns = COLS < LINE_MAX_WIDTH ? COLS : LINE_MAX_WIDTH, width = 0;
	size_t length = 0;

	if (row >= LINES)
		return;
	while (*text && *text != '\n' && length < LINE_MAX_WIDTH) {
		wchar_t character = next_character(&text);

		if (width + wcwidth(character) > columns)
			break;
		width += wcwidth(character);
		line[length++] = character;
	}
	attrset(attributes);
	mvaddnwstr(row, 0, line, (int)length);
	if (attributes)
		mvhline(row, width, ' ' | attributes, columns - width);
	attrset(A_NORMAL);
}

/* Lines of a text in memory. */
struct text {
	char *bytes;
	size_t size;
	FILE *to;
};

static bool text_open(struct text *text)
{
	*text = (struct text){ 0 };
	text->to = open_memstream(&text->bytes, &text->size);
	return text->to;
}

static const char *next_line(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

/* Puts at most MOST lines of TEXT from ROW on, the first with TITLE, line SELECTED with reverse
 * video. Returns the number. Frees TEXT. */
static int put_text(struct text *text, int row, int most, attr_t title, int selected)
{
	int count = 0;

	if (fclose(text->to))
		most = 0;
	for (const char *line = text->bytes; line && *line && count < most;
	     line = next_line(line)) {
		put_line(row + count, line,
			 !count              ? title
			 : count == selected ? A_REVERSE
					     : A_NORMAL);
		count++;
	}
	free(text->bytes);
	return count;
}

/* Parts of the screen */

static int draw_summary(const struct top_display *display, struct top_vm *const *vms, size_t count)
{
	struct text text;

	if (!text_open(&text))
		return 0;
	if (display->paused)
		fputs("PAUSED  ", text.to);
	top_print_summary(vms, count, display->view, text.to);
	return put_text(&text, 0, 1, A_BOLD, -1);
}

/* At most half of the screen; the busiest VMs are first. */
static int draw_vms(const struct top_display *display, struct top_vm *const *vms, size_t count,
		    int row)
{
	int most = LINES / 2 - row < 2 ? 2 : LINES / 2 - row;
	struct text text;

	if (!text_open(&text))
		return row;
	top_print_vms(vms, count, display->view, text.to);
	return row + put_text(&text, row, most, A_REVERSE, -1);
}

static bool is_chosen(const struct chosen_function *chosen, const struct top_function *function)
{
	return chosen->pid == function->vm->pid && chosen->fd == function->vm->fd &&
	       !strncmp(chosen->function, function->function, sizeof(chosen->function) - 1) &&
	       !strncmp(chosen->image, function->image, sizeof(chosen->image) - 1) &&
	       !strncmp(chosen->process, function->process, sizeof(chosen->process) - 1);
}

static void choose(struct chosen_function *chosen, const struct top_function *function)
{
	chosen->pid = function->vm->pid;
	chosen->fd = function->vm->fd;
	snprintf(chosen->function, sizeof(chosen->function), "%s", function->function);
	snprintf(chosen->image, sizeof(chosen->image), "%s", function->image);
	snprintf(chosen->process, sizeof(chosen->process), "%s", function->process);
}

static void keep_in_view(struct top_display *display, size_t count)
{
	if (display->selected >= count)
		display->selected = count ? count - 1 : 0;
	if (display->first > display->selected)
		display->first = display->selected;
	if (display->selected >= display->first + display->room)
		display->first = display->selected + 1 - display->room;
}

static void choose_selected(struct top_display *display, const struct top_functions *functions)
{
	display->choosing = false;
	if (display->selected >= functions->count)
		display->selected = functions->count ? functions->count - 1 : 0;
	if (functions->count)
		choose(&display->chosen, functions->rows[display->selected]);
	else
		display->mode = SHOW_FUNCTIONS;
}

static void draw_functions(struct top_display *display, const struct top_functions *functions,
			   size_t vm_count, int row)
{
	struct text text;

	display->room = LINES - row - 2 > 1 ? (size_t)(LINES - row - 2) : 1;
	keep_in_view(display, functions->count);
	if (!text_open(&text))
		return;
	top_print_functions(functions, display->first, display->room, vm_count, display->view,
			    text.to);
	put_text(&text, row, (int)display->room + 1, A_REVERSE,
		 (int)(display->selected - display->first) + 1);
}

static const struct top_function *find_chosen(const struct top_display *display,
					      const struct top_functions *functions)
{
	for (size_t i = 0; i < functions->count; i++)
		if (is_chosen(&display->chosen, functions->rows[i]))
			return functions->rows[i];
	return NULL;
}

static size_t count_lines(const char *text)
{
	size_t count = 0;

	for (; *text; text = next_line(text))
		count++;
	return count;
}

static void draw_callers(struct top_display *display, const struct top_functions *functions,
			 int row)
{
	const struct top_function *function = find_chosen(display, functions);
	const char *callers = function ? function->callers : "", *process = display->chosen.process;
	char title[512];
	size_t lines = count_lines(callers);

	display->room = LINES - row - 2 > 1 ? (size_t)(LINES - row - 2) : 1;
	if (display->first + display->room > lines)
		display->first = lines > display->room ? lines - display->room : 0;
	snprintf(title, sizeof(title), "callers of %s%s%s  (Esc: back)", display->chosen.function,
		 *process ? " in " : "", process);
	put_line(row++, title, A_REVERSE);
	if (!lines)
		put_line(row, function ? "  no callers are known" : "  no samples in this interval",
			 A_NORMAL);
	for (size_t i = 0; i < display->first; i++)
		callers = next_line(callers);
	for (size_t i = 0; i < display->room && *callers; i++, callers = next_line(callers))
		put_line(row++, callers, A_NORMAL);
}

static void draw_help(struct top_display *display)
{
	display->room = LINES > 2 ? (size_t)LINES - 1 : 1;
	if (display->first + display->room > HELP_LINES)
		display->first = HELP_LINES > display->room ? HELP_LINES - display->room : 0;
	put_line(0, "kvmscope top: keys and columns", A_REVERSE);
	for (size_t i = display->first; i < HELP_LINES && i - display->first < display->room; i++)
		put_line((int)(i - display->first) + 1, help[i], A_NORMAL);
}

static void draw_last_line(const struct top_display *display, const struct top_functions *functions)
{
	char line[256];

	if (display->prompt)
		snprintf(line, sizeof(line), "%s%s_", display->prompt, display->input);
	else if (display->message)
		snprintf(line, sizeof(line), "%s", display->message);
	else if (!functions->count && *display->view->filter)
		snprintf(line, sizeof(line), "no function matches the filter (f changes it)");
	else
		snprintf(line, sizeof(line),
			 "q quit  h help  p pause  s sort  f filter  Enter callers  v vCPUs");
	put_line(LINES - 1, line, display->prompt ? A_BOLD : A_NORMAL);
}

void top_display_draw(struct top_display *display, struct top_vm *const *vms, size_t count)
{
	struct top_functions functions;
	int row;

	display->view->columns = (unsigned int)COLS;
	if (top_functions_find(&functions, vms, count, display->view->sort, display->view->filter))
		return;
	if (display->choosing)
		choose_selected(display, &functions);
	erase();
	if (display->mode == SHOW_HELP) {
		draw_help(display);
	} else {
		row = draw_vms(display, vms, count, draw_summary(display, vms, count));
		row += LINES >= TALL_LINES;
		if (display->mode == SHOW_CALLERS)
			draw_callers(display, &functions, row);
		else
			draw_functions(display, &functions, count, row);
		draw_last_line(display, &functions);
	}
	refresh();
	free(functions.rows);
}

/* Keys */

static void ask(struct top_display *display, const char *prompt, const char *text)
{
	display->prompt = prompt;
	snprintf(display->input, sizeof(display->input), "%s", text);
}

static const char filter_prompt[] = "filter (empty: all): ";
static const char delay_prompt[] = "seconds of an interval: ";

static enum top_action answer(struct top_display *display)
{
	const char *prompt = display->prompt;
	char *end;
	double delay = strtod(display->input, &end);

	display->prompt = NULL;
	if (prompt == filter_prompt) {
		snprintf(display->view->filter, sizeof(display->view->filter), "%s",
			 display->input);
		make_printable(display->view->filter);
		return TOP_DRAW;
	}
	if (*end || !(delay >= TOP_DELAY_MIN && delay <= TOP_DELAY_MAX)) {
		display->message = "it must be a number of seconds from 0.2 to 3600";
		return TOP_DRAW;
	}
	display->view->delay = delay;
	return TOP_DELAY;
}

/* A key of the line that the user enters. */
static enum top_action edit(struct top_display *display, int key)
{
	size_t length = strlen(display->input);

	if (key == '\r' || key == '\n' || key == KEY_ENTER)
		return answer(display);
	if (key == KEY_ESCAPE)
		display->prompt = NULL;
	else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && length)
		display->input[length - 1] = '\0';
	else if (key == ('U' & 0x1f))
		*display->input = '\0';
	else if (key >= ' ' && key < 127 && length + 1 < sizeof(display->input))
		memcpy(display->input + length, (char[]){ (char)key, '\0' }, 2);
	return TOP_DRAW;
}

static void move_up(struct top_display *display, size_t lines)
{
	size_t *line = display->mode == SHOW_FUNCTIONS ? &display->selected : &display->first;

	*line = *line > lines ? *line - lines : 0;
}

/* Drawing limits it. */
static void move_down(struct top_display *display, size_t lines)
{
	*(display->mode == SHOW_FUNCTIONS ? &display->selected : &display->first) += lines;
}

static bool move_by(struct top_display *display, int key)
{
	enum { END = 100000 };

	switch (key) {
	case KEY_UP:
	case 'k':
		move_up(display, 1);
		return true;
	case KEY_DOWN:
	case 'j':
		move_down(display, 1);
		return true;
	case KEY_PPAGE:
		move_up(display, display->room);
		return true;
	case KEY_NPAGE:
		move_down(display, display->room);
		return true;
	case KEY_HOME:
		move_up(display, END);
		return true;
	case KEY_END:
		move_down(display, END);
		return true;
	}
	return false;
}

static void show(struct top_display *display, enum mode mode)
{
	display->mode = mode;
	display->first = 0;
}

static enum top_action command(struct top_display *display, int key)
{
	struct top_view *view = display->view;
	char delay[32];

	switch (key) {
	case 'q':
		return TOP_QUIT;
	case 'h':
	case '?':
		show(display, SHOW_HELP);
		break;
	case 'p':
	case ' ':
		display->paused = !display->paused;
		break;
	case 's':
		view->sort = (view->sort + 1) % TOP_SORTS;
		display->selected = 0;
		break;
	case 'f':
	case '/':
		ask(display, filter_prompt, view->filter);
		break;
	case 'd':
		snprintf(delay, sizeof(delay), "%.3g", view->delay);
		ask(display, delay_prompt, delay);
		break;
	case '1':
	case 'v':
		view->per_vcpu = !view->per_vcpu;
		break;
	case '\r':
	case '\n':
	case KEY_ENTER:
		display->choosing = true;
		show(display, SHOW_CALLERS);
		break;
	case 'L' & 0x1f:
		clearok(stdscr, true);
		break;
	default:
		display->message = "unknown key: h shows the keys";
	}
	return TOP_DRAW;
}

static enum top_action handle(struct top_display *display, int key)
{
	display->message = NULL;
	if (display->prompt)
		return edit(display, key);
	if (move_by(display, key))
		return TOP_DRAW;
	if (display->mode != SHOW_FUNCTIONS &&
	    (key == KEY_ESCAPE || key == 'q' || key == '\r' || key == '\n' || key == KEY_ENTER ||
	     key == KEY_LEFT)) {
		show(display, SHOW_FUNCTIONS);
		return TOP_DRAW;
	}
	if (key == KEY_ESCAPE)
		return TOP_DRAW;
	return command(display, key);
}

/* The terminal has been closed: its end is readable for ever. */
static bool is_gone(void)
{
	int waiting = 0;

	return ioctl(STDIN_FILENO, FIONREAD, &waiting) || !waiting;
}

enum top_action top_display_keys(struct top_display *display)
{
	enum top_action most = TOP_CONTINUE;
	bool gone = is_gone();
	int key;

	while (most != TOP_QUIT && (key = getch()) != ERR) {
		enum top_action action = handle(display, key);

		gone = false;
		if (action > most)
			most = action;
	}
	return gone ? TOP_QUIT : most;
}
