package e2e

import (
	"encoding/binary"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/agent/status"
	"sluice/test/cluster"
	"sluice/test/rig"
)

// loadTime is the length of testLoad.
var loadTime = flag.Duration("load", 8*time.Second, "how long endpoints change in the test of load; 10m are what docs/performance.md has")

const (
	// loadRate is how many endpoints change in a second, of loadServices with loadEndpoints each.
	loadRate, loadServices, loadEndpoints = 1000, 100, 10
	// loadLate is how long a change may take from the event to the kernel, at the 99th percentile. It waits 100 ms at most for
	// the write before it; the rest is for a busy machine.
	loadLate = 3 * time.Second
	// loadMemory is how much the agent's own memory may grow between the half and the end.
	loadMemory = 4 << 20
)

// load are Services whose endpoints change all the time, more often than a real API server could let them.
type load struct {
	*badEnv
	endpoints [loadServices][]netip.Addr
	changes   int
	heard     *heard
}

// testLoad changes endpoints at loadRate, and measures how long each change takes until it is in the kernel. In the end the kernel
// has what a plan from scratch has.
func testLoad(e *badEnv) {
	e.apply(e.service("web", "vip2"))
	e.apply(e.slices("web", "pod2")...)
	l := &load{badEnv: e}
	var all []cluster.Object
	for i := range l.endpoints {
		for range loadEndpoints {
			l.endpoints[i] = append(l.endpoints[i], l.next())
		}
		all = append(all, l.service(i), l.slice(i))
	}
	e.each(all, func(obj cluster.Object) error { return e.cluster.Create(e.T.Context(), obj) })
	defer func() {
		e.each(all, func(obj cluster.Object) error { return e.cluster.Delete(e.T.Context(), obj) })
	}()
	e.Run()
	complete := func(s status.Status) bool { return rig.Settled(s) && s.Families[0].Services >= loadServices+2 }
	e.Await(rig.Patience, "all Services", complete)
	time.Sleep(2 * time.Second) // what the start needed is given back
	e.between.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != cluster.SlicesPath || r.URL.Query().Get("watch") != "true" {
			return false
		}
		e.between.Hold(w, r)
		return true
	})
	e.between.EndWatches()
	e.followed()
	l.heard = hear(e.env)
	clients := e.Connect(20*time.Millisecond, "pod1 tcp vip2:80")

	begun, cpu := time.Now(), e.CPU()
	sizes := []sample{l.size()}
	l.change(*loadTime / 2)
	sizes = append(sizes, l.size())
	l.change(*loadTime / 2)
	sizes = append(sizes, l.size())
	lasted, used := time.Since(begun), e.CPU()-cpu
	e.Eventually(rig.Patience, "all changes in the kernel", func() bool { return l.heard.waiting() == 0 })
	took := l.heard.end()
	slices.Sort(took)
	median, late := took[len(took)/2], took[len(took)*99/100]
	e.T.Logf("%d endpoints changed in %v, %.0f a second: %v from the event to the kernel in the median, %v at the 99th percentile, %v at most; CPU %.1f %% of one core",
		len(took), lasted.Round(time.Millisecond), float64(len(took))/lasted.Seconds(), median, late, took[len(took)-1], 100*used.Seconds()/lasted.Seconds())
	for i, when := range []string{"at the start", "at half of the time", "at the end"} {
		e.T.Logf("%s: RSS %.1f MB, of its own %.1f MB", when, sizes[i].rss/1e6, sizes[i].anonymous/1e6)
	}
	if late > loadLate {
		e.T.Errorf("1 %% of the changes took %v or longer", late)
	}
	if sizes[2].anonymous > sizes[1].anonymous+loadMemory {
		e.T.Error("the memory grew")
	}
	rig.EndUndisturbed(e.T, clients, "pod2:8080")
	l.checkRules(all)
}

// checkRules compares the kernel with what was sent, and with a plan from scratch of what the server has when that is the same.
func (l *load) checkRules(all []cluster.Object) {
	l.T.Helper()
	l.nothingToMend()
	text := l.OnNode("nft", "list", "map", "ip", "sluice", "endpoints")
	for i := range l.endpoints {
		for _, a := range l.endpoints[i] {
			if n := strings.Count(text, " : "+a.String()+" . 8080"); n != 1 {
				l.T.Errorf("%v is %d times among the endpoints in the kernel", a, n)
			}
		}
		all[2*i+1] = l.slice(i)
	}
	l.each(all, func(obj cluster.Object) error { return l.cluster.Apply(l.T.Context(), obj) })
	l.between.Answer(nil)
	l.relist()
	l.Await(inStep, "everything read anew", rig.Settled)
	l.nothingToMend()
	out, errs, _ := l.Command(append([]string{"agent", "--dry-run", "--kubeconfig", l.Kubeconfig, "--hostname-override", "node"}, l.Args...)...)
	if errs != "" || !strings.Contains(out, "source     API server ") || !strings.Contains(out, "the kernel has all that it should have") {
		l.T.Errorf("a plan from scratch is another one: %s%s", errs, out)
	}
}

func (l *load) size() sample {
	return sample{anonymous: float64(l.Memory("RssAnon")), rss: float64(l.Memory("VmRSS"))}
}

// next is an address that no endpoint had for long: 10.200.0.0 to 10.207.255.255.
func (l *load) next() netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24|200<<16|uint32(l.changes)&(1<<19-1))
	l.changes++
	return netip.AddrFrom4(a)
}

func (l *load) service(i int) *corev1.Service {
	return serviceAt(fmt.Sprint("load-", i), fmt.Sprint("10.96.110.", 1+i), 80)
}

func (l *load) slice(i int) *discoveryv1.EndpointSlice {
	name := fmt.Sprint("load-", i)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}}
	for _, a := range l.endpoints[i] {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: new("node2")})
	}
	return s
}

// change replaces one endpoint after the other at loadRate.
func (l *load) change(lasts time.Duration) {
	l.T.Helper()
	begun := time.Now()
	for n := 0; ; n++ {
		due := begun.Add(time.Duration(n) * time.Second / loadRate)
		if due.Sub(begun) >= lasts {
			return
		}
		time.Sleep(time.Until(due))
		i := n % loadServices
		fresh := l.next()
		l.endpoints[i] = append(l.endpoints[i][1:], fresh)
		frame := l.encode(event{kind: watch.Modified, object: l.slice(i)})
		l.heard.expect(fresh)
		for {
			watches, err := l.between.Send(cluster.SlicesPath, frame)
			if err == nil && watches == 1 {
				break
			}
			if time.Since(due) > inStep {
				l.T.Fatalf("an event went into %d watches: %v", watches, err)
			}
			time.Sleep(time.Millisecond) // a watch came to its end, and there is no new one yet
		}
	}
}

// heard tells when addresses came into the kernel's rules.
type heard struct {
	conn *netlink.Conn
	done chan struct{}

	mu   sync.Mutex
	sent map[[4]byte]time.Time
	took []time.Duration
	err  error
}

// hearBuffer holds the kernel's notifications, in bytes.
const hearBuffer = 64 << 20

func hear(e *env) *heard {
	e.T.Helper()
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: e.NS.FD(), Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	e.must(err)
	e.must(conn.SetReadBuffer(hearBuffer))
	h := &heard{conn: conn, done: make(chan struct{}), sent: map[[4]byte]time.Time{}}
	go h.run()
	e.T.Cleanup(func() {
		_ = conn.Close()
		<-h.done
		if h.err != nil {
			e.T.Errorf("listen to nf_tables: %v", h.err)
		}
	})
	return h
}

// run looks for the addresses in elements that came, and counts them when their transaction is over.
func (h *heard) run() {
	defer close(h.done)
	var came [][4]byte
	for {
		messages, err := h.conn.Receive()
		if err != nil {
			h.mu.Lock()
			if len(h.sent) > 0 {
				h.err = err
			}
			h.mu.Unlock()
			return
		}
		now := time.Now()
		h.mu.Lock()
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM:
				for at := 0; at+4 <= len(m.Data); at += 4 { // attributes are aligned
					if a := [4]byte(m.Data[at:]); a[0] == 10 && a[1] >= 200 {
						if _, known := h.sent[a]; known {
							came = append(came, a)
						}
					}
				}
			case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN:
				for _, a := range came {
					if at, known := h.sent[a]; known {
						h.took = append(h.took, now.Sub(at))
						delete(h.sent, a)
					}
				}
				came = came[:0]
			}
		}
		h.mu.Unlock()
	}
}

// expect notes that the event with an address is sent now.
func (h *heard) expect(a netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[a.As4()] = time.Now()
}

// waiting is how many addresses did not come yet.
func (h *heard) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sent)
}

func (h *heard) end() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.took
}
