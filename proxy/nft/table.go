package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// tableComment marks the layout of sets and chains. A table with another one is
// made anew; raise the number when a set's definition changes.
const tableComment = "Services of this node, kept by sluice (layout 1)"

// kernelTable is what the kernel has of our table.
type kernelTable struct {
	exists bool
	flags  uint32
	owner  uint32 // netlink port, 0 if none
	layout string // the comment
	// replaced says that the table was thrown away for a new one.
	replaced bool
	sets     map[string]kernelSet
	chains   map[string]kernelChain
}

// kernelChain is a chain that the kernel has.
type kernelChain struct {
	hook // the zero hook for a regular chain
	drop bool
}

// dormant is a table that packets do not see (NFT_TABLE_F_DORMANT of linux/netfilter/nf_tables.h).
const dormant = 1

type kernelSet struct{ flags, keyLen, dataLen uint32 }

// readTable reads all but the elements.
func (w *Writer) readTable() (kernelTable, error) {
	var t kernelTable
	err := w.conn.dump(nfproto(w.opts.Family), unix.NFT_MSG_GETTABLE, nil, func() { t = kernelTable{} }, func(attrs []byte) {
		var one kernelTable
		name := ""
		eachAttr(attrs, func(typ uint16, v []byte) {
			switch typ {
			case unix.NFTA_TABLE_NAME:
				name = cString(v)
			case unix.NFTA_TABLE_FLAGS:
				one.flags = be32(v)
			case nftaTableOwner:
				one.owner = be32(v)
			case nftaTableUserdata:
				one.layout = commentOf(v)
			}
		})
		if name == TableName {
			one.exists = true
			t = one
		}
	})
	if err != nil {
		return t, w.opts.explain(fmt.Errorf("list tables: %w", err))
	}
	if !t.exists {
		return t, nil
	}
	err = w.eachInTable(unix.NFT_MSG_GETSET, unix.NFTA_SET_NAME, func() { t.sets = map[string]kernelSet{} },
		func(name string, attrs []byte) { t.sets[name] = parseSet(attrs) })
	if err != nil {
		return t, fmt.Errorf("list the sets of table %s: %w", TableName, err)
	}
	err = w.eachInTable(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_NAME, func() { t.chains = map[string]kernelChain{} },
		func(name string, attrs []byte) { t.chains[name] = parseChainState(attrs) })
	if err != nil {
		return t, fmt.Errorf("list the chains of table %s: %w", TableName, err)
	}
	return t, nil
}

// eachInTable does so for our table.
func (w *Writer) eachInTable(typ uint8, nameAttr uint16, restart func(), fn func(name string, attrs []byte)) error {
	return w.conn.eachInTable(nfproto(w.opts.Family), TableName, typ, nameAttr, restart, fn)
}

// eachInTable calls fn for every set or chain of a table, with its name, or every rule, with its chain's. That attribute is
// nameAttr.
func (c *conn) eachInTable(family byte, wanted string, typ uint8, nameAttr uint16, restart func(), fn func(name string, attrs []byte)) error {
	const tableAttr = unix.NFTA_SET_TABLE // the same number as NFTA_CHAIN_TABLE and NFTA_RULE_TABLE
	inTable := func(s *stream) { s.text(tableAttr, wanted) }
	return c.dump(family, typ, inTable, restart, func(attrs []byte) {
		var name, table string
		eachAttr(attrs, func(typ uint16, v []byte) {
			switch typ {
			case tableAttr:
				table = cString(v)
			case nameAttr:
				name = cString(v)
			}
		})
		if table == wanted {
			fn(name, attrs)
		}
	})
}

func parseSet(attrs []byte) (s kernelSet) {
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_SET_FLAGS:
			s.flags = be32(v)
		case unix.NFTA_SET_KEY_LEN:
			s.keyLen = be32(v)
		case unix.NFTA_SET_DATA_LEN:
			s.dataLen = be32(v)
		}
	})
	return s
}

func parseChainState(attrs []byte) (c kernelChain) {
	eachAttr(attrs, func(typ uint16, v []byte) {
		if typ == unix.NFTA_CHAIN_POLICY {
			c.drop = be32(v) == nfDrop
		}
	})
	c.hook = parseHook(attrs)
	return c
}

// parseHook returns the zero hook for a regular chain.
func parseHook(attrs []byte) (h hook) {
	eachAttr(attrs, func(typ uint16, v []byte) {
		switch typ {
		case unix.NFTA_CHAIN_TYPE:
			h.typ = cString(v)
		case unix.NFTA_CHAIN_HOOK:
			eachAttr(v, func(typ uint16, v []byte) {
				switch typ {
				case unix.NFTA_HOOK_HOOKNUM:
					h.num = be32(v)
				case unix.NFTA_HOOK_PRIORITY:
					h.priority = int32(be32(v))
				}
			})
		}
	})
	return h
}

// fits says why the kernel's table cannot be gone on with; empty if it can.
func (t *kernelTable) fits(defs [setCount]setDef, chains []chainDef) string {
	if t.layout != tableComment {
		return fmt.Sprintf("its layout is %q", t.layout)
	}
	if len(t.sets) == 0 && len(t.chains) == 0 {
		return "" // just created
	}
	for i := range defs {
		d := &defs[i]
		got, ok := t.sets[d.name]
		if !ok {
			return "set " + d.name + " is missing"
		}
		want := kernelSet{flags: d.flags(), keyLen: length(d.key)}
		if d.data != nil {
			want.dataLen = length(d.data)
		} else if d.verdict {
			want.dataLen = got.dataLen // the size of a kernel struct
		}
		if got != want {
			return "set " + d.name + " is of another type"
		}
	}
	for _, c := range chains {
		// A base chain at another place is made anew; a regular one cannot be, while elements lead to it.
		if got, ok := t.chains[c.name]; ok && (got.hook == hook{}) != (c.hook == nil) {
			return fmt.Sprintf("chain %s has %v", c.name, got.hook)
		}
	}
	return ""
}
