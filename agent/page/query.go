package page

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"sluice/agent/status"
)

// query is what the page is asked for with.
type query struct {
	from    int // the first row
	sort    status.Key
	refresh int // seconds; 0 for never
}

// The orders of rows; the first is used when none is asked for.
var orders = []status.Key{status.ByName, status.ByRate, status.ByTotal, status.ByEndpoints}

const (
	maxRefresh = 3600
	maxFrom    = 1_000_000
)

func parseQuery(values url.Values) (q query, err error) {
	number := func(name string, least, most int) int {
		text := values.Get(name)
		if text == "" {
			return 0
		}
		n, e := strconv.Atoi(text)
		if e != nil || n < least || n > most {
			err = fmt.Errorf("%s=%q is not a number from %d to %d", name, text, least, most)
		}
		return n
	}
	q.from, q.refresh = number("from", 0, maxFrom), number("refresh", 1, maxRefresh)
	if q.sort = status.Key(values.Get("sort")); q.sort == "" {
		q.sort = orders[0]
	}
	if !slices.Contains(orders, q.sort) {
		err = fmt.Errorf("sort=%q is none of %q", q.sort, orders)
	}
	return q, err
}

// link is the address of this page with other values.
func (q query) link(change func(*query)) string {
	change(&q)
	values := url.Values{}
	if q.from > 0 {
		values.Set("from", strconv.Itoa(q.from))
	}
	if q.sort != orders[0] {
		values.Set("sort", string(q.sort))
	}
	if q.refresh > 0 {
		values.Set("refresh", strconv.Itoa(q.refresh))
	}
	if len(values) == 0 {
		return "/"
	}
	return "/?" + values.Encode()
}
