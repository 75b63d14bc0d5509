package iptables

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
)

// saved is what iptables-save told of one chain.
type saved struct {
	digest digest
	rules  int
}

// reader takes in the lines of iptables-save for one table, one after the other.
type reader struct {
	// chain is called for each chain of ours, rule for each of its rules: the whole line, and
	// the chain's name in it. They are valid during the call only.
	chain func(name []byte)
	rule  func(name, line []byte)
	// lead is called for each rule of another chain that leads to one of ours.
	lead func(line []byte)
}

// maxLine is the longest line that iptables-save may have.
const maxLine = 1 << 20

// read runs iptables-save for one table.
func (w *Writer) read(ctx context.Context, t table, r reader) error {
	err := Run(ctx, w.opts.NetNS, nil, func(in io.Reader) error {
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 0, 4096), maxLine)
		for lines.Scan() {
			r.line(lines.Bytes())
		}
		return lines.Err()
	}, w.variant.Save, "-t", t.String())
	if err != nil {
		return fmt.Errorf("read back table %s (%v): %w", t, w.opts.Family, explain(err))
	}
	return nil
}

var (
	prefixBytes = []byte(prefix)
	leads       = [...][]byte{[]byte(" -j " + prefix), []byte(" -g " + prefix)}
)

func (r reader) line(line []byte) {
	if rest, ok := bytes.CutPrefix(line, []byte(":")); ok {
		name, _, _ := bytes.Cut(rest, []byte(" "))
		if r.chain != nil && bytes.HasPrefix(name, prefixBytes) {
			r.chain(name)
		}
		return
	}
	rest, ok := bytes.CutPrefix(line, []byte("-A "))
	if !ok {
		return
	}
	name, _, _ := bytes.Cut(rest, []byte(" "))
	switch {
	case bytes.HasPrefix(name, prefixBytes):
		if r.rule != nil {
			r.rule(name, line)
		}
	case r.lead != nil && (bytes.Contains(line, leads[0]) || bytes.Contains(line, leads[1])):
		r.lead(line)
	}
}
