package store

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt believes the pages it reads: damaged ones make it panic, recurse without end or
// read beyond the mapping. So a file is checked before bbolt sees it, by reads that
// cannot fault. What follows is bbolt's file format, version 2
// (go.etcd.io/bbolt/internal/common: page.go, meta.go, bucket.go), in host byte order.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeaderSize = 16 // id u64, flags u16, count u16, overflow u32
	elementSize    = 16 // branch: pos, ksize u32, page u64; leaf: flags, pos, ksize, vsize u32
	metaSize       = 64 // magic, version, page size, flags u32; root, sequence, freelist, pages, txid, checksum u64

	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10
	bucketLeaf   = 0x01 // flag of a leaf element

	maxDepth = 32
	// maxPages bounds the memory for one node. The largest object that an API server stores has 1.5 MiB.
	maxPages = 16 << 20 / pageSize
)

var order = binary.NativeEndian

// root is one of the two states that a file holds: the last commit's and the one before.
type root struct {
	page, freelist, pages, txid uint64
	header                      bool // of the meta pages is right; they have no checksum for it
}

// roots returns the states whose meta pages are whole, the newest first: bbolt uses that.
func roots(f io.ReaderAt) []root {
	var all []root
	header := true
	for i := range int64(2) {
		var page [pageHeaderSize + metaSize]byte
		if _, err := f.ReadAt(page[:], i*pageSize); err != nil {
			continue
		}
		m := page[pageHeaderSize:]
		sum := fnv.New64a()
		sum.Write(m[:metaSize-8])
		if order.Uint32(m) != boltMagic || order.Uint32(m[4:]) != boltVersion || order.Uint32(m[8:]) != pageSize ||
			order.Uint64(m[56:]) != sum.Sum64() {
			continue
		}
		header = header && order.Uint64(page[:]) == uint64(i) && order.Uint16(page[8:]) == metaPage
		all = append(all, root{page: order.Uint64(m[16:]), freelist: order.Uint64(m[32:]), pages: order.Uint64(m[40:]), txid: order.Uint64(m[48:])})
	}
	if len(all) == 2 && all[0].txid < all[1].txid {
		all[0], all[1] = all[1], all[0]
	}
	for i := range all {
		all[i].header = header
	}
	return all
}

// walk goes through the pages of one state.
type walk struct {
	f     io.ReaderAt
	pages uint64
	used  uint64   // pages that are reachable
	seen  []uint64 // bitmap of them
	bufs  [maxDepth][]byte
	// record is called for each record of a bucket; the slices are valid during the call.
	record func(bucket string, key, value []byte)
	// damage is the first fault that was found. The walk goes on beside it.
	damage error
}

func (w *walk) fault(format string, args ...any) {
	if w.damage == nil {
		w.damage = fmt.Errorf(format, args...)
	}
}

// run checks the pages of a state and hands over the records.
func (w *walk) run(f io.ReaderAt, size int64, r root) {
	w.f, w.pages = f, r.pages
	if r.pages > maxFileSize/pageSize || int64(r.pages)*pageSize > size {
		w.fault("the file is truncated: it has %d bytes and should have %d pages of %d", size, r.pages, pageSize)
		w.pages = uint64(size / pageSize)
	}
	if !r.header {
		w.fault("a meta page has the header of another")
	}
	w.seen = make([]uint64, w.pages/64+1)
	// Free pages first: where damage leads to one, older records are not taken for current ones.
	w.freelist(r.freelist)
	var before []byte
	w.tree(r.page, 0, &before, nil, func(flags uint32, key, value []byte) {
		if flags&bucketLeaf == 0 || len(value) < elementSize {
			w.fault("%q in the root is no bucket", key)
			return
		}
		w.bucket(string(key), value)
	})
}

// bucket checks a bucket from its entry in the root: page and sequence, then the
// page itself if it is small.
func (w *walk) bucket(name string, entry []byte) {
	leaf := func(flags uint32, key, value []byte) {
		if flags != 0 {
			w.fault("bucket %q holds another", name)
			return
		}
		w.record(name, key, value)
	}
	var before []byte
	if page := order.Uint64(entry); page != 0 {
		w.tree(page, 1, &before, nil, leaf)
		return
	}
	// bbolt would read an inline page that is not a leaf as one of the file.
	if inline := entry[elementSize:]; len(inline) < pageHeaderSize || order.Uint64(inline) != 0 || order.Uint16(inline[8:]) != leafPage {
		w.fault("bucket %q has a bad inline page", name)
	} else {
		w.elements(inline, 1, &before, nil, leaf)
	}
}

// tree checks a page and those below it. before is the last key that was passed, first what the page's first
// key must be; nil is any.
func (w *walk) tree(id uint64, depth int, before *[]byte, first []byte, leaf func(flags uint32, key, value []byte)) {
	if depth >= maxDepth {
		w.fault("pages are nested too deep")
		return
	}
	page, err := w.page(id, depth)
	if err != nil {
		w.fault("%w", err)
		return
	}
	if flags := order.Uint16(page[8:]); flags != branchPage && flags != leafPage {
		w.fault("page %d has unexpected type %#x", id, flags)
		return
	}
	w.elements(page, depth, before, first, leaf)
}

func (w *walk) elements(page []byte, depth int, before *[]byte, first []byte, leaf func(flags uint32, key, value []byte)) {
	count := int(order.Uint16(page[10:]))
	branch := order.Uint16(page[8:]) == branchPage
	if pageHeaderSize+count*elementSize > len(page) || branch && count == 0 {
		w.fault("page %d has %d elements", order.Uint64(page), count)
		return
	}
	for i := range count {
		at := pageHeaderSize + i*elementSize
		e := page[at : at+elementSize]
		head := e // pos, ksize
		var vsize uint64
		if !branch {
			head, vsize = e[4:], uint64(order.Uint32(e[12:]))
		}
		start := uint64(at) + uint64(order.Uint32(head))
		ksize := uint64(order.Uint32(head[4:]))
		if start+ksize+vsize > uint64(len(page)) {
			w.fault("an element of page %d reaches beyond it", order.Uint64(page))
			continue
		}
		key := page[start : start+ksize]
		if len(key) == 0 || *before != nil && string(*before) >= string(key) {
			w.fault("the keys of page %d are not in order", order.Uint64(page))
		}
		// bbolt finds the entry of a page that it changed by the page's first key (node.go: spill). Where it finds
		// none it makes another, and the page is in use twice.
		if i == 0 && first != nil && string(key) != string(first) {
			w.fault("page %d begins with another key than the one it is found by", order.Uint64(page))
		}
		if branch {
			w.tree(order.Uint64(e[8:]), depth+1, before, key, leaf)
			continue
		}
		*before = append((*before)[:0], key...)
		leaf(order.Uint32(e), key, page[start+ksize:start+ksize+vsize])
	}
}

// page reads a page with those that it overflows into, and marks them as used.
func (w *walk) page(id uint64, depth int) ([]byte, error) {
	var header [pageHeaderSize]byte
	if id < 2 || id >= w.pages {
		return nil, fmt.Errorf("page %d is outside of the file", id)
	}
	if _, err := w.f.ReadAt(header[:], int64(id)*pageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	n := uint64(order.Uint32(header[12:])) + 1
	if order.Uint64(header[:]) != id || n > maxPages || id+n > w.pages {
		return nil, fmt.Errorf("page %d has the header of another", id)
	}
	for p := id; p < id+n; p++ {
		if w.mark(p) {
			return nil, fmt.Errorf("page %d is used twice, or free", p)
		}
	}
	w.used += n
	if need := int(n) * pageSize; len(w.bufs[depth]) < need {
		w.bufs[depth] = make([]byte, need)
	}
	buf := w.bufs[depth][:n*pageSize]
	if _, err := w.f.ReadAt(buf, int64(id)*pageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return buf, nil
}

// mark notes that a page is accounted for; it tells whether it was before.
func (w *walk) mark(id uint64) bool {
	word, bit := &w.seen[id/64], uint64(1)<<(id%64)
	was := *word&bit != 0
	*word |= bit
	return was
}

// freelist marks the free pages. One that is in use, too, is found later: bbolt would write over it.
func (w *walk) freelist(id uint64) {
	page, err := w.page(id, 0)
	if err != nil {
		w.fault("freelist: %w", err)
		return
	}
	if flags := order.Uint16(page[8:]); flags != freelistPage {
		w.fault("freelist page %d has unexpected type %#x", id, flags)
		return
	}
	ids := page[pageHeaderSize:]
	count := uint64(order.Uint16(page[10:]))
	if count == 0xFFFF { // the count is the first element then
		count, ids = order.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids))/8 {
		w.fault("the freelist has %d entries, more than its pages hold", count)
		return
	}
	for i := range count {
		if p := order.Uint64(ids[i*8:]); p < 2 || p >= w.pages || w.mark(p) {
			w.fault("free page %d is listed twice, or outside of the file", p)
		}
	}
}
