/*
 * state_row.c
 *		Rows of the result that groups are read from: by their places, or found by their keys.
 *
 * A recovery that has the groups from their logs leaves the rows unread, since most of them will not be needed soon.
 * What a row holds of a group (its place, and values that are states) is read before a batch changes the group.
 *
 * Locks: AccessShareLock on the result table and the index of its key, to the end of the transaction.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "state_row.h"

typedef struct SaRowFinder
{
	Relation	rel;
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	int			n;
	ScanKeyData keys[INDEX_MAX_KEYS];
} SaRowFinder;

/* --- by place --- */

static void
read_values(SaState *state, SaWindow *window, TupleTableSlot *slot, SaGroup *group)
{
	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		if (state->in_result[i])
		{
			bool		isnull;
			Datum		value = slot_getattr(slot, state->query->aggs[i].result, &isnull);

			sa_agg_from_value(state->aggs[i], state->run, &sa_group_states(group)[i], value, isnull);
		}
}

/* The column of the result that holds a key, or, as the next ones, the start and the end of the window; 0: none does. */
static AttrNumber
key_column(const SaQuery *query, int i)
{
	if (i < query->nkeys)
		return query->keys[i].result;
	return i == query->nkeys ? query->start_result : query->end_result;
}

SaGroup *
sa_state_load_row(SaState *state, SaWindow *window, const SaColdEntry *entry, SaGroup *group, Datum *keys, bool *nulls)
{
	Relation	rel = table_open(state->result, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ItemPointerData row = entry->row;

	if (!table_tuple_fetch_row_version(rel, &row, SnapshotSelf, slot))
		sa_state_lost(state->result);
	if (group == NULL)
	{
		for (int i = 0; i < state->nkeys; i++)
			keys[i] = slot_getattr(slot, key_column(state->query, i), &nulls[i]);
		group = sa_state_make_group(state, &window->arena, keys, nulls);
	}
	read_values(state, window, slot, group);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return group;
}

/* --- by key --- */

/* Which of them decides a column of the result, or of an index; -1: something else, such as an expression. */
static int
source_of(const SaQuery *query, AttrNumber attr)
{
	for (int i = 0; i < query->nkeys + 2; i++)
		if (attr != 0 && key_column(query, i) == attr)
			return i;
	return -1;
}

static bool
has_column(const FormData_pg_index *form, AttrNumber attr)
{
	for (int i = 0; i < form->indnkeyatts; i++)
		if (attr != 0 && form->indkey.values[i] == attr)
			return true;
	return false;
}

/* Would equal keys and windows find one row at most? */
static bool
is_key(const SaQuery *query, Relation index)
{
	const FormData_pg_index *form = index->rd_index;

	if (!form->indisunique || !form->indisvalid || index->rd_rel->relam != BTREE_AM_OID || RelationGetIndexPredicate(index) != NIL)
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		int			source = source_of(query, form->indkey.values[i]);

		if (source < 0 || (source < query->nkeys && index->rd_indcollation[i] != query->keys[source].collation))
			return false;
	}
	for (int i = 0; i < query->nkeys; i++)
		if (!has_column(form, query->keys[i].result))
			return false;
	return !query->windowed || has_column(form, query->start_result) || has_column(form, query->end_result);
}

static Relation
open_key_index(SaState *state, Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	Relation	result = NULL;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (is_key(state->query, index))
		{
			result = index;
			break;
		}
		index_close(index, NoLock);
	}
	list_free(indexes);
	return result;
}

static void
mark_unread(SaState *state, SaWindow *window, void *arg)
{
	window->rows_unread = true;
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			group->row_unread = true;
}

bool
sa_state_leave_rows(SaState *state)
{
	Relation	rel;
	Relation	index;

	if (!state->needs_log || state->mode == SA_APPEND || state->sessions || state->held)
		return false;
	rel = table_open(state->result, AccessShareLock);
	index = open_key_index(state, rel);
	if (index)
	{
		index_close(index, NoLock);
		sa_state_each_window(state, mark_unread, NULL);
	}
	table_close(rel, NoLock);
	return index != NULL;
}

static void
init_scan_key(SaRowFinder *finder, int i)
{
	Relation	index = finder->index;
	Oid			type = index->rd_opcintype[i];
	Oid			equal = get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);

	ScanKeyEntryInitialize(&finder->keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid, index->rd_indcollation[i],
						   get_opcode(equal), (Datum) 0);
}

static SaRowFinder *
open_finder(SaState *state)
{
	SaRowFinder *finder = palloc0(sizeof(SaRowFinder));

	finder->rel = table_open(state->result, AccessShareLock);
	finder->index = open_key_index(state, finder->rel);
	if (finder->index == NULL)
		sa_state_lost(state->result);
	finder->n = IndexRelationGetNumberOfKeyAttributes(finder->index);
	for (int i = 0; i < finder->n; i++)
		init_scan_key(finder, i);
	finder->slot = table_slot_create(finder->rel, NULL);
	finder->scan = sa_index_beginscan(finder->rel, finder->index, SnapshotSelf, finder->n);
	return finder;
}

void
sa_state_close_finder(SaState *state)
{
	SaRowFinder *finder = state->finder;

	if (finder == NULL)
		return;
	index_endscan(finder->scan);
	ExecDropSingleTupleTableSlot(finder->slot);
	index_close(finder->index, NoLock);
	table_close(finder->rel, NoLock);
	state->finder = NULL;
}

static void
set_scan_keys(SaState *state, SaRowFinder *finder, SaWindow *window, SaGroup *group)
{
	for (int i = 0; i < finder->n; i++)
	{
		ScanKey		key = &finder->keys[i];
		int			source = source_of(state->query, finder->index->rd_index->indkey.values[i]);
		bool		isnull = source < state->query->nkeys && sa_group_nulls(state, group)[source];

		key->sk_flags = isnull ? SK_ISNULL | SK_SEARCHNULL : 0;
		if (source < state->query->nkeys)
			key->sk_argument = sa_group_keys(state, group)[source];
		else
			key->sk_argument = Int64GetDatum(source == state->query->nkeys ? window->start : window->end);
	}
}

/* Without HAVING, every group that was committed has a row. */
void
sa_state_read_row(SaState *state, SaWindow *window, SaGroup *group)
{
	MemoryContext old = MemoryContextSwitchTo(state->undo_cxt);
	SaRowFinder *finder = state->finder ? state->finder : (state->finder = open_finder(state));

	set_scan_keys(state, finder, window, group);
	index_rescan(finder->scan, finder->keys, finder->n, NULL, 0);
	if (index_getnext_slot(finder->scan, ForwardScanDirection, finder->slot))
	{
		group->result_tid = finder->slot->tts_tid;
		read_values(state, window, finder->slot, group);
	}
	else if (state->query->having == NULL)
		sa_state_lost(state->result);
	ExecClearTuple(finder->slot);
	group->row_unread = false;
	MemoryContextSwitchTo(old);
}
