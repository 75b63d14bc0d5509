package iptables

import (
	"bytes"
	"context"
	"hash/maphash"
)

// fingerprint stands for all chains of ours and our rules that lead to them. It is a sum, so that a change of one chain
// costs no look at the others.
type fingerprint struct {
	rules digest // all of them, word for word
	shape digest // which chains there are, with how many rules, and what leads to them
}

func (f fingerprint) plus(o fingerprint) fingerprint {
	return fingerprint{f.rules + o.rules, f.shape + o.shape}
}

func (f fingerprint) minus(o fingerprint) fingerprint {
	return fingerprint{f.rules - o.rules, f.shape - o.shape}
}

// chainPrint is a chain's part of the sum. d and rules are 0 for one without rules.
func chainPrint(t table, name string, d digest, rules int) fingerprint {
	return chainPrintOf(t, maphash.String(seed, name), d, rules)
}

func chainPrintOf(t table, name uint64, d digest, rules int) fingerprint {
	both := digest(name) + digest(t)
	return fingerprint{mix(both) + mix(both^d), mix(both + digest(rules)<<8)}
}

// leadPrint is the part of a rule of ours in a chain of the system.
func leadPrint(t table, line []byte) fingerprint {
	from, _, _ := bytes.Cut(bytes.TrimPrefix(line, []byte("-A ")), []byte(" "))
	return fingerprint{
		rules: mix(digest(maphash.Bytes(seed, line)) + digest(t)),
		shape: mix(digest(maphash.Bytes(seed, from)) ^ mix(digest(maphash.Bytes(seed, Target(line)))+digest(t))),
	}
}

// mix makes all bits depend on all, as the finalizer of MurmurHash3 does.
func mix(d digest) digest {
	d ^= d >> 33
	d *= 0xff51afd7ed558ccd
	d ^= d >> 33
	d *= 0xc4ceb9fe1a85ec53
	return d ^ d>>33
}

// readFingerprint reads all that is ours back.
func (w *Writer) readFingerprint(ctx context.Context) (all fingerprint, err error) {
	for t := range tableCount {
		var current []byte
		var d digest
		rules := 0
		flush := func() {
			if rules > 0 {
				name := maphash.Bytes(seed, current)
				// Without rules it was counted where the chain was named.
				all = all.plus(chainPrintOf(t, name, d, rules)).minus(chainPrintOf(t, name, 0, 0))
			}
			d, rules = 0, 0
		}
		err := w.read(ctx, t, reader{
			chain: func(name []byte) { all = all.plus(chainPrintOf(t, maphash.Bytes(seed, name), 0, 0)) },
			rule: func(name, line []byte) {
				if !bytes.Equal(name, current) {
					flush()
					current = append(current[:0], name...)
				}
				d = d.add(line)
				rules++
			},
			lead: func(line []byte, own bool, behind []byte) {
				if own {
					all = all.plus(leadPrint(t, line))
				}
				if own && behind != nil { // it is not to be behind anything
					all = all.plus(leadPrint(t, behind))
				}
			},
		})
		if err != nil {
			return fingerprint{}, err
		}
		flush()
	}
	return all, nil
}
