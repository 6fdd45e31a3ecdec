/*
 * advance.h
 *		What administrators have asked of watermarks: stream_agg.watermark_advance.
 */
#ifndef SA_ADVANCE_H
#define SA_ADVANCE_H

#include "datatype/timestamp.h"

/* The current user wants the view's watermark to be at this time at least. */
extern void sa_advance_ask(Oid view, TimestampTz watermark);

/* How far the view's watermark is to go; DT_NOBEGIN: nobody has asked since it was last taken. */
extern TimestampTz sa_advance_asked(Oid view);

/* The view's watermark goes from `before` to this time with this transaction: requests up to there are done. */
extern void sa_advance_note_taken(Oid view, TimestampTz watermark, TimestampTz before);

/* The view begins anew (what has been done is kept), or is gone (all: nothing is). */
extern void sa_advance_forget(Oid view, bool all);

#endif							/* SA_ADVANCE_H */
