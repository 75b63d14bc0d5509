package iptables

import (
	"bufio"
	"io"
	"maps"
	"slices"

	"sluice/proxy"
)

// edit is one change while it is put together.
type edit struct {
	w       *Writer
	written [tableCount][]text
	deleted [tableCount][]string
	stats   proxy.Stats
}

// text is a chain that is written.
type text struct{ name, rules string }

// tables is the number of tables that change.
func (e *edit) tables() (n int) {
	for t := range tableCount {
		if len(e.written[t])+len(e.deleted[t]) > 0 {
			n++
		}
	}
	return n
}

// put writes a chain if the kernel has it otherwise.
func (e *edit) put(c *chain) {
	k, had := e.w.known[c.table][c.name]
	if had && k.digest == c.digest {
		e.stats.Unchanged += c.rules
		return
	}
	e.stats.Added += c.rules
	e.stats.Removed += int(k.rules)
	if had {
		e.w.print = e.w.print.minus(chainPrint(c.table, c.name, k.digest, int(k.rules)))
	}
	e.w.print = e.w.print.plus(chainPrint(c.table, c.name, c.digest, c.rules))
	k.digest, k.rules = c.digest, int32(c.rules)
	e.w.known[c.table][c.name] = k
	e.written[c.table] = append(e.written[c.table], text{c.name, string(c.text)})
}

// drop deletes a chain, if there is one.
func (e *edit) drop(t table, name string) {
	k, had := e.w.known[t][name]
	if !had {
		return
	}
	e.stats.Removed += int(k.rules)
	e.w.print = e.w.print.minus(chainPrint(t, name, k.digest, int(k.rules)))
	delete(e.w.known[t], name)
	e.deleted[t] = append(e.deleted[t], name)
}

// routes writes the chains of routes.
func (e *edit) routes(d *proxy.Delta) {
	type ref struct {
		t    table
		name string
	}
	released := map[ref]struct{}{}
	count := func(c *chain, n int32) {
		if k, had := e.w.known[c.table][c.name]; had {
			k.refs += n
			e.w.known[c.table][c.name] = k
		}
	}
	c := &e.w.chain
	for i := range d.Frontends {
		f := &d.Frontends[i]
		e.w.rules.routeChains(c, f.Frontend, f.Old, func(c *chain) {
			count(c, -1)
			released[ref{c.table, c.name}] = struct{}{}
		})
	}
	for i := range d.Frontends {
		f := &d.Frontends[i]
		e.w.rules.routeChains(c, f.Frontend, f.New, func(c *chain) {
			e.put(c)
			count(c, 1)
		})
	}
	for r := range released { // in any order: each line of the input concerns one chain
		if e.w.known[r.t][r.name].refs <= 0 {
			e.drop(r.t, r.name)
		}
	}
}

// touched is a chain of a trie that may have to be written.
type touched struct {
	trie   int
	of     proxy.Frontend
	digits int
}

// dispatch brings the tries up to date and writes those of their chains that differ.
func (e *edit) dispatch(d *proxy.Delta) {
	rs := e.w.rules
	changed := rs.changes(&e.w.chain, d)
	all := map[string]touched{}
	note := func() {
		for _, ch := range changed {
			if ch.differs {
				rs.tries[ch.trie].near(&ch.entry.Frontend, func(n node) {
					all[rs.tries[ch.trie].name(n)] = touched{ch.trie, n.of, n.digits}
				})
			}
		}
	}
	note()
	for _, ch := range changed {
		rs.tries[ch.trie].set(ch.entry, ch.present)
	}
	note()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := all[name]
		t := &rs.tries[at.trie]
		n, ok := t.find(&at.of, at.digits)
		if !ok {
			e.drop(t.table, name)
			continue
		}
		t.render(&e.w.chain, n)
		e.put(&e.w.chain)
	}
}

// input writes what iptables-restore is to do.
func (e *edit) input(to io.Writer) error {
	var tables [tableCount]tableInput
	for t := range tableCount {
		in := &tables[t]
		for _, c := range e.written[t] {
			in.chains = append(in.chains, c.name)
		}
		in.deleted = e.deleted[t]
		in.rules = func(to *bufio.Writer) {
			for _, c := range e.written[t] {
				to.WriteString(c.rules)
			}
		}
	}
	return writeInput(to, &tables)
}
