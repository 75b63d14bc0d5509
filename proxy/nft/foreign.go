package nft

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// TableExists tells whether there is a table of that name in the family. Where the kernel has no nf_tables there is none.
func TableExists(opts Options, name string) (bool, error) {
	return opts.anyHas(unix.NFT_MSG_GETTABLE, unix.NFTA_TABLE_NAME, func(n string) bool { return n == name })
}

// ChainsExist tells whether any table of the family has a chain whose name begins with prefix. Where the kernel has no
// nf_tables there is none.
func ChainsExist(opts Options, prefix string) (bool, error) {
	return opts.anyHas(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_NAME, func(n string) bool { return strings.HasPrefix(n, prefix) })
}

// anyHas tells whether the name of any object of a kind is wanted.
func (o Options) anyHas(get uint8, attr uint16, wanted func(name string) bool) (found bool, err error) {
	c, err := dial(o.NetNS)
	if err == nil {
		defer c.Close()
		err = c.dump(nfproto(o.Family), get, nil, func() { found = false }, func(attrs []byte) {
			eachAttr(attrs, func(typ uint16, v []byte) {
				found = found || typ == attr && wanted(cString(v))
			})
		})
	}
	if absent(err) {
		return false, nil
	}
	return found, o.explain(err)
}

// absent tells whether an error says that the kernel has no nf_tables, or not for this family.
func absent(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || // no nfnetlink
		errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || // which has no such subsystem
		errors.Is(err, unix.EAFNOSUPPORT)
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
