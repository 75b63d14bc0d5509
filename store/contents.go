package store

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sluice/agent/source"
)

var (
	errForeign = errors.New("it is the file of another program")
	errSchema  = errors.New("another version of sluice wrote it, in a layout that this one does not know")
)

// contents is what a check finds in one of a file's states.
type contents struct {
	identity map[string]string
	inStep   map[source.Kind]step
	counts   map[source.Kind]int
	used     uint64 // pages in use
	pages    uint64 // pages in use or free

	schema     string
	skipped    int // records with a bad CRC
	found, say digest
	damage     error // nil if everything is as it was written
}

// readContents checks one of a file's states. It hands records whose CRC is right to take, if that is not nil.
func readContents(f io.ReaderAt, size int64, r root, take func(g groupKey, member string, value []byte)) *contents {
	c := &contents{identity: map[string]string{}, inStep: map[source.Kind]step{}, counts: map[source.Kind]int{}}
	foreign, hasDigest := "", false
	w := walk{record: func(name string, key, value []byte) {
		b, known := bucketByName(name)
		if !known {
			foreign = name
			return
		}
		if b == meta && string(key) == schemaKey {
			c.schema = string(value)
			return
		}
		if b == meta && string(key) == digestKey {
			c.say, hasDigest = parseDigest(value)
			return
		}
		c.found.add(value)
		g, member := split(b, string(key))
		payload, err := unseal(g, member, value)
		if err != nil {
			c.skipped++
			return
		}
		c.note(g, member, payload)
		if take != nil {
			take(g, member, value)
		}
	}}
	w.run(f, size, r)
	c.used, c.pages = w.used, r.pages
	empty := c.found.count == 0 && c.schema == "" && w.damage == nil // made, but nothing was committed
	switch {
	case foreign != "":
		c.damage = fmt.Errorf("%w: it has a bucket %q", errForeign, foreign)
	case c.schema != schemaVersion && c.schema != "":
		c.damage = fmt.Errorf("%w (version %.20q, here %q)", errSchema, c.schema, schemaVersion)
	case w.damage != nil:
		c.damage = w.damage
	case c.skipped > 0:
		c.damage = fmt.Errorf("%d records have a wrong checksum", c.skipped)
	case !empty && (!hasDigest || c.schema == ""):
		c.damage = errors.New("its digest is missing")
	case c.found != c.say:
		c.damage = fmt.Errorf("pages are of an older state: %d records, not the %d that were written last", c.found.count, c.say.count)
	}
	return c
}

func bucketByName(name string) (bucket, bool) {
	i := slices.Index(bucketNames[:], name)
	return bucket(i), i >= 0
}

// note takes in what a record tells about all the others.
func (c *contents) note(g groupKey, member string, payload []byte) {
	if kind := kindOf(g, member); kind != "" {
		c.counts[kind]++
	}
	if g.bucket != meta {
		return
	}
	if fact, ok := strings.CutPrefix(g.name, identityPrefix); ok {
		c.identity[fact] = string(payload)
	}
	if kind, ok := strings.CutPrefix(g.name, inStepPrefix); ok {
		if s, ok := parseStep(string(payload)); ok {
			c.inStep[source.Kind(kind)] = s
		}
	}
}

// kindOf tells which kind of object a record holds, "" if none.
func kindOf(g groupKey, member string) source.Kind {
	switch g.bucket {
	case objects:
		if member == "" {
			return source.Service
		}
		return source.EndpointSlice
	case cluster:
		kind, _, _ := strings.Cut(g.name, "/")
		return source.Kind(kind)
	}
	return ""
}

// objectCount is how many objects there are.
func (c *contents) objectCount() int {
	n := 0
	for _, count := range c.counts {
		n += count
	}
	return n
}

// complete tells whether all Services and EndpointSlices were there when the file was written last.
func complete(inStep map[source.Kind]step) bool {
	_, services := inStep[source.Service]
	_, endpointSlices := inStep[source.EndpointSlice]
	return services && endpointSlices
}
