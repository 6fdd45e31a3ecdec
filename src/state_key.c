/*
 * state_key.c
 *		Keys of groups: hashing, comparing and ordering them.
 *
 * Invariant: keys that are equal have equal hashes; the order is that of their bytes, which any order would do for.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "port/pg_bswap.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "state_key.h"
#include "state_session.h"

typedef enum KeyKind
{
	KEY_IMAGE,					/* by value, equal iff the datums are */
	KEY_BYTES,					/* varlena, equal iff the bytes are */
	KEY_FUNCTION				/* ask the type */
} KeyKind;

struct SaKeyInfo
{
	KeyKind		kind;
	bool		byval;
	int16		len;
	Oid			collation;
	FmgrInfo	eq;
	FmgrInfo	hash;
	bool		hashable;
};

static void
init_key(SaKeyInfo *info, const SaKey *key, MemoryContext cxt)
{
	RegProcedure hashfn;
	TypeCacheEntry *type = lookup_type_cache(key->type, TYPECACHE_EQ_OPR);

	get_typlenbyval(key->type, &info->len, &info->byval);
	info->collation = key->collation;
	info->kind = KEY_FUNCTION;
	if (info->byval && (type->type_id == INT4OID || type->type_id == INT8OID || type->type_id == INT2OID ||
						type->type_id == BOOLOID || type->type_id == DATEOID || type->type_id == OIDOID ||
						type->type_id == TIMESTAMPOID || type->type_id == TIMESTAMPTZOID ||
						type->typtype == TYPTYPE_ENUM))
		info->kind = KEY_IMAGE;
	else if ((key->type == TEXTOID || key->type == VARCHAROID || key->type == BYTEAOID) &&
			 (!OidIsValid(key->collation) || get_collation_isdeterministic(key->collation)))
		info->kind = KEY_BYTES;
	fmgr_info_cxt(get_opcode(key->eqop), &info->eq, cxt);
	info->hashable = get_op_hash_functions(key->eqop, &hashfn, NULL);
	if (info->hashable)
		fmgr_info_cxt(hashfn, &info->hash, cxt);
}

SaKeyInfo *
sa_state_key_create(const SaQuery *query)
{
	SaKeyInfo  *keys = MemoryContextAllocZero(query->cxt, sizeof(SaKeyInfo) * (query->nkeys + 2));

	for (int i = 0; i < query->nkeys; i++)
		init_key(&keys[i], &query->keys[i], query->cxt);
	for (int i = 0; i < 2; i++)	/* start and end of a session */
		keys[query->nkeys + i] = (SaKeyInfo) {.kind = KEY_IMAGE, .byval = true, .len = sizeof(int64)};
	return keys;
}

/* --- hashing and comparing --- */

static uint32
hash_key(SaKeyInfo *info, Datum value)
{
	switch (info->kind)
	{
		case KEY_IMAGE:
			return sa_hash_int64(info->len == sizeof(int32) ? DatumGetInt32(value) : (int64) value);
		case KEY_BYTES:
			{
				struct varlena *v = PG_DETOAST_DATUM_PACKED(value);

				return hash_bytes((unsigned char *) VARDATA_ANY(v), VARSIZE_ANY_EXHDR(v));
			}
		default:
			return info->hashable ? DatumGetUInt32(FunctionCall1Coll(&info->hash, info->collation, value)) : 0;
	}
}

uint32
sa_state_hash_keys(SaState *state, const Datum *keys, const bool *nulls)
{
	uint32		hash = 0x9e3779b9;

	for (int i = 0; i < state->nown; i++)
		hash = hash_combine(hash, nulls[i] ? 0 : hash_key(&state->keys[i], keys[i]));
	return hash;
}

static bool
equal_key(SaKeyInfo *info, Datum a, Datum b)
{
	switch (info->kind)
	{
		case KEY_IMAGE:
			/* an OID may have come sign-extended or not */
			return info->len == sizeof(int32) ? DatumGetInt32(a) == DatumGetInt32(b) : a == b;
		case KEY_BYTES:
			{
				struct varlena *va = PG_DETOAST_DATUM_PACKED(a);
				struct varlena *vb = PG_DETOAST_DATUM_PACKED(b);
				Size		len = VARSIZE_ANY_EXHDR(va);

				return len == VARSIZE_ANY_EXHDR(vb) && memcmp(VARDATA_ANY(va), VARDATA_ANY(vb), len) == 0;
			}
		default:
			return DatumGetBool(FunctionCall2Coll(&info->eq, info->collation, a, b));
	}
}

/* Are the first n keys equal?  NULLs group together, as in SQL. */
static inline bool
equal_first(SaState *state, const SaGroup *group, const Datum *keys, const bool *nulls, int n)
{
	const Datum *own = sa_group_keys(state, group);
	const bool *own_nulls = sa_group_nulls(state, group);

	for (int i = 0; i < n; i++)
	{
		if (own_nulls[i] != nulls[i])
			return false;
		if (!nulls[i] && !equal_key(&state->keys[i], own[i], keys[i]))
			return false;
	}
	return true;
}

bool
sa_state_equal_keys(SaState *state, const SaGroup *group, const Datum *keys, const bool *nulls)
{
	return equal_first(state, group, keys, nulls, state->nkeys);
}

bool
sa_state_equal_own_keys(SaState *state, const SaGroup *group, const Datum *keys, const bool *nulls)
{
	return equal_first(state, group, keys, nulls, state->nown);
}

static Datum
flat_key(SaKeyInfo *info, Datum value)
{
	return info->len == -1 ? PointerGetDatum(PG_DETOAST_DATUM_PACKED(value)) : value;
}

Size
sa_state_key_width(SaState *state, Datum *keys, const bool *nulls)
{
	Size		size = 0;

	for (int i = 0; i < state->nkeys; i++)
		if (!nulls[i] && !state->keys[i].byval)
		{
			keys[i] = flat_key(&state->keys[i], keys[i]);
			size += datumGetSize(keys[i], false, state->keys[i].len);
		}
	return size;
}

char *
sa_state_copy_keys(SaState *state, SaGroup *group, const Datum *keys, const bool *nulls, char *space)
{
	Datum	   *own = sa_group_keys(state, group);

	memcpy(sa_group_nulls(state, group), nulls, sizeof(bool) * state->nkeys);
	for (int i = 0; i < state->nkeys; i++)
	{
		Size		len;

		own[i] = keys[i];
		if (nulls[i] || state->keys[i].byval)
			continue;
		len = datumGetSize(keys[i], false, state->keys[i].len);
		memcpy(space, DatumGetPointer(keys[i]), len);
		own[i] = PointerGetDatum(space);
		space += MAXALIGN(len);
	}
	return space;
}

void
sa_state_respell_keys(SaState *state, SaGroup *group, const Datum *keys, const bool *nulls, MemoryContext cxt)
{
	Datum	   *own = sa_group_keys(state, group);

	for (int i = 0; i < state->nkeys; i++)
	{
		const SaKeyInfo *info = &state->keys[i];
		MemoryContext old;

		if (info->kind != KEY_FUNCTION || nulls[i] || datumIsEqual(own[i], keys[i], info->byval, info->len))
			continue;
		old = MemoryContextSwitchTo(cxt);
		own[i] = datumCopy(keys[i], info->byval, info->len);
		MemoryContextSwitchTo(old);
	}
}

/* --- ordering --- */

static int
compare_key(SaKeyInfo *info, Datum a, Datum b)
{
	struct varlena *va;
	struct varlena *vb;
	Size		la;
	Size		lb;
	int			result;

	if (info->byval)
		return (int64) a < (int64) b ? -1 : (int64) a > (int64) b;
	if (info->len != -1)
		return memcmp(DatumGetPointer(a), DatumGetPointer(b), info->len > 0 ? info->len : 1);
	va = (struct varlena *) DatumGetPointer(a);
	vb = (struct varlena *) DatumGetPointer(b);
	la = VARSIZE_ANY_EXHDR(va);
	lb = VARSIZE_ANY_EXHDR(vb);
	result = memcmp(VARDATA_ANY(va), VARDATA_ANY(vb), Min(la, lb));
	return result != 0 ? result : la < lb ? -1 : la > lb;
}

static int
compare_keys(SaState *state, const SaGroup *a, const SaGroup *b)
{
	const Datum *x = sa_group_keys(state, a);
	const Datum *y = sa_group_keys(state, b);
	const bool *x_nulls = sa_group_nulls(state, a);
	const bool *y_nulls = sa_group_nulls(state, b);

	for (int i = 0; i < state->nkeys; i++)
	{
		int			result;

		if (x_nulls[i] || y_nulls[i])
		{
			if (x_nulls[i] != y_nulls[i])
				return x_nulls[i] ? 1 : -1;
			continue;
		}
		result = compare_key(&state->keys[i], x[i], y[i]);
		if (result != 0)
			return result;
	}
	return 0;
}

/* A group with the beginning of what it is sorted by, at hand: most groups are not looked at again. */
/* A group with the beginning of what it is sorted by, at hand: most groups are not looked at again. */
typedef struct Ordered
{
	int64		end;			/* of its window; or a session's start */
	uint64		prefix;			/* of its first key */
	SaTouched  *group;
} Ordered;

/* The first bytes of the first key as a number, NULLs last; equal keys have equal ones. */
static uint64
key_prefix(SaState *state, const SaGroup *group)
{
	const SaKeyInfo *info = state->keys;
	Datum		key;
	uint64		prefix = 0;
	const char *bytes;
	Size		size;

	if (state->nkeys == 0)
		return 0;
	if (sa_group_nulls(state, group)[0])
		return PG_UINT64_MAX;
	key = sa_group_keys(state, group)[0];
	if (info->byval)
		return (uint64) key ^ (UINT64CONST(1) << 63);
	bytes = DatumGetPointer(key);
	size = info->len > 0 ? info->len : 1;
	if (info->len == -1)
	{
		size = VARSIZE_ANY_EXHDR(bytes);
		bytes = VARDATA_ANY(bytes);
	}
	memcpy(&prefix, bytes, Min(size, sizeof(prefix)));
	return pg_ntoh64(prefix);
}

static inline int
compare_ordered(const Ordered *a, const Ordered *b, SaState *state)
{
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	if (a->prefix != b->prefix)
		return a->prefix < b->prefix ? -1 : 1;
	return compare_keys(state, a->group->group, b->group->group);
}

#define ST_SORT sort_ordered
#define ST_ELEMENT_TYPE Ordered
#define ST_COMPARE_ARG_TYPE SaState
#define ST_COMPARE(a, b, state) compare_ordered(a, b, state)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

#define PREFETCH_AHEAD 8

void
sa_state_sort(SaState *state, SaTouched **groups, int n)
{
	Ordered    *ordered = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Ordered) * ((Size) n + 1));

	for (int i = 0; i < n; i++)
	{
		if (i + PREFETCH_AHEAD < n)
			sa_state_prefetch_group(groups[i + PREFETCH_AHEAD]->group);
		ordered[i].end = state->sessions ? sa_session_start(state, groups[i]->group) : groups[i]->window->end;
		ordered[i].prefix = key_prefix(state, groups[i]->group);
		ordered[i].group = groups[i];
	}
	sort_ordered(ordered, n, state);
	for (int i = 0; i < n; i++)
		groups[i] = ordered[i].group;
	pfree(ordered);
}
