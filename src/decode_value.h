/*
 * decode_value.h
 *		From a token to a value of a column's type.
 */
#ifndef SA_DECODE_VALUE_H
#define SA_DECODE_VALUE_H

#include "access/attnum.h"
#include "catalog/pg_attribute.h"
#include "decode_run.h"
#include "fmgr.h"
#include "option.h"

/* How a type is read; all but the last have a way of their own, with the input function for what is in doubt. */
typedef enum SaValueKind
{
	SA_VALUE_BOOL,
	SA_VALUE_INT2,
	SA_VALUE_INT4,
	SA_VALUE_INT8,
	SA_VALUE_FLOAT4,
	SA_VALUE_FLOAT8,
	SA_VALUE_TEXT,
	SA_VALUE_TIMESTAMPTZ,
	SA_VALUE_TIMESTAMP,
	SA_VALUE_DATE,
	SA_VALUE_UUID,
	SA_VALUE_JSON,
	SA_VALUE_JSONB,
	SA_VALUE_ARRAY,
	SA_VALUE_OTHER
} SaValueKind;

typedef struct SaColumn
{
	AttrNumber	attnum;
	const char *name;
	bool		not_null;
	Oid			type;			/* below domains */
	int32		typmod;
	int16		typlen;
	bool		typbyval;
	SaValueKind kind;
	SaTimeFormat time_format;	/* of times */
	FmgrInfo	input;
	Oid			ioparam;
	char		delimiter;		/* between the elements of arrays */
	bool		json_elements;
	bool		tidy;			/* the input function leaves nothing behind */
	Oid			domain;			/* InvalidOid: none */
	void	   *domain_cache;
	MemoryContext cxt;
} SaColumn;

/* Lives in CurrentMemoryContext, as long as the column is used. */
extern void sa_column_init(SaColumn *column, Form_pg_attribute att, SaTimeFormat time_format);

/*
 * The value of a token, in run->result; false with a reason.  SA_TOKEN_NONE and SA_TOKEN_NULL are NULL,
 * and whether a column may be NULL is left to the caller, but for what a domain says.
 */
extern bool sa_column_value(SaDecodeRun *run, SaColumn *column, const SaToken *token, Datum *value, bool *isnull);

/* The same from a value of the type below the domains: only the domain is asked. */
extern bool sa_column_accept(SaDecodeRun *run, SaColumn *column, Datum value, bool isnull);

#endif							/* SA_DECODE_VALUE_H */
