/*
 * cold.h
 *		Groups that are out of memory: a hash and the places to read each of them from, packed.
 */
#ifndef SA_COLD_H
#define SA_COLD_H

#include "storage/itemptr.h"

/* An entry of a log: the chunk that it is in, and the how manieth it is there. */
typedef struct SaPlace
{
	ItemPointerData chunk;		/* invalid: none */
	uint16		index;
} SaPlace;

typedef struct SaColdEntry
{
	uint32		hash;			/* of the group's keys */
	SaPlace		place;
	ItemPointerData row;		/* of the result table */
} SaColdEntry;

typedef struct SaCold SaCold;

/*
 * An empty index in this context, whose entries keep what is said to be there: 4 bytes, 8 more for places, 6 for rows.
 * Every entry added must have a place, or a row where places are not kept.
 */
extern SaCold *sa_cold_create(MemoryContext cxt, bool places, bool rows);
extern int64 sa_cold_count(const SaCold *cold);

/* Add entries, which come out sorted. */
extern void sa_cold_add(SaCold *cold, SaColdEntry *entries, int64 n);

/*
 * Entries with one hash, one after another, or all of them: false when there are no more.  The one found last can be
 * removed, or put to other places; adding ends the search.
 */
typedef struct SaColdSearch
{
	SaCold	   *cold;
	uint32		hash;
	uint32		page;
	uint32		next;			/* entry of the page */
	SaColdEntry found;
} SaColdSearch;

extern void sa_cold_search(SaColdSearch *search, SaCold *cold, uint32 hash);
extern bool sa_cold_next(SaColdSearch *search);
extern void sa_cold_walk(SaColdSearch *search, SaCold *cold);
extern bool sa_cold_next_of_all(SaColdSearch *search);
extern void sa_cold_remove(SaColdSearch *search);
extern void sa_cold_move(SaColdSearch *search, SaPlace place);
extern void sa_cold_set_row(SaColdSearch *search, const ItemPointerData *row);	/* invalid: none */

#endif							/* SA_COLD_H */
