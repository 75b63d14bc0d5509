package nft

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/proxy"
	"sluice/proxy/netns"
	"sluice/test/lab"
)

// watched opens writers of both families that listen, and returns them with what each of them is told.
func watched(t *testing.T, n *lab.Namespace) (writers []*Writer, told []chan struct{}) {
	var peers Peers
	for _, f := range fixtures {
		w, err := New(Options{Family: f.Family, NetNS: n.FD(), Peers: &peers, Shared: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		writers = append(writers, w)
	}
	for _, w := range writers {
		changed := make(chan struct{}, 10)
		if err := w.Watch(t.Context(), func(proxy.Program) { changed <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		told = append(told, changed)
	}
	return writers, told
}

// many is a state whose first write is a large transaction.
func many(f fixture) *proxy.State {
	s := proxy.NewState(f.Family, f.settings())
	for i := range 2000 {
		p := plain(f, i, i)
		s.Set(p.Name, p)
	}
	return s
}

// subscribers counts the sockets in a namespace that get nf_tables' notifications.
func subscribers(t *testing.T, n *lab.Namespace) (count int) {
	t.Helper()
	err := netns.Do(n.FD(), func() error {
		f, err := os.Open("/proc/thread-self/net/netlink")
		if err != nil {
			return err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// The second column is the protocol, the fourth the groups.
			columns := strings.Fields(lines.Text())
			groups, err := strconv.ParseUint(columns[3], 16, 32)
			if err == nil && columns[1] == strconv.Itoa(unix.NETLINK_NETFILTER) && groups&(1<<(unix.NFNLGRP_NFTABLES-1)) != 0 {
				count++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// TestLargeTransactionsAreUnheard holds that nobody listens while a large transaction is made, which would take the kernel much
// memory, and that all listen afterwards and are told nothing.
func TestLargeTransactionsAreUnheard(t *testing.T) {
	n := lab.NewTestNamespace(t)
	writers, told := watched(t, n)
	if got := subscribers(t, n); got != 3 {
		t.Fatalf("%d sockets listen, want those of two writers and the one that hears who makes changes", got)
	}
	// What listens is looked at again and again meanwhile.
	ctx, cancel := context.WithCancel(t.Context())
	least := make(chan int)
	go func() {
		few := 3
		for ctx.Err() == nil {
			few = min(few, subscribers(t, n))
		}
		least <- few
	}()
	for i, f := range fixtures {
		reconcile(t, writers[i], many(f))
	}
	cancel()
	if got := <-least; got != 0 {
		t.Errorf("%d sockets listened to large transactions, want none", got)
	}
	if got := subscribers(t, n); got != 3 {
		t.Errorf("%d sockets listen afterwards, want 3", got)
	}
	time.Sleep(2 * loud)
	if len(told[0])+len(told[1]) != 0 {
		t.Error("the writers' own changes were told of as foreign")
	}
}

// TestChangesDuringLargeTransactions has another program make a change while nobody listens.
func TestChangesDuringLargeTransactions(t *testing.T) {
	n := lab.NewTestNamespace(t)
	writers, told := watched(t, n)
	for i, f := range fixtures {
		reconcile(t, writers[i], many(f))
	}
	harm := func() { n.Must(t, "nft", "flush map ip sluice endpoints ; flush map ip6 sluice endpoints") }
	own := func() error {
		writers[0].batch.newTable("other", 0)
		writers[0].batch.deleteTable("other")
		return writers[0].conn.commit(writers[0].batch)
	}
	for _, commit := range []func() error{
		func() error { harm(); return own() },
		func() error { defer harm(); return own() },
	} {
		if err := writers[0].opts.Peers.unheard(writers[0].conn, commit); err != nil {
			t.Fatal(err)
		}
		for i, f := range fixtures {
			select {
			case <-told[i]:
			case <-time.After(2 * time.Second):
				t.Errorf("%v: not noticed", f.Family)
			}
			if stats := reconcile(t, writers[i], many(f)); stats.Added == 0 {
				t.Errorf("%v: nothing was mended", f.Family)
			}
		}
	}
}

// TestForeignChangeUnderWay has another program's large transaction be under way when one of ours begins: the kernel has
// counted it, and not told of it yet. It is noticed all the same.
func TestForeignChangeUnderWay(t *testing.T) {
	n := lab.NewTestNamespace(t)
	writers, told := watched(t, n)
	w, f := writers[0], fixtures[0]
	reconcile(t, w, many(f))
	n.Must(t, "nft", "add table ip foo ; add set ip foo s { type ipv4_addr ; }")
	var foreign strings.Builder
	foreign.WriteString("flush map ip sluice endpoints\nadd element ip foo s { ")
	for i := range 60000 { // so that it takes a while
		fmt.Fprintf(&foreign, "11.%d.%d.%d, ", i>>16, i>>8&255, i&255)
	}
	foreign.WriteString("}\n")
	for i := range 3000 {
		w.batch.addElement(addrKey(clusterIPs, nth(f.services, 20000+i)), elemValue{})
	}
	other, err := dial(n.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	before, err := other.generation()
	if err != nil {
		t.Fatal(err)
	}
	for len(told[0]) > 0 {
		<-told[0]
	}
	done := make(chan error, 1)
	go func() {
		_, err := n.Run(t.Context(), foreign.String(), "nft", "-f", "-")
		done <- err
	}()
	// The moment between counting and telling is short: this thread is to see it.
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if now, err := other.generation(); err == nil && now != before {
			break
		}
	}
	err = w.commit(w.batch)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0)
	runtime.UnlockOSThread()
	if foreignErr := <-done; err != nil || foreignErr != nil {
		t.Fatal(err, foreignErr)
	}
	select {
	case <-told[0]:
	case <-time.After(5 * time.Second):
		t.Error("the endpoints were flushed, and nobody was told")
	}
}

// TestASocketThatFailsIsOpenedAgain closes the sockets that listen, which the kernel does not do on demand.
func TestASocketThatFailsIsOpenedAgain(t *testing.T) {
	n := lab.NewTestNamespace(t)
	writers, told := watched(t, n)
	peers := writers[0].opts.Peers
	peers.mu.Lock()
	for _, l := range peers.listeners {
		if l.nl != peers.makers.conn.nl {
			l.nl.Close()
		}
	}
	peers.mu.Unlock()
	for i, f := range fixtures {
		reconcile(t, writers[i], many(f)) // while nobody listens, or the sockets are closed
	}
	heard := func(i int, what string) {
		t.Helper()
		select {
		case <-told[i]:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: %s was not told of", fixtures[i].Family, what)
		}
	}
	for i, f := range fixtures {
		heard(i, "what may have been missed")
		for len(told[i]) > 0 {
			<-told[i]
		}
		n.Must(t, "nft", fmt.Sprintf("add chain %s sluice stray", familyName(nfproto(f.Family))))
		heard(i, "a change after that")
	}
	if got := subscribers(t, n); got != 3 {
		t.Errorf("%d sockets listen, want those of two writers and the one that hears who makes changes", got)
	}
}
