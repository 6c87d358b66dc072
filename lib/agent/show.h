/* SPDX-License-Identifier: Apache-2.0
 *
 * Trajectories for people, and in other people's formats.
 */
#ifndef CA_AGENT_SHOW_H
#define CA_AGENT_SHOW_H

#include "base/str.h"
#include "rec/json.h"

/* Appends a trajectory as text: turns, calls, verdicts, outcome and cost.
 * With `color` in ANSI colours.  Long results are cut, unless `all`. */
void show_trajectory(const struct json *t, int color, int all,
		     struct str *out);

/* The text of a message, calls that had to be text among it. */
const char *show_said(const struct json *m);

enum export_format { EXPORT_ATIF, EXPORT_SHAREGPT };

/*
 * Appends a trajectory as one line in another format: Agent Trajectory
 * Interchange Format (steps with tool calls and observations), or ShareGPT
 * (conversations with from and value; calls and results as text).
 */
void export_trajectory(const struct json *t, enum export_format f,
		       struct str *out);

#endif
