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
	struct top_display *screen;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return error_set(-ENOTSUP, "kvmscope top needs a terminal: --batch prints tables");
	screen = calloc(1, sizeof(*screen));
	if (!screen)
		return error_set(-ENOMEM, "no memory for the screen");
	setlocale(LC_CTYPE, ""); /* not the format of numbers */
	screen->view = view;
	screen->terminal = newterm(NULL, stdout, stdin);
	if (!screen->terminal) {
		free(screen);
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
	*result = screen;
	return 0;
}

void top_display_close(struct top_display *screen)
{
	if (!screen)
		return;
	/* Without another screen to return to, what is shown stays; the shell's line is free. */
	move(LINES - 1, 0);
	clrtoeol();
	refresh();
	endwin();
	delscreen(screen->terminal);
	free(screen);
}

/* SIGWINCH is blocked, so ncurses does not see it. */
void top_display_resize(struct top_display *screen)
{
	struct winsize size;

	(void)screen;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col)
		resizeterm(size.ws_row, size.ws_col);
	clearok(stdscr, true);
}

bool top_display_is_paused(const struct top_display *screen)
{
	return screen->paused;
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

static int draw_summary(const struct top_display *screen, struct top_vm *const *vms, size_t count)
{
	struct text text;

	if (!text_open(&text))
		return 0;
	if (screen->paused)
		fputs("PAUSED  ", text.to);
	top_print_summary(vms, count, screen->view, text.to);
	return put_text(&text, 0, 1, A_BOLD, -1);
}

/* At most half of the screen; the busiest VMs are first. */
static int draw_vms(const struct top_display *screen, struct top_vm *const *vms, size_t count,
		    int row)
{
	int most = LINES / 2 - row < 2 ? 2 : LINES / 2 - row;
	struct text text;

	if (!text_open(&text))
		return row;
	top_print_vms(vms, count, screen->view, text.to);
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

static void keep_in_view(struct top_display *screen, size_t count)
{
	if (screen->selected >= count)
		screen->selected = count ? count - 1 : 0;
	if (screen->first > screen->selected)
		screen->first = screen->selected;
	if (screen->selected >= screen->first + screen->room)
		screen->first = screen->selected + 1 - screen->room;
}

static void choose_selected(struct top_display *screen, const struct top_functions *functions)
{
	screen->choosing = false;
	if (screen->selected >= functions->count)
		screen->selected = functions->count ? functions->count - 1 : 0;
	if (functions->count)
		choose(&screen->chosen, functions->rows[screen->selected]);
	else
		screen->mode = SHOW_FUNCTIONS;
}

static void draw_functions(struct top_display *screen, const struct top_functions *functions,
			   size_t vm_count, int row)
{
	struct text text;

	screen->room = LINES - row - 2 > 1 ? (size_t)(LINES - row - 2) : 1;
	keep_in_view(screen, functions->count);
	if (!text_open(&text))
		return;
	top_print_functions(functions, screen->first, screen->room, vm_count, screen->view,
			    text.to);
	put_text(&text, row, (int)screen->room + 1, A_REVERSE,
		 (int)(screen->selected - screen->first) + 1);
}

static const struct top_function *find_chosen(const struct top_display *screen,
					      const struct top_functions *functions)
{
	for (size_t i = 0; i < functions->count; i++)
		if (is_chosen(&screen->chosen, functions->rows[i]))
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

static void draw_callers(struct top_display *screen, const struct top_functions *functions, int row)
{
	const struct top_function *function = find_chosen(screen, functions);
	const char *callers = function ? function->callers : "", *process = screen->chosen.process;
	char title[512];
	size_t lines = count_lines(callers);

	screen->room = LINES - row - 2 > 1 ? (size_t)(LINES - row - 2) : 1;
	if (screen->first + screen->room > lines)
		screen->first = lines > screen->room ? lines - screen->room : 0;
	snprintf(title, sizeof(title), "callers of %s%s%s  (Esc: back)", screen->chosen.function,
		 *process ? " in " : "", process);
	put_line(row++, title, A_REVERSE);
	if (!lines)
		put_line(row, function ? "  no callers are known" : "  no samples in this interval",
			 A_NORMAL);
	for (size_t i = 0; i < screen->first; i++)
		callers = next_line(callers);
	for (size_t i = 0; i < screen->room && *callers; i++, callers = next_line(callers))
		put_line(row++, callers, A_NORMAL);
}

static void draw_help(struct top_display *screen)
{
	screen->room = LINES > 2 ? (size_t)LINES - 1 : 1;
	if (screen->first + screen->room > HELP_LINES)
		screen->first = HELP_LINES > screen->room ? HELP_LINES - screen->room : 0;
	put_line(0, "kvmscope top: keys and columns", A_REVERSE);
	for (size_t i = screen->first; i < HELP_LINES && i - screen->first < screen->room; i++)
		put_line((int)(i - screen->first) + 1, help[i], A_NORMAL);
}

static void draw_last_line(const struct top_display *screen, const struct top_functions *functions)
{
	char line[256];

	if (screen->prompt)
		snprintf(line, sizeof(line), "%s%s_", screen->prompt, screen->input);
	else if (screen->message)
		snprintf(line, sizeof(line), "%s", screen->message);
	else if (!functions->count && *screen->view->filter)
		snprintf(line, sizeof(line), "no function matches the filter (f changes it)");
	else
		snprintf(line, sizeof(line),
			 "q quit  h help  p pause  s sort  f filter  Enter callers  v vCPUs");
	put_line(LINES - 1, line, screen->prompt ? A_BOLD : A_NORMAL);
}

void top_display_draw(struct top_display *screen, struct top_vm *const *vms, size_t count)
{
	struct top_functions functions;
	int row;

	screen->view->columns = (unsigned int)COLS;
	if (top_functions_find(&functions, vms, count, screen->view->sort, screen->view->filter))
		return;
	if (screen->choosing)
		choose_selected(screen, &functions);
	erase();
	if (screen->mode == SHOW_HELP) {
		draw_help(screen);
	} else {
		row = draw_vms(screen, vms, count, draw_summary(screen, vms, count));
		row += LINES >= TALL_LINES;
		if (screen->mode == SHOW_CALLERS)
			draw_callers(screen, &functions, row);
		else
			draw_functions(screen, &functions, count, row);
		draw_last_line(screen, &functions);
	}
	refresh();
	free(functions.rows);
}

/* Keys */

static void ask(struct top_display *screen, const char *prompt, const char *text)
{
	screen->prompt = prompt;
	snprintf(screen->input, sizeof(screen->input), "%s", text);
}

static const char filter_prompt[] = "filter (empty: all): ";
static const char delay_prompt[] = "seconds of an interval: ";

static enum top_action answer(struct top_display *screen)
{
	const char *prompt = screen->prompt;
	char *end;
	double delay = strtod(screen->input, &end);

	screen->prompt = NULL;
	if (prompt == filter_prompt) {
		snprintf(screen->view->filter, sizeof(screen->view->filter), "%s", screen->input);
		make_printable(screen->view->filter);
		return TOP_DRAW;
	}
	if (*end || !(delay >= TOP_DELAY_MIN && delay <= TOP_DELAY_MAX)) {
		screen->message = "it must be a number of seconds from 0.2 to 3600";
		return TOP_DRAW;
	}
	screen->view->delay = delay;
	return TOP_DELAY;
}

/* A key of the line that the user enters. */
static enum top_action edit(struct top_display *screen, int key)
{
	size_t length = strlen(screen->input);

	if (key == '\r' || key == '\n' || key == KEY_ENTER)
		return answer(screen);
	if (key == KEY_ESCAPE)
		screen->prompt = NULL;
	else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && length)
		screen->input[length - 1] = '\0';
	else if (key == ('U' & 0x1f))
		*screen->input = '\0';
	else if (key >= ' ' && key < 127 && length + 1 < sizeof(screen->input))
		memcpy(screen->input + length, (char[]){ (char)key, '\0' }, 2);
	return TOP_DRAW;
}

static void move_up(struct top_display *screen, size_t lines)
{
	size_t *line = screen->mode == SHOW_FUNCTIONS ? &screen->selected : &screen->first;

	*line = *line > lines ? *line - lines : 0;
}

/* Drawing limits it. */
static void move_down(struct top_display *screen, size_t lines)
{
	*(screen->mode == SHOW_FUNCTIONS ? &screen->selected : &screen->first) += lines;
}

static bool move_by(struct top_display *screen, int key)
{
	enum { END = 100000 };

	switch (key) {
	case KEY_UP:
	case 'k':
		move_up(screen, 1);
		return true;
	case KEY_DOWN:
	case 'j':
		move_down(screen, 1);
		return true;
	case KEY_PPAGE:
		move_up(screen, screen->room);
		return true;
	case KEY_NPAGE:
		move_down(screen, screen->room);
		return true;
	case KEY_HOME:
		move_up(screen, END);
		return true;
	case KEY_END:
		move_down(screen, END);
		return true;
	}
	return false;
}

static void show(struct top_display *screen, enum mode mode)
{
	screen->mode = mode;
	screen->first = 0;
}

static enum top_action command(struct top_display *screen, int key)
{
	struct top_view *view = screen->view;
	char delay[32];

	switch (key) {
	case 'q':
		return TOP_QUIT;
	case 'h':
	case '?':
		show(screen, SHOW_HELP);
		break;
	case 'p':
	case ' ':
		screen->paused = !screen->paused;
		break;
	case 's':
		view->sort = (view->sort + 1) % TOP_SORTS;
		screen->selected = 0;
		break;
	case 'f':
	case '/':
		ask(screen, filter_prompt, view->filter);
		break;
	case 'd':
		snprintf(delay, sizeof(delay), "%.3g", view->delay);
		ask(screen, delay_prompt, delay);
		break;
	case '1':
	case 'v':
		view->per_vcpu = !view->per_vcpu;
		break;
	case '\r':
	case '\n':
	case KEY_ENTER:
		screen->choosing = true;
		show(screen, SHOW_CALLERS);
		break;
	case 'L' & 0x1f:
		clearok(stdscr, true);
		break;
	default:
		screen->message = "unknown key: h shows the keys";
	}
	return TOP_DRAW;
}

static enum top_action handle(struct top_display *screen, int key)
{
	screen->message = NULL;
	if (screen->prompt)
		return edit(screen, key);
	if (move_by(screen, key))
		return TOP_DRAW;
	if (screen->mode != SHOW_FUNCTIONS &&
	    (key == KEY_ESCAPE || key == 'q' || key == '\r' || key == '\n' || key == KEY_ENTER ||
	     key == KEY_LEFT)) {
		show(screen, SHOW_FUNCTIONS);
		return TOP_DRAW;
	}
	if (key == KEY_ESCAPE)
		return TOP_DRAW;
	return command(screen, key);
}

/* The terminal has been closed: its end is readable for ever. */
static bool is_gone(void)
{
	int waiting = 0;

	return ioctl(STDIN_FILENO, FIONREAD, &waiting) || !waiting;
}

enum top_action top_display_keys(struct top_display *screen)
{
	enum top_action most = TOP_CONTINUE;
	bool gone = is_gone();
	int key;

	while (most != TOP_QUIT && (key = getch()) != ERR) {
		enum top_action action = handle(screen, key);

		gone = false;
		if (action > most)
			most = action;
	}
	return gone ? TOP_QUIT : most;
}
