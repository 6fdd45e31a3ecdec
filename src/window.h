/*
 * window.h
 *		Windows of constant size as pure arithmetic on microseconds: no clock, no catalog, no memory.
 */
#ifndef SA_WINDOW_H
#define SA_WINDOW_H

#include "datatype/timestamp.h"

/*
 * Start of the window of this size (microseconds, > 0), aligned to origin, that holds ts: the greatest
 * origin + n * size <= ts.  Errors with ERRCODE_DATETIME_VALUE_OUT_OF_RANGE.
 */
extern int64 sa_window_floor(int64 ts, int64 size, int64 origin);

/*
 * Start of the k-th hopping window (0: the latest) of this size and slide that may hold ts.  False when
 * that one begins too early to hold it (size not a multiple of slide, or slide > size).
 */
extern bool sa_window_hop(int64 ts, int64 size, int64 slide, int64 origin, int k, int64 *start);

/* End of a window; errors when it is out of range. */
extern int64 sa_window_end_of(int64 start, int64 size);

/* How many hopping windows can hold one instant. */
extern int64 sa_window_hop_count(int64 size, int64 slide);

/*
 * A pane: instants that are in the same hopping windows, of which there are several.  They end at first_end, a slide
 * later, and so on until last_end.
 */
typedef struct SaPane
{
	int64		start;
	int64		stop;
	int64		first_end;
	int64		last_end;
} SaPane;

extern void sa_window_pane(int64 ts, int64 size, int64 slide, int64 origin, SaPane *pane);

/* End of the last hopping window that holds ts; and of the first one from `end`, itself one's end, on that ends after `after`. */
extern int64 sa_window_hop_last(int64 ts, int64 size, int64 slide, int64 origin);
extern int64 sa_window_hop_after(int64 end, int64 slide, int64 after);

/* 1970-01-01 00:00, or the Monday after it for whole weeks (DESIGN.md 6). */
extern int64 sa_window_default_origin(int64 size);

extern void sa_window_out_of_range(void);

#endif							/* SA_WINDOW_H */
