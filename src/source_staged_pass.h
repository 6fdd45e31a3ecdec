/*
 * source_staged_pass.h
 *		Passes: finding the rows of a staged stream that are not yet in the order.
 */
#ifndef SA_SOURCE_STAGED_PASS_H
#define SA_SOURCE_STAGED_PASS_H

#include "source_staged_order.h"

/* Rows found by a pass, not yet ordered. */
typedef struct SaRow
{
	int64		n;
	HeapTuple	tuple;			/* NULL: not copied */
	BlockNumber block;
	uint16		segment;
} SaRow;

struct SaRows
{
	MemoryContext copy_cxt;		/* NULL: do not copy */
	char	   *space;
	Size		space_left;
	int			nrows;
	int			maxrows;
	SaRow	   *rows;
	Size		bytes;
};

extern HeapTuple sa_staged_copy_row(SaRows *rows, HeapTuple tuple);
extern void sa_staged_survey(SaSource *source); /* learn where all ordered rows are */
extern void sa_staged_start_pass(SaSource *source);
extern void sa_staged_find_rows(SaSource *source, SaRows *rows, int max_rows);
extern int64 sa_staged_order_all(SaSource *source, bool skipped);	/* in a call */
extern void sa_staged_settle_segment(SaSegment *segment);
extern bool sa_staged_has_unread(SaSource *source, int segment);

#endif							/* SA_SOURCE_STAGED_PASS_H */
