/*
 * agg.c
 *		Aggregates advanced outside the executor, with the care of nodeAgg.c.
 *
 * Invariant: a by-reference state is always a copy in the window's context, owned by its group.
 * Transition, final, serial and deserial functions are called with an AggState as their context, so that
 * AggCheckCallContext() gives them the window's context.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "access/transam.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_agg.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "agg.h"
#include "compat.h"

struct SaAgg
{
	Aggref	   *ref;
	int			nargs;
	AttrNumber	args[FUNC_MAX_ARGS];
	AttrNumber	filter;
	FmgrInfo	trans;
	FmgrInfo	final;
	FmgrInfo	serial;
	FmgrInfo	deserial;
	FmgrInfo	combine;		/* if there is one */
	bool		has_final;
	int			final_nargs;
	bool		copy_for_final; /* the final function may change the state */
	Oid			transtype;
	int16		translen;
	bool		transbyval;
	Datum		init;
	bool		init_isnull;
	bool		value_is_state;
	uint64		shape;			/* of the state's type, or of what an internal state is made from */
	SaCodec		codec;			/* of transtype, unless internal */
	FunctionCallInfo call;		/* for the transition function */
};

struct SaAggRun
{
	AggState   *aggstate;
	ExprContext *states;
	ExprContext *scratch;
};

static Form_pg_aggregate
lookup(Oid aggfn, HeapTuple *tuple)
{
	*tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggfn));
	if (!HeapTupleIsValid(*tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggfn);
	return (Form_pg_aggregate) GETSTRUCT(*tuple);
}

static void
refuse(Aggref *aggref, ParseState *pstate, const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not supported in continuous views", message),
			 hint ? errhint("%s", hint) : 0,
			 parser_errposition(pstate, aggref->location)));
}

void
sa_agg_check(Aggref *aggref, ParseState *pstate)
{
	HeapTuple	tuple;
	Form_pg_aggregate form = lookup(aggref->aggfnoid, &tuple);
	char	   *name = get_func_name(aggref->aggfnoid);
	bool		storable;

	if (aggref->aggkind != AGGKIND_NORMAL)
		refuse(aggref, pstate, psprintf("ordered-set aggregate %s", name),
			   "Its state cannot be stored; a sketch such as tdigest gives close percentiles.");
	if (aggref->aggdistinct != NIL)
		refuse(aggref, pstate, psprintf("DISTINCT inside aggregate %s", name),
			   "A sketch such as hll counts distinct values closely.");
	if (aggref->aggorder != NIL)
		refuse(aggref, pstate, psprintf("ORDER BY inside aggregate %s", name), NULL);
	if (aggref->agglevelsup != 0)
		refuse(aggref, pstate, psprintf("outer aggregate %s", name), NULL);
	storable = form->aggtranstype != INTERNALOID ||
		(OidIsValid(form->aggserialfn) && OidIsValid(form->aggdeserialfn));
	ReleaseSysCache(tuple);
	if (!storable)
		refuse(aggref, pstate, psprintf("aggregate %s", name),
			   "Its state is internal and has no serialization functions, so it cannot be stored.");
}

void
sa_agg_check_combines(Aggref *aggref, ParseState *pstate)
{
	HeapTuple	tuple;
	Oid			combinefn = lookup(aggref->aggfnoid, &tuple)->aggcombinefn;

	ReleaseSysCache(tuple);
	if (!OidIsValid(combinefn))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("aggregate %s is not supported over sessions", get_func_name(aggref->aggfnoid)),
				 errdetail("It has no combine function, by which what two sessions hold becomes one when they meet."),
				 parser_errposition(pstate, aggref->location)));
}

/* Initial value of the state, in CurrentMemoryContext. */
static void
load_init(SaAgg *agg, HeapTuple tuple)
{
	Datum		initval = SysCacheGetAttr(AGGFNOID, tuple, Anum_pg_aggregate_agginitval, &agg->init_isnull);
	Oid			typinput;
	Oid			typioparam;

	if (agg->init_isnull)
		return;
	getTypeInputInfo(agg->transtype, &typinput, &typioparam);
	agg->init = OidInputFunctionCall(typinput, TextDatumGetCString(initval), typioparam, -1);
}

static void
check_execute(Oid function, Oid role, ObjectType type)
{
	AclResult	result = sa_function_aclcheck(function, role);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, type, get_func_name(function));
}

/* As the executor does: the caller may run the aggregate, and its owner the functions it is made of. */
static void
check_rights(Oid aggfn, Form_pg_aggregate form)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(aggfn));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", aggfn);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	check_execute(aggfn, GetUserId(), OBJECT_AGGREGATE);
	check_execute(form->aggtransfn, owner, OBJECT_FUNCTION);
	if (OidIsValid(form->aggfinalfn))
		check_execute(form->aggfinalfn, owner, OBJECT_FUNCTION);
	if (OidIsValid(form->aggserialfn))
		check_execute(form->aggserialfn, owner, OBJECT_FUNCTION);
	if (OidIsValid(form->aggdeserialfn))
		check_execute(form->aggdeserialfn, owner, OBJECT_FUNCTION);
	if (OidIsValid(form->aggcombinefn))
		check_execute(form->aggcombinefn, owner, OBJECT_FUNCTION);
}

static void
load_combine(SaAgg *agg, Form_pg_aggregate form)
{
	Oid			states[] = {agg->transtype, agg->transtype};
	Expr	   *expr;

	if (!OidIsValid(form->aggcombinefn))
		return;
	fmgr_info_cxt(form->aggcombinefn, &agg->combine, CurrentMemoryContext);
	build_aggregate_transfn_expr(states, 2, 0, false, agg->transtype, agg->ref->inputcollid, form->aggcombinefn,
								 InvalidOid, &expr, NULL);
	fmgr_info_set_expr((Node *) expr, &agg->combine);
}

static void
load_functions(SaAgg *agg, Form_pg_aggregate form, Oid *inputs, int ninputs)
{
	Aggref	   *ref = agg->ref;
	Expr	   *trans_expr;
	Expr	   *final_expr;
	MemoryContext cxt = CurrentMemoryContext;

	fmgr_info_cxt(form->aggtransfn, &agg->trans, cxt);
	build_aggregate_transfn_expr(inputs, ninputs, 0, ref->aggvariadic, agg->transtype,
								 ref->inputcollid, form->aggtransfn, InvalidOid, &trans_expr, NULL);
	fmgr_info_set_expr((Node *) trans_expr, &agg->trans);

	agg->has_final = OidIsValid(form->aggfinalfn);
	if (agg->has_final)
	{
		agg->final_nargs = 1 + (form->aggfinalextra ? ninputs : 0);
		agg->copy_for_final = form->aggfinalmodify != AGGMODIFY_READ_ONLY;
		fmgr_info_cxt(form->aggfinalfn, &agg->final, cxt);
		build_aggregate_finalfn_expr(inputs, agg->final_nargs, agg->transtype, ref->aggtype,
									 ref->inputcollid, form->aggfinalfn, &final_expr);
		fmgr_info_set_expr((Node *) final_expr, &agg->final);
	}
	if (agg->transtype == INTERNALOID)
	{
		fmgr_info_cxt(form->aggserialfn, &agg->serial, cxt);
		fmgr_info_cxt(form->aggdeserialfn, &agg->deserial, cxt);
	}
	else
		sa_codec_init(&agg->codec, agg->transtype, cxt);
	load_combine(agg, form);
}

/* The state's own type is among them, or made of them. */
static uint64
shape_of_state(Aggref *aggref)
{
	Oid			types[FUNC_MAX_ARGS];
	int			n = get_aggregate_argtypes(aggref, types);
	HeapTuple	tuple;
	Oid			transtype = lookup(aggref->aggfnoid, &tuple)->aggtranstype;
	uint64		shape;

	ReleaseSysCache(tuple);
	shape = sa_codec_shape(resolve_aggregate_transtype(aggref->aggfnoid, transtype, types, n));
	for (int i = 0; i < n; i++)
	{
		uint64		argument = sa_codec_shape(types[i]);

		if (argument != 0)
			shape = hash_combine64(shape, argument);
	}
	return shape;
}

SaAgg *
sa_agg_create(Aggref *aggref, List *columns, AttrNumber filter)
{
	SaAgg	   *agg = palloc0(sizeof(SaAgg));
	Oid			inputs[FUNC_MAX_ARGS];
	int			ninputs = get_aggregate_argtypes(aggref, inputs);
	HeapTuple	tuple;
	Form_pg_aggregate form = lookup(aggref->aggfnoid, &tuple);
	ListCell   *lc;

	check_rights(aggref->aggfnoid, form);
	agg->shape = shape_of_state(aggref);
	agg->ref = copyObject(aggref);
	agg->filter = filter;
	foreach(lc, columns)
		agg->args[agg->nargs++] = (AttrNumber) lfirst_int(lc);
	agg->transtype = resolve_aggregate_transtype(aggref->aggfnoid, form->aggtranstype, inputs, ninputs);
	get_typlenbyval(agg->transtype, &agg->translen, &agg->transbyval);
	load_init(agg, tuple);
	load_functions(agg, form, inputs, ninputs);

	/*
	 * A strict user-defined transition function may return NULL for good, which a NULL in the result
	 * could not tell from "no input yet".
	 */
	agg->value_is_state = !agg->has_final && agg->transtype == aggref->aggtype && agg->transtype != INTERNALOID &&
		(aggref->aggfnoid < FirstNormalObjectId || !agg->trans.fn_strict);
	agg->value_is_state |= sa_value_makes_state(aggref->aggfnoid);
	agg->call = palloc0(SizeForFunctionCallInfo(agg->nargs + 1));
	ReleaseSysCache(tuple);
	return agg;
}

Oid
sa_agg_state_type(const SaAgg *agg)
{
	return agg->transtype;
}

bool
sa_agg_same_shape(const SaAgg *agg, const SaAgg *other)
{
	return agg->shape == other->shape;
}

bool
sa_agg_keeps_shape(const SaAgg *agg)
{
	return agg->shape == 0 || agg->shape == shape_of_state(agg->ref);
}

bool
sa_agg_value_is_state(const SaAgg *agg)
{
	return agg->value_is_state;
}

SaAggRun *
sa_agg_run_create(MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaAggRun   *run = palloc0(sizeof(SaAggRun));

	run->aggstate = makeNode(AggState);
	run->states = makeNode(ExprContext);
	run->scratch = makeNode(ExprContext);
	run->states->ecxt_per_query_memory = cxt;
	run->scratch->ecxt_per_query_memory = cxt;
	run->aggstate->curaggcontext = run->states;
	run->aggstate->tmpcontext = run->scratch;
	MemoryContextSwitchTo(old);
	return run;
}

void
sa_agg_run_in(SaAggRun *run, MemoryContext states)
{
	run->states->ecxt_per_tuple_memory = states;
	run->scratch->ecxt_per_tuple_memory = CurrentMemoryContext;
}

static Datum
copy_value(SaAgg *agg, SaAggRun *run, Datum value)
{
	MemoryContext old;

	if (agg->transbyval)
		return value;
	/* A value must not point into a segment or table that may go before the state does. */
	if (agg->translen == -1 && !VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
		value = PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
	old = MemoryContextSwitchTo(run->states->ecxt_per_tuple_memory);
	value = datumCopy(value, false, agg->translen);
	MemoryContextSwitchTo(old);
	return value;
}

void
sa_agg_start(SaAgg *agg, SaAggRun *run, SaTrans *trans)
{
	trans->isnull = agg->init_isnull;
	trans->novalue = agg->init_isnull;
	trans->value = agg->init_isnull ? (Datum) 0 : copy_value(agg, run, agg->init);
}

/* Of a by-reference state. */
static void
free_value(SaAgg *agg, Datum value)
{
	if (DatumIsReadWriteExpandedObject(value, false, agg->translen))
		DeleteExpandedObject(value);
	else
		pfree(DatumGetPointer(value));
}

/* Put a new by-reference state in the place of the old one. */
static void
replace_state(SaAgg *agg, SaAggRun *run, SaTrans *trans, Datum value, bool isnull)
{
	if (!isnull)
	{
		bool		owned = DatumIsReadWriteExpandedObject(value, false, agg->translen) &&
			MemoryContextGetParent(DatumGetEOHP(value)->eoh_context) == run->states->ecxt_per_tuple_memory;

		if (!owned)
			value = copy_value(agg, run, value);
	}
	if (!trans->isnull)
		free_value(agg, trans->value);
	trans->value = value;
}

/* The first input of a strict transition function without initial value becomes the state. */
static bool
strict_start(SaAgg *agg, SaAggRun *run, SaTrans *trans)
{
	if (trans->novalue)
	{
		trans->value = copy_value(agg, run, agg->call->args[1].value);
		trans->isnull = false;
		trans->novalue = false;
		return true;
	}
	return trans->isnull;		/* a NULL state stays */
}

/* The state becomes what the function makes of it and of the other arguments, which stand in the call. */
static void
apply(SaAgg *agg, SaAggRun *run, SaTrans *trans, FunctionCallInfo call, FmgrInfo *function, int nargs)
{
	Datum		value;

	InitFunctionCallInfoData(*call, function, nargs, agg->ref->inputcollid, (fmNodePtr) run->aggstate, NULL);
	call->args[0].value = trans->value;
	call->args[0].isnull = trans->isnull;
	value = FunctionCallInvoke(call);
	if (!agg->transbyval && DatumGetPointer(value) != DatumGetPointer(trans->value))
		replace_state(agg, run, trans, value, call->isnull);
	else
		trans->value = value;
	trans->isnull = call->isnull;
	trans->novalue = false;
}

/* The arguments stand in agg->call. */
static void
transition(SaAgg *agg, SaAggRun *run, SaTrans *trans)
{
	apply(agg, run, trans, agg->call, &agg->trans, agg->nargs + 1);
}

void
sa_agg_advance(SaAgg *agg, SaAggRun *run, SaTrans *trans, const Datum *row, const bool *nulls)
{
	FunctionCallInfo call = agg->call;

	if (agg->filter != 0)
	{
		if (nulls[agg->filter - 1] || !DatumGetBool(row[agg->filter - 1]))
			return;
	}
	if (agg->trans.fn_oid == F_INT8INC)
	{
		trans->value = Int64GetDatum(DatumGetInt64(trans->value) + 1);
		return;
	}
	for (int i = 0; i < agg->nargs; i++)
	{
		int			col = agg->args[i] - 1;

		call->args[i + 1].value = row[col];
		call->args[i + 1].isnull = nulls[col];
		if (nulls[col] && agg->trans.fn_strict)
			return;
	}
	if (agg->trans.fn_strict && strict_start(agg, run, trans))
		return;
	transition(agg, run, trans);
}

/* Serialized form of an internal state. */
static Datum
serialize(SaAgg *agg, SaAggRun *run, Datum state)
{
	LOCAL_FCINFO(call, 1);

	InitFunctionCallInfoData(*call, &agg->serial, 1, InvalidOid, (fmNodePtr) run->aggstate, NULL);
	call->args[0].value = state;
	call->args[0].isnull = false;
	state = FunctionCallInvoke(call);
	if (call->isnull)
		elog(ERROR, "serialization function %u returned NULL", agg->serial.fn_oid);
	return state;
}

/* The state comes to live in this context. */
static Datum
deserialize(SaAgg *agg, SaAggRun *run, Datum bytes, MemoryContext cxt)
{
	LOCAL_FCINFO(call, 2);
	MemoryContext old = MemoryContextSwitchTo(cxt);

	InitFunctionCallInfoData(*call, &agg->deserial, 2, InvalidOid, (fmNodePtr) run->aggstate, NULL);
	call->args[0].value = bytes;
	call->args[0].isnull = false;
	call->args[1].value = (Datum) 0;
	call->args[1].isnull = false;
	bytes = FunctionCallInvoke(call);
	MemoryContextSwitchTo(old);
	if (call->isnull)
		elog(ERROR, "deserialization function %u returned NULL", agg->deserial.fn_oid);
	return bytes;
}

static bool
combines(const SaAgg *agg)
{
	return OidIsValid(agg->combine.fn_oid) && !agg->combine.fn_strict;
}

/* A whole copy of an internal state, in this context: combined with nothing. */
static Datum
copy_internal(SaAgg *agg, SaAggRun *run, Datum state, MemoryContext cxt)
{
	LOCAL_FCINFO(call, 2);
	MemoryContext states = run->states->ecxt_per_tuple_memory;
	Datum		copy = state;

	if (combines(agg))
	{
		run->states->ecxt_per_tuple_memory = cxt;
		InitFunctionCallInfoData(*call, &agg->combine, 2, agg->ref->inputcollid, (fmNodePtr) run->aggstate, NULL);
		call->args[0].value = (Datum) 0;
		call->args[0].isnull = true;
		call->args[1].value = state;
		call->args[1].isnull = false;
		copy = FunctionCallInvoke(call);
		run->states->ecxt_per_tuple_memory = states;
		if (call->isnull)
			elog(ERROR, "combine function %u returned NULL", agg->combine.fn_oid);
	}
	if (copy == state)			/* it has not copied it */
		copy = deserialize(agg, run, serialize(agg, run, state), cxt);
	return copy;
}

/*
 * A stored state, fit for the transition function again, in the window's context.  The executor gives what
 * a deserialization function returns to the combine function alone, so it need not be fit for anything
 * else: numeric_deserialize() of some minor versions makes a state that sums no more squares.
 */
static Datum
restore(SaAgg *agg, SaAggRun *run, Datum bytes)
{
	MemoryContext cxt = run->states->ecxt_per_tuple_memory;

	if (!combines(agg))
		return deserialize(agg, run, bytes, cxt);
	return copy_internal(agg, run, deserialize(agg, run, bytes, CurrentMemoryContext), cxt);
}

/* What the final function may have: the state itself, read-only, or a copy it may spoil. */
static Datum
state_for_final(SaAgg *agg, SaAggRun *run, const SaTrans *trans)
{
	if (trans->isnull)
		return (Datum) 0;
	if (agg->copy_for_final && agg->transtype == INTERNALOID)
		return deserialize(agg, run, serialize(agg, run, trans->value), CurrentMemoryContext);
	if (agg->copy_for_final)
		return datumCopy(trans->value, agg->transbyval, agg->translen);
	return MakeExpandedObjectReadOnly(trans->value, trans->isnull, agg->translen);
}

Datum
sa_agg_final(SaAgg *agg, SaAggRun *run, const SaTrans *trans, bool *isnull)
{
	LOCAL_FCINFO(call, FUNC_MAX_ARGS);
	bool		any_null = trans->isnull;
	Datum		value = state_for_final(agg, run, trans);

	if (!agg->has_final)
	{
		*isnull = trans->isnull;
		return value;
	}
	InitFunctionCallInfoData(*call, &agg->final, agg->final_nargs, agg->ref->inputcollid,
							 (fmNodePtr) run->aggstate, NULL);
	call->args[0].value = value;
	call->args[0].isnull = trans->isnull;
	for (int i = 1; i < agg->final_nargs; i++)
	{
		call->args[i].value = (Datum) 0;
		call->args[i].isnull = true;
		any_null = true;
	}
	if (agg->final.fn_strict && any_null)
	{
		*isnull = true;
		return (Datum) 0;
	}
	value = FunctionCallInvoke(call);
	*isnull = call->isnull;
	return value;
}

void
sa_agg_write(SaAgg *agg, SaAggRun *run, const SaTrans *trans, StringInfo out)
{
	appendStringInfoChar(out, trans->novalue ? 1 : 0);
	if (agg->transtype != INTERNALOID)
		sa_codec_put(&agg->codec, out, trans->value, trans->isnull);
	else
	{
		SaCodec		bytes = {.kind = SA_CODEC_BYTES};

		sa_codec_put(&bytes, out, trans->isnull ? (Datum) 0 : serialize(agg, run, trans->value),
					 trans->isnull);
	}
}

void
sa_agg_read(SaAgg *agg, SaAggRun *run, SaTrans *trans, StringInfo in)
{
	Datum		value;

	trans->novalue = in->data[in->cursor++] != 0;
	if (agg->transtype != INTERNALOID)
	{
		value = sa_codec_get(&agg->codec, in, &trans->isnull);
		trans->value = trans->isnull ? (Datum) 0 : copy_value(agg, run, value);
	}
	else
	{
		SaCodec		bytes = {.kind = SA_CODEC_BYTES};

		value = sa_codec_get(&bytes, in, &trans->isnull);
		trans->value = trans->isnull ? (Datum) 0 :
			restore(agg, run, sa_state_of_today(agg->ref->aggfnoid, value));
	}
}

static Datum
copy_state(SaAgg *agg, SaAggRun *run, Datum value, MemoryContext cxt)
{
	MemoryContext old;

	if (agg->transtype == INTERNALOID)
		return copy_internal(agg, run, value, cxt);
	if (agg->transbyval)
		return value;
	old = MemoryContextSwitchTo(cxt);
	value = datumCopy(value, false, agg->translen);
	MemoryContextSwitchTo(old);
	return value;
}

/*
 * As the executor does with the states of parallel workers.  A NULL state is none to a strict function, whether it has
 * had no input or made that of it, and an internal one is none anyway.  Nothing of `from` is handed over: the function
 * may return it as it is.
 */
void
sa_agg_combine(SaAgg *agg, SaAggRun *run, SaTrans *into, const SaTrans *from)
{
	LOCAL_FCINFO(call, 2);
	bool		null_is_none = agg->combine.fn_strict || agg->transtype == INTERNALOID;

	if (from->isnull && null_is_none)
		return;
	if (into->isnull && null_is_none)
	{
		sa_agg_restore(agg, run, into, from);
		return;
	}
	call->args[1].value = MakeExpandedObjectReadOnly(from->value, from->isnull, agg->translen);
	call->args[1].isnull = from->isnull;
	apply(agg, run, into, call, &agg->combine, 2);
}

void
sa_agg_save(SaAgg *agg, SaAggRun *run, const SaTrans *trans, SaTrans *saved, MemoryContext cxt)
{
	*saved = *trans;
	if (!trans->isnull)
		saved->value = copy_state(agg, run, trans->value, cxt);
}

void
sa_agg_restore(SaAgg *agg, SaAggRun *run, SaTrans *trans, const SaTrans *saved)
{
	*trans = *saved;
	if (!saved->isnull)
		trans->value = copy_state(agg, run, saved->value, run->states->ecxt_per_tuple_memory);
}

void
sa_agg_discard(SaAgg *agg, SaTrans *trans)
{
	if (!agg->transbyval && !trans->isnull)
		free_value(agg, trans->value);
	trans->isnull = true;
}

void
sa_agg_from_value(SaAgg *agg, SaAggRun *run, SaTrans *trans, Datum value, bool isnull)
{
	if (sa_value_makes_state(agg->ref->aggfnoid))
	{
		sa_agg_start(agg, run, trans);
		agg->call->args[1].value = value;
		agg->call->args[1].isnull = isnull;
		if (!isnull)
			transition(agg, run, trans);
		return;
	}
	trans->isnull = isnull;
	trans->novalue = isnull;
	trans->value = isnull ? (Datum) 0 : copy_value(agg, run, value);
}
