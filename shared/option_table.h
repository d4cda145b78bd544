/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines described by tables: a row for each option has its type and the offset of its
 * variable. argp(3) prints --help and splits the command line. Main thread.
 */
#ifndef KVMSCOPE_SHARED_OPTION_TABLE_H
#define KVMSCOPE_SHARED_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Exit status for a wrong command line. */
#define OPTION_EXIT_USAGE 2

/* The type of the variable that a row sets, and what its argument looks like. */
enum option_kind {
	OPTION_TEXT,   /* const char *: the argument itself */
	OPTION_SET,    /* bool: true */
	OPTION_CLEAR,  /* bool: false */
	OPTION_NUMBER, /* unsigned int: from LOW to HIGH; LOW without an argument */
	OPTION_SIZE,   /* uint64_t, bytes: 512M */
	OPTION_TIME,   /* uint64_t, ns: 64us */
	OPTION_CHOICE, /* an enum: the argument's index in CHOICES */
	OPTION_PARSE,  /* PARSE reads it; OFFSET is not used */
};

struct option_row {
	const char *name;
	const char *argument; /* NULL: the option has none */
	const char *help;
	enum option_kind kind;
	size_t offset; /* of the variable in the group's target */
	char letter;   /* short option; 0: none */
	bool optional; /* the argument may be left out */
	unsigned int low, high;
	const char *const *choices; /* the last one is NULL */
	/* 0, or an error with its message: -EINVAL for a wrong command line; any other one ends the
	 * program with status 1. TEXT is NULL without an argument. */
	int (*parse)(void *target, char *text);
};

struct option_group {
	const char *title;             /* a heading in --help; NULL: none */
	const struct option_row *rows; /* the last one has no name; NULL ends the list of groups */
	void *target;
	int (*check)(
		void *target); /* after all options, errors as of parse; NULL: nothing to check */
};

struct option_command {
	const char *name;  /* "kvmscope run", for messages */
	const char *doc;   /* for argp: text before the options and, after '\v', after them */
	const char *words; /* argp's args_doc; NULL */
	const struct option_group *groups;
	/* Called for each word that is not an option, errors as of parse. NULL: there are none, and
	 * HINT (may be NULL) completes the message. */
	int (*word)(void *context, char *text);
	void *context;
	const char *hint;
};

/*
 * Reads the command line into the groups' targets; texts point into ARGV, whose order changes.
 * --help and errors end the program. 0, or -ENOMEM with the message.
 */
int option_table_parse(const struct option_command *command, int argc, char **argv);

/* Reads TEXT as a decimal number from LOW to HIGH. -EINVAL with a message about NAME. */
int option_number(const char *name, const char *text, unsigned int low, unsigned int high,
		  unsigned int *number);

/*
 * The one of NAMES (the last one is NULL) that TEXT was probably meant to be: at most two letters
 * differ or are swapped, and most of them agree. NULL: none is close.
 */
const char *option_closest(const char *text, const char *const *names);

/* The index of TEXT in NAMES (the last one is NULL). -EINVAL with a message about WHAT, such as
 * "--sort": the names, and the closest one. */
int option_choice(const char *what, const char *text, const char *const *names);

#endif
