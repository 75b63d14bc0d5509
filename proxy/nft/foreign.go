package nft

import (
	"errors"

	"golang.org/x/sys/unix"
)

// TableExists tells whether there is a table of that name in the family. Where the kernel has no nf_tables there is none.
func TableExists(opts Options, name string) (bool, error) {
	c, err := dial(opts.NetNS)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer c.Close()
	found := false
	err = c.dump(nfproto(opts.Family), unix.NFT_MSG_GETTABLE, nil, func() { found = false }, func(attrs []byte) {
		eachAttr(attrs, func(typ uint16, v []byte) {
			found = found || typ == unix.NFTA_TABLE_NAME && cString(v) == name
		})
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return false, nil // nfnetlink has no such subsystem, nf_tables no such family
	}
	return found, opts.explain(err)
}

// DeleteTable removes another program's table; it is no error if there is none.
func DeleteTable(opts Options, name string) error {
	c, err := dial(opts.NetNS)
	if err != nil {
		return err
	}
	defer c.Close()
	b := newBatch(opts.Family, &c.seq)
	b.deleteTable(name)
	if err := c.commit(b); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
