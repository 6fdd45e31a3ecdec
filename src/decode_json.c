/*
 * decode_json.c
 *		Reads JSON objects once, and keeps the values at wanted paths.
 *
 * Invariant: accepts what the server's type json accepts, no more and no less, but for nesting: there the
 * server stops when its stack is used up, and we never, for values that nobody wants are skipped without
 * recursion.  Wanted paths are a tree.  Whenever the scan comes by a node it makes a new instance of it,
 * which knows the instance of its parent; so what an earlier duplicate of a key held, or an earlier record,
 * is no more to be found, without anything to clear.
 *
 * No locks; nothing to recover after a crash.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "decode_json.h"

/* More than this many levels are deep: what reads the value again should look after its stack. */
#define DEEP_LEVELS 256

/* Room for more levels than these is given back after the record. */
#define KEPT_LEVELS 4096

struct SaJsonNode
{
	const char *key;
	size_t		size;
	uint32		hash;
	SaJsonNode *parent;			/* NULL: the root */
	List	   *children;
	SaJsonNode **slots;			/* the same by hash, with open addressing; NULL: none */
	uint32		mask;			/* number of slots - 1; at least half of them are empty */
	bool		wanted;			/* its value is a column's */
	uint64		instance;		/* grows */
	uint64		within;			/* instance of the parent that it was found in */
	SaToken		token;
};

struct SaJsonPaths
{
	SaJsonNode *root;
	uint64		instances;
	StringInfoData key;			/* one without its escapes */
	uint8	   *levels;			/* of the containers that are being skipped: is it an object? */
	size_t		nlevels;		/* room */
	MemoryContext cxt;
};

/* One scan.  Its functions take the place where something begins and return where it ends; NULL: trouble. */
typedef struct Scan
{
	SaJsonPaths *paths;
	SaDecodeRun *run;
	const char *end;
	const char *at;				/* where there is trouble */
	const char *trouble;
	size_t		deepest;
} Scan;

/* ---------- the tree of paths ---------- */

/* Eight bytes a step; the last ones overlap. */
static inline uint32
hash_key(const char *key, size_t size)
{
	const uint64 factor = UINT64CONST(0x9E3779B97F4A7C15);
	uint64		hash = size * factor;
	uint64		word = 0;

	for (; size > 8; key += 8, size -= 8)
	{
		memcpy(&word, key, 8);
		hash = (hash ^ word) * factor;
		hash ^= hash >> 32;
	}
	word = 0;
	if (size >= 4)
	{
		uint32		halves[2];

		memcpy(&halves[0], key, 4);
		memcpy(&halves[1], key + size - 4, 4);
		word = (uint64) halves[0] << 32 | halves[1];
	}
	else
	{
		for (size_t i = 0; i < size; i++)
			word = word << 8 | (unsigned char) key[i];
	}
	hash = (hash ^ word) * factor;
	return (uint32) (hash >> 32);
}

/* memcmp() == 0, for keys, which are short. */
static inline bool
same_key(const char *a, const char *b, size_t size)
{
	uint64		words[2];

	for (; size >= 8; a += 8, b += 8, size -= 8)
	{
		memcpy(&words[0], a, 8);
		memcpy(&words[1], b, 8);
		if (words[0] != words[1])
			return false;
	}
	for (size_t i = 0; i < size; i++)
	{
		if (a[i] != b[i])
			return false;
	}
	return true;
}

static inline SaJsonNode *
find_child(const SaJsonNode *node, const char *key, size_t size)
{
	uint32		hash = hash_key(key, size);

	for (uint32 i = hash & node->mask; node->slots[i] != NULL; i = (i + 1) & node->mask)
	{
		SaJsonNode *child = node->slots[i];

		if (child->hash == hash && child->size == size && same_key(child->key, key, size))
			return child;
	}
	return NULL;
}

SaJsonPaths *
sa_json_paths_create(void)
{
	SaJsonPaths *paths = palloc0(sizeof(SaJsonPaths));

	paths->cxt = CurrentMemoryContext;
	paths->root = palloc0(sizeof(SaJsonNode));
	initStringInfo(&paths->key);
	return paths;
}

/* Fills the hash of a node's children, with twice as many slots as it needs. */
static void
hash_children(SaJsonNode *node)
{
	uint32		nslots = pg_nextpower2_32(2 * list_length(node->children));
	ListCell   *lc;

	if (node->slots != NULL)
		pfree(node->slots);
	node->slots = palloc0(sizeof(SaJsonNode *) * nslots);
	node->mask = nslots - 1;
	foreach(lc, node->children)
	{
		SaJsonNode *child = lfirst(lc);
		uint32		i = child->hash & node->mask;

		while (node->slots[i] != NULL)
			i = (i + 1) & node->mask;
		node->slots[i] = child;
	}
}

static SaJsonNode *
add_child(SaJsonNode *node, const char *key)
{
	SaJsonNode *child = palloc0(sizeof(SaJsonNode));

	child->key = pstrdup(key);
	child->size = strlen(key);
	child->hash = hash_key(child->key, child->size);
	child->parent = node;
	node->children = lappend(node->children, child);
	if (node->slots == NULL || 2 * list_length(node->children) > node->mask + 1)
		hash_children(node);
	else
	{
		uint32		i = child->hash & node->mask;

		while (node->slots[i] != NULL)
			i = (i + 1) & node->mask;
		node->slots[i] = child;
	}
	return child;
}

SaJsonNode *
sa_json_paths_add(SaJsonPaths *paths, List *steps)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(paths->cxt);
	SaJsonNode *node = paths->root;
	ListCell   *lc;

	foreach(lc, steps)
	{
		const char *key = lfirst(lc);
		SaJsonNode *child = node->slots != NULL ? find_child(node, key, strlen(key)) : NULL;

		node = child != NULL ? child : add_child(node, key);
	}
	node->wanted = true;
	MemoryContextSwitchTo(oldcxt);
	return node;
}

SaToken
sa_json_token(const SaJsonNode *node)
{
	for (const SaJsonNode *at = node; at->parent != NULL; at = at->parent)
	{
		if (at->within != at->parent->instance)
			return (SaToken) {SA_TOKEN_NONE, NULL, 0};
	}
	return node->token;
}

/* ---------- scalars ---------- */

static const char *
fail(Scan *scan, const char *at, const char *trouble)
{
	scan->at = at;
	scan->trouble = trouble;
	return NULL;
}

static inline const char *
skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
		p++;
	return p;
}

static inline bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline const char *
skip_digits(const char *p, const char *end)
{
	while (p < end && is_digit(*p))
		p++;
	return p;
}

#define EACH_BYTE(b) (~UINT64CONST(0) / 255 * (b))

/*
 * The top bit of each byte of a word that is a quote, a backslash or a control character.  Bytes that are
 * more significant than such a one may be marked wrongly.
 */
static inline uint64
mark_special(uint64 word)
{
	uint64		quote = word ^ EACH_BYTE('"');
	uint64		backslash = word ^ EACH_BYTE('\\');

	return (((word - EACH_BYTE(0x20)) & ~word) |
			((quote - EACH_BYTE(1)) & ~quote) |
			((backslash - EACH_BYTE(1)) & ~backslash)) & EACH_BYTE(0x80);
}

/* To the next quote, backslash or control character. */
static inline const char *
skip_plain(const char *p, const char *end)
{
	for (; end - p >= 8; p += 8)
	{
		uint64		word;
		uint64		marks;

		memcpy(&word, p, 8);
		marks = mark_special(word);
		if (marks == 0)
			continue;
#ifdef WORDS_BIGENDIAN
		break;
#else
		return p + pg_rightmost_one_pos64(marks) / 8;
#endif
	}
	while (p < end && *p != '"' && *p != '\\' && (unsigned char) *p >= 0x20)
		p++;
	return p;
}

/* Value of a hexadecimal digit, or -1. */
static inline int
hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static const char *
scan_escape(Scan *scan, const char *p)
{
	if (scan->end - p < 2)
		return fail(scan, scan->end, NULL);
	switch (p[1])
	{
		case '"':
		case '\\':
		case '/':
		case 'b':
		case 'f':
		case 'n':
		case 'r':
		case 't':
			return p + 2;
		case 'u':
			for (int i = 2; i < 6; i++)
			{
				if (p + i >= scan->end)
					return fail(scan, scan->end, NULL);
				if (hex_value(p[i]) < 0)
					return fail(scan, p, "invalid escape");
			}
			return p + 6;
		default:
			return fail(scan, p, "invalid escape");
	}
}

/* From behind the first quote to the last one. */
static inline const char *
scan_string(Scan *scan, const char *p, bool *escaped)
{
	*escaped = false;
	for (;;)
	{
		p = skip_plain(p, scan->end);
		if (p >= scan->end)
			return fail(scan, p, NULL);
		if (*p == '"')
			return p;
		if (*p != '\\')
			return fail(scan, p, "control character in a string");
		*escaped = true;
		p = scan_escape(scan, p);
		if (p == NULL)
			return NULL;
	}
}

/* At least one digit. */
static inline const char *
scan_digits(Scan *scan, const char *p)
{
	const char *after = skip_digits(p, scan->end);

	if (after == p)
		return fail(scan, p, "expected a digit");
	return after;
}

static inline const char *
scan_number(Scan *scan, const char *p)
{
	if (*p == '-')
		p++;
	if (p < scan->end && *p == '0')
		p++;
	else if ((p = scan_digits(scan, p)) == NULL)
		return NULL;
	if (p < scan->end && *p == '.')
	{
		p = scan_digits(scan, p + 1);
		if (p == NULL)
			return NULL;
	}
	if (p < scan->end && (*p == 'e' || *p == 'E'))
	{
		p++;
		if (p < scan->end && (*p == '+' || *p == '-'))
			p++;
		p = scan_digits(scan, p);
	}
	return p;
}

static const char *
scan_word(Scan *scan, const char *p, const char *word, size_t size)
{
	if (scan->end - p < size)
		return fail(scan, memcmp(p, word, scan->end - p) == 0 ? scan->end : p, "expected a value");
	if (memcmp(p, word, size) != 0)
		return fail(scan, p, "expected a value");
	return p + size;
}

static inline const char *
scan_scalar(Scan *scan, const char *p, SaTokenKind *kind)
{
	bool		escaped;

	switch (*p)
	{
		case '"':
			p = scan_string(scan, p + 1, &escaped);
			*kind = escaped ? SA_TOKEN_ESCAPED : SA_TOKEN_STRING;
			return p != NULL ? p + 1 : NULL;
		case 't':
			*kind = SA_TOKEN_TRUE;
			return scan_word(scan, p, "true", 4);
		case 'f':
			*kind = SA_TOKEN_FALSE;
			return scan_word(scan, p, "false", 5);
		case 'n':
			*kind = SA_TOKEN_NULL;
			return scan_word(scan, p, "null", 4);
		default:
			*kind = SA_TOKEN_NUMBER;
			if (*p != '-' && !is_digit(*p))
				return fail(scan, p, "expected a value");
			return scan_number(scan, p);
	}
}

/* ---------- values that nobody wants the inside of ---------- */

static void
push_level(Scan *scan, size_t depth, bool object)
{
	SaJsonPaths *paths = scan->paths;

	if (depth >= paths->nlevels)
	{
		size_t		room = Max(paths->nlevels * 2, 64);

		if (paths->levels == NULL)
			paths->levels = MemoryContextAlloc(paths->cxt, room);
		else
			paths->levels = repalloc(paths->levels, room);
		paths->nlevels = room;
	}
	paths->levels[depth] = object;
	scan->deepest = Max(scan->deepest, depth);
}

/* A key and the colon after it, up to the value. */
static const char *
skip_key(Scan *scan, const char *p)
{
	bool		escaped;

	if (p >= scan->end || *p != '"')
		return fail(scan, p, "expected a key");
	p = scan_string(scan, p + 1, &escaped);
	if (p == NULL)
		return NULL;
	p = skip_space(p + 1, scan->end);
	if (p >= scan->end || *p != ':')
		return fail(scan, p, "expected \":\"");
	return skip_space(p + 1, scan->end);
}

/* From behind a value to the next one of the same container, or behind those containers that end here. */
static const char *
skip_separator(Scan *scan, const char *p, size_t *depth)
{
	while (*depth > 0)
	{
		bool		object = scan->paths->levels[*depth - 1];

		p = skip_space(p, scan->end);
		if (p < scan->end && *p == ',')
		{
			p = skip_space(p + 1, scan->end);
			return object ? skip_key(scan, p) : p;
		}
		if (p >= scan->end || *p != (object ? '}' : ']'))
			return fail(scan, p, object ? "expected \",\" or \"}\"" : "expected \",\" or \"]\"");
		p++;
		(*depth)--;
	}
	return p;
}

/* An object or array, whatever is in it. */
static const char *
skip_container(Scan *scan, const char *p)
{
	size_t		depth = 0;
	SaTokenKind kind;

	do
	{
		if (p >= scan->end)
			return fail(scan, p, NULL);
		if (*p == '{' || *p == '[')
		{
			bool		object = *p == '{';

			push_level(scan, depth++, object);
			p = skip_space(p + 1, scan->end);
			if (p >= scan->end || *p != (object ? '}' : ']'))
			{
				if (object)
					p = skip_key(scan, p);
				if (p == NULL)
					return NULL;
				continue;
			}
			depth--;
			p++;
		}
		else
			p = scan_scalar(scan, p, &kind);
		if (p != NULL)
			p = skip_separator(scan, p, &depth);
	} while (p != NULL && depth > 0);
	return p;
}

/* ---------- objects on wanted paths ---------- */

static const char *scan_object(Scan *scan, const char *p, SaJsonNode *node);

/* A wanted node's value, or one below which there are wanted nodes. */
static inline const char *
scan_node(Scan *scan, const char *begin, SaJsonNode *node)
{
	const char *p;
	SaTokenKind kind;

	node->within = node->parent->instance;
	node->instance = ++scan->paths->instances;
	if (*begin == '{')
	{
		kind = SA_TOKEN_OBJECT;
		p = node->slots != NULL ? scan_object(scan, begin, node) : skip_container(scan, begin);
	}
	else if (*begin == '[')
	{
		kind = SA_TOKEN_ARRAY;
		p = skip_container(scan, begin);
	}
	else
		p = scan_scalar(scan, begin, &kind);
	if (p == NULL)
		return NULL;

	node->token.kind = kind;
	node->token.text = begin;
	node->token.size = p - begin;
	if (kind == SA_TOKEN_STRING || kind == SA_TOKEN_ESCAPED)
	{
		node->token.text++;
		node->token.size -= 2;
	}
	return p;
}

/* The child with this key; none when it has escapes that stand for no text. */
static SaJsonNode *
find_escaped_child(Scan *scan, SaJsonNode *node, const char *key, size_t size)
{
	StringInfo	text = &scan->paths->key;

	if (!sa_json_unescape(scan->run, text, key, size))
		return NULL;
	return find_child(node, text->data, text->len);
}

static inline const char *
scan_member(Scan *scan, const char *p, SaJsonNode *node)
{
	const char *key = p + 1;
	SaJsonNode *child;
	SaTokenKind kind;
	bool		escaped;

	if (p >= scan->end || *p != '"')
		return fail(scan, p, "expected a key");
	p = scan_string(scan, key, &escaped);
	if (p == NULL)
		return NULL;
	child = escaped ? find_escaped_child(scan, node, key, p - key) : find_child(node, key, p - key);

	p = skip_space(p + 1, scan->end);
	if (p >= scan->end || *p != ':')
		return fail(scan, p, "expected \":\"");
	p = skip_space(p + 1, scan->end);
	if (p >= scan->end)
		return fail(scan, p, NULL);
	if (child != NULL)
		return scan_node(scan, p, child);
	if (*p == '{' || *p == '[')
		return skip_container(scan, p);
	return scan_scalar(scan, p, &kind);
}

/* Recursion goes no deeper than wanted paths. */
static const char *
scan_object(Scan *scan, const char *p, SaJsonNode *node)
{
	p = skip_space(p + 1, scan->end);
	if (p < scan->end && *p == '}')
		return p + 1;
	for (;;)
	{
		p = scan_member(scan, p, node);
		if (p == NULL)
			return NULL;
		p = skip_space(p, scan->end);
		if (p < scan->end && *p == '}')
			return p + 1;
		if (p >= scan->end || *p != ',')
			return fail(scan, p, "expected \",\" or \"}\"");
		p = skip_space(p + 1, scan->end);
	}
}

/* ---------- the record ---------- */

static const char *
scan_top(Scan *scan, const char *p, SaTokenKind *kind)
{
	SaJsonNode *root = scan->paths->root;

	*kind = SA_TOKEN_OBJECT;
	root->instance = ++scan->paths->instances;
	p = skip_space(p, scan->end);
	if (p >= scan->end)
		p = fail(scan, p, NULL);
	else if (*p == '{')
		p = root->slots != NULL ? scan_object(scan, p, root) : skip_container(scan, p);
	else if (*p == '[')
	{
		*kind = SA_TOKEN_ARRAY;
		p = skip_container(scan, p);
	}
	else
		p = scan_scalar(scan, p, kind);
	if (p == NULL)
		return NULL;

	p = skip_space(p, scan->end);
	if (p < scan->end)
		return fail(scan, p, "expected the end of the record");
	return p;
}

static const char *
kind_name(SaTokenKind kind)
{
	switch (kind)
	{
		case SA_TOKEN_ARRAY:
			return "an array";
		case SA_TOKEN_NULL:
			return "null";
		case SA_TOKEN_NUMBER:
			return "a number";
		case SA_TOKEN_TRUE:
		case SA_TOKEN_FALSE:
			return "a boolean";
		default:
			return "a string";
	}
}

static void
trim_levels(SaJsonPaths *paths)
{
	if (paths->nlevels <= KEPT_LEVELS)
		return;
	pfree(paths->levels);
	paths->levels = NULL;
	paths->nlevels = 0;
}

bool
sa_json_scan(SaJsonPaths *paths, SaDecodeRun *run, const char *text, size_t size)
{
	Scan		scan = {.paths = paths,.run = run,.end = text + size};
	SaTokenKind kind;
	bool		valid;

	if (size == 0)
		return sa_decode_malformed(run, "the record is empty");
	valid = scan_top(&scan, text, &kind) != NULL;
	trim_levels(paths);
	if (!valid)
	{
		if (scan.at >= scan.end)
			return sa_decode_malformed(run, "invalid JSON: the record ends too early, at byte %zu", size);
		return sa_decode_malformed(run, "invalid JSON: %s at byte %zu", scan.trouble, (size_t) (scan.at - text) + 1);
	}
	if (kind != SA_TOKEN_OBJECT)
		return sa_decode_malformed(run, "the record is %s, not a JSON object", kind_name(kind));
	run->deep = scan.deepest > DEEP_LEVELS;
	return true;
}

/* ---------- strings ---------- */

static pg_wchar
hex_digits(const char *p)
{
	pg_wchar	value = 0;

	for (int i = 0; i < 4; i++)
		value = value << 4 | hex_value(p[i]);
	return value;
}

static void
append_unicode(SaDecodeRun *run, StringInfo out, pg_wchar c)
{
	unsigned char bytes[MAX_UNICODE_EQUIVALENT_STRING + 1];

	if (run->utf8 || c < 0x80)
	{
		unicode_to_utf8(c, bytes);
		appendBinaryStringInfo(out, (char *) bytes, pg_utf_mblen(bytes));
		return;
	}
	sa_decode_guard(run);
	pg_unicode_to_server(c, bytes);
	appendStringInfoString(out, (char *) bytes);
}

/* An escape with four digits, or two of them that are a surrogate pair, at p; NULL: it stands for no text. */
static const char *
append_unicode_escape(SaDecodeRun *run, StringInfo out, const char *p, const char *end)
{
	pg_wchar	c = hex_digits(p + 2);

	p += 6;
	if (c == 0)
	{
		sa_decode_malformed(run, "\\u0000 cannot be converted to text");
		return NULL;
	}
	if (is_utf16_surrogate_first(c) && end - p >= 6 && p[0] == '\\' && p[1] == 'u')
	{
		pg_wchar	second = hex_digits(p + 2);

		if (is_utf16_surrogate_second(second))
		{
			append_unicode(run, out, surrogate_pair_to_codepoint(c, second));
			return p + 6;
		}
	}
	if (is_utf16_surrogate_first(c) || is_utf16_surrogate_second(c))
	{
		sa_decode_malformed(run, "\\u%04x is half of a surrogate pair without the other", c);
		return NULL;
	}
	append_unicode(run, out, c);
	return p;
}

static char
plain_escape(char c)
{
	switch (c)
	{
		case 'b':
			return '\b';
		case 'f':
			return '\f';
		case 'n':
			return '\n';
		case 'r':
			return '\r';
		case 't':
			return '\t';
		default:
			return c;
	}
}

bool
sa_json_unescape(SaDecodeRun *run, StringInfo out, const char *text, size_t size)
{
	const char *p = text;
	const char *end = text + size;

	resetStringInfo(out);
	while (p < end)
	{
		const char *backslash = memchr(p, '\\', end - p);

		if (backslash == NULL)
			backslash = end;
		appendBinaryStringInfo(out, p, backslash - p);
		p = backslash;
		if (p >= end)
			break;
		if (p[1] == 'u')
		{
			p = append_unicode_escape(run, out, p, end);
			if (p == NULL)
				return false;
		}
		else
		{
			appendStringInfoChar(out, plain_escape(p[1]));
			p += 2;
		}
	}
	return true;
}
