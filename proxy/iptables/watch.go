package iptables

import (
	"context"
	"hash/maphash"
)

// summand is the part of a chain in the sum over all chains.
func summand(t table, name string, d digest) digest {
	h := digest(maphash.String(seed, name)) + d*0x9e3779b97f4a7c15 + digest(t)
	return h ^ h>>29
}

// Watch implements proxy.Writer.
func (w *Writer) Watch(ctx context.Context, changed func()) error { return nil }
