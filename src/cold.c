/*
 * cold.c
 *		Groups that are out of memory.
 *
 * Invariant: pages split the range of hashes evenly; in a page, entries stand in the order of their hashes, in memory
 * of just their size.  Removed ones stay, without a place, until the page is next written.
 *
 * It says where a group with this hash may be: whether it is the one, only its keys on disk can tell.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "cold.h"

#define PAGE_ENTRIES 1024		/* more on average: every page is split */

typedef struct Page
{
	uint32		n;
	uint32		removed;
	char	   *entries;		/* NULL: n is 0 */
} Page;

struct SaCold
{
	MemoryContext cxt;
	bool		places;
	bool		rows;
	Size		width;			/* of an entry */
	int			bits;			/* of a hash that tell its page */
	Page	   *pages;
	int64		count;
};

SaCold *
sa_cold_create(MemoryContext cxt, bool places, bool rows)
{
	SaCold	   *cold = MemoryContextAllocZero(cxt, sizeof(SaCold));

	Assert(places || rows);
	cold->cxt = cxt;
	cold->places = places;
	cold->rows = rows;
	cold->width = sizeof(uint32) + (places ? sizeof(SaPlace) : 0) + (rows ? sizeof(ItemPointerData) : 0);
	cold->pages = MemoryContextAllocZero(cxt, sizeof(Page));
	return cold;
}

int64
sa_cold_count(const SaCold *cold)
{
	return cold->count;
}

/* --- entries as bytes --- */

static uint32
hash_at(const SaCold *cold, const Page *page, uint32 i)
{
	uint32		hash;

	memcpy(&hash, page->entries + i * cold->width, sizeof(hash));
	return hash;
}

static void
put_entry(const SaCold *cold, char *to, const SaColdEntry *entry)
{
	memcpy(to, &entry->hash, sizeof(uint32));
	to += sizeof(uint32);
	if (cold->places)
	{
		memcpy(to, &entry->place, sizeof(SaPlace));
		to += sizeof(SaPlace);
	}
	if (cold->rows)
		memcpy(to, &entry->row, sizeof(ItemPointerData));
}

static void
get_entry(const SaCold *cold, const char *from, SaColdEntry *entry)
{
	memcpy(&entry->hash, from, sizeof(uint32));
	from += sizeof(uint32);
	ItemPointerSetInvalid(&entry->place.chunk);
	entry->place.index = 0;
	ItemPointerSetInvalid(&entry->row);
	if (cold->places)
	{
		memcpy(&entry->place, from, sizeof(SaPlace));
		from += sizeof(SaPlace);
	}
	if (cold->rows)
		memcpy(&entry->row, from, sizeof(ItemPointerData));
}

static bool
is_removed(const SaCold *cold, const SaColdEntry *entry)
{
	return !ItemPointerIsValid(cold->places ? &entry->place.chunk : &entry->row);
}

/* --- adding --- */

static uint32
page_of(const SaCold *cold, uint32 hash)
{
	return (uint64) hash >> (32 - cold->bits);
}

/* The first entry of the page whose hash is not less. */
static uint32
find_in_page(const SaCold *cold, const Page *page, uint32 hash)
{
	uint32		lo = 0;
	uint32		hi = page->n;

	while (lo < hi)
	{
		uint32		middle = (lo + hi) / 2;

		if (hash_at(cold, page, middle) < hash)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

static char *
allocate(SaCold *cold, uint32 n)
{
	return n == 0 ? NULL : MemoryContextAllocHuge(cold->cxt, n * cold->width);
}

/* Put the entries that are left in the page and these into new memory. */
static void
merge_page(SaCold *cold, Page *page, const SaColdEntry *entries, uint32 n)
{
	Page		merged = {.n = page->n - page->removed + n};
	char	   *to = merged.entries = allocate(cold, merged.n);
	uint32		j = 0;

	for (uint32 i = 0; i < page->n; i++)
	{
		SaColdEntry entry;

		get_entry(cold, page->entries + i * cold->width, &entry);
		if (is_removed(cold, &entry))
			continue;
		for (; j < n && entries[j].hash < entry.hash; j++, to += cold->width)
			put_entry(cold, to, &entries[j]);
		memcpy(to, page->entries + i * cold->width, cold->width);
		to += cold->width;
	}
	for (; j < n; j++, to += cold->width)
		put_entry(cold, to, &entries[j]);
	if (page->entries)
		pfree(page->entries);
	*page = merged;
}

/* Its two halves as pages of their own. */
static void
split_page(SaCold *cold, Page *page, uint32 middle, Page *halves)
{
	uint32		at = find_in_page(cold, page, middle);

	halves[0].n = at;
	halves[1].n = page->n - at;
	for (int i = 0; i < 2; i++)
	{
		halves[i].entries = allocate(cold, halves[i].n);
		if (halves[i].n > 0)
			memcpy(halves[i].entries, page->entries + (i == 0 ? 0 : at) * cold->width, halves[i].n * cold->width);
	}
	if (page->entries)
		pfree(page->entries);
}

static void
split_pages(SaCold *cold)
{
	uint64		n = UINT64CONST(1) << cold->bits;
	Page	   *pages = MemoryContextAllocExtended(cold->cxt, sizeof(Page) * n * 2, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint64 i = 0; i < n; i++)
	{
		if (cold->pages[i].removed > 0)
			merge_page(cold, &cold->pages[i], NULL, 0);
		split_page(cold, &cold->pages[i], (uint32) ((2 * i + 1) << (31 - cold->bits)), &pages[2 * i]);
	}
	pfree(cold->pages);
	cold->pages = pages;
	cold->bits++;
}

#define ST_SORT sort_entries
#define ST_ELEMENT_TYPE SaColdEntry
#define ST_COMPARE(a, b) ((a)->hash < (b)->hash ? -1 : (a)->hash > (b)->hash)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

void
sa_cold_add(SaCold *cold, SaColdEntry *entries, int64 n)
{
	int64		from = 0;

	sort_entries(entries, n);
	while (cold->bits < 31 && cold->count + n > (INT64CONST(1) << cold->bits) * PAGE_ENTRIES)
		split_pages(cold);
	while (from < n)
	{
		uint32		page = page_of(cold, entries[from].hash);
		int64		to = from + 1;

		while (to < n && page_of(cold, entries[to].hash) == page)
			to++;
		merge_page(cold, &cold->pages[page], &entries[from], to - from);
		cold->count += to - from;
		from = to;
	}
}

/* --- searching --- */

void
sa_cold_search(SaColdSearch *search, SaCold *cold, uint32 hash)
{
	search->cold = cold;
	search->hash = hash;
	search->page = page_of(cold, hash);
	search->next = find_in_page(cold, &cold->pages[search->page], hash);
}

bool
sa_cold_next(SaColdSearch *search)
{
	SaCold	   *cold = search->cold;
	Page	   *page = &cold->pages[search->page];

	while (search->next < page->n && hash_at(cold, page, search->next) == search->hash)
	{
		get_entry(cold, page->entries + search->next++ * cold->width, &search->found);
		if (!is_removed(cold, &search->found))
			return true;
	}
	return false;
}

void
sa_cold_walk(SaColdSearch *search, SaCold *cold)
{
	search->cold = cold;
	search->page = 0;
	search->next = 0;
}

bool
sa_cold_next_of_all(SaColdSearch *search)
{
	SaCold	   *cold = search->cold;

	for (; search->page < UINT64CONST(1) << cold->bits; search->page++, search->next = 0)
	{
		Page	   *page = &cold->pages[search->page];

		while (search->next < page->n)
		{
			get_entry(cold, page->entries + search->next++ * cold->width, &search->found);
			if (!is_removed(cold, &search->found))
				return true;
		}
	}
	return false;
}

/* Where the entry found last is. */
static char *
found_at(SaColdSearch *search)
{
	return search->cold->pages[search->page].entries + (search->next - 1) * search->cold->width;
}

void
sa_cold_remove(SaColdSearch *search)
{
	SaColdEntry entry = {.hash = search->found.hash};

	ItemPointerSetInvalid(&entry.place.chunk);
	ItemPointerSetInvalid(&entry.row);
	put_entry(search->cold, found_at(search), &entry);
	search->cold->pages[search->page].removed++;
	search->cold->count--;
}

void
sa_cold_move(SaColdSearch *search, SaPlace place)
{
	search->found.place = place;
	put_entry(search->cold, found_at(search), &search->found);
}

void
sa_cold_set_row(SaColdSearch *search, const ItemPointerData *row)
{
	Assert(search->cold->places && search->cold->rows);
	search->found.row = *row;
	put_entry(search->cold, found_at(search), &search->found);
}
