/* SPDX-License-Identifier: Apache-2.0
 *
 * Trajectories for people, and in other people's formats.
 */
#ifndef CA_AGENT_SHOW_H
#define CA_AGENT_SHOW_H

#include "base/str.h"
#include "rec/json.h"

struct show_opts {
	int color;		/* in ANSI colours */
	int all;		/* nothing is cut, and the prompt is shown */
	int width;		/* columns to fold lines at; 0: as they are */
};

/* Appends a trajectory as text: turns, calls, verdicts, outcome and cost.
 * Whatever is missing from the record, or of another type, is left out. */
void show_trajectory(const struct json *t, const struct show_opts *o,
		     struct str *out);

/* The text of a message, calls that had to be text among it. */
const char *show_said(const struct json *m);

enum export_format { EXPORT_ATIF, EXPORT_SHAREGPT };

/*
 * Appends a trajectory as one line in another format: Agent Trajectory
 * Interchange Format (steps with tool calls and observations), or ShareGPT
 * (conversations with from and value; calls and results as text).  Nothing,
 * and -1, where there are no messages.
 */
int export_trajectory(const struct json *t, enum export_format f,
		      struct str *out);

#endif
