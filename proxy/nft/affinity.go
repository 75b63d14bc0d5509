package nft

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy"
)

// affinityPools counts, for every pool with affinity, the frontends that use it.
type affinityPools map[uint32]int

// each calls fn for the pools with affinity of a route.
func eachAffinityPool(r *proxy.Route, fn func(*proxy.Pool)) {
	if r == nil || r.Affinity == 0 {
		return
	}
	fn(r.Pool)
	if r.LocalPool != nil {
		fn(r.LocalPool)
	}
}

// affinityEntry is an endpoint that clients of a pool may be bound to.
type affinityEntry struct {
	pool     uint32
	endpoint netip.AddrPort
}

// lost returns a test for the affinity entries that a change makes wrong: those of
// endpoints that left a pool, and all of a pool that no frontend uses any more.
// It is nil if there can be none. It brings the counts up to date.
func (p affinityPools) lost(changes []proxy.FrontendChange) func(affinityEntry) bool {
	gone := map[affinityEntry]bool{}
	unused := map[uint32]bool{}
	for _, c := range changes {
		eachAffinityPool(c.Old, func(pool *proxy.Pool) {
			p[pool.AffinityID]--
			for _, e := range pool.Slots {
				gone[affinityEntry{pool.AffinityID, e}] = true
			}
		})
	}
	for _, c := range changes {
		eachAffinityPool(c.New, func(pool *proxy.Pool) {
			p[pool.AffinityID]++
			for _, e := range pool.Slots {
				delete(gone, affinityEntry{pool.AffinityID, e})
			}
		})
	}
	for _, c := range changes {
		eachAffinityPool(c.Old, func(pool *proxy.Pool) {
			if p[pool.AffinityID] <= 0 {
				delete(p, pool.AffinityID)
				unused[pool.AffinityID] = true
			}
		})
	}
	if len(gone)+len(unused) == 0 {
		return nil
	}
	return func(e affinityEntry) bool { return gone[e] || unused[e.pool] }
}

// allowed returns a test for entries that no route of the state allows, and counts the pools anew.
func (p affinityPools) allowed(s *proxy.State) (wrong func(affinityEntry) bool) {
	clear(p)
	good := map[affinityEntry]bool{}
	for _, r := range s.Routes() {
		eachAffinityPool(r, func(pool *proxy.Pool) {
			p[pool.AffinityID]++
			for _, e := range pool.Slots {
				good[affinityEntry{pool.AffinityID, e}] = true
			}
		})
	}
	return func(e affinityEntry) bool { return !good[e] }
}

type boundClient struct {
	key     elemKey
	value   elemValue
	expires time.Duration
}

// boundClients reads the entries of the affinity map that wrong picks.
func (w *Writer) boundClients(wrong func(affinityEntry) bool) ([]boundClient, error) {
	var found []boundClient
	err := w.readElements(affinity, func() { found = found[:0] }, func(k elemKey, v elemValue, expires time.Duration) bool {
		if wrong(affinityEntry{binary.NativeEndian.Uint32(k.b[:]), v.endpoint()}) {
			found = append(found, boundClient{k, v, expires})
		}
		return false // packets change it all the time
	})
	return found, err
}

// expiresSoon is the time within which an entry may be gone before the kernel is
// told to remove it, which would fail the transaction.
const expiresSoon = 5 * time.Second

// forgetWith adds to the batch the removal of entries that wrong picks. Some may be left for forget.
func (w *Writer) forgetWith(b *batch, wrong func(affinityEntry) bool) error {
	found, err := w.boundClients(wrong)
	for _, c := range found {
		if c.expires > expiresSoon {
			b.deleteElement(c.key, c.value)
		}
	}
	return err
}

// forget removes the entries that wrong picks and that were learned, or left,
// until the change of the rules was in force.
func (w *Writer) forget(wrong func(affinityEntry) bool) error {
	for {
		found, err := w.boundClients(wrong)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, c := range found {
			w.batch.deleteElement(c.key, c.value)
		}
		err = w.commit(w.batch)
		if err == nil {
			continue // a packet on its way may have brought one back
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		for _, c := range found { // one of them expired: one by one, then
			w.batch.deleteElement(c.key, c.value)
			if err := w.commit(w.batch); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
}
