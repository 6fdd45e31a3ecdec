/*
 * compat.h
 *		The only place that knows which PostgreSQL version it is compiled against.
 *
 * Each entry names what changed upstream.  Supported: 15, 17, 18 (16 comes along for free).
 */
#ifndef SA_COMPAT_H
#define SA_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "stream_agg needs PostgreSQL 15 or newer"
#endif

/* 16: guc tables got their own header; variable substitution moved there. */
#if PG_VERSION_NUM >= 160000
#include "utils/guc_hooks.h"
#endif

/* 18: functions that do not return are marked before the declaration. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 16: permission info moved from the range table to Query.rteperminfos. */
#if PG_VERSION_NUM >= 160000
#include "parser/parse_relation.h"
#define sa_check_query_permissions(query) \
	((void) ExecCheckPermissions((query)->rtable, (query)->rteperminfos, true))
#else
#define sa_check_query_permissions(query) ((void) ExecCheckRTPerms((query)->rtable, true))
#endif

/* 16: flatten_join_alias_vars takes a PlannerInfo. */
#if PG_VERSION_NUM >= 160000
#define sa_flatten_join_aliases(query, node) flatten_join_alias_vars(NULL, query, node)
#else
#define sa_flatten_join_aliases(query, node) flatten_join_alias_vars(query, node)
#endif

/* 18: grouped expressions are Vars of an RTE of their own, and forget where they stood in the statement. */
#if PG_VERSION_NUM >= 180000
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
static inline void
sa_flatten_groups(Query *query)
{
	ListCell   *lc;

	if (!query->hasGroupRTE)
		return;
	foreach(lc, query->targetList)
	{
		Var		   *var = (Var *) lfirst_node(TargetEntry, lc)->expr;
		RangeTblEntry *rte = IsA(var, Var) ? rt_fetch(var->varno, query->rtable) : NULL;

		if (rte != NULL && rte->rtekind == RTE_GROUP)
			var->location = exprLocation(list_nth(rte->groupexprs, var->varattno - 1));
	}
	query->targetList = (List *) flatten_group_exprs(NULL, query, (Node *) query->targetList);
	query->havingQual = flatten_group_exprs(NULL, query, query->havingQual);
	query->hasGroupRTE = false;
	if (llast_node(RangeTblEntry, query->rtable)->rtekind != RTE_GROUP)
		elog(ERROR, "grouped expressions are not the last of the range table");
	query->rtable = list_delete_last(query->rtable);
}
#else
#define sa_flatten_groups(query) ((void) 0)
#endif

/* 16: relfilenode became relfilenumber (and RelFileNode RelFileLocator). */
#if PG_VERSION_NUM >= 160000
#define sa_relation_filenumber(rel) ((rel)->rd_locator.relNumber)
#else
#define sa_relation_filenumber(rel) ((rel)->rd_node.relNode)
#endif

/* 16: ExecInsertIndexTuples learnt onlySummarizing; table_tuple_update reports TU_UpdateIndexes. */
#if PG_VERSION_NUM >= 160000
#define sa_insert_index_tuples(rri, slot, estate) \
	ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL, false)
#else
#define sa_insert_index_tuples(rri, slot, estate) \
	ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL)
#endif

/* 16: the executor is told of permission infos; 18: and of relations left after pruning. */
#if PG_VERSION_NUM >= 180000
#define sa_init_range_table(estate, rte, columns) \
	do { \
		List	   *perminfos = NIL; \
		addRTEPermissionInfo(&perminfos, rte)->updatedCols = (columns); \
		ExecInitRangeTable(estate, list_make1(rte), perminfos, bms_make_singleton(1)); \
	} while (0)
#elif PG_VERSION_NUM >= 160000
#define sa_init_range_table(estate, rte, columns) \
	do { \
		List	   *perminfos = NIL; \
		addRTEPermissionInfo(&perminfos, rte)->updatedCols = (columns); \
		ExecInitRangeTable(estate, list_make1(rte), perminfos); \
	} while (0)
#else
#define sa_init_range_table(estate, rte, columns) \
	((rte)->updatedCols = (columns), ExecInitRangeTable(estate, list_make1(rte)))
#endif

/* 16: object_ownercheck replaces one function per catalog. */
#if PG_VERSION_NUM >= 160000
#define sa_class_ownercheck(relid, roleid) object_ownercheck(RelationRelationId, relid, roleid)
#else
#define sa_class_ownercheck(relid, roleid) pg_class_ownercheck(relid, roleid)
#endif

/* 16: EvalPlanQualInit takes the result relations. */
#if PG_VERSION_NUM >= 160000
#define sa_epq_init(epq, estate) EvalPlanQualInit(epq, estate, NULL, NIL, -1, NIL)
#else
#define sa_epq_init(epq, estate) EvalPlanQualInit(epq, estate, NULL, NIL, -1)
#endif

/* 18: ReplaceVarsFromTargetList is told of the result relation. */
#if PG_VERSION_NUM >= 180000
#define sa_replace_vars(node, varno, rte, targets, has_sublinks) \
	ReplaceVarsFromTargetList(node, varno, 0, rte, targets, 0, REPLACEVARS_REPORT_ERROR, 0, has_sublinks)
#else
#define sa_replace_vars(node, varno, rte, targets, has_sublinks) \
	ReplaceVarsFromTargetList(node, varno, 0, rte, targets, REPLACEVARS_REPORT_ERROR, 0, has_sublinks)
#endif

/* 16: aclchecks became one function. */
#if PG_VERSION_NUM >= 160000
#define sa_function_aclcheck(fn, role) object_aclcheck(ProcedureRelationId, fn, role, ACL_EXECUTE)
#define sa_database_ownercheck(db, role) object_ownercheck(DatabaseRelationId, db, role)
#else
#define sa_function_aclcheck(fn, role) pg_proc_aclcheck(fn, role, ACL_EXECUTE)
#define sa_database_ownercheck(db, role) pg_database_ownercheck(db, role)
#endif

/* 16: VACUUM can leave the main table out, and statistics of the database. */
#if PG_VERSION_NUM >= 160000
#define SA_VACUUM_OPTIONS \
	(VACOPT_VACUUM | VACOPT_SKIP_LOCKED | VACOPT_PROCESS_MAIN | VACOPT_PROCESS_TOAST | VACOPT_SKIP_DATABASE_STATS)
#else
#define SA_VACUUM_OPTIONS (VACOPT_VACUUM | VACOPT_SKIP_LOCKED | VACOPT_PROCESS_TOAST)
#endif

/* 16: vacuum() is given its memory context. */
#if PG_VERSION_NUM >= 160000
#define sa_vacuum(relations, params, cxt) vacuum(relations, params, NULL, cxt, true)
#else
#define sa_vacuum(relations, params, cxt) vacuum(relations, params, NULL, true)
#endif

/* 18: EXPLAIN's state and format got their own headers. */
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

/* 18: ExecutorRun lost execute_once. */
#if PG_VERSION_NUM >= 180000
#define sa_executor_run(desc, direction, count) ExecutorRun(desc, direction, count)
#else
#define sa_executor_run(desc, direction, count) ExecutorRun(desc, direction, count, true)
#endif

/* 18: PG_MODULE_MAGIC_EXT, and ForeignPath lost nothing but gained disabled_nodes and fdw_restrictinfo. */
#if PG_VERSION_NUM >= 180000
#define sa_create_foreignscan_path(root, rel, rows, startup, total) \
	create_foreignscan_path(root, rel, NULL, rows, 0, startup, total, NIL, rel->lateral_relids, NULL, NIL, NIL)
#elif PG_VERSION_NUM >= 170000
#define sa_create_foreignscan_path(root, rel, rows, startup, total) \
	create_foreignscan_path(root, rel, NULL, rows, startup, total, NIL, rel->lateral_relids, NULL, NIL, NIL)
#else
#define sa_create_foreignscan_path(root, rel, rows, startup, total) \
	create_foreignscan_path(root, rel, NULL, rows, startup, total, NIL, rel->lateral_relids, NULL, NIL)
#endif

/* 16: stringToQualifiedNameList can report errors softly. */
#if PG_VERSION_NUM >= 160000
#define sa_qualified_name(string) stringToQualifiedNameList(string, NULL)
#else
#define sa_qualified_name(string) stringToQualifiedNameList(string)
#endif

/* 16: ExecuteTruncateGuts learnt run_as_table_owner. */
#if PG_VERSION_NUM >= 160000
#define sa_truncate_relation(rel) \
	ExecuteTruncateGuts(list_make1(rel), list_make1_oid(RelationGetRelid(rel)), NIL, DROP_RESTRICT, false, false)
#else
#define sa_truncate_relation(rel) \
	ExecuteTruncateGuts(list_make1(rel), list_make1_oid(RelationGetRelid(rel)), NIL, DROP_RESTRICT, false)
#endif

/* 17: intervals can be infinite. */
#if PG_VERSION_NUM >= 170000
#define sa_interval_is_infinite(interval) INTERVAL_NOT_FINITE(interval)
#else
#define sa_interval_is_infinite(interval) false
#endif

/* 18: a scan of an index may be counted for EXPLAIN. */
#if PG_VERSION_NUM >= 180000
#define sa_index_beginscan(rel, index, snapshot, nkeys) index_beginscan(rel, index, snapshot, NULL, nkeys, 0)
#else
#define sa_index_beginscan(rel, index, snapshot, nkeys) index_beginscan(rel, index, snapshot, nkeys, 0)
#endif

/*
 * What the redirected parser must know of the server's (grammar.c): the tokens between the last keyword's and
 * those of the parse modes.  15: NOT_LA, NULLS_LA, WITH_LA; 16: FORMAT_LA and WITHOUT_LA, too.  19 is not known.
 */
#define SA_GRAMMAR_KNOWN (PG_VERSION_NUM < 190000)
#if PG_VERSION_NUM >= 160000
#define SA_TOKENS_BEFORE_MODES 5
#else
#define SA_TOKENS_BEFORE_MODES 3
#endif

/* 18: the namespaces that transformRelOptions is given are const. */
#if PG_VERSION_NUM >= 180000
typedef const char *const SaOptionNamespace;
#else
typedef char *SaOptionNamespace;
#endif

/*
 * 17: the states of sum(interval) and avg(interval) became internal; they were an interval, and an array of
 * the sum and a count.  A sum still makes a state, as its only input; so results hold the states of sums, on
 * every version.  sa_state_of_today gives bytes that an older server wrote to a log the form of today.
 */
#if PG_VERSION_NUM >= 170000
#include "libpq/pqformat.h"
#include "port/pg_bswap.h"
#include "utils/fmgroids.h"
#define sa_value_makes_state(aggfn) ((aggfn) == F_SUM_INTERVAL)
static inline Datum
sa_state_of_today(Oid aggfn, Datum bytes)
{
	const Size	sum_size = 16,	/* as interval_send makes it */
				array_head = 20;
	const char *data = VARDATA_ANY(DatumGetPointer(bytes));
	Size		size = VARSIZE_ANY_EXHDR(DatumGetPointer(bytes));
	uint64		n = pg_hton64(1);
	StringInfoData buf;

	if (aggfn == F_AVG_INTERVAL && size == array_head + 2 * (4 + sum_size))
	{
		data += array_head + 4;
		memcpy(&n, data + sum_size + 4, sizeof(n));
	}
	else if (aggfn != F_SUM_INTERVAL || size != sum_size)
		return bytes;
	pq_begintypsend(&buf);
	pq_sendint64(&buf, pg_ntoh64(n));
	pq_sendbytes(&buf, data, sum_size);
	pq_sendint64(&buf, 0);		/* no infinite ones, which are as new */
	pq_sendint64(&buf, 0);
	return PointerGetDatum(pq_endtypsend(&buf));
}
#else
#define sa_value_makes_state(aggfn) false
#define sa_state_of_today(aggfn, bytes) (bytes)
#endif

#endif							/* SA_COMPAT_H */
