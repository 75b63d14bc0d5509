package counters

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/proxy"
	"sluice/proxy/nft"
)

// counter is what the kernel says of a frontend, whose connections begin with packets of 60 bytes.
func counter(addr, servicePort string, packets uint64) nft.Counter {
	return nft.Counter{
		Frontend:    proxy.Frontend{Addr: netip.MustParseAddr(addr), Port: 80, Protocol: proxy.TCP},
		ServicePort: []byte(servicePort), Packets: packets, Bytes: 60 * packets,
	}
}

// kernel is what is read.
type kernel struct {
	counters []nft.Counter
	err      error
	reads    int
	time     time.Time
}

func (k *kernel) read(_ proxy.Family, fn func(nft.Counter)) error {
	k.reads++
	for _, c := range k.counters {
		fn(c)
	}
	return k.err
}

func (k *kernel) meter() *Meter {
	k.time = time.Unix(1_800_000_000, 0)
	return NewMeter([]proxy.Family{proxy.IPv4}, k.read, func() time.Time { return k.time })
}

// sums reads after a second and returns the connections by Service.
func (k *kernel) sums(t *testing.T, m *Meter) map[string]uint64 {
	t.Helper()
	k.time = k.time.Add(time.Second)
	r, err := m.Read()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for name, s := range r.Sums {
		got[name.String()] = s.Connections
		if s.FirstBytes != 60*s.Connections {
			t.Errorf("%v: %d connections and %d bytes", name, s.Connections, s.FirstBytes)
		}
	}
	return got
}

func TestMeterNeverGoesBack(t *testing.T) {
	var k kernel
	m := k.meter()
	for i, step := range []struct {
		counters []nft.Counter
		want     map[string]uint64
	}{
		{nil, map[string]uint64{}},
		{[]nft.Counter{counter("10.43.0.1", "shop/web:http", 5), counter("192.0.2.1", "shop/web:http", 2)}, map[string]uint64{"shop/web": 7}},
		// Told of twice.
		{[]nft.Counter{counter("10.43.0.1", "shop/web:http", 6), counter("10.43.0.1", "shop/web:http", 6), counter("192.0.2.1", "shop/web:http", 2)},
			map[string]uint64{"shop/web": 8}},
		// One begins at 0 again, the other is missing for once.
		{[]nft.Counter{counter("10.43.0.1", "shop/web:http", 1)}, map[string]uint64{"shop/web": 9}},
		{[]nft.Counter{counter("10.43.0.1", "shop/web:http", 1), counter("192.0.2.1", "shop/web:http", 3)}, map[string]uint64{"shop/web": 10}},
		// The address belongs to another Service, whose name begins alike.
		{[]nft.Counter{counter("10.43.0.1", "shop/web2", 4)}, map[string]uint64{"shop/web": 10, "shop/web2": 4}},
		{nil, map[string]uint64{"shop/web": 10, "shop/web2": 4}},
		{[]nft.Counter{counter("10.43.0.2", "not of the agent", 4)}, map[string]uint64{"shop/web": 10, "shop/web2": 4}},
	} {
		k.counters = step.counters
		if diff := cmp.Diff(step.want, k.sums(t, m)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	k.time = k.time.Add(keep)
	if got := k.sums(t, m); len(got) != 0 || len(m.frontends)+len(m.sums) != 0 {
		t.Errorf("what is long gone is still there: %v", got)
	}
}

func TestMeterSharesAReading(t *testing.T) {
	var k kernel
	m := k.meter()
	first := k.sums(t, m)
	k.counters = []nft.Counter{counter("10.43.0.1", "shop/web", 5)}
	k.time = k.time.Add(share - 1)
	r, err := m.Read()
	if err != nil || len(r.Sums) != len(first) || k.reads != 1 {
		t.Errorf("%v, %v, %d looks at the kernel", r, err, k.reads)
	}
	k.err = errors.New("no")
	k.time = k.time.Add(time.Second)
	if _, err := m.Read(); err == nil {
		t.Error("no error")
	}
	k.err = nil
	k.counters[0].Packets, k.counters[0].Bytes = 6, 360
	if got := k.sums(t, m)["shop/web"]; got != 6 {
		t.Errorf("%d connections after an error", got)
	}
	m.Forget()
	k.counters = []nft.Counter{counter("10.43.0.1", "shop/web", 2)}
	if got := k.sums(t, m)["shop/web"]; got != 2 {
		t.Errorf("%d connections after Forget", got)
	}
}
