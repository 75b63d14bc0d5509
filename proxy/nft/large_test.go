package nft

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/test/lab"
)

// TestTransactionsWithoutRoom has changes be larger than the socket takes, once by its own reckoning and once by the kernel's word, which
// is as if there were no memory for them: what was there stays, the error says what to do, and a Reconcile in pieces makes it good.
func TestTransactionsWithoutRoom(t *testing.T) {
	for name, shrink := range map[string]func(w *Writer) (restore func()){
		"too large for the socket": func(w *Writer) func() {
			w.conn.sendLimit = 64 << 10
			return func() {} // pieces fit
		},
		"refused by the kernel": func(w *Writer) func() {
			if err := w.conn.nl.SetWriteBuffer(8 << 10); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := w.conn.nl.SetWriteBuffer(wantedSend); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		for _, f := range fixtures {
			t.Run(name+"/"+f.Family.String(), func(t *testing.T) {
				n := lab.NewTestNamespace(t)
				w, err := New(Options{Family: f.Family, NetNS: n.FD()})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				before, after := proxy.NewState(f.Family, f.settings()), proxy.NewState(f.Family, f.settings())
				var delta proxy.Delta
				for i := range 1000 {
					p := plain(f, i, i)
					if i < 10 {
						before.Set(p.Name, p)
						after.Set(p.Name, p)
					} else {
						proxy.Merge(&delta, after.Set(p.Name, p))
					}
				}
				reconcile(t, w, before)
				restore := shrink(w)
				_, err = w.Apply(t.Context(), &delta)
				if err == nil || !errors.Is(err, errTooBig) && !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ENOBUFS) {
					t.Fatalf("%v, want that there is no room", err)
				}
				if !strings.Contains(err.Error(), "raise net.core.wmem_max") && !strings.Contains(err.Error(), "free some, or have fewer Services") {
					t.Errorf("the error has no remedy: %v", err)
				}
				if found := compare(t, n, f, before); len(found) > 0 {
					t.Errorf("what was there is no more as it was: %v", found[:min(len(found), 3)])
				}
				restore()
				reconcile(t, w, after)
				if found := compare(t, n, f, after); len(found) > 0 {
					t.Errorf("afterwards the kernel is not as wanted, %d differences: %v", len(found), found[:min(len(found), 3)])
				}
			})
		}
	}
}
